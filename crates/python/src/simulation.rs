use crate::controller::{Fault, FaultSlot, PythonController};
use crate::error::{refused, unwritten, wrong};
use crate::scenario::PyScenario;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use steadycast_control::registry::Factory;
use steadycast_media::{Ladder, Scale};
use steadycast_session::FrameKind;
use steadycast_sim::{Inputs, Simulation, Table, Values};
use steadycast_units::Time;

/// A run of a scenario.
#[pyclass(frozen, name = "Simulation", module = "steadycast._core")]
pub(crate) struct PySimulation {
    /// Behind a lock because its halves are for one thread at a time.
    simulation: Mutex<Simulation>,
    fault: FaultSlot,
    /// Where captures go.
    captures: OnceLock<PathBuf>,
}

#[pymethods]
impl PySimulation {
    /// Makes a scenario's world. `ladders`: flow → dict of fps (a pair), gop, doubling, qs, kinds, display and sizes
    /// (uint8, uint32 and 2-D uint32 arrays). `controllers`: flow → a class. Raises UserError.
    #[new]
    fn new(scenario: &PyScenario, ladders: &Bound<'_, PyDict>, controllers: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (inputs, fault) = inputs(ladders, controllers)?;
        let simulation =
            Simulation::build(scenario.scenario(), &inputs).map_err(|error| refused(&scenario.file, error))?;
        Ok(Self { simulation: Mutex::new(simulation), fault, captures: OnceLock::new() })
    }

    fn __repr__(&self) -> String {
        // Not to be waited for: while it runs it needs the interpreter now and then.
        let Ok(simulation) = self.simulation.try_lock() else { return "Simulation(running)".into() };
        format!("Simulation(at_s={}, end_s={})", simulation.now().as_secs_f64(), simulation.end().as_secs_f64())
    }

    /// Has the packets of the links that the scenario captures written to `folder`/LINK.pcapng while it runs. Raises
    /// UnwrittenError.
    fn capture(&self, folder: PathBuf) -> PyResult<()> {
        let folder = self.captures.get_or_init(|| folder);
        let named = |link: &str| folder.join(format!("{link}.pcapng"));
        self.locked().capture(|link| Ok(Box::new(File::create(named(link))?))).map_err(|e| unwritten(Some(folder), e))
    }

    /// Runs to the end. `progress(done_s, of_s)` is called now and then, and may raise to stop the run; Ctrl-C stops it
    /// with KeyboardInterrupt. Returns whether the end was reached. Raises UserError for a mistake in a user's
    /// class, UnwrittenError for a capture.
    fn run(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<bool> {
        let mut asking = Asking::new(&self.fault, progress, ASKED);
        let complete = py.detach(|| {
            let mut simulation = self.locked();
            let end = simulation.end();
            simulation.run(|now| asking.go_on(now, end))
        });
        let captured = self.locked().end_capture();
        asking.over()?;
        captured.map_err(|e| unwritten(self.captures.get().map(PathBuf::as_path), e))?;
        Ok(complete)
    }

    /// summary.json of the run so far, without what needs pixels.
    fn summary(&self, complete: bool) -> String {
        self.locked().record().tree(complete).into_json()
    }

    /// The summary's `record_sha256`, and its numbers by their paths as a JSON object.
    fn figures(&self, complete: bool) -> (String, String) {
        let summary = self.locked().summary(complete);
        let sha256 = summary["record_sha256"].as_str().unwrap_or_default().to_owned();
        (sha256, serde_json::Value::from(steadycast_record::flat(&summary)).to_string())
    }

    /// Packets that have left a link so far.
    #[getter]
    fn hops(&self) -> u64 {
        self.locked().hops()
    }

    /// A table of the record: a list of (name, kind, content); kind "f64" or "i64" with bytes, or "text" with (bytes of
    /// u32 codes, texts).
    fn table<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let table = self.locked().table(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        columns(py, table)
    }
}

/// Asks Python now and then whether a run is to go on.
pub(crate) struct Asking<'a> {
    fault: &'a FaultSlot,
    progress: Option<Py<PyAny>>,
    /// Python is asked each time after this many.
    every: u32,
    asked: u32,
    stopped: Option<PyErr>,
}

impl<'a> Asking<'a> {
    pub(crate) const fn new(fault: &'a FaultSlot, progress: Option<Py<PyAny>>, every: u32) -> Self {
        Self { fault, progress, every, asked: 0, stopped: None }
    }

