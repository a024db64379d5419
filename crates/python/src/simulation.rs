use crate::controller::{PythonController, PythonSwitching};
use crate::error::{refused, unwritten, wrong};
use crate::scenario::PyScenario;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyKeyError, PyKeyboardInterrupt};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use steadycast_control::FeedbackFormat;
use steadycast_control::registry::Factory;
use steadycast_external::{Fault, FaultSlot};
#[cfg(unix)]
use steadycast_external::{Program, Timeouts};
use steadycast_media::{Ladder, Scale, SwitchingFactory};
use steadycast_scenario::{FlowKind, Scenario, Video};
use steadycast_session::FrameKind;
use steadycast_sim::{Inputs, Simulation, Table, Values};
use steadycast_units::{Span, Time};

/// A run of a scenario.
#[pyclass(frozen, name = "Simulation", module = "steadycast._core")]
pub(crate) struct PySimulation {
    /// A lock is needed because the controllers' halves are not `Sync`.
    simulation: Mutex<Simulation>,
    guests: Guests,
    /// The folder for captures.
    captures: OnceLock<PathBuf>,
}

#[pymethods]
impl PySimulation {
    /// Builds the simulation of a scenario. Raises UserError.
    ///
    /// - `ladders` maps a flow's name to a dict with the ladder's fields: fps (a pair), gop, doubling, qs, kinds
    ///   (uint8), display (uint32) and sizes (a 2-D array of uint32).
    /// - `guests` maps a scenario's key, such as "flow.video.controller", to a class, or to a program's command as a
    ///   list.
    #[new]
    fn new(scenario: &PyScenario, ladders: &Bound<'_, PyDict>, guests: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (inputs, guests) = inputs(scenario.scenario(), ladders, guests)?;
        let line = |key: &str| scenario.loaded.problem(key, "", "").line;
        let simulation = Simulation::build(scenario.scenario(), &inputs)
            .map_err(|error| refused(&scenario.file, line(&error.key), error))?;
        Ok(Self { simulation: Mutex::new(simulation), guests, captures: OnceLock::new() })
    }

    fn __repr__(&self) -> String {
        // Waiting for the lock would be a deadlock: a running simulation needs the interpreter at times.
        let Ok(simulation) = self.simulation.try_lock() else { return "Simulation(running)".into() };
        format!("Simulation(at_s={}, end_s={})", simulation.now().as_secs_f64(), simulation.end().as_secs_f64())
    }

    /// Writes the packets of the links that the scenario captures to `folder`/LINK.pcapng during the run. Raises
    /// UnwrittenError.
    fn capture(&self, folder: PathBuf) -> PyResult<()> {
        let folder = self.captures.get_or_init(|| folder);
        let named = |link: &str| folder.join(format!("{link}.pcapng"));
        self.locked().capture(|link| Ok(Box::new(File::create(named(link))?))).map_err(|e| unwritten(Some(folder), e))
    }

    /// Runs to the end. `progress(done_s, of_s)` is called from time to time, and can raise to stop the run; Ctrl-C
    /// stops it with KeyboardInterrupt. Returns whether the end was reached. Raises UserError for a mistake in a user's
    /// class, UnwrittenError for a capture.
    fn run(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<bool> {
        let mut asking = Asking::new(&self.guests.fault, progress, ASKED);
        let complete = py.detach(|| {
            let mut simulation = self.locked();
            let end = simulation.end();
            simulation.run(|now| asking.go_on(now, end))
        });
        // Close the captures in any case, but raise the error that stopped the run first.
        let captured = self.locked().end_capture();
        asking.over()?;
        captured.map_err(|e| unwritten(self.captures.get().map(PathBuf::as_path), e))?;
        Ok(complete)
    }

    /// Runs to a time in seconds, or to the end, and pauses there. Returns whether the end was reached. Raises
    /// UserError for a mistake in a user's class.
    fn run_to(&self, py: Python<'_>, until_s: f64) -> PyResult<bool> {
        let until = Time::ZERO + Span::from_secs_f64(until_s);
        let reached = py.detach(|| self.locked().run_to(until));
        Asking::new(&self.guests.fault, None, ASKED).over()?;
        Ok(reached)
    }

    /// Returns summary.json of the run so far, without figures that are measured on decoded pictures, such as PSNR.
    fn summary(&self, complete: bool) -> String {
        self.locked().record().tree(complete).into_json()
    }

    /// Returns the summary's `record_sha256`, and its numbers by path as a JSON object.
    fn figures(&self, complete: bool) -> (String, String) {
        let summary = self.locked().summary(complete);
        let sha256 = summary["record_sha256"].as_str().unwrap_or_default().to_owned();
        (sha256, serde_json::Value::from(steadycast_record::flat(&summary)).to_string())
    }

    /// Returns the stderr of the users' programs: (name, bytes). The name is "controller-FLOW" or "switching-FLOW".
    fn logs<'py>(&self, py: Python<'py>) -> Vec<(String, Bound<'py, PyBytes>)> {
        self.guests.logs(py)
    }

