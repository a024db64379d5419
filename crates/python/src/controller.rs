//! Controllers written in Python: a class becomes a pair of halves.
//!
//! A mistake in the class stops the run: it is kept as a [`Fault`] that names class, method, line and time, and until the run
//! notices, the half goes on with its last good rate.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex};
use steadycast_control::registry::{Factory, Feedback, nearest};
use steadycast_control::{
    Decision, Echo, EchoReceiver, Limit, ReceiverHalf, ReceiverId, Report, SenderHalf, Sent, Setup, Wake, Why,
};
use steadycast_units::{Rate, Span, Time};

/// What went wrong in a user's class.
pub(crate) struct Fault {
    pub(crate) place: String,
    pub(crate) problem: String,
    pub(crate) remedy: String,
}

pub(crate) struct PythonController {
    class: Py<PyAny>,
    fault: Arc<Mutex<Option<Fault>>>,
}

const METHODS: &[&str] = &["on_report", "rate_bps", "on_sent", "on_timer", "next_wake_s", "on_leave", "why"];

impl PythonController {
    pub(crate) fn new(class: Py<PyAny>, fault: Arc<Mutex<Option<Fault>>>) -> Self {
        Self { class, fault }
    }

    fn every(&self) -> Span {
        let seconds = Python::attach(|py| self.class.bind(py).getattr("report_every_s").ok()?.extract::<f64>().ok());
        seconds.filter(|s| *s >= 0.001 && s.is_finite()).map_or(Span::millis(100), Span::from_secs_f64)
    }
}

impl Factory for PythonController {
    fn sender(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        Python::attach(|py| {
            let class = self.class.bind(py);
            let name = class.getattr("__name__").and_then(|n| n.extract()).unwrap_or_else(|_| "controller".to_owned());
            let mut half = PythonSender {
                object: None,
                name,
                fault: Arc::clone(&self.fault),
                setup: setup.clone(),
                rate: setup.floor.max(Rate::kbps(8)).min(setup.cap),
                wake: None,
                why: "start".into(),
                last: None,
                by: None,
                has: [false; METHODS.len()],
            };
            half.build(py, class);
            Box::new(half) as Box<dyn SenderHalf>
        })
    }

    fn receiver(&self, _: &Setup) -> Box<dyn ReceiverHalf> {
        Box::new(EchoReceiver::new(self.every()))
    }

    fn extension(&self) -> u8 {
        0
    }

    fn app(&self) -> [u8; 4] {
        *b"ECHO"
    }

    fn feedback(&self) -> Feedback {
        Feedback::Clocked
    }
}

struct PythonSender {
    object: Option<Py<PyAny>>,
    name: String,
    fault: Arc<Mutex<Option<Fault>>>,
    setup: Setup,
    rate: Rate,
    wake: Option<Time>,
    why: String,
    last: Option<(f64, Span)>,
    by: Option<ReceiverId>,
    has: [bool; METHODS.len()],
}

impl PythonSender {
    fn build(&mut self, py: Python<'_>, class: &Bound<'_, PyAny>) {
        let made = (|| {
            let setup = PyDict::new(py);
            setup.set_item("packet_bytes", self.setup.packet.get())?;
            setup.set_item("floor_bps", self.setup.floor.as_bps_f64())?;
            setup.set_item("cap_bps", self.setup.cap.as_bps_f64())?;
            setup.set_item("session_bandwidth_bps", self.setup.session_bandwidth.as_bps_f64())?;
            setup.set_item("group", self.setup.group)?;
            let object = class.call1((simple(py, &setup)?,))?;
            for (has, method) in self.has.iter_mut().zip(METHODS) {
                *has = object.hasattr(*method)?;
            }
            Ok(object.unbind())
        })();
        match made {
            Ok(object) => {
                for (n, required) in METHODS[..2].iter().enumerate() {
                    if !self.has[n] {
                        let found = near_miss(object.bind(py), required);
                        let hint = found.map_or_else(String::new, |f| format!(" (there is \"{f}\")"));
                        self.fail(
                            format!("{}.{required}", self.name),
                            format!("the class has no method \"{required}\"{hint}"),
                            format!("add \"def {}\"", signature(required)),
                        );
                    }
                }
                self.object = Some(object);
                self.ask(py, Time::ZERO);
            }
            Err(error) => self.raised(py, "__init__", Time::ZERO, &error),
        }
    }

