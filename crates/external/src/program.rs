//! A rate controller or switching rule in any language. It runs in a process that answers lines of JSON with lines of
//! JSON.

use crate::answer::{self, Hello, shortened};
use crate::fault::{Fault, FaultSlot, Moment};
use crate::half::{Decided, Event, Half, Law};
use crate::message::{Message, departed};
use crate::process::{ExchangeError, LONGEST_LINE, Process};
use std::fs::{File, OpenOptions, remove_file};
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use steadycast_control::registry::{Factory, Terms};
use steadycast_control::{EchoReceiver, FeedbackFormat, Need, ReceiverHalf, SenderHalf, Setup};
use steadycast_media::{RungContext, SwitchingFactory, SwitchingRule};
use steadycast_units::Time;

/// How long a process may take to answer, in real time.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Timeout for the answer to `hello`.
    pub start: Duration,
    /// Timeout for any other answer.
    pub answer: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { start: Duration::from_secs(10), answer: Duration::from_secs(5) }
    }
}

/// How many bytes at the end of a log are searched for its last lines.
const LAST: u64 = 4096;

/// Maximum number of lines that are quoted from the end of a log.
const LAST_LINES: usize = 12;

/// Maximum number of bytes that are kept of a log, from its start. If more were written, a final line says how many
/// bytes were left out.
pub const LOG_BYTES: u64 = 4 << 20;

/// The external program of a flow. Each controller or switching rule runs in its own process of the program.
pub struct Program {
    source: Arc<Source>,
    hello: Hello,
    feedback: FeedbackFormat,
    /// The first process, which has answered `hello` already. `None` after a controller or rule has taken it.
    first: Mutex<Option<Process>>,
}

/// What all processes of a program share.
struct Source {
    place: String,
    words: Vec<String>,
    timeouts: Timeouts,
    log: Mutex<File>,
    /// Number of bytes that were cut from the log.
    left_out: AtomicU64,
    fault: FaultSlot,
}

impl Program {
    /// Starts the program of a flow and asks for its capabilities. `name` is the name of the controller or switching
    /// rule. `words` are the command and its arguments. `feedback` is the scenario's setting, which a switching rule
    /// ignores.
    ///
    /// # Errors
    /// The program can't be started, or its answer to `hello` is invalid.
    pub fn start(
        timeouts: Timeouts,
        flow: &str,
        name: &str,
        words: Vec<String>,
        feedback: FeedbackFormat,
        fault: FaultSlot,
    ) -> Result<Self, Fault> {
        let place = format!("flow.{flow}: {name}");
        let log = unnamed_file().map_err(|error| Fault::Wrong {
            place: place.clone(),
            problem: format!("there is no room for what it writes to stderr ({error})"),
            remedy: "make room for temporary files".into(),
        })?;
        let source = Source { place, words, timeouts, log: Mutex::new(log), left_out: AtomicU64::new(0), fault };
        let (first, hello) = source.begin()?;
        // A format in the scenario overrides the format that the program requests.
        let feedback = if feedback == FeedbackFormat::Own { hello.feedback } else { feedback };
        Ok(Self { source: Arc::new(source), hello, feedback, first: Mutex::new(Some(first)) })
    }

    /// Returns what the processes of the program have written to stderr, up to [`LOG_BYTES`].
    pub fn log(&self) -> Vec<u8> {
        self.source.cut_log();
        let mut bytes = self.source.log_from(SeekFrom::Start(0));
        let left_out = self.source.left_out.load(Ordering::Relaxed);
        if left_out > 0 {
            bytes.extend(format!("\n{left_out} bytes more were left out\n").bytes());
        }
        bytes
    }
}

impl Program {
    /// Returns a process that has answered `hello`. The first call returns the process of [`Program::start`]. Later
    /// calls start a new process.
    fn running(&self) -> Running {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let process = first.map(Ok).unwrap_or_else(|| self.source.begin().map(|(process, _)| process));
        let process = process.map_err(|fault| self.source.fault.put(fault)).ok();
        Running { source: Arc::clone(&self.source), process, message: Message::default() }
    }
}

