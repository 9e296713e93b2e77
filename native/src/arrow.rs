//! Reads an Arrow array of Python by the PyCapsule protocol. Only this module has unsafe code.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::python::allocated;

/// `struct ArrowSchema` of Arrow's C data interface, as far as it is read.
#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
}

/// `struct ArrowArray` of Arrow's C data interface, as far as it is read.
#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const *const c_void,
}

/// The texts of an array; it keeps the array's memory.
pub struct Texts<'py> {
    _schema: Bound<'py, PyAny>,
    _array: Bound<'py, PyAny>,
    bytes: *const u8,
    length: usize,
    pub offsets: Vec<i32>,
    pub nulls: Vec<usize>,
}

impl<'py> Texts<'py> {
    /// Reads an object with `__arrow_c_array__`, an array of binary or utf8.
    pub fn of(object: &Bound<'py, PyAny>) -> PyResult<Texts<'py>> {
        let pair = object.call_method0("__arrow_c_array__")?;
        let pair = pair.cast::<PyTuple>()?;
        let (of_schema, of_array) = (pair.get_item(0)?, pair.get_item(1)?);
        let schema = pointer::<ArrowSchema>(&of_schema, c"arrow_schema")?;
        let array = pointer::<ArrowArray>(&of_array, c"arrow_array")?;
        // SAFETY: the capsules' names say what they point to. The structs and the buffers live as
        // long as the capsules, which `Texts` holds, and Arrow's buffers do not change. An array of
        // this format has three buffers; those of the offsets and the bytes may be null if they are
        // empty. The producer guarantees that each has as many elements as length and offset say.
        unsafe {
            let format = CStr::from_ptr((*schema).format);
            if format != c"z" && format != c"u" {
                return Err(PyTypeError::new_err("expected an Arrow array of binary or string"));
            }
            let size = |number: i64| usize::try_from(number).map_err(|_| damaged());
            let (length, start) = (size((*array).length)?, size((*array).offset)?);
            if (*array).n_buffers != 3 {
                return Err(damaged());
            }
            let [valid, offsets, bytes] = *((*array).buffers as *const [*const c_void; 3]);
            let (valid, offsets, bytes) =
                (valid as *const u8, offsets as *const i32, bytes as *const u8);
            let is_null = |at: usize| *valid.add(at / 8) & (1 << (at % 8)) == 0;
            let (mut nulls, mut ends) = (vec![], Vec::<i32>::new());
            if !valid.is_null() && (*array).null_count != 0 {
                allocated(nulls.try_reserve(length))?;
                nulls.extend((0..length).filter(|at| is_null(start + at)));
            }
            allocated(ends.try_reserve(length + 1))?;
            if length == 0 || offsets.is_null() {
                ends.resize(length + 1, 0);
            } else {
                ends.extend((0..=length).map(|at| offsets.add(start + at).read_unaligned()));
            }
            let (first, last) = (ends[0], ends[length]);
            ends.iter_mut().for_each(|end| *end = end.wrapping_sub(first));
            let length = last.checked_sub(first).and_then(|length| usize::try_from(length).ok());
            let length = length.filter(|length| first >= 0 && (!bytes.is_null() || *length == 0));
            let length = length.ok_or_else(damaged)?;
            Ok(Texts {
                _schema: of_schema,
                _array: of_array,
                bytes: if length == 0 { c"".as_ptr().cast() } else { bytes.add(first as usize) },
                length,
                offsets: ends,
                nulls,
            })
        }
    }

    /// The bytes of all texts, to which the offsets point.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `of` has checked the pointer and the length; `self` keeps the memory.
        unsafe { std::slice::from_raw_parts(self.bytes, self.length) }
    }
}

fn pointer<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> PyResult<*const T> {
    let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(name))?;
    Ok(pointer.as_ptr() as *const T)
}

fn damaged() -> PyErr {
    PyValueError::new_err("the Arrow array is damaged")
}
