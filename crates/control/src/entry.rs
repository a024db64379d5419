//! A controller's registry entry, its parameters and their values.

use crate::{Need, Pictures, Promise, ReceiverHalf, ReceiverId, SenderHalf};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};
use steadycast_settings::{nearest, words};
use steadycast_units::{Bytes, Chance, Ecn, QuantityError, Rate, Span};

words! {
    /// The version of a paper that a controller follows: its text, or its intention.
    #[derive(Default)]
    pub enum Mode {
        /// The paper with its contradictions resolved and its gaps filled: the default.
        #[default]
        Repaired = "repaired",
        /// The paper's text, taken literally.
        Paper = "paper",
    }
    /// The number of receivers that a controller can serve.
    pub enum Receivers {
        /// A single receiver.
        One = "unicast",
        /// A single receiver or a group.
        OneOrMany = "any",
    }
    /// The event that clocks a controller's feedback. It determines whether RTCP's 5 % bound applies
    /// ([`RTCP_SHARE`](crate::promise::RTCP_SHARE)).
    pub enum FeedbackTiming {
        /// RTCP's timer: bounded by 5 % of the session bandwidth.
        Periodic = "periodic",
        /// Packets or round trips: the feedback is not bounded, but its bytes are counted.
        Clocked = "clocked",
        /// None: the rate does not depend on feedback.
        None = "none",
    }
}

/// The value of a parameter. The variant is the parameter's kind.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Value {
    /// A number without a unit.
    Number(f64),
    /// A length of time.
    Span(Span),
    /// A rate; zero as a default means "not set".
    Rate(Rate),
    /// A word of a fixed list.
    Choice(&'static str),
    /// On or off.
    Switch(bool),
}

impl Value {
    /// Returns the kind's name.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Number(_) => "number",
            Self::Span(_) => "span",
            Self::Rate(_) => "rate",
            Self::Choice(_) => "choice",
            Self::Switch(_) => "switch",
        }
    }
}

/// The permitted values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Within {
    /// Values from a minimum to a maximum.
    Range(Value, Value),
    /// One of the words in this list.
    Among(&'static [&'static str]),
    /// On or off.
    Either,
}

/// One parameter of a controller.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The parameter's key in `params.<controller>`.
    pub name: &'static str,
    /// The effect of the parameter, in one line.
    pub about: &'static str,
    /// The source: paper and equation, or RFC and section.
    pub source: &'static str,
    /// The defaults in repaired and in paper mode.
    pub of: [Value; 2],
    /// The permitted values of the parameter.
    pub within: Within,
}

/// A former parameter that is a constant now. Setting it is an error.
#[derive(Clone, Copy, Debug)]
pub struct FormerParam {
    /// The name of the former parameter.
    pub name: &'static str,
    /// The constant in repaired and in paper mode.
    pub of: [Value; 2],
    /// The source of the value.
    pub source: &'static str,
}

impl FormerParam {
    /// Creates a parameter whose value is the same in both modes.
    pub const fn new(name: &'static str, value: Value, source: &'static str) -> Self {
        Self { name, of: [value, value], source }
    }

    fn refuse(&self, mode: Mode) -> ParamError {
        let value = self.of[usize::from(mode == Mode::Paper)];
        let problem = format!("this parameter no longer exists; it is the constant {value} ({})", self.source);
        ParamError::new(ParamErrorKind::UnknownParameter, self.name, problem, "remove it")
    }
}

