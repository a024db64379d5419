//! The compiled module `steadycast._core`: a thin shell around the crates. The typed face is the Python package.

mod controller;
#[cfg(target_os = "linux")]
mod emulation;
mod error;
#[cfg(target_os = "linux")]
mod live;
mod picture;
mod record;
mod registry;
mod scenario;
mod simulation;
mod sources;

use pyo3::prelude::*;

/// The compiled part of Steadycast.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("__build__", env!("BUILD"))?;
    module.add_function(wrap_pyfunction!(registry::controllers, module)?)?;
    module.add_function(wrap_pyfunction!(registry::promises, module)?)?;
    module.add_function(wrap_pyfunction!(record::figures, module)?)?;
    module.add_function(wrap_pyfunction!(record::flat, module)?)?;
    module.add_function(wrap_pyfunction!(record::columns, module)?)?;
    module.add_function(wrap_pyfunction!(record::freezes, module)?)?;
    module.add_function(wrap_pyfunction!(record::median, module)?)?;
    module.add_function(wrap_pyfunction!(record::variation, module)?)?;
    module.add_function(wrap_pyfunction!(sources::sources, module)?)?;
    module.add_function(wrap_pyfunction!(scenario::schema, module)?)?;
    module.add_function(wrap_pyfunction!(picture::picture_psnr, module)?)?;
    module.add_function(wrap_pyfunction!(picture::picture_ssim, module)?)?;
    module.add_class::<scenario::PyScenario>()?;
    module.add_class::<simulation::PySimulation>()?;
    module.add_class::<controller::PySetup>()?;
    module.add_class::<controller::PyReport>()?;
    module.add_class::<controller::PySent>()?;
    module.add_class::<controller::PyArrived>()?;
    module.add_class::<controller::PySlot>()?;
    #[cfg(target_os = "linux")]
    real_time(module)?;
    Ok(())
}

/// Adds the worlds of real time, which need Linux; elsewhere the module lacks these names.
#[cfg(target_os = "linux")]
fn real_time(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<emulation::PyEmulation>()?;
    module.add_function(wrap_pyfunction!(emulation::refusals, module)?)?;
    module.add_function(wrap_pyfunction!(live::is_key_frame, module)?)?;
    module.add_class::<live::PySession>()?;
    module.add_class::<live::PySender>()?;
    module.add_class::<live::PyReceiver>()?;
    module.add_class::<live::PyRecord>()
}
