"""The docstrings of the public names: every parameter, result and unit is described."""

import inspect
import re
from enum import Enum

import pytest

import capture
from cdc_formats import Decoder, Format
from tests.support.public_names import PUBLIC

MADE_ELSEWHERE = (
    Decoder,
    Format,
)  # Format.decoder makes the one; users write the other, and MessageFormat describes its options
CALLABLES = {
    name: value
    for name, value in {**PUBLIC, "capture.register": capture.register}.items()
    if callable(value)
    and value not in MADE_ELSEWHERE
    and not (inspect.isclass(value) and issubclass(value, Enum))
}
DURATION = re.compile("(^|_)(timeout|lag|pause|delay|wait|interval|retention|ttl|age)(_|$)")


def described(docstring: str) -> list[str]:
    """Return the parameters and attributes that a numpydoc docstring describes.

    They are described alone, or several in one line.
    """
    sections = re.findall(
        r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}$|\Z)", docstring, re.M | re.S
    )
    lines = [
        line.split(" : ")[0]
        for section in sections
        for line in section.splitlines()
        if line[:1].strip()
    ]
    return [name.strip(" *") for line in lines for name in line.split(",")]


@pytest.mark.parametrize("name", CALLABLES)
def test_every_parameter_is_described(name):
    documented = described(inspect.getdoc(CALLABLES[name]) or "")
    parameters = list(inspect.signature(CALLABLES[name]).parameters)
    assert [parameter for parameter in parameters if parameter not in documented] == []
    assert len(documented) == len(set(documented))


@pytest.mark.parametrize(
    "name", [name for name, value in CALLABLES.items() if inspect.isfunction(value)]
)
def test_the_result_of_every_function_is_described(name):
    docstring = inspect.getdoc(CALLABLES[name]) or ""
    returns_nothing = inspect.signature(CALLABLES[name]).return_annotation in (None, "None")
    assert (
        returns_nothing
        or re.search(r"^Returns\n-+$", docstring, re.M)
        or docstring.startswith(("Return ", "Apply ", "Register "))
    )


@pytest.mark.parametrize("name", CALLABLES)
def test_a_duration_has_its_unit_in_its_name_or_is_a_timedelta(name):
    durations = [
        each
        for each in inspect.signature(CALLABLES[name]).parameters.values()
        if DURATION.search(each.name)
    ]
    assert [
        each.name
        for each in durations
        if not each.name.endswith("_seconds") and "timedelta" not in str(each.annotation)
    ] == []
