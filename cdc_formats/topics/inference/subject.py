"""Schema inference from a registry alone: the newest schemas of a topic's subjects, no records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cdc_formats.errors import ArgumentError, InferenceError, SchemaError
from cdc_formats.format import Format
from cdc_formats.topics.sampler import sampler_of

from .infer import InferredSchema
from .reading import named_format
from .sample import ColumnEvidence
from .source_types import avro_columns, field_names

if TYPE_CHECKING:
    from cdc_formats.avro.schema_registry import Registry

_VALUE, _KEY = "-value", "-key"


def infer_subject(subject: str, *, format: str | Format, **options: Any) -> InferredSchema:
    """Infer the columns and the primary key from the newest schema of a subject.

    Parameters
    ----------
    subject : str
        The subject of a topic's values, for example ``orders-value``. The primary key is taken from
        ``orders-key``, if registered.
    format : str or Format
        ``debezium-avro-confluent``, or ``upsert-kafka`` with its registry's options.
    **options
        Format options, when `format` is a name.

    Raises
    ------
    InferenceError
        When the registry has no such subject, or its schema does not describe a table.
    ArgumentError
        When the format has no registry, or options are passed with a format that is not a name.
    SchemaRegistryError
        When the registry does not answer.
    """
    chosen = named_format(format, options)
    registry = sampler_of(chosen).registry
    if registry is None:
        raise ArgumentError(
            f"{chosen.identifier} does not use a schema registry: call infer_schema() with a sample"
        )
    registry.require_url("url")
    schema = registry.client.newest(subject)
    if schema is None:
        raise InferenceError(f"the schema registry at {registry.url} has no subject {subject!r}")
    try:
        declared = avro_columns(schema.top, names=schema.names)
    except SchemaError as error:
        raise InferenceError(
            f"the newest schema of {subject!r} does not describe a table: {error.args[0]}"
        ) from None
    key_subject = subject.removesuffix(_VALUE) + _KEY
    key = (
        _key(registry, key_subject, {each.column.name for each in declared})
        if subject.endswith(_VALUE)
        else ()
    )
    evidence = [
        ColumnEvidence(
            replace(each.column, nullable=each.column.nullable and each.column.name not in key),
            "schema registry",
            each.source_type,
            notes=(each.note,) if each.note else (),
        )
        for each in declared
    ]
    return InferredSchema(
        format=chosen.identifier,
        evidence=tuple(evidence),
        primary_key=key,
        primary_key_reason=f"the fields of {key_subject}"
        if key
        else "the registry has no key subject with these columns",
        format_options=options,
        option_reasons={},
        tables=(),
        records=0,
        rows=0,
        ignored={},
    )


def _key(registry: Registry, subject: str, columns: set[str]) -> tuple[str, ...]:
    schema = registry.client.newest(subject)
    try:
        names = () if schema is None else field_names(schema.top, names=schema.names)
    except SchemaError:
        return ()
    return names if set(names) <= columns else ()
