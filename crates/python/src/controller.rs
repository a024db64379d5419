//! Controllers and switching rules in Python. Wraps a user's class as the sender part and the receiver part of a
//! controller, or as a switching rule.
//!
//! An exception in the class stops the run. A [`Fault`] describes the exception with the class, the method, the line
//! and the time.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes};
use steadycast_control::registry::{Factory, Terms};
use steadycast_control::{
    Arrival, Due, EchoReceiver, FeedbackFormat, PacketReport, ReceiverHalf, Reply, SenderHalf, Setup, Slot, View,
};
use steadycast_external::{Decided, Event, Fault, FaultSlot, Half, Law, LawReport, Moment, one_line};
use steadycast_media::{RungContext, SwitchingFactory, SwitchingRule};
use steadycast_settings::nearest;
use steadycast_units::{Ecn, Rate, Span, Time};

/// Maximum length in bytes that the class may add to a report.
const LONGEST_REPORT: usize = 1024;

/// Declares the Python class of an object that is passed to a controller. The class's `repr` shows all attributes.
macro_rules! attributes {
    ($(#[$about:meta])* $class:ident as $name:literal { $($(#[$doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[pyclass(frozen, get_all, name = $name, module = "steadycast._core")]
        pub(crate) struct $class {
            $($(#[$doc])* $field: $type,)*
        }

        #[pymethods]
        impl $class {
            fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
                let shown = [$(format!("{}={}", stringify!($field), this.getattr(stringify!($field))?.repr()?),)*];
                Ok(format!("{}({})", $name, shown.join(", ")))
            }
        }
    };
}

attributes! {
    /// The setup that a new controller receives as its argument.
    PySetup as "Setup" {
        /// Size of a full packet as an IP packet, in bytes.
        packet_bytes: u64,
        /// Lower limit of the rate, in bit/s.
        floor_bps: f64,
        /// Upper limit of the rate, in bit/s.
        cap_bps: f64,
        /// Session bandwidth in bit/s. RTCP may use a share of it.
        session_bandwidth_bps: f64,
        /// Whether the flow is multicast to a group.
        group: bool,
        /// A seed for random numbers, derived from the scenario's seed.
        seed: u32,
    }
}

attributes! {
    /// A report that has arrived at the sender.
    PyReport as "Report" {
        /// When the report arrived, in seconds since the start of the run.
        at_s: f64,
        /// Number that identifies the receiver. It stays the same during the run.
        receiver: u32,
        /// Number of receivers in the session.
        receivers: u32,
        /// Round-trip time that this report measured, in seconds.
        rtt_s: Option<f64>,
        /// Number of packets that were expected since the previous report.
        expected_packets: u32,
        /// Number of the expected packets that are missing.
        lost_packets: u32,
        /// Missing packets as a fraction of the expected packets.
        loss_frac: f64,
        /// Received rate since the previous report, in bit/s.
        received_bps: Option<f64>,
        /// Queueing delay in seconds: the one-way delay of the newest packet minus the lowest one-way delay.
        queueing_s: Option<f64>,
        /// Interarrival jitter (RFC 3550), in seconds.
        jitter_s: Option<f64>,
        /// Bytes that the class's `Receiver` added to the report.
        body: Option<Py<PyBytes>>,
        /// What happened to each packet. Available if the flow's feedback is "rfc8888" or "twcc".
        packets: Vec<PyPacket>,
    }
}

/// A packet in [`PyReport`]: its number, the time of sending in seconds, its IP size in bytes, its arrival, and the
/// bits of the ECN field on arrival. The arrival is on the receiver's clock, in seconds. It is NaN if the time is
/// unknown, and `None` if the packet is lost.
type PyPacket = (u64, f64, u64, Option<f64>, Option<u8>);

fn packet_of(packet: &PacketReport) -> PyPacket {
    let arrived = packet.arrived.map(|arrived| arrived.at.map_or(f64::NAN, |at| at.as_nanos() as f64 * 1e-9));
    let ecn = packet.arrived.and_then(|arrived| arrived.ecn).map(Ecn::bits);
    (packet.number, packet.sent.as_secs_f64(), packet.size.get(), arrived, ecn)
}

attributes! {
    /// A packet that has been sent.
    PySent as "SentPacket" {
        /// When the packet was sent, in seconds since the start of the run.
        at_s: f64,
        /// Number of the packet among all sent packets, as in `Report.packets`.
        number: u64,
        /// Extended sequence number of the packet.
        seq: u64,
        /// Size of the IP packet in bytes.
        size_bytes: u64,
        /// Whether no more data was waiting to be sent. Then the encoder limits the rate, not the controller.
        data_limited: bool,
    }
}

attributes! {
    /// A packet that has arrived at a receiver.
    PyArrived as "ArrivedPacket" {
        /// When the packet arrived, in seconds since the start of the run.
        at_s: f64,
        /// Extended sequence number of the packet.
        seq: u64,
        /// Size of the IP packet in bytes.
        size_bytes: u64,
        /// When the packet was sent, in seconds on the sender's clock. Only differences between such times are
        /// meaningful.
        sent_s: f64,
        /// Whether a queue has set the ECN field to "congestion experienced".
        ce: bool,
        /// Whether the packet is the last packet of its frame.
        frame_end: bool,
    }
}

attributes! {
    /// An opportunity for a receiver to send a report.
    PySlot as "ReportSlot" {
        /// The current time, in seconds since the start of the run.
        at_s: f64,
        /// Number of packets that were expected since the previous report.
        expected_packets: u64,
        /// Number of the expected packets that are missing.
        lost_packets: u64,
        /// Number of members of the session.
        members: u32,
    }
}

fn setup_of(setup: &Setup) -> PySetup {
    PySetup {
        packet_bytes: setup.packet.get(),
        floor_bps: setup.floor.as_bps_f64(),
        cap_bps: setup.cap.as_bps_f64(),
        session_bandwidth_bps: setup.session_bandwidth.as_bps_f64(),
        group: setup.group,
        seed: setup.chance.clone().bits32(),
    }
}

pub(crate) struct PythonController {
    class: Py<PyAny>,
    feedback: FeedbackFormat,
    fault: FaultSlot,
}

impl PythonController {
    pub(crate) fn new(class: Py<PyAny>, feedback: FeedbackFormat, fault: FaultSlot) -> Self {
        Self { class, feedback, fault }
    }

    fn every(&self) -> Span {
        let seconds = Python::attach(|py| self.class.bind(py).getattr("report_every_s").ok()?.extract::<f64>().ok());
        // Use the default if the period is invalid. The problem has been reported before the run.
        seconds.filter(|s| *s >= 0.001 && s.is_finite()).map_or(Span::millis(100), Span::from_secs_f64)
    }
}

impl Factory for PythonController {
    fn sender(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        // Take the interpreter's lock here, once per session, to create the object. The simulation itself runs without
        // this lock.
        let law = Python::attach(|py| Object::new(py, self.class.bind(py), SENDER, Some(setup), &self.fault));
        Box::new(Half::new(law, setup, self.feedback))
    }

    fn receiver(&self, setup: &Setup) -> Box<dyn ReceiverHalf> {
        let echo = EchoReceiver::new(self.every());
        Python::attach(|py| match self.class.bind(py).getattr("Receiver") {
            Err(_) => Box::new(echo) as Box<dyn ReceiverHalf>,
            Ok(class) => {
                Box::new(PythonReceiver { object: Object::new(py, &class, RECEIVER, Some(setup), &self.fault), echo })
            }
        })
    }

    fn terms(&self) -> Terms {
        Terms::plain(*b"ECHO")
    }
}

/// The name and the signature of each method of a class.
type Methods = &'static [(&'static str, &'static str)];

const SENDER: Methods = &[
    ("on_report", "on_report(self, report)"),
    ("rate_bps", "rate_bps(self) -> float"),
    ("on_sent", "on_sent(self, packet)"),
    ("on_timer", "on_timer(self, now_s)"),
    ("next_wake_s", "next_wake_s(self) -> float | None"),
    ("on_leave", "on_leave(self, now_s, receiver)"),
    ("why", "why(self) -> str"),
    ("pacing_bps", "pacing_bps(self) -> float"),
];
const ON_REPORT: usize = 0;
const RATE_BPS: usize = 1;
const ON_SENT: usize = 2;
const ON_TIMER: usize = 3;
const NEXT_WAKE_S: usize = 4;
const ON_LEAVE: usize = 5;
const WHY: usize = 6;
const PACING_BPS: usize = 7;

const RECEIVER: Methods =
    &[("on_arrival", "on_arrival(self, packet)"), ("report", "report(self, slot) -> bytes | None")];
const ON_ARRIVAL: usize = 0;
const REPORT: usize = 1;

const SWITCHING: Methods = &[("choose", "choose(self, stream) -> int")];
const CHOOSE: usize = 0;

/// The number of required methods at the start of each list of methods. If a list is shorter, all its methods are
/// required.
const REQUIRED: usize = 2;

struct Object {
    object: Option<Py<PyAny>>,
    class: String,
    methods: Methods,
    has: [bool; SENDER.len()],
    fault: FaultSlot,
}

impl Object {
    /// Creates an object of the user's class. A controller receives `setup` as its argument. A switching rule receives
    /// no argument.
    fn new(
        py: Python<'_>,
        class: &Bound<'_, PyAny>,
        methods: Methods,
        setup: Option<&Setup>,
        fault: &FaultSlot,
    ) -> Self {
        let name = class.getattr("__qualname__").and_then(|n| n.extract()).unwrap_or_else(|_| "controller".to_owned());
        let mut this = Self { object: None, class: name, methods, has: [false; SENDER.len()], fault: fault.clone() };
        let (made, signature) = match setup {
            Some(setup) => {
                (Py::new(py, setup_of(setup)).and_then(|setup| class.call1((setup,))), "__init__(self, setup)")
            }
            None => (class.call0(), "__init__(self)"),
        };
        let object = match made {
            Ok(object) => object,
            Err(error) => {
                this.raised(py, "__init__", signature, Moment::Start, error);
                return this;
            }
        };
        // Find out here which methods the class has, because a look-up by name for each packet would be slow.
        for (has, (method, _)) in this.has.iter_mut().zip(methods) {
            *has = object.hasattr(*method).unwrap_or(false);
        }
        for (n, (method, signature)) in methods.iter().take(REQUIRED).enumerate() {
            if !this.has[n] {
                let found = near_miss(&object, method);
                let hint = found.map_or_else(String::new, |f| format!(" (there is \"{f}\")"));
                let problem = format!("the class has no method \"{method}\"{hint}");
                this.fail(format!("{}.{method}", this.class), problem, format!("add \"def {signature}\""));
            }
        }
        this.object = Some(object.unbind());
        this
    }

    fn fail(&self, place: String, problem: String, remedy: String) {
        self.fault.put(Fault::Wrong { place, problem, remedy });
    }

    fn raised(&self, py: Python<'_>, method: &str, signature: &str, at: Moment, error: PyErr) {
        if error.is_instance_of::<PyKeyboardInterrupt>(py) {
            return self.fault.put(Fault::Interrupted);
        }
        let (mut file, mut line) = (String::new(), 0u32);
        let mut next = error.traceback(py).map(|t| t.into_any());
        // Find the innermost frame, because this is the place of the mistake.
        while let Some(frame) = next {
            line = frame.getattr("tb_lineno").and_then(|l| l.extract()).unwrap_or(line);
            let code = frame.getattr("tb_frame").and_then(|f| f.getattr("f_code"));
            file = code.and_then(|c| c.getattr("co_filename")).and_then(|f| f.extract()).unwrap_or(file);
            next = frame.getattr("tb_next").ok().filter(|n| !n.is_none());
        }
        let place = if line > 0 { format!("{file}:{line}") } else { format!("{}.{method}", self.class) };
        self.fail(
            place,
            format!("{}.{method} {at}: {}", self.class, one_line(&error.to_string())),
            format!("mend the method; it is called as {signature}"),
        );
    }

    /// Calls method number `n`. Returns `None` if the class does not have the method, if it raised an exception, or if
    /// there was a fault before.
    fn call<'py, A>(&self, py: Python<'py>, n: usize, at: impl Into<Moment>, args: A) -> Option<Bound<'py, PyAny>>
    where
        A: pyo3::call::PyCallArgs<'py>,
    {
        let object = self.object.as_ref().filter(|_| self.has[n])?;
        // Do not call the class after a fault, because further exceptions would only be consequences of the first.
        if self.fault.is_set() {
            return None;
        }
        let (name, signature) = self.methods[n];
        match object.bind(py).call_method1(name, args) {
            Ok(value) => Some(value),
            Err(error) => {
                self.raised(py, name, signature, at.into(), error);
                None
            }
        }
    }

    fn wrong(&self, n: usize, at: impl Into<Moment>, returned: &Bound<'_, PyAny>, remedy: &str) {
        let place = self.object.as_ref().and_then(|object| {
            // There is no traceback, so report the method's first line as the place.
            let method = object.bind(returned.py()).getattr(self.methods[n].0).ok()?;
            let code = method.getattr("__func__").unwrap_or(method).getattr("__code__").ok()?;
            let file: String = code.getattr("co_filename").ok()?.extract().ok()?;
            let line: u32 = code.getattr("co_firstlineno").ok()?.extract().ok()?;
            Some(format!("{file}:{line}"))
        });
        let shown = returned.repr().map_or_else(|_| "something".into(), |r| r.to_string());
        let shown: String = one_line(&shown).chars().take(80).collect();
        self.fail(
            place.unwrap_or_else(|| self.class.clone()),
            format!("{}.{} {} returned {shown}", self.class, self.methods[n].0, at.into()),
            remedy.to_owned(),
        );
    }
}

fn near_miss(object: &Bound<'_, PyAny>, wanted: &str) -> Option<String> {
    let names: Vec<String> = object.dir().ok()?.extract().ok()?;
    let own: Vec<&str> = names.iter().map(String::as_str).filter(|n| !n.starts_with("__")).collect();
    nearest(wanted, &own).map(str::to_owned)
}

impl Object {
    fn rate_from(&self, py: Python<'_>, n: usize, now: Option<Time>) -> Option<Rate> {
        let value = self.call(py, n, now, ())?;
        match value.extract::<f64>() {
            // Refuse a Python bool, which can also be converted to a float.
            Ok(bps) if bps.is_finite() && bps >= 0.0 && !value.is_instance_of::<PyBool>() => {
                Some(Rate::from_bps_f64(bps))
            }
            _ => {
                self.wrong(n, now, &value, "return the rate in bit/s: a finite number, 0 or more");
                None
            }
        }
    }

    /// Returns the rates, the next wake-up and the reason that the controller has decided on.
    fn decided(&self, py: Python<'_>, now: Option<Time>) -> Option<Decided> {
        let rate = self.rate_from(py, RATE_BPS, now)?;
        let pacing = self.rate_from(py, PACING_BPS, now);
        let wake = self.call(py, NEXT_WAKE_S, now, ()).and_then(|value| match value.extract::<Option<f64>>() {
            Ok(at) if at.is_none_or(|at| at.is_finite() && at >= 0.0) => Some(Time::ZERO + Span::from_secs_f64(at?)),
            _ => {
                self.wrong(NEXT_WAKE_S, now, &value, "return a time in seconds of the run, or None");
                None
            }
        });
        let why = self.call(py, WHY, now, ()).and_then(|value| {
            let why = value.extract::<String>();
            why.inspect_err(|_| self.wrong(WHY, now, &value, "return a text: the reason in a few words")).ok()
        });
        Some(Decided { rate, pacing, window: None, wake, why })
    }
}

impl Law for Object {
    fn on_event(&mut self, now: Option<Time>, event: &Event<'_>) -> Option<Decided> {
        // Return early if the class has no `on_sent`, because entering the interpreter for each packet is slow.
        if matches!(event, Event::Sent(_)) && !self.has[ON_SENT] {
            return None;
        }
        let now_s = now.unwrap_or(Time::ZERO).as_secs_f64();
        Python::attach(|py| {
            match event {
                Event::Start => None,
                Event::Report(heard) => self.call(py, ON_REPORT, now, (report_of(py, heard),)),
                Event::Sent(sent) => {
                    let packet = PySent {
                        at_s: now_s,
                        number: sent.number,
                        seq: sent.seq,
                        size_bytes: sent.size.get(),
                        data_limited: sent.data_limited,
                    };
                    self.call(py, ON_SENT, now, (packet,))
                }
                Event::Timer => self.call(py, ON_TIMER, now, (now_s,)),
                Event::Leave(receiver) => self.call(py, ON_LEAVE, now, (now_s, receiver.0)),
            };
            self.decided(py, now)
        })
    }
}

fn report_of(py: Python<'_>, heard: &LawReport<'_>) -> PyReport {
    let (expected_packets, lost_packets) = heard.counts.unwrap_or_default();
    PyReport {
        at_s: heard.at.as_secs_f64(),
        receiver: heard.from.0,
        receivers: heard.members,
        rtt_s: heard.rtt.map(Span::as_secs_f64),
        expected_packets,
        lost_packets,
        loss_frac: heard.loss(),
        received_bps: heard.received.map(Rate::as_bps_f64),
        queueing_s: heard.queueing.map(Span::as_secs_f64),
        jitter_s: heard.jitter.map(Span::as_secs_f64),
        body: heard.added.map(|bytes| PyBytes::new(py, bytes).unbind()),
        packets: heard.packets.iter().map(packet_of).collect(),
    }
}

/// A receiver part that sends the reports of an [`EchoReceiver`]. The user's class adds its own bytes to each report.
struct PythonReceiver {
    object: Object,
    echo: EchoReceiver,
}

impl ReceiverHalf for PythonReceiver {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        self.echo.on_arrival(arrival);
        let packet = PyArrived {
            at_s: arrival.at.as_secs_f64(),
            seq: arrival.seq,
            size_bytes: arrival.size.get(),
            sent_s: arrival.sent.as_nanos() as f64 * 1e-9,
            ce: arrival.ecn.is_ce(),
            frame_end: arrival.edge.last,
        };
        Python::attach(|py| self.object.call(py, ON_ARRIVAL, Some(arrival.at), (packet,)).map(|_| ()));
    }

    fn due(&self) -> Due {
        self.echo.due()
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        let reply = self.echo.report(slot);
        // Send nothing if the `EchoReceiver` has no report.
        let Reply::Body(mut body) = reply else { return reply };
        let slot_object = PySlot {
            at_s: slot.now.as_secs_f64(),
            expected_packets: slot.expected,
            // Duplicates can make the number of lost packets negative (RFC 3550, section 6.4.1).
            lost_packets: slot.lost.max(0).unsigned_abs(),
            members: slot.members,
        };
        Python::attach(|py| {
            let Some(value) = self.object.call(py, REPORT, Some(slot.now), (slot_object,)) else { return };
            if value.is_none() {
                return;
            }
            match value.cast::<PyBytes>().map(|b| b.as_bytes()) {
                Ok(bytes) if bytes.len() <= LONGEST_REPORT => {
                    // Write the length first. It separates the bytes that the Python method returned from the padding
                    // after them.
                    body.bytes.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                    body.bytes.extend_from_slice(bytes);
                    // Add padding, because the length of an RTCP packet is a multiple of four bytes.
                    body.bytes.resize(body.bytes.len().next_multiple_of(4), 0);
                }
                _ => {
                    let remedy = format!("return bytes, at most {LONGEST_REPORT} of them, or None");
                    self.object.wrong(REPORT, Some(slot.now), &value, &remedy);
                }
            }
        });
        Reply::Body(body)
    }

    fn view(&self) -> View {
        self.echo.view()
    }
}

