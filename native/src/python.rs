//! The Python module.

use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::arrow::Texts;
use crate::column::{Allocated, Column, DecimalText, Kind, Parts, Unit, bitmap, number_bytes};
use crate::decode::{Batch, Changes, Plan, caught, decode, row_counts};
use crate::message::{Constant, Field, Fields, Operation, RowFields};
use crate::scan::Name;

/// The number of this interface: `normalize.decode.columnar.native` uses no other one.
const INTERFACE: u32 = 3;

/// Decodes the messages of one plan; it keeps nothing between two calls.
#[pyclass(frozen, module = "normalize._native")]
struct Decoder {
    plan: Plan,
    columns: Vec<(Kind, bool)>,
}

#[pymethods]
impl Decoder {
    /// Parameters are those that `normalize.decode.columnar.native` describes.
    #[new]
    #[pyo3(signature = (*, fields, columns, null_names, keys, deleted_is_before, missing_is_null, needs_before, ignores_deletes))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        fields: Vec<Bound<'_, PyTuple>>,
        columns: Vec<(String, Bound<'_, PyTuple>, bool)>,
        null_names: Vec<String>,
        keys: Vec<usize>,
        deleted_is_before: bool,
        missing_is_null: bool,
        needs_before: bool,
        ignores_deletes: bool,
    ) -> PyResult<Decoder> {
        let mut same = 0;
        let message = fields_of(fields, &mut same)?;
        let row = RowFields {
            names: columns.iter().map(|(name, ..)| Name::new(name)).collect(),
            raw: vec![],
            null: null_names.into_iter().map(String::into_bytes).collect(),
            no_others: false,
        };
        let columns = columns
            .into_iter()
            .map(|(_, kind, required)| Ok((kind_of(&kind)?, required)))
            .collect::<PyResult<Vec<_>>>()?;
        let raw = columns.iter().map(|(kind, _)| matches!(kind, Kind::Raw)).collect();
        let is_packable = |key: &usize| {
            columns
                .get(*key)
                .is_some_and(|(kind, _)| Column::new(kind.clone(), false).is_packable())
        };
        if !(1..=15).contains(&keys.len()) || !keys.iter().all(is_packable) {
            return Err(PyValueError::new_err("the key cannot be packed"));
        }
        let row = RowFields { raw, ..row };
        let plan = Plan {
            message,
            row,
            keys,
            same,
            deleted_is_before,
            missing_is_null,
            needs_before,
            ignores_deletes,
        };
        Ok(Decoder { plan, columns })
    }

    /// Returns the changes of an Arrow array of messages, and the indexes of those in doubt.
    fn decode<'py>(
        &self,
        py: Python<'py>,
        values: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let texts = Texts::of(values)?;
        let batch = Batch { bytes: texts.bytes(), offsets: &texts.offsets, nulls: &texts.nulls };
        let decoded = || {
            let column = |(kind, required): &(Kind, bool)| Column::new(kind.clone(), *required);
            let mut columns: Vec<Column> = self.columns.iter().map(column).collect();
            decode(&self.plan, &mut columns, &batch)
        };
        let changes = sound(py.detach(|| caught(decoded)))?;
        result(py, allocated(changes)?)
    }
}

/// Finds the messages of a table whose rows have only columns that were seen before.
#[pyclass(frozen, module = "normalize._native")]
struct KnownRows {
    fields: Fields,
    same: usize,
    row: RowFields,
}

#[pymethods]
impl KnownRows {
    /// `columns` may have values, and `nulls` may not.
    #[new]
    #[pyo3(signature = (*, fields, columns, nulls))]
    fn new(
        fields: Vec<Bound<'_, PyTuple>>,
        columns: Vec<String>,
        nulls: Vec<String>,
    ) -> PyResult<KnownRows> {
        let row = RowFields {
            names: columns.iter().map(|name| Name::new(name)).collect(),
            raw: vec![true; columns.len()],
            null: nulls.into_iter().map(String::into_bytes).collect(),
            no_others: true,
        };
        let mut same = 0;
        Ok(KnownRows { fields: fields_of(fields, &mut same)?, same, row })
    }

    /// Returns a byte for each message: how many rows with new values it has, or 2 if it is in doubt.
    fn counts<'py>(
        &self,
        py: Python<'py>,
        values: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let texts = Texts::of(values)?;
        let batch = Batch { bytes: texts.bytes(), offsets: &texts.offsets, nulls: &texts.nulls };
        let counted = || row_counts(&self.fields, self.same, &self.row, &batch);
        bytes(py, &allocated(sound(py.detach(|| caught(counted)))?)?)
    }
}

/// A panic as an error.
fn sound<T>(result: Result<T, String>) -> PyResult<T> {
    result.map_err(|text| {
        PyRuntimeError::new_err(format!(
            "the native decoder has a defect ({text}): set the environment variable CDC_NATIVE to 0, so \
             that Python decodes, and report it"
        ))
    })
}