    /// Whether the run goes on at `now`.
    pub(crate) fn go_on(&mut self, now: Time, end: Time) -> bool {
        if self.fault.lock().is_ok_and(|f| f.is_some()) {
            return false;
        }
        self.asked += 1;
        if !self.asked.is_multiple_of(self.every) {
            return true;
        }
        let told = (now.as_secs_f64(), end.as_secs_f64());
        let go_on = Python::attach(|py| {
            py.check_signals()?;
            self.progress.as_ref().map_or(Ok(()), |p| p.call1(py, told).map(|_| ()))
        });
        go_on.map_err(|e| self.stopped = Some(e)).is_ok()
    }

    /// The run is over: what stopped it, or a mistake in a user's class.
    pub(crate) fn over(self) -> PyResult<()> {
        self.stopped.map_or_else(|| raised(self.fault), Err)
    }
}

/// What a world needs besides the scenario, and where a mistake in a user's class is put.
pub(crate) fn inputs(ladders: &Bound<'_, PyDict>, controllers: &Bound<'_, PyDict>) -> PyResult<(Inputs, FaultSlot)> {
    let fault = Arc::new(Mutex::new(None));
    let mut inputs = Inputs::default();
    for (flow, table) in ladders {
        let table = table.cast::<PyDict>()?;
        inputs.ladders.insert(flow.extract()?, Arc::new(ladder(table)?));
    }
    for (flow, class) in controllers {
        let factory: Arc<dyn Factory> = Arc::new(PythonController::new(class.unbind(), Arc::clone(&fault)));
        inputs.factories.insert(flow.extract()?, factory);
    }
    Ok((inputs, fault))
}

/// The mistake that a user's class has made, if it has.
fn raised(fault: &FaultSlot) -> PyResult<()> {
    match fault.lock().ok().and_then(|mut f| f.take()) {
        Some(Fault::Interrupted(error)) => Err(error),
        Some(Fault::Wrong { place, problem, remedy }) => Err(wrong(place, problem, remedy)),
        None => Ok(()),
    }
}

/// The interpreter is asked whether to go on every so many times that the simulation asks.
const ASKED: u32 = 16;

impl PySimulation {
    fn locked(&self) -> MutexGuard<'_, Simulation> {
        // A panic inside has been reported; what the simulation holds is still the record up to then.
        self.simulation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A table as Python takes it.
pub(crate) fn columns(py: Python<'_>, table: Table) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for (column, values) in table {
        let name = column.name;
        match values {
            Values::Real(values) => list.append((name, "f64", packed(py, &values, |v| v.to_le_bytes())))?,
            Values::Whole(values) => list.append((name, "i64", packed(py, &values, |v| v.to_le_bytes())))?,
            Values::Text { codes, texts } => {
                list.append((name, "text", (packed(py, &codes, |v| v.to_le_bytes()), texts)))?;
            }
        }
    }
    Ok(list)
}

fn packed<'py, T: Copy, const N: usize>(py: Python<'py>, values: &[T], bytes: fn(T) -> [u8; N]) -> Bound<'py, PyBytes> {
    let all: Vec<u8> = values.iter().flat_map(|v| bytes(*v)).collect();
    PyBytes::new(py, &all)
}

/// A frame's kind by its number.
pub(crate) const fn frame_kind(number: u8) -> FrameKind {
    match number {
        0 => FrameKind::I,
        1 => FrameKind::P,
        _ => FrameKind::B,
    }
}

/// What a step of a quantizer means, of which this many double the step size; `None`: it is in proportion.
pub(crate) fn scale(doubling: Option<u8>) -> Scale {
    doubling.map_or(Scale::Linear, Scale::Logarithmic)
}

/// A frame table that Python has made.
pub(crate) fn ladder(table: &Bound<'_, PyDict>) -> PyResult<Ladder> {
    let py = table.py();
    let get = |key: &str| table.get_item(key)?.ok_or_else(|| PyKeyError::new_err(key.to_owned()));
    let kinds = PyBuffer::<u8>::get(&get("kinds")?)?.to_vec(py)?;
    let display = PyBuffer::<u32>::get(&get("display")?)?.to_vec(py)?;
    let all = PyBuffer::<u32>::get(&get("sizes")?)?.to_vec(py)?;
    let frames = kinds.len().max(1);
    Ok(Ladder {
        fps: get("fps")?.extract()?,
        gop: get("gop")?.extract()?,
        scale: scale(get("doubling")?.extract()?),
        quantizers: get("qs")?.extract()?,
        kinds: kinds.into_iter().map(frame_kind).collect(),
        display,
        sizes: all.chunks(frames).map(Into::into).collect(),
    })
}
