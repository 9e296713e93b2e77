"""Opt-in validation of messages against their format's JSON Schema before decoding.

``validate=True`` turns it on; it uses ``jsonschema``.

Decoding only checks the fields that it reads. A schema describes the whole envelope, including
fields that the format does not read. It does not contain the declared columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Any

from cdc_formats.errors import FormatOptionError, MissingDependencyError, SchemaValidationError
from cdc_formats.values.json_reader import read_json

DRAFT = "https://json-schema.org/draft/2020-12/schema"
"""The dialect of all schemas."""

_LOOKED_AT = 100  # errors of one message; the most specific one is shown
_EXPECTED = 160
_TYPES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    type(None): "null",
}


def packaged_schema(identifier: str) -> dict[str, Any] | None:
    """Return the JSON Schema shipped with a format, or None; this also works from a zip."""
    from importlib.resources import files  # takes 30 ms, so only on request

    file = files("cdc_formats.formats").joinpath("json_schemas", f"{identifier}.json")
    if not file.is_file():
        return None
    schema: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return schema


def message_validator(identifier: str, schema: dict[str, Any] | None) -> Callable[[bytes], None]:
    """Return a function that raises for messages that do not match the schema.

    Parameters
    ----------
    identifier : str
        The format's identifier, for errors.
    schema : dict or None
        JSON Schema, draft 2020-12.

    Raises
    ------
    FormatOptionError
        When there is no schema, or it is invalid.
    MissingDependencyError
        When ``jsonschema`` is not installed.
    SchemaValidationError, MalformedMessageError
        From the returned function.
    """
    if schema is None:
        raise FormatOptionError(f"{identifier} has no JSON Schema: remove validate=True")
    return _compiled(identifier, json.dumps(schema))


@lru_cache(maxsize=32)
def _compiled(identifier: str, text: str) -> Callable[[bytes], None]:
    # A stream creates a decoder for each task, and compiling takes too long to delay each task's
    # first message.
    try:
        from jsonschema import Draft202012Validator, SchemaError
        from jsonschema.exceptions import best_match
        from referencing import Registry
    except ImportError as error:
        raise MissingDependencyError(
            "validate=True needs jsonschema: pip install 'pyspark-kafka-changelog[validate]'"
        ) from error
    schema = json.loads(text)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise FormatOptionError(
            f"the JSON Schema of {identifier} is invalid: {error.message[:200]}"
        ) from None
    validator = Draft202012Validator(
        schema, registry=Registry()
    )  # an empty registry: nothing is fetched

    def check(value: bytes) -> None:
        error = best_match(islice(validator.iter_errors(read_json(value)), _LOOKED_AT))
        if error is not None:
            raise _refusal(error)

    return check


def _refusal(error: Any) -> SchemaValidationError:
    keyword, allowed, got = error.validator, error.validator_value, error.instance
    path = "$" + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path
    )
    kind = _TYPES.get(type(got), "number")
    if keyword == "required":
        reason = f"missing {', '.join(f'`{name}`' for name in allowed if name not in got)}"
        return SchemaValidationError(reason, path)
    if keyword == "type":
        names = allowed if isinstance(allowed, str) else " or ".join(allowed)
        return SchemaValidationError(f"expected `{names}`, got `{kind}`", path)
    allowed_text = (
        " or ".join(map(str, allowed)) if keyword == "enum" else f"{keyword} {json.dumps(allowed)}"
    )
    expected = f"expected {_cut(allowed_text, _EXPECTED)}, got `{kind}`"
    shown = f" {_cut(ascii(got), 60)}" if isinstance(got, str | int | bool) else ""
    return SchemaValidationError(expected + shown, path, bare=expected)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "..."