    /// Number of packets that have left a link so far.
    #[getter]
    fn hops(&self) -> u64 {
        self.locked().hops()
    }

    /// Returns a table of the record as a list of columns, each a tuple (name, kind, content).
    ///
    /// For the kinds "f64" and "i64" the content is the bytes of the numbers. For the kind "text" the content is a
    /// pair: the bytes of a u32 for each row, and a list of texts. The u32 is the index of the row's text in this list.
    fn table<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let table = self.locked().table(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        columns(py, table)
    }
}

/// Calls Python from time to time to check whether the run continues.
pub(crate) struct Asking<'a> {
    fault: &'a FaultSlot,
    progress: Option<Py<PyAny>>,
    /// Python is called once per this number of calls of `go_on`.
    every: u32,
    asked: u32,
    stopped: Option<PyErr>,
}

impl<'a> Asking<'a> {
    pub(crate) const fn new(fault: &'a FaultSlot, progress: Option<Py<PyAny>>, every: u32) -> Self {
        Self { fault, progress, every, asked: 0, stopped: None }
    }

    /// Whether the run continues at `now`.
    pub(crate) fn go_on(&mut self, now: Time, end: Time) -> bool {
        if self.fault.is_set() {
            return false;
        }
        self.asked += 1;
        if !self.asked.is_multiple_of(self.every) {
            return true;
        }
        let told = (now.as_secs_f64(), end.as_secs_f64());
        let go_on = Python::attach(|py| {
            // Python handles Ctrl-C only in its interpreter, which does not run during the simulation.
            py.check_signals()?;
            self.progress.as_ref().map_or(Ok(()), |p| p.call1(py, told).map(|_| ()))
        });
        go_on.map_err(|e| self.stopped = Some(e)).is_ok()
    }

    /// Ends the run. Returns the error that stopped it, or the mistake in a user's class.
    pub(crate) fn over(self) -> PyResult<()> {
        self.stopped.map_or_else(|| self.fault.take().map_or(Ok(()), |fault| Err(fault_error(fault))), Err)
    }
}

/// The state of the users' controllers and switching rules in a run.
#[derive(Default)]
pub(crate) struct Guests {
    /// The first fault of a controller or a switching rule.
    pub(crate) fault: FaultSlot,
    /// The programs, by the names of their logs.
    #[cfg(unix)]
    programs: Vec<(String, Arc<Program>)>,
}