attributes! {
    /// State of a stream at a key frame, for a switching rule.
    PySwitchingInput as "SwitchingInput" {
        /// Time of the key frame, in seconds since the flow's start.
        at_s: f64,
        /// The stream's rung. Rung 0 is the finest. It is `None` at the start and after a pause.
        rung: Option<usize>,
        /// For each rung, the higher one of the rates of its last two groups of pictures, in bit/s.
        recent_bps: Vec<f64>,
        /// For each rung, the highest rate of its groups of pictures in the last ten seconds, in bit/s.
        worst_bps: Vec<f64>,
        /// The controller's mean rate over the last group of pictures, or its present rate if that is lower, in bit/s.
        rate_bps: f64,
        /// The media that wait at the sender, in bytes.
        backlog_bytes: u64,
        /// Duration of the group of pictures that begins, in seconds.
        group_s: f64,
    }
}

impl PySwitchingInput {
    fn of(context: &RungContext<'_>) -> Self {
        Self {
            at_s: context.at.as_secs_f64(),
            rung: context.rung,
            recent_bps: context.needs.iter().map(|need| need.recent.as_bps_f64()).collect(),
            worst_bps: context.needs.iter().map(|need| need.worst.as_bps_f64()).collect(),
            rate_bps: context.rate.as_bps_f64(),
            backlog_bytes: context.backlog.get(),
            group_s: context.lasts.as_secs_f64(),
        }
    }
}