macro_rules! ranged {
    ($($(#[$doc:meta])* $make:ident: $kind:ident($type:ty);)*) => {$(
        $(#[$doc])*
        pub const fn $make(
            name: &'static str,
            about: &'static str,
            source: &'static str,
            [repaired, paper]: [$type; 2],
            [least, most]: [$type; 2],
        ) -> Self {
            let within = Within::Range(Value::$kind(least), Value::$kind(most));
            Self { name, about, source, of: [Value::$kind(repaired), Value::$kind(paper)], within }
        }
    )*};
}

impl Param {
    ranged! {
        /// Creates a number without a unit, with its defaults (repaired, paper) and its minimum and maximum.
        number: Number(f64);
        /// Creates a duration; see [`Param::number`].
        span: Span(Span);
        /// Creates a rate; see [`Param::number`]. Zero means "not set".
        rate: Rate(Rate);
    }

    /// Creates a parameter that is one of the words `among`. `of` are the defaults (repaired, paper).
    pub const fn choice(
        name: &'static str,
        about: &'static str,
        source: &'static str,
        of: [&'static str; 2],
        among: &'static [&'static str],
    ) -> Self {
        Self { name, about, source, of: [Value::Choice(of[0]), Value::Choice(of[1])], within: Within::Among(among) }
    }

    /// Creates a switch. `of` are the defaults (repaired, paper).
    pub const fn switch(name: &'static str, about: &'static str, source: &'static str, of: [bool; 2]) -> Self {
        Self { name, about, source, of: [Value::Switch(of[0]), Value::Switch(of[1])], within: Within::Either }
    }
}

/// A parameter value as written by a user.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// A number.
    Number(f64),
    /// A text: a span, a rate or a choice.
    Text(String),
    /// A switch.
    Switch(bool),
}

/// The kind of a [`ParamError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamErrorKind {
    /// The registry has no controller of this name.
    UnknownController,
    /// The controller has no parameter of this name.
    UnknownParameter,
    /// The value has the wrong type or unit, or is out of range.
    InvalidValue,
    /// The controller needs a feature that the session or its receivers' feedback does not have.
    UnmetNeed,
}

/// The rejection of a controller or of one of its parameters.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name}: {problem}; {remedy}")]
#[non_exhaustive]
pub struct ParamError {
    /// The kind of the problem.
    pub kind: ParamErrorKind,
    /// The name of the controller or parameter.
    pub name: String,
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub remedy: String,
}

impl ParamError {
    /// Creates an error.
    pub fn new(
        kind: ParamErrorKind,
        name: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { kind, name: name.into(), problem: problem.into(), remedy: remedy.into() }
    }
}

/// The values of all parameters of one controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    mode: Mode,
    all: Vec<(&'static str, Value)>,
    reading: Reading,
}

/// The configuration computed from the values, shared by a controller's halves.
#[derive(Clone, Debug, Default)]
struct Reading(OnceLock<Arc<dyn Any + Send + Sync>>);

impl PartialEq for Reading {
    fn eq(&self, _: &Self) -> bool {
        true // the configuration depends only on the values, which are compared separately
    }
}

impl Values {
    /// Returns the defaults in `mode`, overridden by the values in `given`.
    ///
    /// # Errors
    /// An unknown name, a value of the wrong kind, or a value out of range.
    pub fn resolve(params: &[Param], mode: Mode, given: &[(String, Given)]) -> Result<Self, ParamError> {
        let mut values: Vec<_> = params.iter().map(|p| (p.name, p.default(mode))).collect();
        for (name, given) in given {
            let Some(place) = params.iter().position(|p| p.name == *name) else {
                let names: Vec<_> = params.iter().map(|p| p.name).collect();
                let remedy = match nearest(name, &names) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None if names.is_empty() => "this controller has none".into(),
                    None => format!("there are: {}", names.join(", ")),
                };
                return Err(ParamError::new(ParamErrorKind::UnknownParameter, name, "no such parameter", remedy));
            };
            values[place].1 = params[place].read(given)?;
        }
        Ok(Self { mode, all: values, reading: Reading::default() })
    }

    /// Returns the values of `params`, with defaults where `self` has none.
    pub(crate) fn of(&self, params: &[Param]) -> Self {
        let value = |p: &Param| self.iter().find(|(name, _)| *name == p.name).map_or(p.default(self.mode), |(_, v)| *v);
        Self { mode: self.mode, all: params.iter().map(|p| (p.name, value(p))).collect(), reading: Reading::default() }
    }

    /// Returns the mode whose defaults apply.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Iterates over the names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.all.iter().map(|(name, value)| (*name, value))
    }

    /// Returns `read(self)`, computed once and shared, because a large group has many halves.
    pub(crate) fn read<T: Any + Send + Sync>(&self, read: impl Fn(&Self) -> T) -> Arc<T> {
        let shared = self.reading.0.get_or_init(|| Arc::new(read(self)));
        // Another type than the cached one is computed at each call.
        Arc::clone(shared).downcast().unwrap_or_else(|_| Arc::new(read(self)))
    }

    /// Returns a value. An unknown name panics in debug builds and gives the type's default in release builds.
    fn get<T: Default>(&self, name: &str, of: impl FnOnce(Value) -> Option<T>) -> T {
        let found = self.all.iter().find(|(n, _)| *n == name).and_then(|(_, value)| of(*value));
        debug_assert!(found.is_some(), "no parameter of this kind is called {name}");
        found.unwrap_or_default()
    }

    /// Returns a number.
    pub fn number(&self, name: &str) -> f64 {
        self.get(name, |value| if let Value::Number(n) = value { Some(n) } else { None })
    }

    /// Returns a span.
    pub fn span(&self, name: &str) -> Span {
        self.get(name, |value| if let Value::Span(span) = value { Some(span) } else { None })
    }

    /// Returns a rate; `None` if it is zero, which means "not set".
    pub fn rate(&self, name: &str) -> Option<Rate> {
        let rate = self.get(name, |value| if let Value::Rate(rate) = value { Some(rate) } else { None });
        (rate > Rate::ZERO).then_some(rate)
    }

    /// Returns a choice.
    pub fn choice(&self, name: &str) -> &'static str {
        self.get(name, |value| if let Value::Choice(word) = value { Some(word) } else { None })
    }

    /// Returns a switch.
    pub fn switch(&self, name: &str) -> bool {
        self.get(name, |value| if let Value::Switch(on) = value { Some(on) } else { None })
    }
}

