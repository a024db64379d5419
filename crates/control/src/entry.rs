//! Types that describe a controller: its registry entry, its parameters and their values.

use crate::{Need, Pictures, Promise, ReceiverHalf, ReceiverId, SenderHalf};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};
use steadycast_settings::{nearest, words};
use steadycast_units::{Bytes, Chance, Ecn, QuantityError, Rate, Span};

words! {
    /// How a controller follows its paper: by the paper's literal text, or by what the text means.
    #[derive(Default)]
    pub enum Mode {
        /// The controller follows the paper, but contradictions are resolved and gaps are filled. This is the default.
        #[default]
        Repaired = "repaired",
        /// The controller follows the paper's literal text.
        Paper = "paper",
    }
    /// How many receivers a controller can serve.
    pub enum Receivers {
        /// A single receiver only.
        One = "unicast",
        /// A single receiver or a group.
        OneOrMany = "any",
    }
    /// What triggers a controller's feedback. This determines whether RTCP's limit of 5 % is valid for the feedback
    /// ([`RTCP_SHARE`](crate::promise::RTCP_SHARE)).
    pub enum FeedbackTiming {
        /// RTCP's timer triggers feedback. The feedback is limited to 5 % of the session bandwidth.
        Periodic = "periodic",
        /// Packets or round trips trigger feedback. The feedback is not limited, but its bytes are counted.
        Clocked = "clocked",
        /// The controller needs no feedback, because its rate does not depend on it.
        None = "none",
    }
}

/// Value of a parameter. The variant is also the type of the parameter.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Value {
    /// A number without a unit.
    Number(f64),
    /// A length of time.
    Span(Span),
    /// A rate. As a default, zero means "not set".
    Rate(Rate),
    /// A word from a fixed list.
    Choice(&'static str),
    /// On or off.
    Switch(bool),
}

impl Value {
    /// Returns the name of the value's type.
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

/// Which values a parameter may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Within {
    /// All values from a minimum to a maximum, both included.
    Range(Value, Value),
    /// Only the words in this list.
    Among(&'static [&'static str]),
    /// On or off.
    Either,
}

/// One parameter of a controller.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Name of the parameter, as users write it in `params.<controller>`.
    pub name: &'static str,
    /// What the parameter does, in one line.
    pub about: &'static str,
    /// Where the parameter is from: paper and equation, or RFC and section.
    pub source: &'static str,
    /// Default in repaired mode, and default in paper mode.
    pub of: [Value; 2],
    /// Which values the parameter may have.
    pub within: Within,
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
        /// Creates a parameter that is a number without a unit. The first array has the defaults in repaired and in
        /// paper mode. The second array has the minimum and the maximum.
        number: Number(f64);
        /// Creates a parameter that is a duration. The arguments are as for [`Param::number`].
        span: Span(Span);
        /// Creates a parameter that is a rate. The arguments are as for [`Param::number`]. Zero means "not set".
        rate: Rate(Rate);
    }

    /// Creates a parameter that is one of the words in `among`. `of` has the defaults in repaired and in paper mode.
    pub const fn choice(
        name: &'static str,
        about: &'static str,
        source: &'static str,
        of: [&'static str; 2],
        among: &'static [&'static str],
    ) -> Self {
        Self { name, about, source, of: [Value::Choice(of[0]), Value::Choice(of[1])], within: Within::Among(among) }
    }

    /// Creates a parameter that is true or false. `of` has the defaults in repaired and in paper mode.
    pub const fn switch(name: &'static str, about: &'static str, source: &'static str, of: [bool; 2]) -> Self {
        Self { name, about, source, of: [Value::Switch(of[0]), Value::Switch(of[1])], within: Within::Either }
    }
}

/// Value of a parameter, as a user has written it.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// A number.
    Number(f64),
    /// A text, which may be a duration, a rate or a word.
    Text(String),
    /// True or false.
    Switch(bool),
}

/// Why a controller or a parameter was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamErrorKind {
    /// The registry has no controller with this name.
    UnknownController,
    /// The controller has no parameter with this name.
    UnknownParameter,
    /// The value has the wrong type or unit, or it is out of range.
    InvalidValue,
    /// The controller needs a feature that the session or the receivers' feedback does not have.
    UnmetNeed,
}

/// An error that rejects a controller or one of its parameters.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name}: {problem}; {remedy}")]
#[non_exhaustive]
pub struct ParamError {
    /// Category of the problem, for programs.
    pub kind: ParamErrorKind,
    /// Name of the controller or of the parameter.
    pub name: String,
    /// Description of the problem.
    pub problem: String,
    /// Advice on how to solve the problem.
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

/// Caches a configuration that was computed from the values. The controller's sender and receivers share it.
#[derive(Clone, Debug, Default)]
struct Reading(OnceLock<Arc<dyn Any + Send + Sync>>);

impl PartialEq for Reading {
    fn eq(&self, _: &Self) -> bool {
        true // the configuration depends only on the values, which are compared separately
    }
}

impl Values {
    /// Returns the values of `params`. These are the values in `given`, and the defaults in `mode` for all other
    /// parameters.
    ///
    /// # Errors
    /// A name in `given` is unknown, or a value has the wrong type or is out of range.
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