pub(crate) struct PythonSwitching {
    class: Py<PyAny>,
    fault: FaultSlot,
}

impl PythonSwitching {
    pub(crate) const fn new(class: Py<PyAny>, fault: FaultSlot) -> Self {
        Self { class, fault }
    }
}

impl SwitchingFactory for PythonSwitching {
    fn rule(&self) -> Box<dyn SwitchingRule> {
        Box::new(PythonRule(Python::attach(|py| Object::new(py, self.class.bind(py), SWITCHING, None, &self.fault))))
    }
}

struct PythonRule(Object);

impl SwitchingRule for PythonRule {
    fn choose(&mut self, context: &RungContext<'_>) -> usize {
        let (at, rungs) = (Moment::Stream(context.at), context.needs.len());
        let chosen = Python::attach(|py| {
            let value = self.0.call(py, CHOOSE, at, (PySwitchingInput::of(context),))?;
            // Refuse a Python bool, which can also be converted to an integer.
            let rung = value.extract::<usize>().ok().filter(|_| !value.is_instance_of::<PyBool>());
            if rung.is_none_or(|rung| rung >= rungs) {
                let remedy = format!("return the number of a rung: 0, the finest, to {}", rungs.saturating_sub(1));
                self.0.wrong(CHOOSE, at, &value, &remedy);
            }
            rung.filter(|rung| *rung < rungs)
        });
        // After a fault, the stream keeps its rung until the run stops.
        chosen.or(context.rung).unwrap_or(0)
    }
}