/// Creates a temporary file that is deleted when it is closed.
fn unnamed_file() -> io::Result<File> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("steadycast-{}-{number}.log", std::process::id()));
    // Use `create_new`, which fails if another user has placed a file or a link at this path.
    let file = OpenOptions::new().read(true).append(true).create_new(true).open(&path)?;
    // Remove the name now. The open handle keeps the file alive, and a crash leaves no file behind.
    remove_file(&path)?;
    Ok(file)
}

impl Source {
    fn wrong(&self, problem: String, remedy: impl Into<String>) -> Fault {
        Fault::Wrong { place: self.place.clone(), problem, remedy: remedy.into() }
    }

    fn begin(&self) -> Result<(Process, Hello), Fault> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner).try_clone();
        let mut process = log
            .and_then(|log| Process::start(&self.words, log))
            .map_err(|error| self.wrong(format!("it can't be started ({error})"), "name a program that can be run"))?;
        let mut message = Message::default();
        message.hello();
        let line = process.exchange(message.line(), self.timeouts.start);
        let line = line.map_err(|error| self.missing_answer(error, Moment::Start, "hello"))?;
        let hello = answer::hello(&line).map_err(|wrong| self.invalid_answer(wrong, &line, Moment::Start, "hello"))?;
        Ok((process, hello))
    }

    fn missing_answer(&self, error: ExchangeError, at: Moment, kind: &str) -> Fault {
        match error {
            ExchangeError::Timeout(part) => {
                let timeout = if kind == "hello" { self.timeouts.start } else { self.timeouts.answer };
                let problem = format!("{at} it did not answer \"{kind}\" in {} s", timeout.as_secs_f64());
                if !part.is_empty() {
                    let problem = format!("{problem}: it wrote {} without an end of line", text(&part));
                    return self.wrong(problem, "end each answer with \"\\n\", then flush");
                }
                let remedy = "flush after each line, and read without waiting for a full buffer (mawk: -W interactive)";
                self.wrong(problem, remedy)
            }
            ExchangeError::Unsolicited(line) => self.wrong(
                format!("{at} it had written a line more than it was asked for: {}", text(&line)),
                "write one line for each message; what is for people goes to stderr",
            ),
            ExchangeError::TooLong => self.wrong(
                format!("{at} its answer to \"{kind}\" had no end of line after {LONGEST_LINE} bytes"),
                "write one line for each message",
            ),
            ExchangeError::Closed(how) => {
                let how =
                    how.map_or_else(|| "had closed its input or output".into(), |how| format!("had ended with {how}"));
                let log = String::from_utf8_lossy(&self.log_from(SeekFrom::End(-(LAST as i64)))).into_owned();
                let lines: Vec<_> = log.lines().map(str::trim).filter(|line| !line.is_empty()).map(shortened).collect();
                // Quote several lines, because an interpreter may print the cause of an error before the stack.
                let last = lines[lines.len().saturating_sub(LAST_LINES)..].join(" | ");
                let last = if last.is_empty() { last } else { format!(", its last words were: {last}") };
                let remedy = "let it run until \"end\", or until its input ends";
                self.wrong(format!("{at}, when \"{kind}\" was to be answered, it {how}{last}"), remedy)
            }
        }
    }

    fn invalid_answer(&self, wrong: answer::Wrong, line: &[u8], at: Moment, kind: &str) -> Fault {
        let answer::Wrong { problem, remedy } = wrong;
        self.wrong(format!("{at} it answered \"{kind}\" with {}: {problem}", text(line)), remedy)
    }

    /// Cuts the log to [`LOG_BYTES`]. The file is open for appending, so later output follows the new end.
    fn cut_log(&self) {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let len = log.metadata().map_or(0, |about| about.len());
        if len > LOG_BYTES && log.set_len(LOG_BYTES).is_ok() {
            self.left_out.fetch_add(len - LOG_BYTES, Ordering::Relaxed);
        }
    }

    /// Returns the log from position `from` on. Returns the whole log if `from` is before the start.
    fn log_from(&self, from: SeekFrom) -> Vec<u8> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = Vec::new();
        // Seek freely. The processes append to the file, so seeking does not affect them.
        let found = log.seek(from).or_else(|_| log.seek(SeekFrom::Start(0)));
        let _ = found.and_then(|_| log.read_to_end(&mut bytes));
        bytes
    }
}

