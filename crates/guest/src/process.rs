//! A process that answers each line with one, and that never outlives this one.
#![allow(clippy::disallowed_methods, reason = "how long another process takes, only the machine's clock can tell")]

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, read, write};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of the longest line.
pub(crate) const LONGEST: usize = 1 << 20;
/// How long a process may take to end once it was asked to.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// It has not come in time.
    Late,
    /// A line came before it was asked for.
    Unasked(Vec<u8>),
    /// The line does not end.
    Endless,
    /// The process writes no more: how it ended, where it has.
    Gone(Option<String>),
}

pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    /// What it has written and nobody has read.
    heard: Vec<u8>,
    guard: Child,
    /// Something went wrong with it: it is not asked to end.
    lost: bool,
}

impl Process {
    /// Starts a program in a process group of its own, with its stderr in `log`.
    pub(crate) fn start(words: &[String], log: File) -> io::Result<Self> {
        let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut child = Command::new(name)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .spawn()?;
        let guard = guard(child.id()).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let process = Self { child, input: Some(input), output, heard: Vec::new(), guard, lost: false };
        ioctl_fionbio(&process.output, true)?;
        process.input.as_ref().map_or(Ok(()), |input| ioctl_fionbio(input, true))?;
        Ok(process)
    }

    /// Writes a line and reads the one that answers it, without its end.
    pub(crate) fn exchange(&mut self, line: &[u8], patience: Duration) -> Result<Vec<u8>, Silence> {
        let told = self.answer(line, patience);
        self.lost |= told.is_err();
        told
    }

    fn answer(&mut self, line: &[u8], patience: Duration) -> Result<Vec<u8>, Silence> {
        let open = self.fill();
        if !self.heard.is_empty() {
            return Err(Silence::Unasked(std::mem::take(&mut self.heard)));
        }
        let (until, mut rest, mut read) = (Instant::now() + patience, line, 0);
        let mut open = open && self.write(&mut rest);
        loop {
            if let Some(end) = self.heard[read..].iter().position(|b| *b == b'\n') {
                let (answer, more) = self.heard.split_at(read + end);
                let told = if more == b"\n" { Ok(answer.to_vec()) } else { Err(Silence::Unasked(more[1..].to_vec())) };
                self.heard.clear();
                return told;
            }
            read = self.heard.len();
            if read > LONGEST {
                return Err(Silence::Endless);
            }
            if !open {
                return Err(Silence::Gone(self.ending()));
            }
            if !self.wait(rest.is_empty(), until) {
                return Err(Silence::Late);
            }
            // What has ended may have said something before.
            open = self.write(&mut rest) & self.fill();
        }
    }

    /// Writes as much as goes; whether the process still reads.
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

    /// Reads what there is; whether the process still writes.
    fn fill(&mut self) -> bool {
        while self.heard.len() <= LONGEST {
            self.heard.reserve(4096);
            match read(&self.output, spare_capacity(&mut self.heard)) {
                Ok(0) => return false,
                Ok(_) if self.heard.len() < self.heard.capacity() => return true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// Waits until the process has written something, or reads again where not all was `told`; false: not in time.
    fn wait(&self, told: bool, until: Instant) -> bool {
        loop {
            let mut fds = vec![PollFd::new(&self.output, PollFlags::IN)];
            fds.extend(self.input.as_ref().filter(|_| !told).map(|input| PollFd::new(input, PollFlags::OUT)));
            match poll(&mut fds, Some(&span(until.saturating_duration_since(Instant::now())))) {
                Ok(0) => return false,
                Err(Errno::INTR) => {}
                _ => return true,
            }
        }
    }

    /// How the process ended, if it does within a second: what it has left behind is still there to be ended with it.
    fn ending(&self) -> Option<String> {
        let pid = Pid::from_child(&self.child);
        for _ in 0..100 {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            if let Ok(Some(status)) = waitid(WaitId::Pid(pid), options) {
                let signal = status.terminating_signal().map(|signal| format!("signal {signal}"));
                return signal.or_else(|| status.exit_status().map(|code| format!("code {code}")));
            }
            let _ = poll(&mut [], Some(&span(Duration::from_millis(10))));
        }
        None
    }

    /// Says that the run is over, and waits for the process to close its output.
    pub(crate) fn farewell(&mut self, mut line: &[u8]) {
        if self.lost || !self.write(&mut line) {
            return;
        }
        self.input = None;
        let until = Instant::now() + PATIENCE;
        while self.fill() && self.heard.len() <= LONGEST && self.wait(true, until) {}
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The guard reads the end of its input, and ends the whole group, before its number can be another's.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        let _ = self.child.wait();
    }
}

/// Ends the group of this number when this process is gone, however it ends, or closes the guard's input.
fn guard(group: u32) -> io::Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", "read -r _; kill -s KILL -- \"-$0\"", &group.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

fn span(duration: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), tv_nsec: duration.subsec_nanos().into() }
}
