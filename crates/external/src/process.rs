//! A child process that answers each line with one line. It never outlives this process.
#![allow(clippy::disallowed_methods, reason = "how long another process takes, only the machine's clock can tell")]

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, read, write};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum size of a line from the process, in bytes.
pub(crate) const LONGEST_LINE: usize = 1 << 20;
/// How long a process may take to end after its input was closed.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Why there is no answer to a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ExchangeError {
    /// The process has not written a whole line in time. The bytes are the part of a line that it has written.
    Timeout(Vec<u8>),
    /// The process wrote this line although it was not asked to.
    Unsolicited(Vec<u8>),
    TooLong,
    /// The process has closed its output. The text says how the process ended, if that is known.
    Closed(Option<String>),
}

pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    /// Output that was read from the process but is not processed yet.
    buffer: Vec<u8>,
    guard: Child,
    /// Whether an exchange has failed. The process is then killed without a request to end.
    failed: bool,
}

impl Process {
    /// Starts a program in a process group of its own. Its stderr is written to `log`.
    pub(crate) fn start(words: &[String], log: File) -> io::Result<Self> {
        let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        // Start a guard that kills the program if this process dies. Start the guard before the program, because it
        // then learns the program's ID sooner.
        let mut guard = start_guard()?;
        let mut child = Command::new(name)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .spawn()
            .inspect_err(|_| end_guard(&mut guard))?;
        let written = guard.stdin.as_mut().map_or(Ok(()), |stdin| writeln!(stdin, "{}", child.id()));
        written.inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
            end_guard(&mut guard);
        })?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let process = Self { child, input: Some(input), output, buffer: Vec::new(), guard, failed: false };
        // Make the pipes non-blocking, so that a process that neither reads nor writes can't block this process.
        ioctl_fionbio(&process.output, true)?;
        process.input.as_ref().map_or(Ok(()), |input| ioctl_fionbio(input, true))?;
        Ok(process)
    }

    /// Sends `line` and returns the answer without its newline. Fails if the answer takes longer than `timeout`.
    pub(crate) fn exchange(&mut self, line: &[u8], timeout: Duration) -> Result<Vec<u8>, ExchangeError> {
        let result = self.answer(line, timeout);
        self.failed |= result.is_err();
        result
    }

    fn answer(&mut self, line: &[u8], timeout: Duration) -> Result<Vec<u8>, ExchangeError> {
        // Refuse output that was written before the request, because it would be mistaken for the answer.
        let open = self.fill();
        if !self.buffer.is_empty() {
            return Err(ExchangeError::Unsolicited(std::mem::take(&mut self.buffer)));
        }
        let (until, mut rest, mut read) = (Instant::now() + timeout, line, 0);
        let mut open = open && self.write(&mut rest);
        loop {
            if let Some(end) = self.buffer[read..].iter().position(|b| *b == b'\n') {
                // Refuse a second line, because it would be mistaken for the next answer.
                let (answer, more) = self.buffer.split_at(read + end);
                let result = if more == b"\n" {
                    Ok(answer.to_vec())
                } else {
                    Err(ExchangeError::Unsolicited(more[1..].to_vec()))
                };
                self.buffer.clear();
                return result;
            }
            read = self.buffer.len();
            // Refuse a line that is too long, because a line without end would fill the memory.
            if read > LONGEST_LINE {
                return Err(ExchangeError::TooLong);
            }
            if !open {
                return Err(ExchangeError::Closed(self.ending()));
            }
            if !self.wait(rest.is_empty(), until) {
                return Err(ExchangeError::Timeout(std::mem::take(&mut self.buffer)));
            }
            // Read even after the process has ended, because it may have answered before.
            open = self.write(&mut rest) & self.fill();
        }
    }

    /// Writes as much of `rest` as the pipe accepts. Returns whether the process still reads.
    fn write(&self, rest: &mut &[u8]) -> bool {
        let Some(input) = &self.input else { return false };
        while !rest.is_empty() {
            match write(input, rest) {
                Ok(n) => *rest = &rest[n..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Reads the output that is available. Returns whether the process still writes.
    fn fill(&mut self) -> bool {
        while self.buffer.len() <= LONGEST_LINE {
            self.buffer.reserve(4096);
            match read(&self.output, spare_capacity(&mut self.buffer)) {
                Ok(0) => return false,
                Ok(_) if self.buffer.len() < self.buffer.capacity() => return true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Waits until there is output, or until `until`. If not all input is `written`, also waits for room in the input.
    /// Returns false on a timeout.
    fn wait(&self, written: bool, until: Instant) -> bool {
        loop {
            let mut fds = vec![PollFd::new(&self.output, PollFlags::IN)];
            fds.extend(self.input.as_ref().filter(|_| !written).map(|input| PollFd::new(input, PollFlags::OUT)));
            match poll(&mut fds, Some(&span(until.saturating_duration_since(Instant::now())))) {
                Ok(0) => return false,
                Err(Errno::INTR) => {}
                _ => return true,
            }
        }
    }

    /// Waits up to one second for the process to end, and returns how it ended. Does not reap the process, so that its
    /// process group can still be killed.
    fn ending(&self) -> Option<String> {
        let pid = Pid::from_child(&self.child);
        for _ in 0..100 {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            if let Ok(Some(status)) = waitid(WaitId::Pid(pid), options) {
                let signal = status.terminating_signal().map(|signal| format!("signal {signal}"));
                return signal.or_else(|| status.exit_status().map(|code| format!("code {code}")));
            }
            // Poll with a short sleep, because the process may never end.
            let _ = poll(&mut [], Some(&span(Duration::from_millis(10))));
        }
        None
    }

    /// Sends the last message of the run. Then closes the input and waits until the process closes its output, for up
    /// to [`END_TIMEOUT`].
    pub(crate) fn end(&mut self, mut line: &[u8]) {
        if self.failed || !self.write(&mut line) {
            return;
        }
        self.input = None;
        let until = Instant::now() + END_TIMEOUT;
        // Read until the end, because the process may still write.
        while self.fill() && self.buffer.len() <= LONGEST_LINE && self.wait(true, until) {}
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Kill the process group before `wait`. After `wait`, the ID of the group may be reused.
        end_guard(&mut self.guard);
        let _ = self.child.wait();
    }
}

/// Starts the guard. The guard is a process that reads the ID of a process group. It kills that group when its own
/// input is closed, for example because this process has died.
fn start_guard() -> io::Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", "read -r group || exit; read -r _; kill -s KILL -- \"-$group\""])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

fn end_guard(guard: &mut Child) {
    drop(guard.stdin.take());
    let _ = guard.wait();
}

fn span(duration: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), tv_nsec: duration.subsec_nanos().into() }
}