/// Returns a line as text for a message. The line may contain any bytes.
fn text(line: &[u8]) -> String {
    shortened(&String::from_utf8_lossy(&line[..line.len().min(400)]))
}

impl Factory for Program {
    fn sender(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        let mut running = self.running();
        running.message.setup(setup);
        let law = ProgramLaw { running, hello: self.hello, sent: String::new() };
        Box::new(Half::new(law, setup, self.feedback))
    }

    fn receiver(&self, _: &Setup) -> Box<dyn ReceiverHalf> {
        self.feedback.coarse_receiver(true).unwrap_or_else(|| Box::new(EchoReceiver::new(self.hello.every)))
    }

    fn terms(&self) -> Terms {
        let needs: &[Need] = if self.feedback == FeedbackFormat::Rfc8888 { &[Need::PacketReports] } else { &[] };
        Terms { needs, ..Terms::plain(*b"ECHO") }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(first) = self.first.get_mut().unwrap_or_else(PoisonError::into_inner) {
            let mut message = Message::default();
            message.over();
            first.end(message.line());
        }
    }
}

impl SwitchingFactory for Program {
    fn rule(&self) -> Box<dyn SwitchingRule> {
        Box::new(ProgramRule(self.running()))
    }
}

struct Running {
    source: Arc<Source>,
    /// The process. `None` after a fault.
    process: Option<Process>,
    message: Message,
}

impl Running {
    /// Returns whether nothing has failed yet.
    fn answers(&self) -> bool {
        self.process.is_some() && !self.source.fault.is_set()
    }

    /// Sends the message and returns its parsed answer. Returns `None` after a fault.
    fn ask<T>(&mut self, at: Moment, kind: &str, parse: impl FnOnce(&[u8]) -> Result<T, answer::Wrong>) -> Option<T> {
        // Cut the log at each message, so that it can't fill the disk.
        self.source.cut_log();
        let process = self.process.as_mut().filter(|_| !self.source.fault.is_set())?;
        let answered = match process.exchange(self.message.line(), self.source.timeouts.answer) {
            Ok(line) => parse(&line).map_err(|wrong| self.source.invalid_answer(wrong, &line, at, kind)),
            Err(error) => Err(self.source.missing_answer(error, at, kind)),
        };
        answered
            .map_err(|fault| {
                self.source.fault.put(fault);
                // End the process, because its answers could no longer be matched to messages.
                self.process = None;
            })
            .ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            self.message.over();
            process.end(self.message.line());
        }
    }
}

/// A [`Law`] that runs in a process. The first message to the process is the setup.
struct ProgramLaw {
    running: Running,
    hello: Hello,
    /// JSON rows of the packets that were sent since the previous message.
    sent: String,
}

impl Law for ProgramLaw {
    fn on_event(&mut self, now: Option<Time>, event: &Event<'_>) -> Option<Decided> {
        let at = now.unwrap_or(Time::ZERO);
        if let Event::Sent(sent) = event {
            if self.hello.sent || self.hello.each {
                departed(&mut self.sent, sent);
            }
            // Return unless the program asked for each packet, because each message costs a write and a read.
            if !self.hello.each {
                return None;
            }
        }
        if !self.running.answers() {
            return None;
        }
        let rows = (self.hello.sent || self.hello.each).then_some(&mut self.sent);
        let kind = match event {
            Event::Start => "setup",
            Event::Report(_) => "report",
            Event::Sent(_) => "sent",
            Event::Timer => "timer",
            Event::Leave(_) => "leave",
        };
        let message = &mut self.running.message;
        match event {
            Event::Start => {}
            Event::Report(heard) => message.report(heard, rows),
            Event::Leave(receiver) => message.leave(at, *receiver, rows),
            Event::Sent(_) | Event::Timer => message.at(kind, at, rows),
        }
        self.running.ask(now.into(), kind, answer::decision)
    }
}

struct ProgramRule(Running);

impl SwitchingRule for ProgramRule {
    fn choose(&mut self, context: &RungContext<'_>) -> usize {
        let rungs = context.needs.len();
        self.0.message.rungs(context);
        let chosen = self.0.ask(Moment::Stream(context.at), "rungs", |line| answer::rung(line, rungs));
        // After a fault, keep the stream's rung until the run stops.
        chosen.or(context.rung).unwrap_or(0)
    }
}
