"""Absent is not null: row images, and how one completes another."""

import copy
import pickle

import pytest

from cdc_formats import ABSENT
from cdc_formats.values.schema import absent_as_null, complete


def test_absent_stays_one_object_when_copied_or_pickled() -> None:
    assert pickle.loads(pickle.dumps(ABSENT)) is ABSENT
    assert copy.deepcopy(ABSENT) is ABSENT
    assert copy.copy(ABSENT) is ABSENT
    assert repr(ABSENT) == "ABSENT"


def test_absent_equals_nothing_else() -> None:
    assert not any(other == ABSENT for other in (None, "", "ABSENT", 0, False, [], {}))


@pytest.mark.parametrize(
    ("image", "other", "result"),
    [
        pytest.param(
            (1, ABSENT, None),
            (1, "scooter", 3.14),
            (1, "scooter", None),
            id="absent is taken from the other, null stays",
        ),
        pytest.param((ABSENT, ABSENT), (1, None), (1, None), id="every value is absent"),
        pytest.param((1, 2), (ABSENT, ABSENT), (1, 2), id="nothing is absent"),
        pytest.param((ABSENT, 2), (ABSENT, 3), (ABSENT, 2), id="absent in both stays absent"),
        pytest.param((), (), (), id="no columns"),
    ],
)
def test_complete(image: tuple, other: tuple, result: tuple) -> None:
    assert complete(image, other) == result


def test_complete_refuses_images_of_different_tables() -> None:
    with pytest.raises(ValueError, match="zip"):
        complete((1,), (1, 2))


def test_absent_as_null() -> None:
    assert absent_as_null((1, ABSENT, None)) == (1, None, None)
