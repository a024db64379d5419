//! A child process that answers each line with one line, and never outlives this process.
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

/// The most bytes of a line.
pub(crate) const LONGEST_LINE: usize = 1 << 20;
/// The time in which a process has to end after it was asked to.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Why an exchange has no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ExchangeError {
    Timeout,
    /// A line without a request.
    Unsolicited(Vec<u8>),
    TooLong,
    /// The process has closed its output; the text says how it ended.
    Closed(Option<String>),
}

pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    /// Output that has been read but not processed.
    buffer: Vec<u8>,
    guard: Child,
    /// A failed process is killed without being asked to end.
    failed: bool,
}

impl Process {
    /// Starts a program in its own process group, with its stderr in `log`.
    pub(crate) fn start(words: &[String], log: File) -> io::Result<Self> {
        let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        // The guard kills the program when this process dies. The guard starts first, because it then learns the
        // program's ID sooner.
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
        // A process that neither reads nor writes can't block this one.
        ioctl_fionbio(&process.output, true)?;
        process.input.as_ref().map_or(Ok(()), |input| ioctl_fionbio(input, true))?;
        Ok(process)
    }

    /// Sends a line and returns the answer, both without the newline.
    pub(crate) fn exchange(&mut self, line: &[u8], timeout: Duration) -> Result<Vec<u8>, ExchangeError> {
        let result = self.answer(line, timeout);
        self.failed |= result.is_err();
        result
    }

    fn answer(&mut self, line: &[u8], timeout: Duration) -> Result<Vec<u8>, ExchangeError> {
        // Earlier output would be mistaken for the answer.
        let open = self.fill();
        if !self.buffer.is_empty() {
            return Err(ExchangeError::Unsolicited(std::mem::take(&mut self.buffer)));
        }
        let (until, mut rest, mut read) = (Instant::now() + timeout, line, 0);
        let mut open = open && self.write(&mut rest);
        loop {
            if let Some(end) = self.buffer[read..].iter().position(|b| *b == b'\n') {
                // A second line would be mistaken for the next answer.
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
            // A line without end must not fill the memory.
            if read > LONGEST_LINE {
                return Err(ExchangeError::TooLong);
            }
            if !open {
                return Err(ExchangeError::Closed(self.ending()));
            }
            if !self.wait(rest.is_empty(), until) {
                return Err(ExchangeError::Timeout);
            }
            // Reads even after the process has ended, because it may have answered before.
            open = self.write(&mut rest) & self.fill();
        }
    }

    /// Writes as much as the pipe accepts; returns whether the process still reads.
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

    /// Reads the available output; returns whether the process still writes.
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

    /// Waits for output, or, unless all input is `written`, for room in the input. Returns false on a timeout.
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

    /// Waits up to one second for the process to end, and returns how it ended. The process is not reaped, so that its
    /// group can still be killed.
    fn ending(&self) -> Option<String> {
        let pid = Pid::from_child(&self.child);
        for _ in 0..100 {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            if let Ok(Some(status)) = waitid(WaitId::Pid(pid), options) {
                let signal = status.terminating_signal().map(|signal| format!("signal {signal}"));
                return signal.or_else(|| status.exit_status().map(|code| format!("code {code}")));
            }
            // The process may never end, so it is polled.
            let _ = poll(&mut [], Some(&span(Duration::from_millis(10))));
        }
        None
    }

    /// Sends the run's last message, and waits until the process closes its output.
    pub(crate) fn end(&mut self, mut line: &[u8]) {
        if self.failed || !self.write(&mut line) {
            return;
        }
        self.input = None;
        let until = Instant::now() + END_TIMEOUT;
        // The process may write until it ends.
        while self.fill() && self.buffer.len() <= LONGEST_LINE && self.wait(true, until) {}
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The guard kills the process group before `wait`, because the group's ID may be reused afterwards.
        end_guard(&mut self.guard);
        let _ = self.child.wait();
    }
}

/// Starts the guard, a process that reads the ID of a process group. The guard kills the group when the guard's input
/// is closed, for example because this process has died.
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
