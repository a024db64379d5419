use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use steadycast_control::Promise;
use steadycast_control::promise::SESSION;
use steadycast_control::registry::{ALL, FeedbackTiming, Kind, Mode, Param, Receivers, Values};

/// All controllers, in the registry's order.
#[pyfunction]
pub(crate) fn controllers(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for c in ALL {
        let entry = PyDict::new(py);
        entry.set_item("name", c.name)?;
        entry.set_item("about", c.about)?;
        entry.set_item("when", c.when)?;
        entry.set_item("source", c.source)?;
        entry.set_item(
            "cast",
            match c.receivers {
                Receivers::One => "unicast",
                Receivers::OneOrMany => "any",
            },
        )?;
        entry.set_item(
            "feedback",
            match c.feedback {
                FeedbackTiming::Periodic => "periodic",
                FeedbackTiming::Clocked => "clocked",
                FeedbackTiming::None => "none",
            },
        )?;
        let needs = PyList::empty(py);
        if let Ok(defaults) = Values::resolve(c.params, Mode::Repaired, &[]) {
            for need in (c.needs)(&defaults) {
                needs.append((need.name(), need.about()))?;
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
        entry.set_item("promises", told(c.promises))?;
        list.append(entry)?;
    }
    Ok(list)
}

/// The promises of the session, whichever controller runs in it, each with what is promised.
#[pyfunction]
pub(crate) fn promises() -> Vec<(&'static str, &'static str)> {
    told(SESSION)
}

fn told(promises: &[&'static Promise]) -> Vec<(&'static str, &'static str)> {
    promises.iter().map(|promise| (promise.id, promise.about)).collect()
}

fn param<'py>(py: Python<'py>, p: &Param) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    entry.set_item("name", p.name)?;
    entry.set_item("about", p.about)?;
    entry.set_item("source", p.source)?;
    match p.kind {
        Kind::Number { default, paper, min, max } => {
            entry.set_item("kind", "number")?;
            for (key, value) in [("default", default), ("paper", paper), ("min", min), ("max", max)] {
                entry.set_item(key, value)?;
            }
        }
        Kind::Span { default, paper, min, max } => {
            entry.set_item("kind", "span")?;
            for (key, value) in [("default", default), ("paper", paper), ("min", min), ("max", max)] {
                entry.set_item(key, value.to_string())?;
            }
        }
        Kind::Rate { default, paper, min, max } => {
            entry.set_item("kind", "rate")?;
            for (key, value) in [("default", default), ("paper", paper)] {
                // Zero means "not set".
                entry.set_item(key, (value.as_bps() > 0).then(|| value.to_string()))?;
            }
            entry.set_item("min", min.to_string())?;
            entry.set_item("max", max.to_string())?;
        }
        Kind::Choice { default, paper, of } => {
            entry.set_item("kind", "choice")?;
            entry.set_item("default", default)?;
            entry.set_item("paper", paper)?;
            entry.set_item("of", of.to_vec())?;
        }
        Kind::Switch { default, paper } => {
            entry.set_item("kind", "switch")?;
            entry.set_item("default", default)?;
            entry.set_item("paper", paper)?;
        }
    }
    Ok(entry)
}
