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

/// A scenario that runs in real time over the kernel of this machine.
#[pyclass(frozen, name = "Emulation", module = "steadycast._core")]
pub(crate) struct PyEmulation {
    emulation: Mutex<Emulation>,
    guests: Guests,
    /// The name of the scenario's file, for error messages.
    file: String,
    /// The folder to which captures are written.
    captures: OnceLock<PathBuf>,
}

/// Returns the settings that the emulation does not support. Each is a dict with file, line, key, what and remedy.
#[pyfunction]
pub(crate) fn refusals<'py>(py: Python<'py>, scenario: &PyScenario) -> PyResult<Bound<'py, PyList>> {
    problems(py, &steadycast_emulate::refusals(&scenario.loaded))
}

/// Returns the exception for an error in the emulation of the scenario `file`.
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
            // Remove the error's number from the text, because Python's OSError shows it.
            let told = told.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((error.raw_os_error(), told, what))
        }
        EmulateError::Build(error) => refused(file, None, error),
    }
}

#[pymethods]
impl PyEmulation {
    /// Creates the hosts and opens the sockets of the flows. `ladders` and `guests` are as in `Simulation`. `program`
    /// is the name of a host and the command that runs there. If `only` is set, the command runs without the flows.
    /// Otherwise, it runs together with the flows. `tap` lists the hosts whose datagrams are recorded in the table
    /// "wire". Raises MissingError if the program can't be started, OSError if the system refuses something, and
    /// UserError for other problems.
    #[new]
    #[pyo3(signature = (scenario, ladders, guests, program=None, only=false, tap=Vec::new()))]
    fn new(
        py: Python<'_>,
        scenario: &PyScenario,
        ladders: &Bound<'_, PyDict>,
        guests: &Bound<'_, PyDict>,
        program: Option<(String, Vec<String>)>,
        only: bool,
        tap: Vec<String>,
    ) -> PyResult<Self> {
        let (mut inputs, guests) = inputs(scenario.scenario(), ladders, guests)?;
        let program = program.map(|(host, command)| Program { host, command });
        let options = Options { hosts: Vec::new(), only_network: only, program, tap };
        // Release the interpreter's lock. Another thread creates the agents, and needs the interpreter for the Python
        // objects of switching rules.
        let emulation = py
            .detach(|| Emulation::build(scenario.scenario(), &mut inputs, options))
            .map_err(|e| error(&scenario.file, e))?;
        let (file, captures) = (scenario.file.clone(), OnceLock::new());
        Ok(Self { emulation: Mutex::new(emulation), guests, file, captures })
    }

    fn __repr__(&self) -> String {
        // Do not wait for the lock, because it is held for the whole run in real time.
        let Ok(emulation) = self.emulation.try_lock() else { return "Emulation(running)".into() };
        format!("Emulation(end_s={})", emulation.end().as_secs_f64())
    }

    /// During the run, writes the packets of each captured link to `folder`/LINK.pcapng. The scenario specifies the
    /// captured links. Raises UnwrittenError.
    fn capture(&self, folder: PathBuf) -> PyResult<()> {
        let folder = self.captures.get_or_init(|| folder);
        let named = |link: &str| folder.join(format!("{link}.pcapng"));
        self.locked().capture(|link| Ok(Box::new(File::create(named(link))?))).map_err(|e| unwritten(Some(folder), e))
    }

    /// Runs in real time until the scenario or the program ends. See `Simulation.run`.
    fn run(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<bool> {
        // Ask the interpreter at each callback. This is rare enough, because there is one callback per 50 ms.
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

    /// The exit code of the program, or 128 plus the number of the signal that ended it. None if there was no program.
    #[getter]
    fn code(&self) -> Option<i32> {
        self.locked().code
    }

    /// Returns the content of summary.json for the run. Figures that are measured on decoded pictures, such as PSNR,
    /// are left out.
    fn summary(&self, complete: bool) -> String {
        self.locked().summary(complete).to_string()
    }

    /// Returns the stderr of the users' programs. See `Simulation.logs`.
    fn logs<'py>(&self, py: Python<'py>) -> Vec<(String, Bound<'py, PyBytes>)> {
        self.guests.logs(py)
    }

    /// Number of packets that have left a link.
    #[getter]
    fn hops(&self) -> u64 {
        self.locked().hops()
    }

    /// Returns a table of the record. See `Simulation.table`.
    fn table<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        columns(py, self.locked().table(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))?)
    }
}

impl PyEmulation {
    fn locked(&self) -> MutexGuard<'_, Emulation> {
        // Use the record up to this point if a thread has panicked under the lock. The panic has been reported.
        self.emulation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