    fn fail(&self, place: String, problem: String, remedy: String) {
        if let Ok(mut fault) = self.fault.lock() {
            fault.get_or_insert(Fault { place, problem, remedy });
        }
    }

    fn raised(&self, py: Python<'_>, method: &str, now: Time, error: &PyErr) {
        let (mut file, mut line) = (String::new(), 0u32);
        let mut at = error.traceback(py).map(|t| t.into_any());
        while let Some(frame) = at {
            line = frame.getattr("tb_lineno").and_then(|l| l.extract()).unwrap_or(line);
            let code = frame.getattr("tb_frame").and_then(|f| f.getattr("f_code"));
            file = code.and_then(|c| c.getattr("co_filename")).and_then(|f| f.extract()).unwrap_or(file);
            at = frame.getattr("tb_next").ok().filter(|n| !n.is_none());
        }
        let place = if line > 0 { format!("{file}:{line}") } else { format!("{}.{method}", self.name) };
        self.fail(
            place,
            format!("{}.{method} at {:.3} s of the run: {error}", self.name, now.as_secs_f64()),
            format!("it is called as {}", signature(method)),
        );
    }

    /// Calls a method if the class has it; `None` when it has not, or raised.
    fn call<'py, A>(&self, py: Python<'py>, n: usize, now: Time, args: A) -> Option<Bound<'py, PyAny>>
    where
        A: pyo3::call::PyCallArgs<'py>,
    {
        let object = self.object.as_ref().filter(|_| self.has[n])?;
        match object.bind(py).call_method1(METHODS[n], args) {
            Ok(value) => Some(value),
            Err(error) => {
                self.raised(py, METHODS[n], now, &error);
                None
            }
        }
    }

    /// Asks for the rate, the next wake and the reason.
    fn ask(&mut self, py: Python<'_>, now: Time) {
        if let Some(value) = self.call(py, 1, now, ()) {
            match value.extract::<f64>() {
                Ok(bps) if bps.is_finite() && bps >= 0.0 => {
                    self.rate = Rate::from_bps_f64(bps).max(self.setup.floor).min(self.setup.cap);
                }
                Ok(bps) => self.wrong(py, 1, now, &format!("returned {bps}"), "return a rate in bit/s, 0 or more"),
                Err(_) => {
                    let shown = value.repr().map_or_else(|_| "something".into(), |r| r.to_string());
                    self.wrong(py, 1, now, &format!("returned {shown}"), "return a number: the rate in bit/s");
                }
            }
        }
        if let Some(value) = self.call(py, 4, now, ()) {
            self.wake = match value.extract::<Option<f64>>() {
                Ok(at) => at.filter(|s| s.is_finite()).map(|s| Time::ZERO + Span::from_secs_f64(s)),
                Err(_) => {
                    self.wrong(py, 4, now, "did not return a time", "return seconds of the run, or None");
                    None
                }
            };
        }
        if let Some(why) = self.call(py, 6, now, ()).and_then(|v| v.extract::<String>().ok()) {
            self.why = why;
        }
    }

    fn wrong(&self, py: Python<'_>, n: usize, now: Time, what: &str, remedy: &str) {
        let place = self.object.as_ref().and_then(|o| {
            let method = o.bind(py).getattr(METHODS[n]).ok()?;
            let code = method.getattr("__func__").unwrap_or(method).getattr("__code__").ok()?;
            let file: String = code.getattr("co_filename").ok()?.extract().ok()?;
            let line: u32 = code.getattr("co_firstlineno").ok()?.extract().ok()?;
            Some(format!("{file}:{line}"))
        });
        self.fail(
            place.unwrap_or_else(|| self.name.clone()),
            format!("{}.{} {what} at {:.3} s of the run", self.name, METHODS[n], now.as_secs_f64()),
            remedy.to_owned(),
        );
    }
}

