use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use steadycast_control::Promise;
use steadycast_control::promise::SESSION;
use steadycast_control::registry::{ALL, Mode, Param, Value, Values, Within};
use steadycast_units::Rate;

/// Returns the descriptions of all controllers, in the order of the registry.
#[pyfunction]
pub(crate) fn controllers(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for c in ALL {
        let entry = PyDict::new(py);
        entry.set_item("name", c.name)?;
        entry.set_item("about", c.about)?;
        entry.set_item("when", c.when)?;
        entry.set_item("source", c.source)?;
        entry.set_item("cast", c.receivers.word())?;
        entry.set_item("feedback", c.feedback.word())?;
        let needs = PyList::empty(py);
        // List the needs for the default parameters, because the needs depend on the parameters.
        if let Ok(defaults) = Values::resolve(c.params, Mode::Repaired, &[]) {
            for need in (c.needs)(&defaults) {
                needs.append((need.word(), need.about()))?;
            }
        }
        entry.set_item("needs", needs)?;
        entry.set_item("standard_reports", c.standard_reports)?;
        entry.set_item("own_rate", c.own_rate)?;
        entry.set_item("colour", c.colour)?;
        entry.set_item("dashes", c.dashes.to_vec())?;
        let params = PyList::empty(py);
        for p in c.params {
            params.append(param(py, p)?)?;
        }
        entry.set_item("params", params)?;
        entry.set_item("promises", promise_list(c.promises))?;
        list.append(entry)?;
    }
    Ok(list)
}

/// Returns the invariants that hold in a session with any controller, as pairs of id and description.
#[pyfunction]
pub(crate) fn promises() -> Vec<(&'static str, &'static str)> {
    promise_list(SESSION)
}

fn promise_list(promises: &[&'static Promise]) -> Vec<(&'static str, &'static str)> {
    promises.iter().map(|promise| (promise.id, promise.about)).collect()
}

fn param<'py>(py: Python<'py>, p: &Param) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    entry.set_item("name", p.name)?;
    entry.set_item("about", p.about)?;
    entry.set_item("source", p.source)?;
    entry.set_item("kind", p.of[0].kind())?;
    // The first value is the default in the mode "repaired". The second value is the default in the mode "paper".
    for (key, value) in [("default", p.of[0]), ("paper", p.of[1])] {
        entry.set_item(key, object(py, value)?)?;
    }
    match p.within {
        Within::Range(least, most) => {
            entry.set_item("min", object(py, least)?)?;
            entry.set_item("max", object(py, most)?)?;
        }
        Within::Among(words) => entry.set_item("of", words.to_vec())?,
        Within::Either => {}
    }
    Ok(entry)
}

fn object(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyAny>> {
    match value {
        Value::Number(n) => n.into_bound_py_any(py),
        Value::Switch(on) => on.into_bound_py_any(py),
        // Return None for a rate of zero, which means "not set".
        Value::Rate(Rate::ZERO) => Ok(py.None().into_bound(py)),
        Value::Choice(_) | Value::Rate(_) | Value::Span(_) => value.to_string().into_bound_py_any(py),
    }
}
