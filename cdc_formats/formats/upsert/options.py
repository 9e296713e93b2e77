"""The options of upsert-kafka, for the format and for the row formats of its key and value."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, TypeVar

from cdc_formats.avro.registry_options import RegistryOptions
from cdc_formats.errors import FormatOptionError, MissingDependencyError
from cdc_formats.format import Format
from cdc_formats.message_format import choice
from cdc_formats.values.masks import DROP

if TYPE_CHECKING:
    from cdc_formats.avro.schema_registry import Registry

C = TypeVar("C", bound=type)

ROW_FORMAT_NAMES = ("json", "csv", "raw", "avro", "avro-confluent")
"""Flink's names of the row formats."""
_REGISTRY = "avro_confluent_"


def _with_registry_options(cls: C) -> C:
    """Add `RegistryOptions`' fields, with prefixed names, to a class that becomes a dataclass."""
    for option in fields(RegistryOptions):
        cls.__annotations__[_REGISTRY + option.name] = option.type
        setattr(cls, _REGISTRY + option.name, field(default=option.default, repr=option.repr))
    return cls


@dataclass(frozen=True, kw_only=True)
@_with_registry_options
class UpsertOptions(Format):
    """The options of `UpsertKafka`, which documents them."""

    key_format: str = choice(*ROW_FORMAT_NAMES)
    value_format: str = choice(*ROW_FORMAT_NAMES)
    key_fields_prefix: str = ""
    value_fields_include: str = choice("ALL", "EXCEPT_KEY")
    json_null: str = choice("fail", "delete")
    json_timestamp_format_standard: str = choice("SQL", "ISO-8601")
    csv_field_delimiter: str = ","
    csv_quote_character: str = '"'
    csv_escape_character: str | None = None
    csv_null_literal: str | None = None
    csv_array_element_delimiter: str = ";"
    raw_charset: str = "UTF-8"
    raw_endianness: str = choice("big-endian", "little-endian")
    avro_confluent_auto_register_schemas: bool = True
    key_avro_confluent_subject: str | None = None
    value_avro_confluent_subject: str | None = None
    time_zone: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key_fields_prefix and self.value_fields_include == "ALL":
            raise FormatOptionError(
                "upsert-kafka: key_fields_prefix needs value_fields_include='EXCEPT_KEY', or the "
                "fields would overlap"
            )
        for name in ("csv_field_delimiter", "csv_quote_character", "csv_escape_character"):
            optional = name != "csv_field_delimiter"
            if len(getattr(self, name) or " " * optional) != 1:
                raise FormatOptionError(
                    f"upsert-kafka: {name} must be one character, not {getattr(self, name)!r}"
                )
        characters = [
            each
            for each in (
                self.csv_field_delimiter,
                self.csv_quote_character,
                self.csv_escape_character,
            )
            if each
        ]
        if len(set(characters)) < len(characters):
            raise FormatOptionError(
                "upsert-kafka: csv_field_delimiter, csv_quote_character and csv_escape_character "
                "must differ"
            )
        try:
            "".encode(self.raw_charset)  # raises for codecs that do not encode text, such as hex
        except (LookupError, TypeError):
            raise FormatOptionError(
                f"upsert-kafka: raw_charset {self.raw_charset!r} is unknown"
            ) from None
        self._check_masks()
        if self._set_registry_options():
            registry = self.registry
            for option in fields(registry):  # the URL without its user, properties as pairs
                object.__setattr__(self, _REGISTRY + option.name, getattr(registry, option.name))

    def _check_masks(self) -> None:
        if self.handling.masks and self.key_fields_prefix:
            raise FormatOptionError(
                "upsert-kafka: mask and key_fields_prefix cannot be combined, since a column has "
                "another name in the key: remove one of them"
            )
        by_place = {self.key_format, self.value_format} & {"csv", "raw", "avro"}
        if by_place and DROP in dict(self.handling.masks.pairs).values():
            raise FormatOptionError(
                f"upsert-kafka: mask has 'drop', and {min(by_place)} has its columns by their "
                "place: use 'redact'"
            )

    def _set_registry_options(self) -> list[str]:
        options = [option for option in fields(self) if option.name.startswith(_REGISTRY)]
        return [option.name for option in options if getattr(self, option.name) != option.default]

    @property
    def registry(self) -> Registry:
        """The registry of the options."""
        try:
            from cdc_formats.avro.schema_registry import Registry
        except ImportError as error:
            raise MissingDependencyError(
                f"avro-confluent needs {error.name}: pip install 'pyspark-kafka-changelog[avro]'"
            ) from error
        return Registry(
            **{option.name: getattr(self, _REGISTRY + option.name) for option in fields(Registry)}
        )
