//! The hashes of this module's sources, which the build script computes.

use pyo3::prelude::*;
use std::collections::BTreeMap;
use steadycast_control::registry::ALL;

include!(concat!(env!("OUT_DIR"), "/sources.rs"));

const _: () = assert!(EACH.len() == ALL.len(), "the build script reads the registry's list line by line");

/// Returns the hash of all sources that belong to no controller, and the hash of each controller's sources by name.
#[pyfunction]
pub(crate) fn sources() -> (&'static str, BTreeMap<&'static str, &'static str>) {
    (REST, ALL.iter().map(|c| c.name).zip(EACH).collect())
}
