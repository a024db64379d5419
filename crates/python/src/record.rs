use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use steadycast_endpoints::Freezes;
use steadycast_record::{Better, COLUMNS, FIGURES, Figures, Of, Parts};
use steadycast_units::Span;

/// Returns the descriptions of all figures, in the order in which tables show them.
#[pyfunction]
pub(crate) fn figures(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for figure in FIGURES {
        let entry = PyDict::new(py);
        entry.set_item("of", figure.of.name())?;
        entry.set_item("key", figure.key)?;
        entry.set_item("parts", figure.parts.names())?;
        entry.set_item("by_flow", figure.parts == Parts::Flows)?;
        entry.set_item("unit", figure.unit.name())?;
        entry.set_item("about", figure.about)?;
        entry.set_item("short", figure.short)?;
        let better = match figure.better {
            Better::Higher => Some("higher"),
            Better::Lower => Some("lower"),
            Better::Neither => None,
        };
        entry.set_item("better", better)?;
        entry.set_item("when", figure.when.name())?;
        let shown: Vec<(&str, &str)> = figure.shown.iter().map(|(table, part)| (table.name(), *part)).collect();
        entry.set_item("shown", shown)?;
        list.append(entry)?;
    }
    Ok(list)
}

/// Extracts all numbers from a summary in JSON. Returns a JSON object that maps the path of each number to the number.
/// Raises ValueError if `summary` is not JSON.
#[pyfunction]
pub(crate) fn flat(summary: &str) -> PyResult<String> {
    let summary = serde_json::from_str(summary).map_err(|e| PyValueError::new_err(e.to_string()))?;
    Ok(serde_json::Value::from(steadycast_record::flat(&summary)).to_string())
}

/// Returns the descriptions of all columns of all tables, in order.
#[pyfunction]
pub(crate) fn columns(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for column in COLUMNS {
        let entry = PyDict::new(py);
        entry.set_item("table", column.table)?;
        entry.set_item("name", column.name)?;
        entry.set_item("unit", column.unit.name())?;
        entry.set_item("about", column.about)?;
        entry.set_item("measured", column.measured)?;
        list.append(entry)?;
    }
    Ok(list)
}

/// Returns the median. Returns `None` if there are no values.
#[pyfunction]
pub(crate) fn median(values: Vec<f64>) -> Option<f64> {
    steadycast_record::median(&values)
}

/// Returns the coefficient of variation, with the standard deviation of a sample. Returns `None` if there are fewer
/// than two values or if their mean is not above zero.
#[pyfunction]
pub(crate) fn variation(values: Vec<f64>) -> Option<f64> {
    steadycast_record::variation(&values)
}

/// Returns a receiver's figures about freezes, as JSON. `slots` states for each display slot whether a new picture
/// appears. `lasts_s` has the duration of each slot in seconds.
#[pyfunction]
pub(crate) fn freezes(slots: Vec<bool>, lasts_s: Vec<f64>) -> String {
    let mut into = Figures::new(Of::Receiver);
    Freezes::of(slots.into_iter().zip(lasts_s.into_iter().map(Span::from_secs_f64))).figures(&mut into);
    serde_json::Value::from(into).to_string()
}
