//! What a controller's entry in the registry is made of: its properties, its parameters and their values.

use crate::{Need, Pictures, Promise, ReceiverHalf, ReceiverId, SenderHalf};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};
use steadycast_units::{Bytes, Chance, Ecn, Rate, Span};
use steadycast_words::{nearest, words};

/// Whether a controller does what its paper prints, or what its paper means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The paper's contradictions are decided and its gaps are filled: the default.
    #[default]
    Repaired,
    /// The paper as it is printed.
    Paper,
}

words! {
    Mode { "repaired" => Self::Repaired, "paper" => Self::Paper, }
}

/// How many receivers a controller can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receivers {
    /// One receiver.
    One,
    /// One, or a group.
    OneOrMany,
}

/// What clocks a controller's feedback, and with it whether RTCP's 5 % bound holds
/// ([`RTCP_SHARE`](crate::promise::RTCP_SHARE)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedbackTiming {
    /// RTCP's timer: bounded by 5 % of the session bandwidth.
    Periodic,
    /// Packets or round trips: unbounded, but counted.
    Clocked,
    /// None changes anything: the rate answers to nothing.
    None,
}

/// A parameter's kind with its default and range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A plain number in [min, max].
    Number {
        /// Default.
        default: f64,
        /// Default in paper mode.
        paper: f64,
        /// Least.
        min: f64,
        /// Most.
        max: f64,
    },
    /// A length of time in [min, max].
    Span {
        /// Default.
        default: Span,
        /// Default in paper mode.
        paper: Span,
        /// Least.
        min: Span,
        /// Most.
        max: Span,
    },
    /// A rate in [min, max]; zero as a default means "not set".
    Rate {
        /// Default.
        default: Rate,
        /// Default in paper mode.
        paper: Rate,
        /// Least.
        min: Rate,
        /// Most.
        max: Rate,
    },
    /// One of several words.
    Choice {
        /// Default.
        default: &'static str,
        /// Default in paper mode.
        paper: &'static str,
        /// All of them.
        of: &'static [&'static str],
    },
    /// On or off.
    Switch {
        /// Default.
        default: bool,
        /// Default in paper mode.
        paper: bool,
    },
}

/// One parameter of a controller.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its key in `params.<controller>`.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Where it comes from: paper and equation, RFC and section.
    pub source: &'static str,
    /// Its kind, default and range.
    pub kind: Kind,
}

impl Param {
    /// A plain number; `of` has its default in repaired and in paper mode, `range` its least and most.
    pub const fn number(
        name: &'static str,
        about: &'static str,
        source: &'static str,
        of: [f64; 2],
        range: [f64; 2],
    ) -> Self {
        let kind = Kind::Number { default: of[0], paper: of[1], min: range[0], max: range[1] };
        Self { name, about, source, kind }
    }

    /// A length of time, as [`Param::number`].
    pub const fn span(
        name: &'static str,
        about: &'static str,
        source: &'static str,
        of: [Span; 2],
        range: [Span; 2],
    ) -> Self {
        let kind = Kind::Span { default: of[0], paper: of[1], min: range[0], max: range[1] };
        Self { name, about, source, kind }
    }

    /// A rate, as [`Param::number`]; zero means "not set".
    pub const fn rate(
        name: &'static str,
        about: &'static str,
        source: &'static str,
        of: [Rate; 2],
        range: [Rate; 2],
    ) -> Self {
        let kind = Kind::Rate { default: of[0], paper: of[1], min: range[0], max: range[1] };
        Self { name, about, source, kind }
    }

    /// One of the words `among`; `of` as in [`Param::number`].
    pub const fn choice(
        name: &'static str,
        about: &'static str,
        source: &'static str,
        of: [&'static str; 2],
        among: &'static [&'static str],
    ) -> Self {
        Self { name, about, source, kind: Kind::Choice { default: of[0], paper: of[1], of: among } }
    }