    /// Returns the values of `params`. Takes values from `self` where they exist, and defaults otherwise.
    pub(crate) fn of(&self, params: &[Param]) -> Self {
        let value = |p: &Param| self.iter().find(|(name, _)| *name == p.name).map_or(p.default(self.mode), |(_, v)| *v);
        Self { mode: self.mode, all: params.iter().map(|p| (p.name, value(p))).collect(), reading: Reading::default() }
    }

    /// Returns the mode, which determines the defaults.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns all parameters by name, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.all.iter().map(|(name, value)| (*name, value))
    }

    /// Returns `read(self)`. It is computed once and shared, because a large group has many receivers.
    pub(crate) fn read<T: Any + Send + Sync>(&self, read: impl Fn(&Self) -> T) -> Arc<T> {
        let shared = self.reading.0.get_or_init(|| Arc::new(read(self)));
        // If the cached configuration has another type, compute this one without caching it.
        Arc::clone(shared).downcast().unwrap_or_else(|_| Arc::new(read(self)))
    }

    /// Returns the value of a parameter. If there is no such parameter, panics in debug builds, and returns the type's
    /// default in release builds.
    fn get<T: Default>(&self, name: &str, of: impl FnOnce(Value) -> Option<T>) -> T {
        let found = self.all.iter().find(|(n, _)| *n == name).and_then(|(_, value)| of(*value));
        debug_assert!(found.is_some(), "no parameter of this kind is called {name}");
        found.unwrap_or_default()
    }

    /// Returns the value of a number parameter.
    pub fn number(&self, name: &str) -> f64 {
        self.get(name, |value| if let Value::Number(n) = value { Some(n) } else { None })
    }

    /// Returns the value of a duration parameter.
    pub fn span(&self, name: &str) -> Span {
        self.get(name, |value| if let Value::Span(span) = value { Some(span) } else { None })
    }

    /// Returns the value of a rate parameter. Returns `None` if it is zero, which means "not set".
    pub fn rate(&self, name: &str) -> Option<Rate> {
        let rate = self.get(name, |value| if let Value::Rate(rate) = value { Some(rate) } else { None });
        (rate > Rate::ZERO).then_some(rate)
    }

    /// Returns the value of a choice parameter, which is a word.
    pub fn choice(&self, name: &str) -> &'static str {
        self.get(name, |value| if let Value::Choice(word) = value { Some(word) } else { None })
    }

    /// Returns the value of a switch parameter.
    pub fn switch(&self, name: &str) -> bool {
        self.get(name, |value| if let Value::Switch(on) = value { Some(on) } else { None })
    }
}

impl Param {
    /// Returns the default of the parameter in `mode`.
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
                // Use the type's name from the other error: "not a rate" becomes "a rate".
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

/// Declares the parameters of a controller as `PARAMS`. Also declares a configuration struct that is computed from the
/// parameters' values.
///
/// The first block lists the parameters as `KIND name: about, source, [repaired, paper], range;`. Each parameter
/// becomes a field of the struct. For the kind `secs`, the field is in seconds. If `let` precedes a parameter, it
/// becomes a local variable instead of a field.
///
/// The second block has additional fields. Their values are expressions that use the parameters.
///
/// Three shorter forms declare no struct. `const { … }` declares only `PARAMS`. `[ … ]` is an array of parameters.
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

/// The session for which a controller's [`SenderHalf`] or [`ReceiverHalf`] is built.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Nominal packet size, including IP headers. Equations call it `s` or `P`.
    pub packet: Bytes,
    /// Whether the controller follows its paper literally.
    pub mode: Mode,
    /// The lower limit of the rate.
    pub floor: Rate,
    /// The upper limit of the rate.
    pub cap: Rate,
    /// Whether the user or the media have set the cap. If not, it is [`Setup::NO_CAP`].
    pub capped: bool,
    /// Properties of the video. It is `None` if the source always has data to send.
    pub pictures: Option<Arc<Pictures>>,
    /// Bandwidth of the session. RTCP may use 5 % of it.
    pub session_bandwidth: Rate,
    /// Whether the session may have more than one receiver.
    pub group: bool,
    /// Identifier of the participant for which the controller is built.
    pub id: ReceiverId,
    /// ECN field that the session's packets are sent with.
    pub ecn: Ecn,
    /// Whether the session can send the probes that [`SenderHalf::probe`] requests.
    pub probes: bool,
    /// Random generator for this part of the controller only.
    pub chance: Chance,
}

