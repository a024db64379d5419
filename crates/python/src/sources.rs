//! From which sources this module was compiled, as the build script hashed them.

use pyo3::prelude::*;
use std::collections::BTreeMap;
use steadycast_control::registry::ALL;

include!(concat!(env!("OUT_DIR"), "/sources.rs"));

const _: () = assert!(EACH.len() == ALL.len(), "the build script reads the registry's list line by line");

/// SHA-256 of all sources but the controllers', and of each controller's own by its name.
#[pyfunction]
pub(crate) fn sources() -> (&'static str, BTreeMap<&'static str, &'static str>) {
    (REST, ALL.iter().map(|c| c.name).zip(EACH).collect())
}