impl Param {
    /// Returns the parameter's default in `mode`.
    pub const fn default(&self, mode: Mode) -> Value {
        match mode {
            Mode::Repaired => self.of[0],
            Mode::Paper => self.of[1],
        }
    }

    fn read(&self, given: &Given) -> Result<Value, ParamError> {
        let wrong =
            |problem: String, remedy: String| ParamError::new(ParamErrorKind::InvalidValue, self.name, problem, remedy);
        let range = match self.within {
            Within::Range(least, most) => format!("from {least} to {most}"),
            Within::Among(words) => format!("choose from: {}", words.join(", ")),
            Within::Either => "write true or false".into(),
        };
        let (what, example) = match self.of[0] {
            Value::Number(_) => ("not a number", format!("give a number {range}")),
            Value::Span(_) => ("not a time", "write for example \"20ms\"".into()),
            Value::Rate(_) => ("not a rate", "write for example \"150kbps\"".into()),
            Value::Choice(_) => ("not one of its values", range.clone()),
            Value::Switch(_) => ("neither true nor false", range.clone()),
        };
        let unread = |error: QuantityError| wrong(error.to_string(), format!("write a value {range}"));
        let value = match (self.of[0], given, self.within) {
            (Value::Number(_), Given::Number(n), _) => Some(Value::Number(*n)),
            (Value::Span(_), Given::Text(text), _) => Some(Value::Span(text.parse().map_err(unread)?)),
            (Value::Rate(_), Given::Text(text), _) => Some(Value::Rate(text.parse().map_err(unread)?)),
            (_, Given::Text(text), Within::Among(all)) => all.iter().find(|w| *w == text).map(|w| Value::Choice(w)),
            (Value::Switch(_), Given::Switch(on), _) => Some(Value::Switch(*on)),
            _ => None,
        };
        let value = value.ok_or_else(|| wrong(format!("{given} is {what}"), example))?;
        match self.within {
            Within::Range(least, most) if !(least..=most).contains(&value) => {
                // The remedy names the kind: "not a rate" becomes "a rate".
                let what = what.trim_start_matches("not ");
                Err(wrong(format!("{value} is out of range"), format!("give {what} {range}")))
            }
            _ => Ok(value),
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

/// Declares a controller's parameters as `PARAMS`, and a configuration struct with their values.
///
/// In the first block, each parameter is `KIND name: about, source, [repaired, paper], range;`. The parameter becomes a
/// field of the struct. The field of a `secs` parameter is in seconds. A parameter with `let` before it becomes a local
/// variable instead of a field.
///
/// The second block has further fields, whose values are computed from the parameters.
///
/// The macro has three shorter forms without a struct: `const { … }` declares `PARAMS` only, `[ … ]` is an array, and
/// `NAME = KIND name: …;` declares each parameter as a constant.
macro_rules! params {
    ($(#[$doc:meta])* const { $($kind:ident $name:ident: $($of:expr),+;)* }) => {
        $(#[$doc])*
        const PARAMS: &[$crate::entry::Param] = &$crate::entry::params!([$($kind $name: $($of),+;)*]);
    };
    ([$($kind:ident $name:ident: $($of:expr),+;)*]) => {
        [$($crate::entry::Param::$kind(stringify!($name), $($of),+)),*]
    };
    ($($const:ident = $kind:ident $name:ident: $($of:expr),+;)*) => {
        $(const $const: $crate::entry::Param = $crate::entry::Param::$kind(stringify!($name), $($of),+);)*
    };
    (
        $(#[$doc:meta])* $vis:vis $config:ident($values:ident $(, $setup:ident)?) { $($params:tt)* }
        { $($(#[$about:meta])* $own:ident: $type:ty = $value:expr,)* }
    ) => {
        $crate::entry::params! { @each [$($params)*] [] [] [] [
            $(#[$doc])* $vis $config ($values $(, $setup)?) $($(#[$about])* $own: $type = $value,)*
        ] }
    };
    (
        @each [let $kind:ident $name:ident: $($of:expr),+; $($rest:tt)*]
        [$($all:tt)*] [$($let:tt)*] $field:tt $own:tt
    ) => {
        $crate::entry::params! {
            @each [$($rest)*] [$($all)* $kind($name, $($of),+)] [$($let)* $kind $name,] $field $own
        }
    };
    (@each [$kind:ident $name:ident: $($of:expr),+; $($rest:tt)*] [$($all:tt)*] $let:tt [$($field:tt)*] $own:tt) => {
        $crate::entry::params! {
            @each [$($rest)*] [$($all)* $kind($name, $($of),+)] $let [$($field)* $kind $name,] $own
        }
    };
    (
        @each [] [$($kind:ident($name:ident, $($of:expr),+))*]
        [$($look:ident $let:ident,)*] [$($read:ident $field:ident,)*]
        [
            $(#[$doc:meta])* $vis:vis $config:ident($values:ident $(, $setup:ident)?)
            $($(#[$about:meta])* $own:ident: $type:ty = $value:expr,)*
        ]
    ) => {
        $vis const PARAMS: &[$crate::entry::Param] =
            &[$($crate::entry::params!(@make $kind)(stringify!($name), $($of),+)),*];

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        $vis struct $config {
            $($field: $crate::entry::params!(@type $read),)*
            $($(#[$about])* $own: $type,)*
        }

        impl $config {
            $vis fn new($($setup: &$crate::Setup,)? $values: &$crate::Values) -> Self {
                $(let $let = $crate::entry::params!(@read $look $values $let);)*
                $(let $field = $crate::entry::params!(@read $read $values $field);)*
                $(let $own = $value;)*
                Self { $($field,)* $($own,)* }
            }
        }
    };
    (@make secs) => { $crate::entry::Param::span };
    (@make $kind:ident) => { $crate::entry::Param::$kind };
    (@type number) => { f64 };
    (@type secs) => { f64 };
    (@type span) => { steadycast_units::Span };
    (@type rate) => { Option<steadycast_units::Rate> };
    (@type choice) => { &'static str };
    (@type switch) => { bool };
    (@read secs $values:ident $name:ident) => { $values.span(stringify!($name)).as_secs_f64() };
    (@read $kind:ident $values:ident $name:ident) => { $values.$kind(stringify!($name)) };
}
pub(crate) use params;

/// The session for which a half is built.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The nominal packet size as IP size: `s` or `P` in the equations.
    pub packet: Bytes,
    /// The mode: paper or repaired.
    pub mode: Mode,
    /// The lower limit of the rate.
    pub floor: Rate,
    /// The upper limit of the rate.
    pub cap: Rate,
    /// The video's properties; `None` for a source that always has data.
    pub pictures: Option<Arc<Pictures>>,
    /// The session bandwidth, of which RTCP gets 5 %.
    pub session_bandwidth: Rate,
    /// Whether the session may have more than one receiver.
    pub group: bool,
    /// The half's own identifier.
    pub id: ReceiverId,
    /// The ECN field of the session's packets.
    pub ecn: Ecn,
    /// Whether the session sends the probes of [`SenderHalf::probe`].
    pub probes: bool,
    /// The half's own random generator.
    pub chance: Chance,
}

impl Setup {
    /// The cap of a session that sets none; above the capacity of every simulated link.
    pub const NO_CAP: Rate = Rate::mbps(1_000);

    /// Returns the floor and the cap in bit/s, with floor ≤ cap.
    pub(crate) fn rate_limits(&self) -> (f64, f64) {
        let cap = self.cap.as_bps_f64();
        (self.floor.as_bps_f64().min(cap), cap)
    }

    /// The longest interval between two packets, 3 s. A sender without feedback may send that often (RFC 8085,
    /// section 3.1.3).
    pub const LEAST_EVERY: Span = Span::secs(3);

    /// Returns this setup with a floor of at least one packet per [`Setup::LEAST_EVERY`], limited by the cap. A
    /// multiplicative controller would never leave a rate of zero. Paper mode keeps its floor.
    #[must_use]
    pub fn alive(self) -> Self {
        let least = match self.mode {
            Mode::Repaired => self.packet.per(Self::LEAST_EVERY).min(self.cap),
            Mode::Paper => Rate::ZERO,
        };
        Self { floor: self.floor.max(least), ..self }
    }

    /// Creates a session with one receiver, 1000-byte packets, probes, no frame data and no ECN. Its bandwidth is the
    /// cap; the identifier is 1.
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
            probes: true,
            chance,
        }
    }
}

/// Builds a sender half.
pub type BuildSender = fn(&Setup, &Values) -> Box<dyn SenderHalf>;
/// Builds a receiver half.
pub type BuildReceiver = fn(&Setup, &Values) -> Box<dyn ReceiverHalf>;

/// The dash pattern of a line, in points on and off; empty for a solid line.
pub type Dashes = &'static [f32];

/// A controller's registry entry.
#[derive(Clone, Copy, Debug)]
pub struct Controller {
    /// The name in scenario files.
    pub name: &'static str,
    /// The description, in one line.
    pub about: &'static str,
    /// When to choose the controller, in one line (`docs/which-controller.md`).
    pub when: &'static str,
    /// The source: a paper or an RFC.
    pub source: &'static str,
    /// The number of receivers that it can serve.
    pub receivers: Receivers,
    /// The event that clocks the feedback.
    pub feedback: FeedbackTiming,
    /// The longest feedback interval with which the controller still works. This limit applies only if both halves run
    /// at the sender.
    pub slowest_feedback: Span,
    /// The session features that the controller requires with these parameters.
    pub needs: fn(&Values) -> &'static [Need],
    /// Whether the controller can run on standard receiver reports alone.
    pub standard_reports: bool,
    /// Whether a report keeps its meaning when it is repeated, for example because it carries a rate.
    pub repeats: bool,
    /// Whether this is the one controller that replaces others if the receivers send only standard reports.
    pub fallback: bool,
    /// Whether the receivers compute a rate ([`ReceiverHalf::acceptable`]).
    pub own_rate: bool,
    /// Whether the controller responds to congestion marks (RFC 3168).
    pub answers_marks: bool,
    /// The identifier of the RTP header extension element; 0 if there is none.
    pub extension: u8,
    /// The four-letter name of the RTCP APP packets.
    pub app: [u8; 4],
    /// The line colour in plots, as `#rrggbb`.
    pub colour: &'static str,
    /// The dash pattern in plots, for black and white.
    pub dashes: Dashes,
    /// The parameters.
    pub params: &'static [Param],
    /// The former parameters, which are constants now.
    pub former: &'static [FormerParam],
    /// The rules of the controller's behaviour that its halves check in every run ([`crate::Check`]).
    pub promises: &'static [&'static Promise],
    /// Builds the sender half.
    pub sender: BuildSender,
    /// Builds the receiver half.
    pub receiver: BuildReceiver,
}

impl Controller {
    /// Returns the first needed session feature that is not `offered`; `None` if all are.
    pub fn missing(&self, values: &Values, offered: &[Need]) -> Option<Need> {
        (self.needs)(values).iter().find(|need| !offered.contains(need)).copied()
    }

    /// Returns the values of the parameters: the defaults in `mode`, overridden by `given`.
    ///
    /// # Errors
    /// As [`Values::resolve`]; also for a former parameter.
    pub fn resolve(&self, mode: Mode, given: &[(String, Given)]) -> Result<Values, ParamError> {
        match given.iter().find_map(|(name, _)| self.former.iter().find(|former| former.name == *name)) {
            Some(former) => Err(former.refuse(mode)),
            None => Values::resolve(self.params, mode, given),
        }
    }
}
