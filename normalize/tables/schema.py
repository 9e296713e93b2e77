"""A table's columns, key and format options, written as JSON.

They are inferred from its first records, extended by new columns, and widened.

A column that is not part of the key is nullable, whatever the source declares: a column that the
source drops stays in the target, and is NULL from then on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
from pyspark.sql.types import DataType, StructField

from cdc_formats.errors import InferenceError, SchemaError, TypeConversionError, printable
from cdc_formats.format import Format
from cdc_formats.topics.inference import InferredSchema, infer_schema
from cdc_formats.values.masks import Masks
from cdc_formats.values.schema import Column, columns as to_columns, quote, to_ddl
from normalize.arguments import names_of
from normalize.core.arrow import spark_type
from normalize.monitoring.watch import shown_names

from .facts import TableFacts
from .table_options import SyncError, TableOptions, require_distinct_names
from .table_spec import wider

Record = tuple[Any, ...]
"""Key, value and headers."""


class TableSchema(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"columns": "schema"}
):
    """What is known about a source table, as its file has it.

    Parameters
    ----------
    table : str
        The source table.
    columns : tuple of Column
        In the file, ``schema`` with the text of each.
    primary_key : tuple of str
    format_options : dict
        The inferred options of the format.
    notes : tuple of str
        The evidence, for the reader of the file.
    questions : dict
        What only the user can know of columns whose types are guesses, by column.
    comments : dict
        The comments of the source's columns, by column, for the columns of a target.
    stopped : str
        Why the table is no longer synchronized; empty while it is.
    facts : TableFacts
    """

    table: str
    columns: tuple[Column, ...] = ()
    primary_key: tuple[str, ...] = ()
    format_options: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    questions: dict[str, str] = {}
    comments: dict[str, str] = {}
    stopped: str = ""
    facts: TableFacts = TableFacts()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    def with_facts(self, **facts: Any) -> TableSchema:
        """Return the schema with other values of some facts."""
        return msgspec.structs.replace(self, facts=msgspec.structs.replace(self.facts, **facts))

    def to_json(self) -> str:
        """Return the file's content."""
        content = msgspec.to_builtins(self) | {"schema": [str(column) for column in self.columns]}
        return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> TableSchema:
        """Return the content of a file, which a user may have edited.

        Parameters
        ----------
        text : str
        where : str
            The file, for errors.

        Raises
        ------
        SyncError
            When the text is not such a file.
        """
        try:
            content = msgspec.json.decode(text, type=dict[str, Any])
            columns = msgspec.convert(content.get("schema", []), list[str])
            content["schema"] = to_columns(", ".join(columns)) if columns else ()
            return msgspec.convert(content, cls)
        except (msgspec.DecodeError, SchemaError) as error:
            raise SyncError(
                f"{where} is not the file of a table ({error}): correct it, or delete it so that "
                "the schema is inferred again"
            ) from None

    def described(self) -> str:
        """Return the decision as text for the user."""
        options = [f"format_options={self.format_options!r}"] if self.format_options else []
        key = f"primary_key={list(self.primary_key)!r}"
        return "; ".join(map(printable, [f"schema={to_ddl(self.columns)!r}", key, *options]))


def decide(
    table: str,
    records: Sequence[Record],
    *,
    format: Format,
    passed_options: Collection[str],
    options: TableOptions,
) -> TableSchema:
    """Return an unknown table's schema: the user's, and otherwise what its first records show.

    Parameters
    ----------
    table : str
    records : sequence of (key, value, headers)
    format : Format
    passed_options : collection of str
        The format options that the user passed, which are not inferred.
    options : TableOptions

    Raises
    ------
    InferenceError
        When the records have no rows.
    SyncError
        When no primary key is known, or not all of its columns.
    SchemaError
        When the columns' names cannot be those of one table.
    """
    key = names_of(options.primary_key)
    if options.declared and key:
        schema = TableSchema(table, options.declared, key, notes=("as passed in tables=",))
    else:
        inferred = infer_schema(records, format=format, primary_key=key)
        detected = {
            name: inferred.format_options[name]
            for name in inferred.option_reasons
            if name not in passed_options
        }
        columns = options.declared or _of_known_type(inferred, options, inferred.primary_key)
        reasons = {"primary key": inferred.primary_key_reason, **inferred.option_reasons}
        schema = TableSchema(
            table,
            columns,
            inferred.primary_key,
            detected,
            (
                *map(str, inferred.evidence),
                *(f"{name}: {reason}" for name, reason in reasons.items()),
                *inferred.notes,
            ),
            questions=described_questions(columns, inferred, options.decides),
            comments=inferred.comments,
        )
        if not schema.primary_key:
            raise SyncError(
                f"its primary key is unknown ({inferred.primary_key_reason}): pass "
                f"tables={{{table!r}: TableOptions(primary_key=[...])}}, or leave the table out "
                "with exclude="
            )
    return _checked(
        msgspec.structs.replace(
            schema,
            columns=tuple(column for column in schema.columns if options.writes(column.name)),
        )
    )