fn result(py: Python<'_>, changes: Changes) -> PyResult<Bound<'_, PyDict>> {
    let integers = |numbers: &[i32]| bytes(py, &allocated(number_bytes(numbers))?);
    let columns: Vec<_> =
        changes.columns.iter().map(|parts| parts_of(py, parts)).collect::<PyResult<_>>()?;
    let same = changes
        .same
        .iter()
        .map(|text| text.as_ref().map(|text| String::from_utf8_lossy(text).into_owned()));
    let made = PyDict::new(py);
    made.set_item("places", integers(&changes.places)?)?;
    let deleted = bitmap(&changes.deleted, |flag| *flag);
    made.set_item("deleted", bytes(py, &allocated(deleted)?)?)?;
    made.set_item("key_offsets", bytes(py, &changes.key_offsets)?)?;
    made.set_item("keys", bytes(py, &changes.keys)?)?;
    made.set_item("hashes", integers(&changes.hashes)?)?;
    made.set_item("columns", columns)?;
    made.set_item("doubtful", integers(&changes.doubtful)?)?;
    made.set_item("same", same.collect::<Vec<_>>())?;
    made.set_item("first", changes.first)?;
    Ok(made)
}

type PyParts<'py> =
    (usize, Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyBytes>>, Bound<'py, PyBytes>);

/// The count of nulls, their bitmap, the offsets and the values.
fn parts_of<'py>(py: Python<'py>, parts: &Parts) -> PyResult<PyParts<'py>> {
    let or_none = |of: &[u8]| (!of.is_empty()).then(|| bytes(py, of)).transpose();
    let (valid, offsets) = (or_none(&parts.valid)?, or_none(&parts.offsets)?);
    Ok((parts.nulls, valid, offsets, bytes(py, &parts.values)?))
}

/// Copies bytes; unlike `PyBytes::new`, raises an error if the memory is exhausted.
fn bytes<'py>(py: Python<'py>, of: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, of.len(), |to| {
        to.copy_from_slice(of);
        Ok(())
    })
}

pub fn allocated<T>(result: Allocated<T>) -> PyResult<T> {
    result.map_err(|error| PyMemoryError::new_err(error.to_string()))
}

fn fields_of(fields: Vec<Bound<'_, PyTuple>>, same: &mut usize) -> PyResult<Fields> {
    let fields = fields.iter().map(|field| field_of(field, same)).collect::<PyResult<Vec<_>>>()?;
    Fields::new(fields).map_err(|_| PyValueError::new_err("too many fields"))
}

/// `(name, what, argument, same)`.
fn field_of(
    field: &Bound<'_, PyTuple>,
    same: &mut usize,
) -> PyResult<(String, Field, Option<usize>)> {
    let (name, what, argument, number): (String, String, Bound<'_, PyAny>, Option<usize>) =
        field.extract()?;
    if let Some(number) = number {
        *same = (*same).max(number + 1);
    }
    let field = match what.as_str() {
        "any" => Field::Any,
        "null" => Field::Null,
        "text" => Field::Text,
        "integer" => Field::Integer,
        "one of" => {
            let values: Vec<Bound<'_, PyAny>> = argument.extract()?;
            Field::OneOf(values.iter().map(constant).collect::<PyResult<_>>()?)
        }
        "operation" => {
            let operations: Vec<(String, String)> = argument.extract()?;
            let operation = |(text, kind): (String, String)| {
                let operation = match kind.as_str() {
                    "+I" => Operation::Insert,
                    "+U" => Operation::Update,
                    "-D" => Operation::Delete,
                    "-U" => Operation::UpdateBefore,
                    _ => return Err(unknown(&kind)),
                };
                Ok((text.into_bytes(), operation))
            };
            Field::Operation(operations.into_iter().map(operation).collect::<PyResult<_>>()?)
        }
        "after" => Field::After { many: argument.extract()? },
        "before" => Field::Before { many: argument.extract()? },
        "object" => {
            let (fields, optional): (Vec<Bound<'_, PyTuple>>, bool) = argument.extract()?;
            Field::Object { fields: fields_of(fields, same)?, optional }
        }
        other => return Err(unknown(other)),
    };
    Ok((name, field, number))
}

fn constant(value: &Bound<'_, PyAny>) -> PyResult<Constant> {
    if value.is_none() {
        return Ok(Constant::Null);
    }
    if let Ok(flag) = value.extract::<bool>() {
        return Ok(if flag { Constant::True } else { Constant::False });
    }
    Ok(Constant::Text(value.extract::<String>()?.into_bytes()))
}

/// A column's kind: its name and its arguments.
fn kind_of(kind: &Bound<'_, PyTuple>) -> PyResult<Kind> {
    let name: String = kind.get_item(0)?.extract()?;
    let argument = |at: usize| kind.get_item(at);
    Ok(match name.as_str() {
        "integer" => match argument(1)?.extract()? {
            width @ (1 | 2 | 4 | 8) => Kind::Integer(width),
            _ => return Err(unknown(&name)),
        },
        "double" => Kind::Double,
        "boolean" => Kind::Boolean,
        "text" => Kind::Text(
            argument(1)?.extract::<Vec<String>>()?.into_iter().map(String::into_bytes).collect(),
        ),
        "decimal" => {
            let (precision, scale): (usize, usize) =
                (argument(1)?.extract()?, argument(2)?.extract()?);
            if precision > 38 || scale > precision {
                return Err(unknown(&name));
            }
            let text = match argument(3)?.extract::<String>()?.as_str() {
                "digits" => DecimalText::Digits,
                "unscaled" => DecimalText::Unscaled,
                "" => DecimalText::Undeclared,
                other => return Err(unknown(other)),
            };
            Kind::Decimal { precision, scale, text }
        }
        "date" => Kind::Date { numbers: argument(1)?.extract()? },
        "timestamp" => {
            let unit = match argument(2)?.extract::<String>()?.as_str() {
                "ms" => Some(Unit::Millis),
                "us" => Some(Unit::Micros),
                "ns" => Some(Unit::Nanos),
                "" => None,
                other => return Err(unknown(other)),
            };
            Kind::Timestamp { zone: argument(1)?.extract()?, unit }
        }
        "raw" => Kind::Raw,
        other => return Err(unknown(other)),
    })
}

fn unknown(name: &str) -> PyErr {
    PyValueError::new_err(format!("unknown: {name}"))
}

/// `normalize._native`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{Decoder, KnownRows};

    #[pymodule_export]
    const INTERFACE: u32 = super::INTERFACE;
}
