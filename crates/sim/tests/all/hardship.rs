//! Every controller on paths that fail, police, starve or send false feedback. Each rate recovers, and none stays
//! above what arrives.
//!
//! Networks are drawn by a seed. The bounds were written before the first run:
//!
//! | promise | bound | from |
//! |---|---|---|
//! | alive | never 64 s without a packet | RFC 5348, 4.3: t_mbi |
//! | back | 25 to 30 s after the path's return a tenth arrives, at least, of what arrives undisturbed | own |
//! | bounded | after 30 s at most twice what arrives is sent, and two packets | RFC 5348, 4.3: 2 X_recv |
//!
//! A rate that is not a number stops a debug build where it is made (`Rate::from_bps_f64`).

use crate::lab;

use lab::{Run, run};
use steadycast_control::registry::{ALL, Controller, FeedbackTiming};
use steadycast_sim::Values;
use steadycast_units::{Chance, Seed};

/// The start of the disturbance in seconds. All controllers have reached their rate by then.
const BEGIN: f64 = 12.0;
/// The time after the path's return until the rate must be back, and for which it is measured, in seconds.
const BACK: f64 = 30.0;
const SEEN: f64 = 5.0;
/// The share of the undisturbed rate that must be back.
const TENTH: f64 = 0.1;
/// The longest pause in seconds (RFC 5348, section 4.3).
const PAUSE: usize = 64;
/// The seconds in which overload is measured.
const OVERLOAD: (f64, f64) = (30.0, 40.0);

/// The disturbance of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    StandsStill,
    Down,
    FirstPacket,
    FirstReport,
    Reports,
    Route,
    Clock,
    Jitter,
    Policer,
    Tiny,
    Narrow,
    Fast,
    Near,
    Far,
}

const ALL_TROUBLES: [Trouble; 14] = [
    Trouble::StandsStill,
    Trouble::Down,
    Trouble::FirstPacket,
    Trouble::FirstReport,
    Trouble::Reports,
    Trouble::Route,
    Trouble::Clock,
    Trouble::Jitter,
    Trouble::Policer,
    Trouble::Tiny,
    Trouble::Narrow,
    Trouble::Fast,
    Trouble::Near,
    Trouble::Far,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    Alive,
    Back,
    Bounded,
}

/// The promises that a controller's source does not make, with the reason.
const EXCEPTIONS: &[(&str, Promise, &str)] = &[
    (
        "tfrcp",
        Promise::Bounded,
        "MPEG-TFRCP, eq. 2: after an interval without loss the rate is doubled, whatever arrived",
    ),
    (
        "tfrcp",
        Promise::Back,
        "MPEG-TFRCP, eq. 1: intervals are of 32 round trips, and one in which all is lost leaves next to nothing",
    ),
    (
        "tfrcp-eai",
        Promise::Bounded,
        "MPEG-TFRCP, eq. 3: MTU · I / RTT² more in an interval, which on short paths is many times the link",
    ),
    (
        "tfrcp-eai",
        Promise::Back,
        "the same: what it sends beyond the link is lost, and eq. 1 then leaves next to nothing",
    ),
    (
        "tfrcp-qai",
        Promise::Bounded,
        "MPEG-TFRCP, III.B: rates are those of quantizers, 124 kb/s apart for a source without pictures",
    ),
    ("tfrcp-qai", Promise::Back, "the same, and eq. 1"),
    ("tfrcp-eai-cl", Promise::Back, "MPEG-TFRCP, eq. 4: losses count over the whole session"),
    ("tfrcp-qai-cl", Promise::Back, "MPEG-TFRCP, eq. 4: losses count over the whole session"),
    (
        "rbuf-type1",
        Promise::Bounded,
        "its paper's is flow control: the receiver's buffer sets the delay between packets, within bounds",
    ),
    (
        "rbuf-type2",
        Promise::Bounded,
        "its paper's is flow control: the receiver's buffer sets the delay between packets, within bounds",
    ),
    (
        "scream",
        Promise::Bounded,
        "draft-johansson-ccwg-rfc8298bis-screamv2, MIN_REF_WND: 3000 bytes a round trip, whatever is lost",
    ),
];