def decide_merged(
    table: str,
    samples: Mapping[str, Sequence[Record]],
    *,
    format: Format,
    passed_options: Collection[str],
    options: TableOptions,
) -> TableSchema:
    """Return the schema of a table that is merged from shards: all columns of their schemas.

    Parameters
    ----------
    table : str
    samples : mapping
        The first records of each shard.
    format, passed_options, options
        Same as `decide`.

    Raises
    ------
    InferenceError
        When no shard has rows.
    SyncError
        As `decide`, and when the schemas of two shards contradict each other.
    SchemaError
        As `decide`.
    """
    schemas, without_rows = dict[str, TableSchema](), list[InferenceError]()
    for shard, records in samples.items():
        try:
            schemas[shard] = decide(
                table, records, format=format, passed_options=passed_options, options=options
            )
        except InferenceError as error:
            without_rows.append(error)
    if not schemas:
        raise without_rows[0]
    (name, first), *of_other_shards = schemas.items()
    if not of_other_shards:
        return first
    columns, questions, comments = first.columns, {**first.questions}, {**first.comments}
    for shard, schema in of_other_shards:
        questions |= schema.questions
        comments = {**schema.comments, **comments}
        for what, ours, theirs in (
            ("primary keys", first.primary_key, schema.primary_key),
            ("format_options", first.format_options, schema.format_options),
        ):
            if ours != theirs:
                raise SyncError(
                    f"its shards {name} and {shard} have the {what} {ours!r} and {theirs!r}: pass "
                    "the right one"
                )
        columns = _united(columns, schema.columns, f"its shards {name} and {shard}")
    notes = tuple(f"{shard}: {note}" for shard, schema in schemas.items() for note in schema.notes)
    return msgspec.structs.replace(
        first, columns=columns, notes=notes, questions=questions, comments=comments
    )


def _united(columns: Sequence[Column], more: Sequence[Column], shards: str) -> tuple[Column, ...]:
    united = {column.name: column for column in columns}
    for column in more:
        ours = united.setdefault(column.name, column)
        if ours.type != column.type:
            raise SyncError(
                f"{shards} have the column {quote(column.name)} as {ours.type} and as "
                f"{column.type}: pass its type in types="
            )
    return tuple(united.values())


def extend(
    schema: TableSchema,
    names: Collection[str],
    samples: Mapping[str, Sequence[Record]],
    *,
    format: Format,
    options: TableOptions,
) -> TableSchema:
    """Return a schema with new columns at its end.

    Parameters
    ----------
    schema : TableSchema
    names : collection of str
        The new columns.
    samples : mapping
        A sample that has them, for each source table.
    format : Format
        With the inferred options of the table.
    options : TableOptions

    Raises
    ------
    SyncError
        When the sample does not show a column's type.
    SchemaError
        When the columns' names cannot be those of one table.
    """
    added: tuple[Column, ...] = ()
    evidence, questions, comments = list[str](), {**schema.questions}, {**schema.comments}
    for table, records in samples.items():
        try:
            inferred = infer_schema(records, format=format, primary_key=schema.primary_key)
        except InferenceError:  # no rows, which only one of several shards may have
            continue
        new = [column for column in _of_known_type(inferred, options) if column.name in names]
        added = _united(added, new, f"its shards, {table} among them,")
        questions |= described_questions(new, inferred, options.decides)
        comments |= {name: text for name, text in inferred.comments.items() if name in names}
        evidence += [str(each) for each in inferred.evidence if each.column.name in names]
    unknown = {*names} - {column.name for column in added}
    if unknown:
        raise SyncError(
            f"the type of its new column {min(unknown)!r} is unknown, because no record has a value "
            "of it (the placeholder for an unchanged value is none): pass "
            f"tables={{{schema.table!r}: TableOptions(types={{{min(unknown)!r}: ...}})}}, or leave "
            "the column out with exclude_columns"
        )
    return _checked(
        msgspec.structs.replace(
            schema,
            columns=(*schema.columns, *added),
            notes=(*schema.notes, *evidence),
            questions=questions,
            comments=comments,
        )
    )