impl Setup {
    /// Cap of a session that does not set one. It is above the capacity of every simulated link.
    pub const NO_CAP: Rate = Rate::mbps(1_000);

    /// Returns the floor and the cap in bit/s. The floor is lowered to the cap if it is higher.
    pub(crate) fn rate_limits(&self) -> (f64, f64) {
        let cap = self.cap.as_bps_f64();
        (self.floor.as_bps_f64().min(cap), cap)
    }

    /// Longest interval between two packets, 3 s. A sender without feedback may send one packet in this interval (RFC
    /// 8085, section 3.1.3).
    pub const LEAST_EVERY: Span = Span::secs(3);

    /// Raises the floor to one packet per [`Setup::LEAST_EVERY`], but not above the cap. Without this, a multiplicative
    /// controller would never leave a rate of zero. In paper mode, the floor stays the same.
    #[must_use]
    pub fn alive(self) -> Self {
        let least = match self.mode {
            Mode::Repaired => self.packet.per(Self::LEAST_EVERY).min(self.cap),
            Mode::Paper => Rate::ZERO,
        };
        Self { floor: self.floor.max(least), ..self }
    }

    /// Creates a session that has one receiver, packets of 1000 bytes and probes. It has no data on video frames and no
    /// ECN. The session bandwidth is the cap, and the identifier is 1.
    pub fn unicast(floor: Rate, cap: Rate, chance: Chance) -> Self {
        Self {
            packet: Bytes::new(1000),
            mode: Mode::Repaired,
            floor,
            cap,
            capped: true,
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

/// Builds the sender part of a controller.
pub type BuildSender = fn(&Setup, &Values) -> Box<dyn SenderHalf>;
/// Builds the receiver part of a controller.
pub type BuildReceiver = fn(&Setup, &Values) -> Box<dyn ReceiverHalf>;

/// Dash pattern of a line: lengths of dashes and gaps in points. It is empty for a solid line.
pub type Dashes = &'static [f32];

/// [`Controller::slowest_feedback`] of the controllers whose rate collapses without frequent feedback. With feedback
/// each second, they have 0.01 to 0.21 times their usual rate on at least one path of
/// `crates/remote/tests/all/matrix.rs`.
pub(crate) const SLOWEST_FEEDBACK: Span = Span::millis(250);

/// The registry entry of a controller.
#[derive(Clone, Copy, Debug)]
pub struct Controller {
    /// Name of the controller in scenario files.
    pub name: &'static str,
    /// What the controller does, in one line.
    pub about: &'static str,
    /// When a user should choose this controller, in one line (`docs/which-controller.md`).
    pub when: &'static str,
    /// Where the controller is from: a paper or an RFC.
    pub source: &'static str,
    /// How many receivers the controller can serve.
    pub receivers: Receivers,
    /// What triggers the controller's feedback.
    pub feedback: FeedbackTiming,
    /// Longest interval between reports with which the controller still works. The limit is used only if the receiver
    /// part runs at the sender too.
    pub slowest_feedback: Span,
    /// Returns the session features that the controller needs with these parameter values.
    pub needs: fn(&Values) -> &'static [Need],
    /// Whether the controller works if receivers send only standard receiver reports.
    pub standard_reports: bool,
    /// Whether a repeated report has the same meaning as the first one. For example, this is so if a report carries a
    /// rate.
    pub repeats: bool,
    /// Whether receivers compute a rate themselves ([`ReceiverHalf::acceptable`]).
    pub own_rate: bool,
    /// Whether the controller reacts to ECN congestion marks (RFC 3168).
    pub answers_marks: bool,
    /// Identifier of the controller's RTP header extension element. It is 0 if there is none.
    pub extension: u8,
    /// Four-letter name of the controller's RTCP APP packets.
    pub app: [u8; 4],
    /// Colour of the controller's line in plots, as `#rrggbb`.
    pub colour: &'static str,
    /// Dash pattern of the controller's line in plots, for black-and-white prints.
    pub dashes: Dashes,
    /// Parameters that a user can set.
    pub params: &'static [Param],
    /// Rules for the controller's behaviour. The controller checks them in every run ([`crate::Check`]).
    pub promises: &'static [&'static Promise],
    /// Builds the sender part of the controller.
    pub sender: BuildSender,
    /// Builds the receiver part of the controller.
    pub receiver: BuildReceiver,
}

impl Controller {
    /// Returns the first session feature that the controller needs and that is not in `offered`. Returns `None` if all
    /// needed features are offered.
    pub fn missing(&self, values: &Values, offered: &[Need]) -> Option<Need> {
        (self.needs)(values).iter().find(|need| !offered.contains(need)).copied()
    }
}