/// A path and its disturbance.
#[derive(Debug)]
struct Path {
    /// In bit/s and seconds; the queue in seconds.
    rate: f64,
    rtt: f64,
    queue: String,
    /// More keys of the bottleneck and of its flow, and events.
    link: String,
    flow: String,
    events: String,
    /// The end of the disturbance in seconds. The rate afterwards is compared with that of the undisturbed path.
    back: Option<f64>,
    /// Whether it always carries less than is sent.
    narrow: bool,
    duration: f64,
}

fn log(chance: &mut Chance, low: f64, high: f64) -> f64 {
    low * libm::pow(high / low, chance.unit())
}

impl Path {
    /// Draws a path. `most` is the highest rate in bit/s.
    fn draw(trouble: Trouble, chance: &mut Chance, most: f64) -> Self {
        let rate = log(chance, 300e3, most);
        let rtt = log(chance, 0.01, 0.3);
        let queue = format!("limit = \"{:.0}ms\"", 1e3 * log(chance, 0.1, 0.5));
        let (link, flow, events) = (String::new(), String::new(), String::new());
        let mut path =
            Self { rate, rtt, queue, link, flow, events, back: Some(BEGIN), narrow: false, duration: BEGIN + BACK };
        path.trouble(trouble, chance);
        path
    }

    fn trouble(&mut self, trouble: Trouble, chance: &mut Chance) {
        let overload = |path: &mut Self| (path.back, path.narrow, path.duration) = (None, true, OVERLOAD.1);
        match trouble {
            Trouble::StandsStill => {
                let long = log(chance, 0.25, 5.0);
                self.queue = "limit = \"2000p\"".into();
                self.set(BEGIN, "rate = \"1bps\"");
                self.set(BEGIN + long, &format!("rate = \"{:.0}bps\"", self.rate));
                self.over(long);
            }
            Trouble::Down => {
                let long = log(chance, 1.0, 30.0);
                self.set(BEGIN, "loss = { kind = \"bernoulli\", p = 1.0 }, direction = \"both\"");
                self.set(BEGIN + long, "loss = { kind = \"none\" }, direction = \"both\"");
                self.over(long);
            }
            Trouble::FirstPacket => self.link = ", loss = { kind = \"list\", packets = [1] }".into(),
            Trouble::FirstReport => self.link = ", back = { loss = { kind = \"list\", packets = [1] } }".into(),
            Trouble::Reports => {
                let (p, long) = (chance.between(0.3, 0.9), log(chance, 1.0, 30.0));
                self.set(BEGIN, &format!("loss = {{ kind = \"bernoulli\", p = {p:.3} }}, direction = \"back\""));
                self.set(BEGIN + long, "loss = { kind = \"none\" }, direction = \"back\"");
                self.over(long);
            }
            Trouble::Route => {
                self.set(BEGIN, &format!("delay = \"{:.3}ms\"", 500.0 * self.rtt * log(chance, 0.3, 5.0)))
            }
            Trouble::Clock => self.flow = format!("clock = {{ drift = {:.0} }}", chance.between(-500.0, 500.0)),
            Trouble::Jitter => {
                let dist = ["uniform", "exponential", "half-normal"][(chance.unit() * 3.0) as usize];
                let mean = 1e3 * log(chance, 0.002, 0.03);
                self.link = format!(", jitter = {{ dist = \"{dist}\", mean = \"{mean:.3}ms\" }}");
            }
            Trouble::Policer => {
                let rate = log(chance, 64e3, self.rate.max(128e3));
                let burst = log(chance, 3e3, 30e3);
                self.link = format!(", policer = {{ rate = \"{rate:.0}bps\", burst = \"{burst:.0}B\" }}");
                overload(self);
            }
            Trouble::Tiny => {
                self.queue = ["limit = \"1p\"", "limit = \"2p\""][(chance.unit() * 2.0) as usize].into();
                overload(self);
            }
            Trouble::Narrow => {
                self.rate = log(chance, 30e3, 300e3);
                overload(self);
            }
            Trouble::Fast => {
                self.rate *= 50.0;
                (self.back, self.duration) = (None, 4.0);
            }
            Trouble::Near => {
                self.rtt = log(chance, 10e-6, 1e-3);
                overload(self);
            }
            Trouble::Far => {
                self.rtt = log(chance, 0.3, 1.0);
                overload(self);
            }
        }
    }

    fn set(&mut self, at: f64, what: &str) {
        let text = format!("[[event]]\nat = \"{at:.3}s\"\nset = {{ link = \"bottleneck\", {what} }}\n");
        self.events.push_str(&text);
    }