def new_columns(schema: TableSchema, seen: Collection[str], options: TableOptions) -> list[str]:
    """Return the columns that messages have and the schema lacks."""
    return sorted(name for name in {*seen} - {*schema.names} if options.writes(name))


def next_schema(
    table: str,
    before: TableSchema | None,
    names: Collection[str],
    samples: Callable[[], Mapping[str, Sequence[Record]]],
    *,
    format: Format,
    passed_options: Collection[str],
    options: TableOptions,
    on_new_column: str,
    max_columns: tuple[int, str],
) -> tuple[TableSchema, list[str]]:
    """Return a table's schema for the records of a micro-batch, so that no value is lost.

    New columns are at its end.

    Parameters
    ----------
    table : str
    before : TableSchema or None
        The schema so far.
    names : collection of str
        The columns that have a value in a record.
    samples : callable
        Returns the first records, and those with new columns, of each source table.
    format, passed_options, options
        Same as in `decide`.
    on_new_column : {"add", "ignore", "fail"}
    max_columns : (int, str)
        The most columns of a table whose columns are not declared, and the class that has the
        limit.

    Returns
    -------
    (TableSchema, list of str)
        The schema, and the columns that messages have and that are not added.

    Raises
    ------
    InferenceError, SyncError, SchemaError
        As `decide_merged` and `extend`; `SyncError` also when there are new columns, and
        `on_new_column` is ``fail``, or too many.
    """
    schema = before or decide_merged(
        table, samples(), format=format, passed_options=passed_options, options=options
    )
    of_messages = () if before is not None or options.declared else schema.columns
    new = new_columns(schema, names, options)
    if new and on_new_column == "fail":
        raise SyncError(
            f"it has the new columns {shown_names(new)}, and on_new_column is 'fail': pass "
            "'add', or use exclude_columns"
        )
    added: tuple[Column, ...] = ()
    if new and on_new_column == "add":
        extended = extend(
            schema, new, samples(), format=with_options(format, schema), options=options
        )
        added, schema = extended.columns[len(schema.columns) :], extended
    # A producer names the columns.
    from_messages, (limit, database) = (*of_messages, *added), max_columns
    if from_messages and len(schema.columns) > limit:
        raise SyncError(
            f"it would have {len(schema.columns)} columns, {len(from_messages)} of them new "
            f"({from_messages[0].name}, ...), and max_columns is {limit}: leave some out with "
            f"columns= or exclude_columns, or pass {database}(max_columns=...)"
        )
    return schema, new if on_new_column == "ignore" else []


def _of_known_type(
    inferred: InferredSchema, options: TableOptions, key: Sequence[str] = ()
) -> tuple[Column, ...]:
    """Return the columns with the user's types, except those of which only NULL is known.

    Their type would be a guess, unless the user passed it.
    """
    types = {column.name: column.type for column in options.typed}
    guessed = {
        each.column.name
        for each in inferred.evidence
        if each.certainty == "values" and not set(each.seen) - {"null"}
    }
    guessed -= {*key, *types}
    return tuple(
        replace(column, type=types.get(column.name, column.type))
        for column in inferred.columns
        if column.name not in guessed
    )


def described_questions(
    columns: Sequence[Column], inferred: InferredSchema, decides: Callable[[str], bool]
) -> dict[str, str]:
    """Return the questions on columns whose types are guesses, in a text for each column.

    Parameters
    ----------
    columns : sequence of Column
    inferred : InferredSchema
    decides : callable
        Same as in `InferredSchema.open_questions`.
    """
    names = {column.name for column in columns}
    return {
        name: "; ".join(map(str, questions))
        for name, questions in inferred.open_questions(decides).items()
        if name in names
    }


def open_types(
    schema: TableSchema, options: TableOptions, masks: Masks, known: Collection[str] = ()
) -> dict[str, str]:
    """Return the questions on columns whose types are guesses, without those of masked ones.

    Parameters
    ----------
    schema : TableSchema
    options : TableOptions
    masks : Masks
        The masks for the columns of the table.
    known : collection of str
        Columns to leave out.
    """
    return {
        name: text
        for name, text in schema.questions.items()
        if not options.decides(name) and masks.kind(name) is None and name not in known
    }


