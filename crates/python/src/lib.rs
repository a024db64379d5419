//! The compiled module `steadycast._core`, a thin layer over the crates. The typed interface is in the Python package.

mod controller;
#[cfg(all(target_os = "linux", feature = "real-time"))]
mod emulation;
mod error;
#[cfg(all(target_os = "linux", feature = "real-time"))]
mod imported;
#[cfg(all(target_os = "linux", feature = "real-time"))]
mod live;
mod picture;
mod record;
mod registry;
mod scenario;
mod sender;
mod simulation;
mod sources;

use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the state of a class. Uses the state as it is if a thread has panicked under the lock. The panic has been
/// reported.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The compiled part of Steadycast. Emulations and live sessions need Linux. On other systems, their classes and
/// functions are missing.
#[pymodule]
#[allow(non_upper_case_globals, reason = "these names are Python's")]
mod _core {
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    const __build__: &str = env!("BUILD");
    #[pymodule_export]
    use crate::controller::{PyArrived, PyReport, PySent, PySetup, PySlot, PySwitchingInput};
    #[cfg(all(target_os = "linux", feature = "real-time"))]
    #[pymodule_export]
    use crate::emulation::{PyEmulation, refusals};
    #[cfg(all(target_os = "linux", feature = "real-time"))]
    #[pymodule_export]
    use crate::imported::{call, datagrams};
    #[cfg(all(target_os = "linux", feature = "real-time"))]
    #[pymodule_export]
    use crate::live::{
        PyBroadcast, PyEncodedLadder, PyMediaPort, PyOffer, PyReceiver, PyRecord, PySender, PySession, check_sender,
        is_key_frame, unused_reasons,
    };
    #[pymodule_export]
    use crate::picture::{picture_psnr, picture_ssim};
    #[pymodule_export]
    use crate::record::{columns, figures, flat, freezes, median, variation};
    #[pymodule_export]
    use crate::registry::{controllers, promises};
    #[pymodule_export]
    use crate::scenario::{PyScenario, experiment, experiment_schema, network, schema};
    #[pymodule_export]
    use crate::sender::{
        PyDecision, PyDeparture, PyEncoderTarget, PyMediaSender, PyProbe, PyRemote, PyTransportFeedbackRecorder,
    };
    #[pymodule_export]
    use crate::simulation::PySimulation;
    #[pymodule_export]
    use crate::sources::sources;
}