    /// On or off; `of` as in [`Param::number`].
    pub const fn switch(name: &'static str, about: &'static str, source: &'static str, of: [bool; 2]) -> Self {
        Self { name, about, source, kind: Kind::Switch { default: of[0], paper: of[1] } }
    }
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// See [`Kind::Number`].
    Number(f64),
    /// See [`Kind::Span`].
    Span(Span),
    /// See [`Kind::Rate`].
    Rate(Rate),
    /// See [`Kind::Choice`].
    Choice(&'static str),
    /// See [`Kind::Switch`].
    Switch(bool),
}

/// A parameter as a user wrote it.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// A number.
    Number(f64),
    /// A text: a span, a rate or a choice.
    Text(String),
    /// A switch.
    Switch(bool),
}

/// Why a parameter can't be taken; names the key, the problem and the remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name}: {problem}; {remedy}")]
pub struct ParamError {
    /// The parameter.
    pub name: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub remedy: String,
}

/// All parameters of one controller, each with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    mode: Mode,
    all: Vec<(&'static str, Value)>,
    reading: Reading,
}

/// What a controller's halves have made of their values: one for all of them.
#[derive(Clone, Debug, Default)]
struct Reading(OnceLock<Arc<dyn Any + Send + Sync>>);

impl PartialEq for Reading {
    fn eq(&self, _: &Self) -> bool {
        true // It follows from the values.
    }
}

impl Values {
    /// The defaults in `mode`, overridden by what was `given`.
    ///
    /// # Errors
    /// An unknown name (with the nearest known one), a value of the wrong kind or out of range.
    pub fn resolve(params: &[Param], mode: Mode, given: &[(String, Given)]) -> Result<Self, ParamError> {
        let mut values: Vec<_> = params.iter().map(|p| (p.name, p.default(mode))).collect();
        for (name, given) in given {
            let Some(place) = params.iter().position(|p| p.name == *name) else {
                let names: Vec<_> = params.iter().map(|p| p.name).collect();
                return Err(ParamError {
                    name: name.clone(),
                    problem: "no such parameter".into(),
                    remedy: match nearest(name, &names) {
                        Some(near) => format!("did you mean \"{near}\"?"),
                        None if names.is_empty() => "this controller has none".into(),
                        None => format!("there are: {}", names.join(", ")),
                    },
                });
            };
            values[place].1 = params[place].read(given)?;
        }
        Ok(Self { mode, all: values, reading: Reading::default() })
    }

    /// The mode whose defaults they are.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// All of them, in the registry's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.all.iter().map(|(name, value)| (*name, value))
    }

    /// What `read` makes of them, shared by all halves that ask for it: a large group has many.
    pub(crate) fn read<T: Any + Send + Sync>(&self, read: impl Fn(&Self) -> T) -> Arc<T> {
        let shared = self.reading.0.get_or_init(|| Arc::new(read(self)));
        Arc::clone(shared).downcast().unwrap_or_else(|_| Arc::new(read(self)))
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.all.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// The number called `name`. A name that the controller's own list lacks is a bug there: debug builds stop, release
    /// gives 0.
    pub fn number(&self, name: &str) -> f64 {
        match self.get(name) {
            Some(Value::Number(n)) => *n,
            other => {
                debug_assert!(false, "{name} is {other:?}, not a number");
                0.0
            }
        }
    }
    /// The span called `name`.
    pub fn span(&self, name: &str) -> Span {
        match self.get(name) {
            Some(Value::Span(s)) => *s,
            other => {
                debug_assert!(false, "{name} is {other:?}, not a span");
                Span::ZERO
            }
        }
    }
    /// The rate called `name`; `None` when it was left at zero, "not set".
    pub fn rate(&self, name: &str) -> Option<Rate> {
        match self.get(name) {
            Some(Value::Rate(r)) => (*r > Rate::ZERO).then_some(*r),
            other => {
                debug_assert!(false, "{name} is {other:?}, not a rate");
                None
            }
        }
    }
    /// The choice called `name`.
    pub fn choice(&self, name: &str) -> &'static str {
        match self.get(name) {
            Some(Value::Choice(c)) => c,
            other => {
                debug_assert!(false, "{name} is {other:?}, not a choice");
                ""
            }
        }
    }
    /// The switch called `name`.
    pub fn switch(&self, name: &str) -> bool {
        match self.get(name) {
            Some(Value::Switch(s)) => *s,
            other => {
                debug_assert!(false, "{name} is {other:?}, not a switch");
                false
            }
        }
    }
}