fn signature(method: &str) -> &'static str {
    match method {
        "__init__" => "__init__(self, setup)",
        "on_report" => "on_report(self, report)",
        "rate_bps" => "rate_bps(self) -> float",
        "on_sent" => "on_sent(self, packet)",
        "on_timer" => "on_timer(self, now_s)",
        "next_wake_s" => "next_wake_s(self) -> float | None",
        "on_leave" => "on_leave(self, now_s, receiver)",
        _ => "why(self) -> str",
    }
}

fn near_miss(object: &Bound<'_, PyAny>, wanted: &str) -> Option<String> {
    let names: Vec<String> = object.dir().ok()?.extract().ok()?;
    let own: Vec<&str> = names.iter().map(String::as_str).filter(|n| !n.starts_with("__")).collect();
    nearest(wanted, &own).map(str::to_owned)
}

/// An object whose attributes are the dict's items.
fn simple<'py>(py: Python<'py>, items: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
    py.import("types")?.getattr("SimpleNamespace")?.call((), Some(items))
}

impl SenderHalf for PythonSender {
    fn on_sent(&mut self, sent: &Sent) {
        if !self.has[2] {
            return;
        }
        Python::attach(|py| {
            let made = (|| {
                let items = PyDict::new(py);
                items.set_item("at_s", sent.at.as_secs_f64())?;
                items.set_item("seq", sent.seq)?;
                items.set_item("size_bytes", sent.size.get())?;
                items.set_item("data_limited", sent.data_limited)?;
                simple(py, &items)
            })();
            if let Ok(packet) = made {
                self.call(py, 2, sent.at, (packet,));
            }
        });
    }

    fn on_report(&mut self, report: &Report<'_>) {
        let echo = report.body.and_then(Echo::parse);
        Python::attach(|py| {
            let made = (|| {
                let items = PyDict::new(py);
                let rtt = echo.map(|e| e.rtt(report.at)).or(report.rtt);
                items.set_item("at_s", report.at.as_secs_f64())?;
                items.set_item("receiver", report.from.0)?;
                items.set_item("receivers", report.members)?;
                items.set_item("rtt_s", rtt.map(|r| r.as_secs_f64()))?;
                let (expected, lost) = echo.map_or((0, 0), |e| (e.expected, e.lost));
                let loss = if expected > 0 { f64::from(lost) / f64::from(expected) } else { 0.0 };
                items.set_item("expected_packets", expected)?;
                items.set_item("lost_packets", lost)?;
                items.set_item("loss_frac", loss)?;
                items.set_item("received_bps", echo.map(|e| e.received.as_bps_f64()))?;
                items.set_item("queueing_s", echo.map(|e| e.queueing.as_secs_f64()))?;
                items.set_item("jitter_s", report.reception.map(|r| r.jitter.as_secs_f64()))?;
                self.last = rtt.map(|r| (loss, r));
                simple(py, &items)
            })();
            self.by = Some(report.from);
            if let Ok(argument) = made {
                self.call(py, 0, report.at, (argument,));
                self.ask(py, report.at);
            }
        });
    }

    fn on_leave(&mut self, at: Time, receiver: ReceiverId) {
        Python::attach(|py| {
            self.call(py, 5, at, (at.as_secs_f64(), receiver.0));
            self.ask(py, at);
        });
    }

    fn on_timer(&mut self, now: Time) {
        self.wake = None;
        Python::attach(|py| {
            self.call(py, 3, now, (now.as_secs_f64(),));
            self.ask(py, now);
        });
        // A time that has passed would wake it for ever.
        self.wake = self.wake.filter(|at| *at > now);
    }

    fn wake(&self) -> Option<Wake> {
        self.wake.map(|at| Wake { at, why: "next_wake_s" })
    }

    fn decision(&self) -> Decision {
        let limit = match self.rate {
            rate if rate >= self.setup.cap => Limit::Cap,
            rate if rate <= self.setup.floor => Limit::Floor,
            _ => Limit::Network,
        };
        let why = Why {
            rule: self.why.clone().into(),
            loss: self.last.map(|l| l.0),
            rtt: self.last.map(|l| l.1),
            by: self.by,
        };
        Decision { target: self.rate, pacing: self.rate, window: None, limit, why }
    }
}
