//! Controllers written in Python: a class becomes a pair of halves.
//!
//! A mistake in the class stops the run: it is kept as a [`Fault`] that names class, method, line and time.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes};
use steadycast_control::registry::{Factory, Terms};
use steadycast_control::{
    Arrival, Due, EchoReceiver, FeedbackFormat, PacketReport, ReceiverHalf, Reply, SenderHalf, Setup, Slot, View,
};
use steadycast_external::{Decided, Event, Fault, FaultSlot, Half, Law, LawReport, moment, one_line};
use steadycast_settings::nearest;
use steadycast_units::{Ecn, Rate, Span, Time};

/// Bytes that a receiver's report may have.
const LONGEST_REPORT: usize = 1024;

/// A class whose attributes a controller in Python reads, and whose `repr` shows them all.
macro_rules! told {
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

told! {
    /// What a controller is told when it is made.
    PySetup as "Setup" {
        /// IP size of a full packet.
        packet_bytes: u64,
        /// Lower limit of the rate.
        floor_bps: f64,
        /// Upper limit of the rate.
        cap_bps: f64,
        /// The bandwidth of which RTCP takes its share.
        session_bandwidth_bps: f64,
        /// Whether it sends to a group.
        group: bool,
        /// For random numbers: it follows from the scenario's seed.
        seed: u32,
    }
}

told! {
    /// A report that has reached the sender.
    PyReport as "Report" {
        /// When it arrived, in seconds of the run.
        at_s: f64,
        /// From whom: a number that stays the same.
        receiver: u32,
        /// Receivers that are in the session now.
        receivers: u32,
        /// Round-trip time, as this report measures it.
        rtt_s: Option<f64>,
        /// Packets that were expected since the report before.
        expected_packets: u32,
        /// Of these, how many are missing.
        lost_packets: u32,
        /// Their share.
        loss_frac: f64,
        /// Rate of what arrived since the report before.
        received_bps: Option<f64>,
        /// How much longer the newest packet was under way than the quickest one.
        queueing_s: Option<f64>,
        /// Interarrival jitter of RFC 3550.
        jitter_s: Option<f64>,
        /// What the class's own `Receiver` added.
        body: Option<Py<PyBytes>>,
        /// With the flow's feedback "rfc8888" or "twcc": single packets.
        packets: Vec<PyPacket>,
    }
}

/// Number, when it left, IP size, when it arrived on the receiver's clock (NaN: not told; `None`: it has not), and the
/// bits of its ECN field on arrival.
type PyPacket = (u64, f64, u64, Option<f64>, Option<u8>);

fn packet_of(packet: &PacketReport) -> PyPacket {
    let arrived = packet.arrived.map(|arrived| arrived.at.map_or(f64::NAN, |at| at.as_nanos() as f64 * 1e-9));
    let ecn = packet.arrived.and_then(|arrived| arrived.ecn).map(Ecn::bits);
    (packet.number, packet.sent.as_secs_f64(), packet.size.get(), arrived, ecn)
}

told! {
    /// A packet that has left.
    PySent as "SentPacket" {
        /// When, in seconds of the run.
        at_s: f64,
        /// Its place among all packets that have left, by which `Report.packets` names it.
        number: u64,
        /// Extended sequence number.
        seq: u64,
        /// IP size.
        size_bytes: u64,
        /// Nothing waits behind it: the encoder, not the controller, limits the rate.
        data_limited: bool,
    }
}

told! {
    /// A packet that has reached a receiver.
    PyArrived as "ArrivedPacket" {
        /// When, in seconds of the run.
        at_s: f64,
        /// Extended sequence number.
        seq: u64,
        /// IP size.
        size_bytes: u64,
        /// When it left, on the sender's clock: of use for differences only.
        sent_s: f64,
        /// Marked "congestion experienced" on the way.
        ce: bool,
        /// It is the last packet of its frame.
        frame_end: bool,
    }
}

told! {
    /// An opportunity to report.
    PySlot as "ReportSlot" {
        /// Now, in seconds of the run.
        at_s: f64,
        /// Packets expected since the last report.
        expected_packets: u64,
        /// Of these, how many are missing.
        lost_packets: u64,
        /// Members of the session.
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
        // A wrong one was refused before the run.
        seconds.filter(|s| *s >= 0.001 && s.is_finite()).map_or(Span::millis(100), Span::from_secs_f64)
    }
}

impl Factory for PythonController {
    fn sender(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        let law = Python::attach(|py| Object::new(py, self.class.bind(py), SENDER, setup, &self.fault));
        Box::new(Half::new(law, setup, self.feedback))
    }

    fn receiver(&self, setup: &Setup) -> Box<dyn ReceiverHalf> {
        let echo = EchoReceiver::new(self.every());
        Python::attach(|py| match self.class.bind(py).getattr("Receiver") {
            Err(_) => Box::new(echo) as Box<dyn ReceiverHalf>,
            Ok(class) => {
                Box::new(PythonReceiver { object: Object::new(py, &class, RECEIVER, setup, &self.fault), echo })
            }
        })
    }

    fn terms(&self) -> Terms {
        Terms::plain(*b"ECHO")
    }
}

/// A method's name and how it is called.
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

/// The first two methods of each list must be there.
const REQUIRED: usize = 2;

/// An object of a user's class.
struct Object {
    object: Option<Py<PyAny>>,
    class: String,
    methods: Methods,
    has: [bool; SENDER.len()],
    fault: FaultSlot,
}

impl Object {
    fn new(py: Python<'_>, class: &Bound<'_, PyAny>, methods: Methods, setup: &Setup, fault: &FaultSlot) -> Self {
        let name = class.getattr("__qualname__").and_then(|n| n.extract()).unwrap_or_else(|_| "controller".to_owned());
        let mut this = Self { object: None, class: name, methods, has: [false; SENDER.len()], fault: fault.clone() };
        let object = match Py::new(py, setup_of(setup)).and_then(|setup| class.call1((setup,))) {
            Ok(object) => object,
            Err(error) => {
                this.raised(py, "__init__", "__init__(self, setup)", None, error);
                return this;
            }
        };
        for (has, (method, _)) in this.has.iter_mut().zip(methods) {
            *has = object.hasattr(*method).unwrap_or(false);
        }
        for (n, (method, signature)) in methods[..REQUIRED].iter().enumerate() {
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

    fn raised(&self, py: Python<'_>, method: &str, signature: &str, now: Option<Time>, error: PyErr) {
        if error.is_instance_of::<PyKeyboardInterrupt>(py) {
            return self.fault.put(Fault::Interrupted);
        }
        let (mut file, mut line) = (String::new(), 0u32);
        let mut at = error.traceback(py).map(|t| t.into_any());
        while let Some(frame) = at {
            line = frame.getattr("tb_lineno").and_then(|l| l.extract()).unwrap_or(line);
            let code = frame.getattr("tb_frame").and_then(|f| f.getattr("f_code"));
            file = code.and_then(|c| c.getattr("co_filename")).and_then(|f| f.extract()).unwrap_or(file);
            at = frame.getattr("tb_next").ok().filter(|n| !n.is_none());
        }
        let place = if line > 0 { format!("{file}:{line}") } else { format!("{}.{method}", self.class) };
        self.fail(
            place,
            format!("{}.{method} {}: {}", self.class, moment(now), one_line(&error.to_string())),
            format!("mend the method; it is called as {signature}"),
        );
    }

    /// Calls a method if the class has it; `None` when it has not, or raised, or a fault stops the run anyway.
    fn call<'py, A>(&self, py: Python<'py>, n: usize, now: Option<Time>, args: A) -> Option<Bound<'py, PyAny>>
    where
        A: pyo3::call::PyCallArgs<'py>,
    {
        let object = self.object.as_ref().filter(|_| self.has[n])?;
        if self.fault.is_set() {
            return None;
        }
        let (name, signature) = self.methods[n];
        match object.bind(py).call_method1(name, args) {
            Ok(value) => Some(value),
            Err(error) => {
                self.raised(py, name, signature, now, error);
                None
            }
        }
    }

    /// A method returned what it must not.
    fn wrong(&self, n: usize, now: Option<Time>, returned: &Bound<'_, PyAny>, remedy: &str) {
        let place = self.object.as_ref().and_then(|object| {
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
            format!("{}.{} {} returned {shown}", self.class, self.methods[n].0, moment(now)),
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
    /// The rate that a method returns.
    fn rate_from(&self, py: Python<'_>, n: usize, now: Option<Time>) -> Option<Rate> {
        let value = self.call(py, n, now, ())?;
        match value.extract::<f64>() {
            // Python counts a truth value as a number.
            Ok(bps) if bps.is_finite() && bps >= 0.0 && !value.is_instance_of::<PyBool>() => {
                Some(Rate::from_bps_f64(bps))
            }
            _ => {
                self.wrong(n, now, &value, "return the rate in bit/s: a finite number, 0 or more");
                None
            }
        }
    }

    /// Asks for the rates, the next wake and the reason.
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

/// A receiver half that adds its own bytes to what an [`EchoReceiver`] reports, and reports when that does.
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
        let Reply::Body(mut body) = reply else { return reply };
        let told = PySlot {
            at_s: slot.now.as_secs_f64(),
            expected_packets: slot.expected,
            lost_packets: slot.lost.max(0).unsigned_abs(),
            members: slot.members,
        };
        Python::attach(|py| {
            let Some(value) = self.object.call(py, REPORT, Some(slot.now), (told,)) else { return };
            if value.is_none() {
                return;
            }
            match value.cast::<PyBytes>().map(|b| b.as_bytes()) {
                Ok(bytes) if bytes.len() <= LONGEST_REPORT => {
                    body.bytes.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                    body.bytes.extend_from_slice(bytes);
                    // An RTCP packet is made of words.
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
