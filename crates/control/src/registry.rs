//! The one list of controllers. The scenario format, the command line, Python and the docs all read it.

use crate::{
    Pictures, ReceiverHalf, ReceiverId, SenderHalf, asmp, fixed, lda_plus, multfrc, pgmcc, rbuf, tfmcc, tfrc, tfrcp,
};
use std::fmt;
use std::sync::Arc;
use steadycast_units::{Bytes, Chance, Ecn, Rate, Span};

/// Whether a controller does what its paper prints, or what its paper means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Contradictions decided, gaps filled: the default.
    #[default]
    Repaired,
    /// As printed.
    Paper,
}

/// Whom a controller can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// One receiver.
    Unicast,
    /// One or many.
    Any,
}

/// What clocks a controller's feedback, and with it whether RTCP's 5 % bound holds (INV-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
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
    /// One of a few words.
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
pub struct Values(Vec<(&'static str, Value)>);

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
        Ok(Self(values))
    }

    /// All of them, in the registry's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// The number called `name`. A name that the controller's own list lacks is a bug there: debug builds stop, release gives 0.
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
    /// Nor above this: the ladder's highest rung, or the session's cap.
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

/// Builds a sender half.
pub type BuildSender = fn(&Setup, &Values) -> Box<dyn SenderHalf>;
/// Builds a receiver half.
pub type BuildReceiver = fn(&Setup, &Values) -> Box<dyn ReceiverHalf>;

/// Dashes of a line, in points on and off; empty for a solid one.
pub type Dashes = &'static [f32];

/// One controller: everything that anybody else needs to know about it.
#[derive(Clone, Copy, Debug)]
pub struct Controller {
    /// Its name in scenario files.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Whom it can serve.
    pub cast: Cast,
    /// What clocks its feedback.
    pub feedback: Feedback,
    /// Whether it can be run on standard receiver reports alone.
    pub standard_reports: bool,
    /// Whether its receivers know a rate of their own ([`ReceiverHalf::acceptable`]), by which one can choose between groups.
    pub own_rate: bool,
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
    /// Builds its sender half.
    pub sender: BuildSender,
    /// Builds its receiver half.
    pub receiver: BuildReceiver,
}

/// All controllers. A new one is one line here.
pub const ALL: &[&Controller] = &[
    &fixed::CONTROLLER,
    &tfrc::CONTROLLER,
    &tfrcp::TFRCP,
    &tfrcp::EAI,
    &tfrcp::QAI,
    &tfrcp::EAI_CL,
    &tfrcp::QAI_CL,
    &rbuf::TYPE1,
    &rbuf::TYPE2,
    &rbuf::NO_CONTROL,
    &multfrc::MULTFRC,
    &multfrc::E_MULTFRC,
    &multfrc::AIO_TFRC,
    &multfrc::EAIO_TFRC,
    &asmp::CONTROLLER,
    &tfmcc::CONTROLLER,
    &pgmcc::CONTROLLER,
    &lda_plus::CONTROLLER,
];

/// Who takes over where a controller can't be served by the receivers: one that reads standard reports, for one receiver or many.
pub const FALLBACK: &Controller = &asmp::CONTROLLER;

/// Finds a controller by its name.
///
/// # Errors
/// The name is unknown; the error says which is nearest.
pub fn find(name: &str) -> Result<&'static Controller, ParamError> {
    ALL.iter().find(|c| c.name == name).copied().ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|c| c.name).collect();
        ParamError {
            name: name.to_owned(),
            problem: "no such controller".into(),
            remedy: match nearest(name, &names) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("there are: {}, or \"file.py:Class\"", names.join(", ")),
            },
        }
    })
}

/// Makes the halves of one session: a registry entry with its values, or a controller from outside (a Python class).
pub trait Factory: Send + Sync {
    /// A sender half.
    fn sender(&self, setup: &Setup) -> Box<dyn SenderHalf>;
    /// A receiver half.
    fn receiver(&self, setup: &Setup) -> Box<dyn ReceiverHalf>;
    /// Its extension element's id (0: none).
    fn extension(&self) -> u8;
    /// Its APP packets' name.
    fn app(&self) -> [u8; 4];
    /// What clocks its feedback.
    fn feedback(&self) -> Feedback;
}

/// A registry entry with its parameters' values.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The entry.
    pub controller: &'static Controller,
    /// Its parameters.
    pub values: Values,
}

impl Chosen {
    /// The entry called `name` with `given` over its defaults in `mode`, ready to be shared by all halves of a run.
    ///
    /// # Errors
    /// An unknown name, or a parameter that can't be taken.
    pub fn shared(name: &str, mode: Mode, given: &[(String, Given)]) -> Result<Arc<dyn Factory>, ParamError> {
        let controller = find(name)?;
        Ok(Arc::new(Self { controller, values: Values::resolve(controller.params, mode, given)? }))
    }
}

impl Factory for Chosen {
    fn sender(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        (self.controller.sender)(setup, &self.values)
    }
    fn receiver(&self, setup: &Setup) -> Box<dyn ReceiverHalf> {
        (self.controller.receiver)(setup, &self.values)
    }
    fn extension(&self) -> u8 {
        self.controller.extension
    }
    fn app(&self) -> [u8; 4] {
        self.controller.app
    }
    fn feedback(&self) -> Feedback {
        self.controller.feedback
    }
}

/// The known name that `wrong` most likely meant: at most a third of its letters differ.
pub fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|k| (distance(wrong, k), *k))
        .filter(|(d, k)| *d <= k.chars().count().max(wrong.chars().count()).div_ceil(3).max(1))
        .min()
        .map(|(_, k)| k)
}

/// Optimal string alignment distance: insertions, deletions, changes and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_colours_and_wire_names_are_unique() {
        for (i, a) in ALL.iter().enumerate() {
            for b in &ALL[i + 1..] {
                assert_ne!(a.name, b.name);
                assert_ne!((a.colour, a.dashes), (b.colour, b.dashes), "{} and {}", a.name, b.name);
            }
        }
    }

    #[test]
    fn every_default_lies_in_its_own_range() {
        for controller in ALL {
            for param in controller.params {
                for mode in [Mode::Repaired, Mode::Paper] {
                    let fits = match (param.kind, param.default(mode)) {
                        (Kind::Number { min, max, .. }, Value::Number(n)) => (min..=max).contains(&n),
                        (Kind::Span { min, max, .. }, Value::Span(s)) => (min..=max).contains(&s),
                        (Kind::Rate { min, max, .. }, Value::Rate(r)) => r == Rate::ZERO || (min..=max).contains(&r),
                        (Kind::Choice { of, .. }, Value::Choice(c)) => of.contains(&c),
                        (Kind::Switch { .. }, Value::Switch(_)) => true,
                        _ => false,
                    };
                    assert!(fits, "{}.{} in {mode:?}", controller.name, param.name);
                }
            }
        }
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_nearest() {
        assert_eq!(find("fixd").unwrap_err().remedy, "did you mean \"fixed\"?");
        assert_eq!(nearest("gama_congested", &["beta", "gamma_congested"]), Some("gamma_congested"));
        assert_eq!(nearest("zzz", &["beta", "gamma"]), None);
    }

    #[test]
    fn a_parameter_out_of_range_is_named_with_its_range() {
        let given = [("rate".to_owned(), Given::Text("4".into()))];
        let error = Chosen::shared("fixed", Mode::Repaired, &given).err().map(|e| e.to_string());
        assert!(error.is_some_and(|e| e.contains("kbps")));
    }
}
