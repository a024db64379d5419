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

/// A simulated run of a scenario.
#[pyclass(frozen, name = "Simulation", module = "steadycast._core")]
pub(crate) struct PySimulation {
    /// The simulation. It needs a lock because the controllers in it are not `Sync`.
    simulation: Mutex<Simulation>,
    guests: Guests,
    /// The folder to which captures are written.
    captures: OnceLock<PathBuf>,
}

#[pymethods]
impl PySimulation {
    /// Creates the simulation of a scenario. Raises UserError.
    ///
    /// - `ladders` maps the name of a flow to a dict with the fields of a ladder. The fields are fps (a pair), gop,
    ///   doubling, qs, kinds (uint8), display (uint32) and sizes (a 2-D array of uint32).
    /// - `guests` maps a key of the scenario, such as "flow.video.controller", to the user's class. Instead of a class,
    ///   it may have the command of a program, as a list.
    #[new]
    fn new(scenario: &PyScenario, ladders: &Bound<'_, PyDict>, guests: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (inputs, guests) = inputs(scenario.scenario(), ladders, guests)?;
        let line = |key: &str| scenario.loaded.problem(key, "", "").line;
        let simulation = Simulation::build(scenario.scenario(), &inputs)
            .map_err(|error| refused(&scenario.file, line(&error.key), error))?;
        Ok(Self { simulation: Mutex::new(simulation), guests, captures: OnceLock::new() })
    }

    fn __repr__(&self) -> String {
        // Do not wait for the lock. A running simulation needs the interpreter at times, so the wait would be a
        // deadlock.
        let Ok(simulation) = self.simulation.try_lock() else { return "Simulation(running)".into() };
        format!("Simulation(at_s={}, end_s={})", simulation.now().as_secs_f64(), simulation.end().as_secs_f64())
    }

    /// During the run, writes the packets of each captured link to `folder`/LINK.pcapng. The scenario specifies the
    /// captured links. Raises UnwrittenError.
    fn capture(&self, folder: PathBuf) -> PyResult<()> {
        let folder = self.captures.get_or_init(|| folder);
        let named = |link: &str| folder.join(format!("{link}.pcapng"));
        self.locked().capture(|link| Ok(Box::new(File::create(named(link))?))).map_err(|e| unwritten(Some(folder), e))
    }

    /// Runs to the end. Calls `progress(done_s, of_s)` from time to time. An exception in `progress` stops the run, and
    /// so does Ctrl-C, which raises KeyboardInterrupt. Returns whether the end was reached. Raises UserError for a
    /// mistake in a user's class, and UnwrittenError for a capture that can't be written.
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

    /// Runs until the time `until_s` in seconds, or to the end if this comes first, and pauses there. Returns whether
    /// the end was reached. Raises UserError for a mistake in a user's class.
    fn run_to(&self, py: Python<'_>, until_s: f64) -> PyResult<bool> {
        let until = Time::ZERO + Span::from_secs_f64(until_s);
        let reached = py.detach(|| self.locked().run_to(until));
        Asking::new(&self.guests.fault, None, ASKED).over()?;
        Ok(reached)
    }

    /// Returns the content of summary.json for the run so far. Figures that are measured on decoded pictures, such as
    /// PSNR, are left out.
    fn summary(&self, complete: bool) -> String {
        self.locked().record().tree(complete).into_json()
    }

    /// Returns `record_sha256` from the summary, and the numbers in the summary. The numbers are a JSON object, whose
    /// keys are their paths.
    fn figures(&self, complete: bool) -> (String, String) {
        let summary = self.locked().summary(complete);
        let sha256 = summary["record_sha256"].as_str().unwrap_or_default().to_owned();
        (sha256, serde_json::Value::from(steadycast_record::flat(&summary)).to_string())
    }

    /// Returns the stderr of the users' programs, as tuples of name and bytes. The name is "controller-FLOW" or
    /// "switching-FLOW".
    fn logs<'py>(&self, py: Python<'py>) -> Vec<(String, Bound<'py, PyBytes>)> {
        self.guests.logs(py)
    }

    /// Number of packets that have left a link so far.
    #[getter]
    fn hops(&self) -> u64 {
        self.locked().hops()
    }

    /// Returns a table of the record. It is a list of columns, and each column is a tuple of name, kind and content.
    ///
    /// For the kinds "f64" and "i64", the content is the bytes of the numbers. For the kind "text", the content is a
    /// pair. It consists of the bytes of one u32 per row, and a list of texts. The u32 is the index of the row's text
    /// in the list.
    fn table<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let table = self.locked().table(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        columns(py, table)
    }
}

/// Calls Python from time to time, to check whether the run may continue.
pub(crate) struct Asking<'a> {
    fault: &'a FaultSlot,
    progress: Option<Py<PyAny>>,
    /// The number of calls of `go_on` for which Python is called once.
    every: u32,
    asked: u32,
    stopped: Option<PyErr>,
}