    fn over(&mut self, long: f64) {
        (self.back, self.duration) = (Some(BEGIN + long), BEGIN + long + BACK);
    }

    fn text(&self, controller: &str, trouble: bool) -> String {
        let (link, flow, events) = if trouble { (&*self.link, &*self.flow, &*self.events) } else { ("", "", "") };
        format!(
            "duration = \"{:.3}s\"\n[topology]\nshape = \"dumbbell\"\n\
             bottleneck = {{ rate = \"{:.0}bps\", delay = \"{:.4}ms\", queue = {{ {} }}{link} }}\n\
             access = {{ rate = \"none\" }}\n\
             [[flow]]\nname = \"f\"\nkind = \"video\"\nmedia = \"greedy\"\ncontroller = \"{controller}\"\n{flow}\n\
             {events}",
            self.duration,
            self.rate,
            500.0 * self.rtt,
            self.queue,
        )
    }
}

/// Returns what was sent, or arrived, in each second, in bit/s.
fn series(run: &Run, node: &str) -> Vec<f64> {
    let table = run.simulation.table("rates").expect("a table");
    match (table.get("node"), table.get("throughput_bps")) {
        (Some(Values::Text { codes, texts }), Some(Values::Real(rates))) => {
            codes.iter().zip(rates).filter(|(code, _)| texts[**code as usize] == node).map(|(_, rate)| *rate).collect()
        }
        _ => panic!("no nodes, or no rates"),
    }
}

fn mean(rates: &[f64], from: f64, to: f64) -> f64 {
    let part = &rates[(from as usize).min(rates.len())..(to as usize).min(rates.len())];
    part.iter().sum::<f64>() / part.len().max(1) as f64
}

/// Returns the promise that a controller breaks on a path, with a description.
fn broken(controller: &Controller, path: &Path) -> Option<(Promise, String)> {
    let text = path.text(controller.name, true);
    let result = run(&text);
    let (sent, arrived) = (series(&result, "f.src"), series(&result, "f.dst1"));
    let pause = sent.split(|rate| *rate > 0.0).map(<[f64]>::len).max().unwrap_or(0);
    if pause > PAUSE {
        return Some((Promise::Alive, format!("silent for {pause} s\n{text}")));
    }
    if path.narrow {
        let (sent, arrived) = (mean(&sent, OVERLOAD.0, OVERLOAD.1), mean(&arrived, OVERLOAD.0, OVERLOAD.1));
        let packets = 2.0 * 9_600.0 / (OVERLOAD.1 - OVERLOAD.0);
        if sent > 2.0 * arrived + packets {
            return Some((Promise::Bounded, format!("sends {sent:.0} bit/s, and {arrived:.0} arrive\n{text}")));
        }
    }
    if let Some(back) = path.back {
        let end = back + BACK;
        let plain = series(&run(&path.text(controller.name, false)), "f.dst1");
        let (had, has) = (mean(&plain, end - SEEN, end), mean(&arrived, end - SEEN, end));
        if has < TENTH * had {
            return Some((Promise::Back, format!("{has:.0} bit/s arrive, and {had:.0} undisturbed\n{text}")));
        }
    }
    None
}

/// Runs each controller `draws` times with each disturbance.
fn all(draws: u64, most: f64) {
    let mut found = Vec::new();
    for controller in ALL.iter().filter(|controller| controller.feedback != FeedbackTiming::None) {
        for (trouble, draw) in ALL_TROUBLES.into_iter().flat_map(|trouble| (0..draws).map(move |draw| (trouble, draw)))
        {
            let mut chance = Seed(draw).part(&format!("{} {trouble:?}", controller.name));
            let path = Path::draw(trouble, &mut chance, most);
            let Some((promise, what)) = broken(controller, &path) else { continue };
            if !EXCEPTIONS.iter().any(|(name, excepted, _)| *name == controller.name && *excepted == promise) {
                found.push(format!("{}, {trouble:?}, draw {draw}: {what}", controller.name));
            }
        }
    }
    assert!(found.is_empty(), "{} broken:\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_controller_dies_or_sends_twice_what_passes_for_good() {
    all(1, 2e6);
}

#[test]
#[ignore = "claim: each controller on 70 networks"]
fn nor_does_any_on_many_more_networks() {
    all(5, 8e6);
}
