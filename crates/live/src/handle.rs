//! A handle with which other threads observe and stop a session.

use crate::{LiveError, LiveRecord, Waker};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use steadycast_session::OperatorControls;

#[derive(Default)]
struct Shown {
    status: Value,
    number: u64,
    done: bool,
}

/// State that is shared by a session's thread and its handles.
#[derive(Default)]
pub(crate) struct Shared {
    stop: AtomicBool,
    /// Whether a status was requested. A status is built only on request.
    asked: AtomicBool,
    shown: Mutex<Shown>,
    change: Condvar,
    pub(crate) orders: OperatorControls,
    /// Canonical names (CNAMEs) of receivers that are excluded.
    pub(crate) excluded: Mutex<Vec<String>>,
}

impl Shared {
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns whether the loop must stop waiting, because a stop or a status was requested.
    pub(crate) fn calls(&self) -> bool {
        self.stopped() || self.asked.load(Ordering::Relaxed)
    }

    /// Builds the status with `make` and publishes it, if a status was requested.
    pub(crate) fn show(&self, make: impl FnOnce() -> Value) {
        // Clear the request. One status answers all requests so far.
        if self.asked.swap(false, Ordering::Relaxed) {
            self.show_now(make());
        }
    }

    pub(crate) fn show_now(&self, status: Value) {
        let mut shown = self.shown();
        (shown.status, shown.number) = (status, shown.number + 1);
        drop(shown);
        self.change.notify_all();
    }

    /// Announces that the session has ended. No status follows.
    pub(crate) fn end(&self) {
        self.shown().done = true;
        self.change.notify_all();
    }
}

type Ending = JoinHandle<Result<LiveRecord, LiveError>>;

/// A handle of a live session for other threads. It can still be used after the session has ended.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Arc<Mutex<Option<Ending>>>,
}

impl Handle {
    /// Runs `session` in a thread called `name`.
    pub(crate) fn start(
        name: &str,
        shared: Arc<Shared>,
        waker: Waker,
        session: impl FnOnce() -> Result<LiveRecord, LiveError> + Send + 'static,
    ) -> Result<Self, LiveError> {
        let ends = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let record = session();
            // Wake the threads that wait for the session, even if it failed.
            ends.end();
            record
        })?;
        Ok(Self { shared, waker, thread: Arc::new(Mutex::new(Some(thread))) })
    }

    /// Stops the session and returns its record.
    ///
    /// # Errors
    /// The session's loop failed, the record was taken before, or the thread has died because of a bug.
    pub fn finish(&self) -> Result<LiveRecord, LiveError> {
        self.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = thread.ok_or_else(|| LiveError::unwritten("it was taken already"))?;
        thread.join().map_err(|_| LiveError::unwritten("the session's thread has died"))?
    }

    /// Waits up to `patience` for a new status. Returns the latest status as JSON, or `null` if there is none.
    pub fn status(&self, patience: Duration) -> Value {
        // Read the number of the present status, so that this status does not count as the answer.
        let before = self.shared.shown().number;
        self.shared.asked.store(true, Ordering::Relaxed);
        self.waker.wake();
        let waits = |shown: &mut Shown| shown.number == before && !shown.done;
        let waited = self.shared.change.wait_timeout_while(self.shared.shown(), patience, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0.status.clone()
    }

    /// Returns whether the session has ended.
    pub fn done(&self) -> bool {
        self.shared.shown().done
    }

    /// Waits up to `patience` for the end of the session. Returns whether it has ended.
    pub fn wait(&self, patience: Duration) -> bool {
        let waited = self.shared.change.wait_timeout_while(self.shared.shown(), patience, |shown| !shown.done);
        waited.unwrap_or_else(PoisonError::into_inner).0.done
    }

    /// Requests that the session send a BYE and end.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, Loop, SocketSource};
    use serde_json::json;

    #[test]
    fn a_status_of_this_moment_is_made_on_call_and_the_last_one_stays() {
        let driver: Loop<SocketSource> = Loop::new(Clock::start()).unwrap();
        let shared = Arc::new(Shared::default());
        let handle = Handle { shared: Arc::clone(&shared), waker: driver.waker(), thread: Arc::default() };
        assert_eq!(handle.status(Duration::ZERO), Value::Null, "nobody answers");
        assert!(shared.calls() && !shared.stopped());
        let session = std::thread::spawn(move || {
            // Answer each request once, until the session stops.
            let mut made = 0;
            while !shared.stopped() {
                shared.show(|| {
                    made += 1;
                    json!(made)
                });
                std::thread::yield_now();
            }
            shared.show_now(json!("last"));
            shared.end();
        });
        let seen: Vec<Value> = (0..3).map(|_| handle.status(Duration::from_secs(60))).collect();
        let rises = |w: &[Value]| w[0].as_u64() < w[1].as_u64();
        assert!(seen.windows(2).all(rises), "{seen:?}");
        assert!(!handle.wait(Duration::ZERO));
        handle.stop();
        assert!(handle.wait(Duration::from_secs(60)) && handle.done());
        assert_eq!(handle.status(Duration::from_secs(60)), json!("last"));
        session.join().unwrap();
    }
}