impl Guests {
    /// Returns the stderr of the programs, by the names of their logs.
    pub(crate) fn logs<'py>(&self, py: Python<'py>) -> Vec<(String, Bound<'py, PyBytes>)> {
        #[cfg(unix)]
        return self.programs.iter().map(|(name, program)| (name.clone(), PyBytes::new(py, &program.log()))).collect();
        #[cfg(not(unix))]
        Vec::new()
    }

    /// Returns the factory of a flow's controller, a class or a program's command.
    fn controller(&mut self, flow: &str, video: &Video, guest: Bound<'_, PyAny>) -> PyResult<Arc<dyn Factory>> {
        // A program's command is a list.
        if let Ok(words) = guest.cast::<PyList>() {
            return Ok(self.program("controller", flow, video.controller.name(), words, video.feedback)?);
        }
        Ok(Arc::new(PythonController::new(guest.unbind(), video.feedback, self.fault.clone())))
    }

    /// Returns the factory of a flow's switching rule. The rule is a class or a program's command.
    fn switching(&mut self, flow: &str, name: &str, guest: Bound<'_, PyAny>) -> PyResult<Arc<dyn SwitchingFactory>> {
        if let Ok(words) = guest.cast::<PyList>() {
            return Ok(self.program("switching", flow, name, words, FeedbackFormat::Own)?);
        }
        Ok(Arc::new(PythonSwitching::new(guest.unbind(), self.fault.clone())))
    }

    /// Starts an external program for a flow. `key` is "controller" or "switching".
    #[cfg(unix)]
    fn program(
        &mut self,
        key: &str,
        flow: &str,
        name: &str,
        words: &Bound<'_, PyList>,
        feedback: FeedbackFormat,
    ) -> PyResult<Arc<Program>> {
        let (py, words, fault) = (words.py(), words.extract()?, self.fault.clone());
        // This call waits until the program has answered `hello`.
        let started = py.detach(|| Program::start(Timeouts::default(), flow, name, words, feedback, fault));
        let program = Arc::new(started.map_err(fault_error)?);
        self.programs.push((format!("{key}-{flow}"), Arc::clone(&program)));
        Ok(program)
    }

    /// Returns an error, because programs need a POSIX system. `T` is any type, because `Program` does not exist here.
    #[cfg(not(unix))]
    fn program<T>(&mut self, _: &str, _: &str, name: &str, _: &Bound<'_, PyList>, _: FeedbackFormat) -> PyResult<T> {
        Err(wrong(name, "programs work on POSIX systems alone", "write a class in Python"))
    }
}

/// Returns a run's inputs, which contain the ladders and the users' controllers. Also returns the [`Guests`], from
/// which faults and logs are read later.
pub(crate) fn inputs(
    scenario: &Scenario,
    ladders: &Bound<'_, PyDict>,
    found: &Bound<'_, PyDict>,
) -> PyResult<(Inputs, Guests)> {
    let mut guests = Guests::default();
    let mut inputs = Inputs::default();
    for (flow, table) in ladders {
        let table = table.cast::<PyDict>()?;
        inputs.ladders.insert(flow.extract()?, Arc::new(ladder(table)?));
    }
    for flow in &scenario.flows {
        let FlowKind::Video(video) = &flow.kind else { continue };
        if let Some(guest) = found.get_item(format!("flow.{}.controller", flow.name))? {
            inputs.factories.insert(flow.name.clone(), guests.controller(&flow.name, video, guest)?);
        }
        if let (Some(name), Some(guest)) =
            (video.outside_switching(), found.get_item(format!("flow.{}.switching", flow.name))?)
        {
            inputs.switching.insert(flow.name.clone(), guests.switching(&flow.name, name, guest)?);
        }
    }
    Ok((inputs, guests))
}

/// Returns the exception for a fault of a user's controller.
fn fault_error(fault: Fault) -> PyErr {
    match fault {
        Fault::Interrupted => PyKeyboardInterrupt::new_err(()),
        Fault::Wrong { place, problem, remedy } => wrong(place, problem, remedy),
    }
}

/// Python's signals are checked at every 16th callback. There is one callback per batch of events.
const ASKED: u32 = 16;

impl PySimulation {
    fn locked(&self) -> MutexGuard<'_, Simulation> {
        // A panic under this lock has been reported; this is the record up to it.
        self.simulation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Converts a table for Python.
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

/// Returns the frame type for its number.
pub(crate) const fn frame_kind(number: u8) -> FrameKind {
    match number {
        0 => FrameKind::I,
        1 => FrameKind::P,
        _ => FrameKind::B,
    }
}

/// Returns a codec's quantizer scale: linear if `doubling` is `None`. Otherwise the step size doubles whenever the
/// quantizer increases by `doubling`.
pub(crate) fn scale(doubling: Option<u8>) -> Scale {
    doubling.map_or(Scale::Linear, Scale::Logarithmic)
}

/// Converts a frame table from Python.
pub(crate) fn ladder(table: &Bound<'_, PyDict>) -> PyResult<Ladder> {
    let py = table.py();
    let get = |key: &str| table.get_item(key)?.ok_or_else(|| PyKeyError::new_err(key.to_owned()));
    let kinds = PyBuffer::<u8>::get(&get("kinds")?)?.to_vec(py)?;
    let display = PyBuffer::<u32>::get(&get("display")?)?.to_vec(py)?;
    let all = PyBuffer::<u32>::get(&get("sizes")?)?.to_vec(py)?;
    // `chunks` panics if its length is 0.
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
