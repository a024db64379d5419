//! The input of a switching rule that is not part of this program.

use std::fmt::Write;
use steadycast_media::RungContext;
use steadycast_units::{Bytes, Rate, Span};

/// Declares the input of a switching rule. Messages to programs, objects for Python classes and the docs are created
/// from it. Each row has the key in the message, the attribute in Python, and a function that returns the value. Calls
/// the macro `$with` with all rows.
#[macro_export]
macro_rules! switching_input {
    ($with:ident) => {
        $with! {
            /// time of the key frame since the flow's start
            "t", at_s: steadycast_units::Span = |context| context.at;
            /// the stream's rung; 0 is the finest. Missing at the start and after a pause
            "rung", rung: Option<usize> = |context| context.rung;
            /// for each rung, the higher one of the rates of its last two groups of pictures
            "recent", recent_bps: Vec<steadycast_units::Rate> =
                |context| context.needs.iter().map(|need| need.recent).collect();
            /// for each rung, the highest rate of its groups of pictures in the last ten seconds
            "worst", worst_bps: Vec<steadycast_units::Rate> =
                |context| context.needs.iter().map(|need| need.worst).collect();
            /// the controller's rate: its mean over the last group of pictures, or the present rate if that is lower
            "rate", rate_bps: steadycast_units::Rate = |context| context.rate;
            /// the media that wait at the sender
            "backlog", backlog_bytes: steadycast_units::Bytes = |context| context.backlog;
            /// duration of the group of pictures that begins
            "group", group_s: steadycast_units::Span = |context| context.lasts;
        }
    };
}

/// A value in the input of a switching rule.
pub trait InputValue {
    /// The type of the value in Python.
    type Python;
    /// Returns the value for Python. Times are in seconds, rates in bit/s and sizes in bytes.
    fn python(self) -> Self::Python;
    /// Appends the value to a message. Times are in nanoseconds, rates in bit/s and sizes in bytes.
    fn write(&self, message: &mut String);
}

impl InputValue for Span {
    type Python = f64;
    fn python(self) -> f64 {
        self.as_secs_f64()
    }
    fn write(&self, message: &mut String) {
        let _ = write!(message, "{}", self.as_nanos());
    }
}

impl InputValue for Rate {
    type Python = f64;
    fn python(self) -> f64 {
        self.as_bps_f64()
    }
    fn write(&self, message: &mut String) {
        let _ = write!(message, "{}", self.as_bps());
    }
}

impl InputValue for Bytes {
    type Python = u64;
    fn python(self) -> u64 {
        self.get()
    }
    fn write(&self, message: &mut String) {
        let _ = write!(message, "{}", self.get());
    }
}

impl InputValue for Option<usize> {
    type Python = Self;
    fn python(self) -> Self {
        self
    }
    fn write(&self, message: &mut String) {
        let _ = match self {
            Some(number) => write!(message, "{number}"),
            None => write!(message, "null"),
        };
    }
}

impl<V: InputValue> InputValue for Vec<V> {
    type Python = Vec<V::Python>;
    fn python(self) -> Self::Python {
        self.into_iter().map(V::python).collect()
    }
    fn write(&self, message: &mut String) {
        message.push('[');
        for (n, value) in self.iter().enumerate() {
            message.push_str(if n > 0 { "," } else { "" });
            value.write(message);
        }
        message.push(']');
    }
}

/// A row of [`SWITCHING_INPUT`], which describes one value of a switching rule's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputField {
    /// Key in the message to a program.
    pub key: &'static str,
    /// Attribute of the object that a Python class gets.
    pub attribute: &'static str,
    /// What the value means.
    pub about: &'static str,
}

macro_rules! messages {
    ($(#[doc = $about:literal] $key:literal, $attribute:ident: $type:ty = $value:expr;)+) => {
        /// All values in the input of a switching rule.
        pub const SWITCHING_INPUT: &[InputField] = &[
            $(InputField { key: $key, attribute: stringify!($attribute), about: $about.trim_ascii() },)+
        ];

        /// Appends the keys and values of `context` to `message`.
        pub(crate) fn write_context(context: &RungContext<'_>, message: &mut String) {
            $(
                let _ = write!(message, ",\"{}\":", $key);
                let value: fn(&RungContext<'_>) -> $type = $value;
                value(context).write(message);
            )+
        }
    };
}
switching_input!(messages);
