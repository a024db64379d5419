use crate::error::{missing, refused, unwritten, wrong};
use crate::scenario::{PyScenario, listed as problems};
use crate::simulation::{Asking, Guests, columns, inputs};
use pyo3::exceptions::{PyKeyError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use steadycast_emulate::{EmulateError, Emulation, Options, Program};

/// A scenario in real time, across this machine's kernel.
#[pyclass(frozen, name = "Emulation", module = "steadycast._core")]
pub(crate) struct PyEmulation {
    emulation: Mutex<Emulation>,
    guests: Guests,
    /// What errors call the scenario.
    file: String,
    /// Where captures go.
    captures: OnceLock<PathBuf>,
}

/// What a scenario asks that the emulated world can't give: dicts with file, line, key, what and remedy.
#[pyfunction]
pub(crate) fn refusals<'py>(py: Python<'py>, scenario: &PyScenario) -> PyResult<Bound<'py, PyList>> {
    problems(py, &steadycast_emulate::refusals(&scenario.loaded))
}

/// What an emulation of the scenario `file` raises.
fn error(file: &str, error: EmulateError) -> PyErr {
    match error {
        EmulateError::Program { name, error } => {
            missing(&name, format!("can't be started ({error})"), "give its path, or install it")
        }
        EmulateError::NoHost(name) => {
            let remedy = "name a node of the scenario, or an end of one of its flows";
            wrong(format!("--in {name}"), format!("no host is called \"{name}\""), remedy)
        }
        EmulateError::Io(what, error) => {
            let told = error.to_string();
            let told = told.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((error.raw_os_error(), told, what))
        }
        EmulateError::Build(error) => refused(file, error),
    }
}

#[pymethods]
impl PyEmulation {
    /// Makes the hosts and opens the flows' sockets; `ladders` and `controllers` as for a simulation. `program`: a
    /// host's name, and what is to run there beside the flows, or alone with `only`. `tap`: hosts whose datagrams are
    /// recorded, in the table "wire". Raises MissingError where a right is missing, UserError for the rest.
    #[new]
    #[pyo3(signature = (scenario, ladders, controllers, program=None, only=false, tap=Vec::new()))]
    fn new(
        scenario: &PyScenario,
        ladders: &Bound<'_, PyDict>,
        controllers: &Bound<'_, PyDict>,
        program: Option<(String, Vec<String>)>,
        only: bool,
        tap: Vec<String>,
    ) -> PyResult<Self> {
        let (mut inputs, guests) = inputs(scenario.scenario(), ladders, controllers)?;
        let program = program.map(|(host, command)| Program { host, command });
        let options = Options { hosts: Vec::new(), only_network: only, program, tap };
        let emulation =
            Emulation::build(scenario.scenario(), &mut inputs, options).map_err(|e| error(&scenario.file, e))?;
        let (file, captures) = (scenario.file.clone(), OnceLock::new());
        Ok(Self { emulation: Mutex::new(emulation), guests, file, captures })
    }

    fn __repr__(&self) -> String {
        // Not to be waited for: it runs in real time.
        let Ok(emulation) = self.emulation.try_lock() else { return "Emulation(running)".into() };
        format!("Emulation(end_s={})", emulation.end().as_secs_f64())
    }

    /// Has the packets of the links that the scenario captures written to `folder`/LINK.pcapng while it runs. Raises
    /// UnwrittenError.
    fn capture(&self, folder: PathBuf) -> PyResult<()> {
        let folder = self.captures.get_or_init(|| folder);
        let named = |link: &str| folder.join(format!("{link}.pcapng"));
        self.locked().capture(|link| Ok(Box::new(File::create(named(link))?))).map_err(|e| unwritten(Some(folder), e))
    }

    /// Runs to the end, or to the program's, in real time; otherwise as a simulation's.
    fn run(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<bool> {
        let mut asking = Asking::new(&self.guests.fault, progress, 1);
        let complete = py.detach(|| {
            let mut emulation = self.locked();
            let end = emulation.end();
            emulation.run(|now| asking.go_on(now, end))
        });
        let captured = self.locked().end_capture();
        asking.over()?;
        let complete = complete.map_err(|e| error(&self.file, e))?;
        captured.map_err(|e| unwritten(self.captures.get().map(PathBuf::as_path), e))?;
        Ok(complete)
    }

    /// How the program ended: its code, or 128 and a signal's number; None without one.
    #[getter]
    fn code(&self) -> Option<i32> {
        self.locked().code
    }

    /// summary.json of the run, without what needs pixels.
    fn summary(&self, complete: bool) -> String {
        self.locked().summary(complete).to_string()
    }

    /// As a simulation's.
    fn logs<'py>(&self, py: Python<'py>) -> Vec<(String, Bound<'py, PyBytes>)> {
        self.guests.logs(py)
    }

    /// Packets that have left a link.
    #[getter]
    fn hops(&self) -> u64 {
        self.locked().hops()
    }

    /// A table of the record, as a simulation's.
    fn table<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        columns(py, self.locked().table(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?)
    }
}

impl PyEmulation {
    fn locked(&self) -> MutexGuard<'_, Emulation> {
        // A panic inside has been reported; what there is is still the record up to then.
        self.emulation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