impl Param {
    /// Its default in `mode`.
    pub fn default(&self, mode: Mode) -> Value {
        let paper = mode == Mode::Paper;
        match self.kind {
            Kind::Number { default, paper: p, .. } => Value::Number(if paper { p } else { default }),
            Kind::Span { default, paper: p, .. } => Value::Span(if paper { p } else { default }),
            Kind::Rate { default, paper: p, .. } => Value::Rate(if paper { p } else { default }),
            Kind::Choice { default, paper: p, .. } => Value::Choice(if paper { p } else { default }),
            Kind::Switch { default, paper: p } => Value::Switch(if paper { p } else { default }),
        }
    }

    fn read(&self, given: &Given) -> Result<Value, ParamError> {
        let wrong = |problem: String, remedy: String| ParamError { name: self.name.into(), problem, remedy };
        match (self.kind, given) {
            (Kind::Number { min, max, .. }, Given::Number(n)) if (min..=max).contains(n) => Ok(Value::Number(*n)),
            (Kind::Number { min, max, .. }, Given::Number(n)) => {
                Err(wrong(format!("{n} is out of range"), format!("give a number from {min} to {max}")))
            }
            (Kind::Number { min, max, .. }, other) => {
                Err(wrong(format!("{other} is not a number"), format!("give a number from {min} to {max}")))
            }
            (Kind::Span { min, max, .. }, Given::Text(text)) => {
                let span: Span = text.parse().map_err(|e| wrong(format!("{e}"), format!("from {min} to {max}")))?;
                let fits = (min..=max).contains(&span);
                fits.then_some(Value::Span(span))
                    .ok_or_else(|| wrong(format!("{span} is out of range"), format!("give a time from {min} to {max}")))
            }
            (Kind::Rate { min, max, .. }, Given::Text(text)) => {
                let rate: Rate = text.parse().map_err(|e| wrong(format!("{e}"), format!("from {min} to {max}")))?;
                let fits = (min..=max).contains(&rate);
                fits.then_some(Value::Rate(rate))
                    .ok_or_else(|| wrong(format!("{rate} is out of range"), format!("give a rate from {min} to {max}")))
            }
            (Kind::Span { .. }, other) => {
                Err(wrong(format!("{other} is not a time"), "write for example \"20ms\"".into()))
            }
            (Kind::Rate { .. }, other) => {
                Err(wrong(format!("{other} is not a rate"), "write for example \"150kbps\"".into()))
            }
            (Kind::Choice { of, .. }, Given::Text(text)) if of.contains(&text.as_str()) => {
                Ok(Value::Choice(of.iter().find(|c| *c == text).copied().unwrap_or_default()))
            }
            (Kind::Choice { of, .. }, other) => {
                Err(wrong(format!("{other} is not one of its values"), format!("choose from: {}", of.join(", "))))
            }
            (Kind::Switch { .. }, Given::Switch(s)) => Ok(Value::Switch(*s)),
            (Kind::Switch { .. }, other) => {
                Err(wrong(format!("{other} is neither on nor off"), "true or false".into()))
            }
        }
    }
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Text(t) => write!(f, "\"{t}\""),
            Self::Switch(s) => write!(f, "{s}"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Span(s) => write!(f, "{s}"),
            Self::Rate(r) => write!(f, "{r}"),
            Self::Choice(c) => write!(f, "{c}"),
            Self::Switch(s) => write!(f, "{s}"),
        }
    }
}

/// What a half is built for.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Nominal packet size, as IP size: the `s` or `P` of the equations.
    pub packet: Bytes,
    /// Paper or repaired.
    pub mode: Mode,
    /// The rate never goes below this: the ladder's lowest rung, or the session's floor.
    pub floor: Rate,
    /// The rate never goes above this: the ladder's highest rung, or the session's cap.
    pub cap: Rate,
    /// The pictures that are sent; a source without any, which always has data, has `None`.
    pub pictures: Option<Arc<Pictures>>,
    /// Configured session bandwidth, which RTCP's 5 % are counted from.
    pub session_bandwidth: Rate,
    /// Whether there can be more than one receiver.
    pub group: bool,
    /// Receiver half: its own id. Sender half: the sender's.
    pub id: ReceiverId,
    /// The ECN field with which the session sends its packets.
    pub ecn: Ecn,
    /// The half's own generator.
    pub chance: Chance,
}