def questions_text(columns: Sequence[Column], questions: Mapping[str, str]) -> str:
    """Return questions as a part of a sentence, each with its columns and their inferred types.

    Examples
    --------
    >>> questions_text(to_columns("id BIGINT, a INT, b INT"), {"a": "what is it?", "b": "what is it?"})
    '`a INT`, `b INT` (what is it?)'
    """
    columns_of = dict[str, list[str]]()
    for column in columns:
        if column.name in questions:
            columns_of.setdefault(questions[column.name], []).append(f"{column.name} {column.type}")
    return "; ".join(
        f"{shown_names(names)} ({printable(text)})" for text, names in columns_of.items()
    )


def _checked(schema: TableSchema) -> TableSchema:
    require_distinct_names(column.name for column in schema.columns)
    lost = [name for name in schema.primary_key if name not in schema.names]
    if lost:
        raise SyncError(
            f"its primary key has {', '.join(lost)}, which is not one of its columns: pass "
            "primary_key in tables="
        )
    return msgspec.structs.replace(
        schema,
        columns=tuple(
            replace(column, nullable=column.name not in schema.primary_key)
            for column in schema.columns
        ),
    )


def ignored_arguments(
    kept: TableSchema, declared: Sequence[Column], primary_key: Sequence[str]
) -> list[str]:
    """Return what a user passes for a table and its file does not have.

    Columns that only the file has are new columns of the source, or of the user who edited it.

    Parameters
    ----------
    kept : TableSchema
        The file.
    declared : sequence of Column
        The columns that the user passes; empty if none.
    primary_key : sequence of str
        The key that the user passes; empty if none.

    Examples
    --------
    >>> kept = TableSchema("orders", to_columns("id INT, name STRING"), ("id",))
    >>> ignored_arguments(kept, to_columns("id INT, name DATE"), ["name"])
    ["primary_key is ['name'] and not ['id']", 'the column name is DATE and not STRING']
    """
    types = {column.name: column.type for column in kept.columns}
    ignored = []
    if primary_key and tuple(primary_key) != kept.primary_key:
        ignored.append(f"primary_key is {[*primary_key]!r} and not {[*kept.primary_key]!r}")
    for column in declared:
        name = quote(column.name)
        if column.name not in types:
            ignored.append(f"the column {name} is new")
        elif types[column.name] != column.type:
            ignored.append(f"the column {name} is {column.type} and not {types[column.name]}")
    return ignored


def with_options(format: Format, schema: TableSchema) -> Format:
    """Return the format with a table's options.

    Raises
    ------
    SyncError
        When the file has an option that the format does not have.
    """
    try:
        return replace(format, **schema.format_options)
    except TypeError:
        raise SyncError(
            f"its file has format_options that {format.identifier} does not have: "
            f"{schema.format_options!r}"
        ) from None


_COLUMN = re.compile(rf"\[{TypeConversionError.condition}\] .* - at `\$[^`]*\.(\w+)`")
"""An error of a column; its name is the last of the path."""


def wider_column(
    text: str,
    schema: TableSchema,
    samples: Callable[[], Mapping[str, Sequence[Record]]],
    format: Format,
) -> tuple[Column, Column] | None:
    """Return the column that a value does not fit, as it is and with a type for old and new values.

    Parameters
    ----------
    text : str
        The error of a table.
    schema : TableSchema
    samples : callable
        Returns a sample, in which the value may be, for each source table.
    format : Format

    Returns
    -------
    (Column, Column) or None
        None for another error, and if no type has all values.
    """
    named = _COLUMN.match(text)
    column = next((each for each in schema.columns if named and each.name == named[1]), None)
    if column is None:
        return None
    old = spark_field(column).dataType
    kind: DataType | None = old
    for records in samples().values():
        with suppress(InferenceError):
            inferred = infer_schema(
                records, format=with_options(format, schema), primary_key=schema.primary_key
            )
            shown = next((each for each in inferred.columns if each.name == column.name), column)
            kind = kind and wider(kind, spark_field(shown).dataType)
    if kind is None or kind == old:
        return None
    (wide,) = to_columns(f"{quote(column.name)} {kind.simpleString()}")
    return column, wide


def spark_field(column: Column) -> StructField:
    """Return a column of a target, in Spark's types: no target has intervals."""
    kind = spark_type(column.type)
    return StructField(
        column.name, DataType.fromDDL("BIGINT" if kind.startswith("INTERVAL") else kind)
    )
