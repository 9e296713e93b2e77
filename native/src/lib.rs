//! The native decoder of pyspark-kafka-changelog: JSON change messages to Arrow columns.
//!
//! The scalar decoder in Python is the specification. This one decodes a message to exactly the same
//! change, or leaves it in doubt to that decoder. It knows no Python but for the module `python`.

#![deny(unsafe_code)]

pub mod column;
pub mod decode;
pub mod message;
pub mod scan;

#[cfg(feature = "python")]
mod arrow;
#[cfg(feature = "python")]
mod python;