impl Setup {
    /// The cap of a session that nobody gives one: more than any link here carries.
    pub const NO_CAP: Rate = Rate::mbps(1_000);

    /// The longest time between two packets that a session's floor leaves: who hears nothing may always send that often
    /// (RFC 8085, 3.1.3), and only packets can show that the path is back.
    pub const LEAST_EVERY: Span = Span::secs(3);

    /// The same with a floor of a packet each [`Setup::LEAST_EVERY`] at least, or the cap: what multiplies a rate never
    /// comes back from zero. As printed the floor is the operator's.
    #[must_use]
    pub fn alive(self) -> Self {
        let least = match self.mode {
            Mode::Repaired => self.packet.per(Self::LEAST_EVERY).min(self.cap),
            Mode::Paper => Rate::ZERO,
        };
        Self { floor: self.floor.max(least), ..self }
    }

    /// A session with one receiver, packets of 1000 bytes, no pictures and no ECN, whose session bandwidth is the cap;
    /// the half's id is 1. Other fields are set with `..`.
    pub fn unicast(floor: Rate, cap: Rate, chance: Chance) -> Self {
        Self {
            packet: Bytes::new(1000),
            mode: Mode::Repaired,
            floor,
            cap,
            pictures: None,
            session_bandwidth: cap,
            group: false,
            id: ReceiverId(1),
            ecn: Ecn::NotEct,
            chance,
        }
    }
}

/// Builds a sender half.
pub type BuildSender = fn(&Setup, &Values) -> Box<dyn SenderHalf>;
/// Builds a receiver half.
pub type BuildReceiver = fn(&Setup, &Values) -> Box<dyn ReceiverHalf>;

/// Dashes of a line, in points on and off; empty for a solid one.
pub type Dashes = &'static [f32];

/// One controller: what sessions, scenario files, commands and reports know of it.
#[derive(Clone, Copy, Debug)]
pub struct Controller {
    /// Its name in scenario files.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// When to take it, in one line (`docs/which-controller.md`).
    pub when: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// How many receivers it can serve.
    pub receivers: Receivers,
    /// What clocks its feedback.
    pub feedback: FeedbackTiming,
    /// What it cannot do without, with these values of its parameters.
    pub needs: fn(&Values) -> &'static [Need],
    /// Whether it can be run on standard receiver reports alone.
    pub standard_reports: bool,
    /// Whether a report says the same when it is said again, as a rate does. Between a slow receiver's reports its last
    /// one is then repeated.
    pub repeats: bool,
    /// Whether it takes over where receivers send standard reports alone and the chosen controller needs its own. Only
    /// one controller does.
    pub fallback: bool,
    /// Whether its receivers know a rate of their own ([`ReceiverHalf::acceptable`]), by which one can choose between
    /// groups.
    pub own_rate: bool,
    /// Whether it answers congestion marks (RFC 3168), as whoever sends ECN-capable packets has to.
    pub answers_marks: bool,
    /// Its RTP header extension element's id (0: none) and its APP packets' name.
    pub extension: u8,
    /// The four letters of its RTCP APP packets.
    pub app: [u8; 4],
    /// Its colour everywhere, as `#rrggbb`.
    pub colour: &'static str,
    /// Its dash pattern everywhere, so that it survives a black-and-white print.
    pub dashes: Dashes,
    /// Its parameters.
    pub params: &'static [Param],
    /// What its halves promise, and check as they run.
    pub promises: &'static [&'static Promise],
    /// Builds its sender half.
    pub sender: BuildSender,
    /// Builds its receiver half.
    pub receiver: BuildReceiver,
}

impl Controller {
    /// The first of its needs, with these values of its parameters, that is not among those `offered`.
    pub fn missing(&self, values: &Values, offered: &[Need]) -> Option<Need> {
        (self.needs)(values).iter().find(|need| !offered.contains(need)).copied()
    }
}
