//! What a controller's entry in the registry is made of: its properties, its parameters and their values.

use crate::{Need, Pictures, Promise, ReceiverHalf, ReceiverId, SenderHalf};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};
use steadycast_units::{Bytes, Chance, Ecn, QuantityError, Rate, Span};
use steadycast_words::{nearest, words};

words! {
    /// Whether a controller does what its paper prints, or what its paper means.
    #[derive(Default)]
    pub enum Mode {
        /// The paper's contradictions are decided and its gaps are filled: the default.
        #[default]
        Repaired = "repaired",
        /// The paper as it is printed.
        Paper = "paper",
    }
    /// How many receivers a controller can serve.
    pub enum Receivers {
        /// One receiver.
        One = "unicast",
        /// One, or a group.
        OneOrMany = "any",
    }
    /// What clocks a controller's feedback, and with it whether RTCP's 5 % bound holds
    /// ([`RTCP_SHARE`](crate::promise::RTCP_SHARE)).
    pub enum FeedbackTiming {
        /// RTCP's timer: bounded by 5 % of the session bandwidth.
        Periodic = "periodic",
        /// Packets or round trips: unbounded, but counted.
        Clocked = "clocked",
        /// None changes anything: the rate answers to nothing.
        None = "none",
    }
}

/// The value of a parameter, which says its kind as well.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Value {
    /// A plain number.
    Number(f64),
    /// A length of time.
    Span(Span),
    /// A rate; zero as a default means "not set".
    Rate(Rate),
    /// One of several words.
    Choice(&'static str),
    /// On or off.
    Switch(bool),
}

impl Value {
    /// The kind's name.
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

/// What a parameter can be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Within {
    /// From the least to the most.
    Range(Value, Value),
    /// One of these words.
    Among(&'static [&'static str]),
    /// On or off.
    Either,
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
    /// Its default in repaired and in paper mode.
    pub of: [Value; 2],
    /// What it can be.
    pub within: Within,
}

/// Declares how a parameter of a kind that has a range is made.
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
        /// A plain number; `of` has its default in repaired and in paper mode, `range` its least and most.
        number: Number(f64);
        /// A length of time, as [`Param::number`].
        span: Span(Span);
        /// A rate, as [`Param::number`]; zero means "not set".
        rate: Rate(Rate);
    }

    /// One of the words `among`; `of` as in [`Param::number`].
    pub const fn choice(
        name: &'static str,
        about: &'static str,
        source: &'static str,
        of: [&'static str; 2],
        among: &'static [&'static str],
    ) -> Self {
        Self { name, about, source, of: [Value::Choice(of[0]), Value::Choice(of[1])], within: Within::Among(among) }
    }

    /// On or off; `of` as in [`Param::number`].
    pub const fn switch(name: &'static str, about: &'static str, source: &'static str, of: [bool; 2]) -> Self {
        Self { name, about, source, of: [Value::Switch(of[0]), Value::Switch(of[1])], within: Within::Either }
    }
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

    /// What `of` makes of the value called `name`. A name that the controller's own list lacks is a bug there: debug
    /// builds stop, release gives a zero.
    fn get<T: Default>(&self, name: &str, of: impl FnOnce(Value) -> Option<T>) -> T {
        let found = self.all.iter().find(|(n, _)| *n == name).and_then(|(_, value)| of(*value));
        debug_assert!(found.is_some(), "no parameter of this kind is called {name}");
        found.unwrap_or_default()
    }

    /// The number called `name`.
    pub fn number(&self, name: &str) -> f64 {
        self.get(name, |value| if let Value::Number(n) = value { Some(n) } else { None })
    }

    /// The span called `name`.
    pub fn span(&self, name: &str) -> Span {
        self.get(name, |value| if let Value::Span(span) = value { Some(span) } else { None })
    }

    /// The rate called `name`; `None` when it was left at zero, "not set".
    pub fn rate(&self, name: &str) -> Option<Rate> {
        let rate = self.get(name, |value| if let Value::Rate(rate) = value { Some(rate) } else { None });
        (rate > Rate::ZERO).then_some(rate)
    }

    /// The choice called `name`.
    pub fn choice(&self, name: &str) -> &'static str {
        self.get(name, |value| if let Value::Choice(word) = value { Some(word) } else { None })
    }

    /// The switch called `name`.
    pub fn switch(&self, name: &str) -> bool {
        self.get(name, |value| if let Value::Switch(on) = value { Some(on) } else { None })
    }
}

impl Param {
    /// Its default in `mode`.
    pub const fn default(&self, mode: Mode) -> Value {
        match mode {
            Mode::Repaired => self.of[0],
            Mode::Paper => self.of[1],
        }
    }

    fn read(&self, given: &Given) -> Result<Value, ParamError> {
        let wrong = |problem: String, remedy: String| ParamError { name: self.name.into(), problem, remedy };
        let range = match self.within {
            Within::Range(least, most) => format!("from {least} to {most}"),
            Within::Among(words) => format!("choose from: {}", words.join(", ")),
            Within::Either => "true or false".into(),
        };
        let (what, example) = match self.of[0] {
            Value::Number(_) => ("not a number", format!("give a number {range}")),
            Value::Span(_) => ("not a time", "write for example \"20ms\"".into()),
            Value::Rate(_) => ("not a rate", "write for example \"150kbps\"".into()),
            Value::Choice(_) => ("not one of its values", range.clone()),
            Value::Switch(_) => ("neither on nor off", range.clone()),
        };
        let unread = |error: QuantityError| wrong(error.to_string(), range.clone());
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

/// Declares a controller's parameters as `PARAMS`, and what its halves make of their values as a struct.
///
/// A parameter is `KIND name: about, source, [repaired, paper], range;` (as the functions of [`Param`]) and a field of
/// its name; `secs` is a span whose field is in seconds. With `let` before it, it is no field. The second block has
/// further fields, which are computed from all that is read. With `const` in place of the struct's name there is none;
/// in brackets they are an array, and with a name before each they are constants.
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
    /// The longest time between two feedback messages with which it works, where both halves run at the sender.
    pub slowest_feedback: Span,
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
