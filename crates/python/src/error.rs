//! Creates the exceptions of `steadycast.errors`. Each has a place, a problem and a remedy.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::io;
use std::path::Path;
use steadycast_endpoints::BuildError;
use steadycast_scenario::Problem;

mod kinds {
    pyo3::import_exception!(steadycast.errors, MissingError);
    pyo3::import_exception!(steadycast.errors, Problems);
    pyo3::import_exception!(steadycast.errors, UnwrittenError);
    pyo3::import_exception!(steadycast.errors, UserError);
}

/// The remedy for a scenario that can't be run.
const CHANGE: &str = "change it in the scenario, or by --set";

/// Returns the exception for a mistake in the input.
pub(crate) fn wrong(place: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> PyErr {
    kinds::UserError::new_err((place.into(), problem.into(), remedy.into()))
}

/// Returns the exception for a permission or a tool that this machine lacks.
#[cfg(all(target_os = "linux", feature = "real-time"))]
pub(crate) fn missing(place: &str, problem: String, remedy: &'static str) -> PyErr {
    kinds::MissingError::new_err((place.to_owned(), problem, remedy))
}

/// Returns the exception for the problems of a scenario.
pub(crate) fn problems(py: Python<'_>, all: &[Problem]) -> PyErr {
    crate::scenario::listed(py, all).map_or_else(|error| error, |list| kinds::Problems::new_err((list.unbind(),)))
}

/// Returns the exception for a key of the scenario `file` whose value makes it impossible to run the scenario. `line`
/// is the line of the key, if it is known.
pub(crate) fn refused(file: &str, line: Option<u32>, error: BuildError) -> PyErr {
    let line = line.map_or_else(String::new, |line| format!(":{line}"));
    wrong(format!("{file}{line}: {}", error.key), error.what, CHANGE)
}

/// Returns the exception for a capture that could not be written to its folder.
pub(crate) fn unwritten(folder: Option<&Path>, (link, error): (String, io::Error)) -> PyErr {
    let path = folder.unwrap_or(Path::new("")).join(format!("{link}.pcapng"));
    let error = PyOSError::new_err((error.raw_os_error(), error.to_string()));
    Python::attach(|py| {
        let of = py.get_type::<kinds::UnwrittenError>().getattr("of");
        let made = of.and_then(|of| of.call1((path, error.into_value(py), "make room, or capture less")));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}