impl<'a> Asking<'a> {
    pub(crate) const fn new(fault: &'a FaultSlot, progress: Option<Py<PyAny>>, every: u32) -> Self {
        Self { fault, progress, every, asked: 0, stopped: None }
    }

    /// Returns whether the run may continue. `now` is the current time, and `end` is the end of the run.
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
            // Let Python handle Ctrl-C. It does so only in its interpreter, which does not run during the simulation.
            py.check_signals()?;
            self.progress.as_ref().map_or(Ok(()), |p| p.call1(py, told).map(|_| ()))
        });
        go_on.map_err(|e| self.stopped = Some(e)).is_ok()
    }

    /// Ends the run. Returns the error that stopped the run, or the mistake in a user's class.
    pub(crate) fn over(self) -> PyResult<()> {
        self.stopped.map_or_else(|| self.fault.take().map_or(Ok(()), |fault| Err(fault_error(fault))), Err)
    }
}

/// The state of the users' controllers and switching rules in a run.
#[derive(Default)]
pub(crate) struct Guests {
    /// The first fault in a user's controller or switching rule.
    pub(crate) fault: FaultSlot,
    /// The users' programs. The name of each is the name of its log.
    #[cfg(unix)]
    programs: Vec<(String, Arc<Program>)>,
}

impl Guests {
    /// Returns the stderr of the users' programs. The name of each is the name of its log.
    pub(crate) fn logs<'py>(&self, py: Python<'py>) -> Vec<(String, Bound<'py, PyBytes>)> {
        #[cfg(unix)]
        return self.programs.iter().map(|(name, program)| (name.clone(), PyBytes::new(py, &program.log()))).collect();
        #[cfg(not(unix))]
        Vec::new()
    }

    /// Returns the factory of a flow's controller. `guest` is a Python class, or the command of a program.
    fn controller(&mut self, flow: &str, video: &Video, guest: Bound<'_, PyAny>) -> PyResult<Arc<dyn Factory>> {
        // A list is the command of a program.
        if let Ok(words) = guest.cast::<PyList>() {
            return Ok(self.program("controller", flow, video.controller.name(), words, video.feedback)?);
        }
        Ok(Arc::new(PythonController::new(guest.unbind(), video.feedback, self.fault.clone())))
    }

    /// Returns the factory of a flow's switching rule. `guest` is a Python class, or the command of a program.
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
        // Release the interpreter's lock, because this call waits until the program has answered `hello`.
        let started = py.detach(|| Program::start(Timeouts::default(), flow, name, words, feedback, fault));
        let program = Arc::new(started.map_err(fault_error)?);
        self.programs.push((format!("{key}-{flow}"), Arc::clone(&program)));
        Ok(program)
    }

    /// Returns an error, because external programs need a POSIX system. `T` can be any type, because `Program` does not
    /// exist on this system.
    #[cfg(not(unix))]
    fn program<T>(&mut self, _: &str, _: &str, name: &str, _: &Bound<'_, PyList>, _: FeedbackFormat) -> PyResult<T> {
        Err(wrong(name, "programs work on POSIX systems alone", "write a class in Python"))
    }
}

/// Returns the inputs of a run, which contain the ladders and the users' controllers and switching rules. Also returns
/// the [`Guests`], which later provide the faults and the logs.
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

/// Returns the exception for a fault in a user's controller or switching rule.
fn fault_error(fault: Fault) -> PyErr {
    match fault {
        Fault::Interrupted => PyKeyboardInterrupt::new_err(()),
        Fault::Wrong { place, problem, remedy } => wrong(place, problem, remedy),
    }
}

/// Python's signals are checked once per this number of callbacks. There is one callback per batch of events.
const ASKED: u32 = 16;

impl PySimulation {
    fn locked(&self) -> MutexGuard<'_, Simulation> {
        // Use the record up to this point if a thread has panicked under the lock. The panic has been reported.
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

/// Returns the type of a frame from its number.
pub(crate) const fn frame_kind(number: u8) -> FrameKind {
    match number {
        0 => FrameKind::I,
        1 => FrameKind::P,
        _ => FrameKind::B,
    }
}

/// Returns how a codec's quantizer determines the step size. If `doubling` is `None`, the step size is proportional to
/// the quantizer. Otherwise, the step size doubles whenever the quantizer increases by `doubling`.
pub(crate) fn scale(doubling: Option<u8>) -> Scale {
    doubling.map_or(Scale::Linear, Scale::Logarithmic)
}

/// Converts a table of frame sizes from Python.
pub(crate) fn ladder(table: &Bound<'_, PyDict>) -> PyResult<Ladder> {
    let py = table.py();
    let get = |key: &str| table.get_item(key)?.ok_or_else(|| PyKeyError::new_err(key.to_owned()));
    let kinds = PyBuffer::<u8>::get(&get("kinds")?)?.to_vec(py)?;
    let display = PyBuffer::<u32>::get(&get("display")?)?.to_vec(py)?;
    let all = PyBuffer::<u32>::get(&get("sizes")?)?.to_vec(py)?;
    // Use at least 1, because `chunks` panics if its length is 0.
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
