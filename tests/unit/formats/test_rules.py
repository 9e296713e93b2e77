"""Each format's own rules: a record, its rows in a changelog, and its changes of a keyed stage.

`ERROR_TEXTS=write pytest FILE` writes the results into `tests/vectors/rules`. Read the difference in
the review.
"""

import os
from typing import Any

import msgspec
import pytest

from cdc_formats import Change, Ignored, KeyedChange, get_format
from cdc_formats.errors import DecodeError
from normalize.decode.collectors import Blocks, TypedRows
from tests.support.both_decoders import differences, natively, odd_places, source_of, together
from tests.support.scenarios import VECTORS, Line

Result = list[str] | str | None


class Rule(Line, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A record with its results: an error's sentence, the reason why it has no rows, or the rows.

    Attributes
    ----------
    rows, changes : list of str or str
        The results of `Decoder.decode` and, with a primary key, of `Decoder.upserts`.
    alone : bool
        Whether the columnar decoder leaves the record to the scalar one.
    """

    metadata: list[str] = msgspec.field(default_factory=list)
    positions: bool = False
    rows: Result = None
    changes: Result = None
    alone: bool = False


def shown(change: Change | KeyedChange) -> str:
    if isinstance(change, Change):
        text, more = f"{change.kind.short_string}{change.row}", {}
    else:
        text = f"{change.key}: {change.row}"
        more = {"position": change.position, "moved from": change.moved_from}
    more = {"metadata": change.metadata, **more}
    return "; ".join([text, *(f"{name} {value}" for name, value in more.items() if value)])


def result(decode: Any, rule: Rule) -> Result:
    try:
        changes = decode(*rule.record)
    except DecodeError as error:
        return f"{type(error).__name__}: {error}"
    return changes.name if isinstance(changes, Ignored) else list(map(shown, changes))


def decided(identifier: str, rule: Rule) -> Rule:
    """Return the rule with the results of both decoders, which are the same."""
    format = get_format(identifier, **rule.options)
    decoder = format.decoder(
        rule.schema, unique_key=rule.primary_key, metadata=rule.metadata, positions=rule.positions
    )
    rule = msgspec.structs.replace(rule, rows=result(decoder.decode, rule))
    plan = source_of(
        format,
        rule.schema,
        rule.primary_key,
        {name: name for name in rule.metadata},
        positions=rule.positions,
    )
    if not rule.positions:
        assert not differences(plan, [rule.record], TypedRows)
    if not rule.primary_key:
        return rule
    for columnar in (together, natively):
        assert not differences(plan, [rule.record], Blocks, columnar=columnar)
    alone = together(plan, keyed=True) is not None and odd_places(plan, [rule.record]) == [0]
    return msgspec.structs.replace(rule, changes=result(decoder.upserts, rule), alone=alone)


RULES = [
    (path.stem, msgspec.json.decode(line, type=Rule))
    for path in sorted((VECTORS / "rules").glob("*.jsonl"))
    for line in path.read_bytes().splitlines()
]


@pytest.mark.parametrize(
    ("identifier", "rule"), RULES, ids=[f"{name}, {rule.why}" for name, rule in RULES]
)
def test_a_record_has_its_rows_and_changes(identifier: str, rule: Rule) -> None:
    path = VECTORS / "rules" / f"{identifier}.jsonl"
    if os.environ.get("ERROR_TEXTS") == "write":
        line, new = map(msgspec.json.encode, (rule, decided(identifier, rule)))
        path.write_bytes(path.read_bytes().replace(line, new))
    else:
        assert decided(identifier, rule) == rule
