"""Validating messages against their format's JSON Schema, before they are decoded: opt-in (``validate=True``), by ``jsonschema``.

Decoding refuses what it cannot read, and looks at no more than it needs. A schema says what an envelope has to be as a whole: the
fields that a format does not read, too. It knows nothing of the columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Any

from .errors import FormatOptionError, MissingDependencyError, SchemaValidationError
from .json_reader import read_json

DRAFT = "https://json-schema.org/draft/2020-12/schema"
"""The dialect of all schemas."""

_LOOKED_AT = 100  # errors of one message, of which the one that says most is shown
_EXPECTED = 160
_TYPES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", type(None): "null"}


def packaged_schema(identifier: str) -> dict[str, Any] | None:
    """Return the JSON Schema that is shipped for a format, None where there is none; a zip will do."""
    from importlib.resources import files  # 30 ms, which only those who ask have to wait for

    file = files(__package__).joinpath("json_schemas", f"{identifier}.json")
    if not file.is_file():
        return None
    schema: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return schema


def message_validator(identifier: str, schema: dict[str, Any] | None) -> Callable[[bytes], None]:
    """Return the function that refuses a message which is not as the schema says.

    Parameters
    ----------
    identifier : str
        The format's, for errors.
    schema : dict or None
        JSON Schema, draft 2020-12.

    Raises
    ------
    FormatOptionError
        When there is no schema, or what is given is none.
    MissingDependencyError
        When ``jsonschema`` is not installed.
    SchemaValidationError, MalformedMessageError
        From the returned function.
    """
    if schema is None:
        raise FormatOptionError(f"{identifier} has no JSON Schema, so that validate=True has nothing to go by")
    return _compiled(identifier, json.dumps(schema))


@lru_cache(maxsize=32)
def _compiled(identifier: str, text: str) -> Callable[[bytes], None]:
    # A stream makes its decoder anew for each task, and compiling takes longer than a task's first message may wait.
    try:
        from jsonschema import Draft202012Validator, SchemaError
        from jsonschema.exceptions import best_match
        from referencing import Registry
    except ImportError as error:
        raise MissingDependencyError("validate=True needs jsonschema: pip install 'pyspark-kafka-changelog[validate]'") from error
    schema = json.loads(text)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise FormatOptionError(f"the JSON Schema of {identifier} is none: {error.message[:200]}") from None
    validator = Draft202012Validator(schema, registry=Registry())  # an empty one: nothing is fetched

    def check(value: bytes) -> None:
        error = best_match(islice(validator.iter_errors(read_json(value)), _LOOKED_AT))
        if error is not None:
            raise _refusal(error)

    return check


def _refusal(error: Any) -> SchemaValidationError:
    keyword, wanted, got = error.validator, error.validator_value, error.instance
    path = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    kind = _TYPES.get(type(got), "number")
    if keyword == "required":
        reason = f"missing {', '.join(f'`{name}`' for name in wanted if name not in got)}"
        return SchemaValidationError(reason, path)
    if keyword == "type":
        names = wanted if isinstance(wanted, str) else " or ".join(wanted)
        return SchemaValidationError(f"expected `{names}`, got `{kind}`", path)
    wanted_text = " or ".join(map(str, wanted)) if keyword == "enum" else f"{keyword} {json.dumps(wanted)}"
    expected = f"expected {_cut(wanted_text, _EXPECTED)}, got `{kind}`"
    shown = f" {_cut(ascii(got), 60)}" if isinstance(got, str | int | bool) else ""
    return SchemaValidationError(expected + shown, path, bare=expected)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "..."
