//! Tables of a scenario file, declared once: keys, types and descriptions serve reading, messages and the schema alike.

use crate::problem::{Out, remedy};
use crate::tree::{Item, Place, Value};
use serde_json::{Value as Json, json};
use std::ops::Deref;
use steadycast_control::registry::nearest;
use steadycast_units::{Bytes, QuantityError, Rate, Span};

/// Something that can stand behind a key.
pub(crate) trait Said: Sized {
    /// Reads it; what is wrong goes to `out`.
    fn read(item: &Item, out: &mut Out) -> Option<Self>;
    /// What it looks like, as JSON Schema.
    fn schema() -> Json;
    /// Its keys, if it is a table.
    fn keys() -> Vec<&'static str> {
        Vec::new()
    }
}

/// Something with the place where it was said.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) at: Place,
}

impl<T> Deref for At<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Said> Said for At<T> {
    fn read(item: &Item, out: &mut Out) -> Option<Self> {
        Some(Self { value: T::read(item, out)?, at: item.at.clone() })
    }
    fn schema() -> Json {
        T::schema()
    }
}

/// Declares tables: every key is optional here, and what must be there is asked for where it is needed.
macro_rules! tables {
    ($($(#[doc = $about:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $key:ident: $type:ty,)* })*) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Debug)]
        #[allow(dead_code, reason = "some keys serve only the schema and the list of known keys")]
        pub(crate) struct $name {
            pub(crate) here: Place,
            $($(#[doc = $doc])+ pub(crate) $key: Option<At<$type>>,)*
        }
        impl $name {
            pub(crate) const KEYS: &'static [&'static str] = &[$(crate::table::plain(stringify!($key))),*];
            /// The keys that are there, and where.
            #[allow(dead_code, reason = "only some tables are asked")]
            pub(crate) fn present(&self) -> Vec<(&'static str, &Place)> {
                let mut all = Vec::new();
                $(if let Some(said) = &self.$key {
                    all.push((crate::table::plain(stringify!($key)), &said.at));
                })*
                all
            }
        }
        impl Said for $name {
            fn read(item: &Item, out: &mut Out) -> Option<Self> {
                let Some(table) = item.table() else {
                    let keys = Self::KEYS;
                    let remedy = format!("write a table of: {}", keys.join(", "));
                    out.problem(&item.at, format!("{} is not a table", item.shown()), remedy);
                    return None;
                };
                let mut read = Self { here: item.at.clone(), $($key: None,)* };
                for (key, item) in table {
                    $(if key == crate::table::plain(stringify!($key)) {
                        read.$key = Said::read(item, out);
                        continue;
                    })*
                    out.unknown_key(&item.at, key, Self::KEYS);
                }
                Some(read)
            }
            fn keys() -> Vec<&'static str> {
                Self::KEYS.to_vec()
            }
            fn schema() -> Json {
                let mut keys = serde_json::Map::new();
                $(keys.insert(
                    crate::table::plain(stringify!($key)).to_owned(),
                    crate::table::described(<$type as Said>::schema(), &[$($doc),+]),
                );)*
                crate::table::described(
                    json!({ "type": "object", "properties": keys, "additionalProperties": false }),
                    &[$($about),+],
                )
            }
        }
    )*};
}
pub(crate) use tables;

/// A key without Rust's mark for words that Rust itself uses.
pub(crate) const fn plain(key: &'static str) -> &'static str {
    match key.as_bytes() {
        [b'r', b'#', ..] => key.split_at(2).1,
        _ => key,
    }
}

/// A schema with its description.
pub(crate) fn described(mut schema: Json, lines: &[&str]) -> Json {
    let text: Vec<_> = lines.iter().map(|l| l.trim()).collect();
    if let Json::Object(object) = &mut schema {
        object.insert("description".into(), Json::String(text.join(" ")));
    }
    schema
}

/// Declares types that are one of a few words.
macro_rules! words {
    ($($type:ty { $($word:literal => $value:expr,)+ })*) => {$(
        impl Said for $type {
            fn read(item: &Item, out: &mut Out) -> Option<Self> {
                const WORDS: &[&str] = &[$($word),+];
                match item.text() {
                    $(Some($word) => Some($value),)+
                    _ => {
                        crate::table::not_one_of(item, WORDS, out);
                        None
                    }
                }
            }
            fn schema() -> Json {
                json!({ "enum": [$($word),+] })
            }
        }
        impl crate::table::Word for $type {
            fn word(&self) -> &'static str {
                match self {
                    $(x if *x == $value => $word,)+
                    _ => "",
                }
            }
        }
    )*};
}
pub(crate) use words;

/// What is one of a few words, as its word.
pub(crate) trait Word {
    /// The word.
    fn word(&self) -> &'static str;
}

pub(crate) fn not_one_of(item: &Item, words: &[&str], out: &mut Out) {
    let near = item.text().and_then(|t| nearest(t, words));
    let remedy = match near {
        Some(_) => remedy(near, words),
        None => format!("choose from: {}", words.join(", ")),
    };
    out.problem(&item.at, format!("{} is not one of its values", item.shown()), remedy);
}

impl Said for String {
    fn read(item: &Item, out: &mut Out) -> Option<Self> {
        match item.text() {
            Some(text) if text.len() > 4096 => {
                out.problem(&item.at, "this text is too long", "write at most 4096 bytes");
                None
            }
            Some(text) => Some(text.to_owned()),
            None => {
                out.problem(&item.at, format!("{} is not a text", item.shown()), "put it in quotation marks");
                None
            }
        }
    }
    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl Said for bool {
    fn read(item: &Item, out: &mut Out) -> Option<Self> {
        if let Value::Bool(b) = item.value {
            return Some(b);
        }
        out.problem(&item.at, format!("{} is neither on nor off", item.shown()), "write true or false");
        None
    }
    fn schema() -> Json {
        json!({ "type": "boolean" })
    }
}

impl Said for u64 {
    fn read(item: &Item, out: &mut Out) -> Option<Self> {
        if let Value::Whole(n) = item.value
            && let Ok(n) = Self::try_from(n)
        {
            return Some(n);
        }
        out.problem(&item.at, format!("{} is not a whole number from 0", item.shown()), "write for example 45");
        None
    }
    fn schema() -> Json {
        json!({ "type": "integer", "minimum": 0 })
    }
}

impl Said for f64 {
    fn read(item: &Item, out: &mut Out) -> Option<Self> {
        match item.value {
            Value::Whole(n) => Some(n as f64),
            Value::Real(x) if x.is_finite() => Some(x),
            _ => {
                out.problem(&item.at, format!("{} is not a finite number", item.shown()), "write for example 0.02");
                None
            }
        }
    }
    fn schema() -> Json {
        json!({ "type": "number" })
    }
}

/// What is wrong with a quantity, in the two halves of a problem.
pub(crate) fn quantity(error: &QuantityError) -> (String, String) {
    match error {
        QuantityError::NoNumber { text, example } => {
            (format!("{} has no number", crate::tree::quoted(text)), format!("write for example \"{example}\""))
        }
        QuantityError::Unit { text, what, units, example } => (
            format!("{} has no unit of {what}", crate::tree::quoted(text)),
            format!("use {units}, for example \"{example}\""),
        ),
        QuantityError::Range { text, what, limit } => (
            format!("{} is out of range", crate::tree::quoted(text)),
            format!("a {what} is at least 0 and below {limit}"),
        ),
    }
}

macro_rules! quantities {
    ($($type:ty, $what:literal, $example:literal, $pattern:literal;)*) => {$(
        impl Said for $type {
            fn read(item: &Item, out: &mut Out) -> Option<Self> {
                let Some(text) = item.text() else {
                    let remedy = concat!("write for example \"", $example, "\"");
                    out.problem(&item.at, format!("{} is not a {}", item.shown(), $what), remedy);
                    return None;
                };
                match text.parse::<$type>() {
                    Ok(value) => Some(value),
                    Err(error) => {
                        let (what, remedy) = quantity(&error);
                        out.problem(&item.at, what, remedy);
                        None
                    }
                }
            }
            fn schema() -> Json {
                json!({ "type": "string", "pattern": $pattern, "examples": [$example] })
            }
        }
    )*};
}
quantities! {
    Rate, "rate", "4Mbps", r"^\s*[0-9.e+-]+\s*(bps|kbps|Mbps|Gbps)\s*$";
    Span, "time", "10ms", r"^\s*[0-9.e+-]+\s*(ns|us|µs|ms|s|min|h)\s*$";
    Bytes, "size", "1018B", r"^\s*[0-9.e+-]+\s*(B|kB|MB|GB|KiB|MiB)\s*$";
}

/// A number of packets: "50p". May be a fraction where it is a mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Packets(pub(crate) f64);

/// The number in "50p", if it is one.
pub(crate) fn packets(text: &str) -> Option<f64> {
    let number = text.trim().strip_suffix('p')?.trim();
    // "inf" and "nan" are numbers to Rust, not here.
    let plain = number.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e'));
    number.parse::<f64>().ok().filter(|x| plain && x.is_finite())
}

impl Said for Packets {
    fn read(item: &Item, out: &mut Out) -> Option<Self> {
        match item.text().and_then(packets) {
            Some(n) if (0.0..=1e9).contains(&n) => Some(Self(n)),
            Some(_) => {
                out.problem(&item.at, format!("{} is out of range", item.shown()), "from \"0p\" to \"1000000000p\"");
                None
            }
            None => {
                let what = format!("{} is not a number of packets", item.shown());
                out.problem(&item.at, what, "write for example \"50p\"");
                None
            }
        }
    }
    fn schema() -> Json {
        json!({ "type": "string", "pattern": r"^\s*[0-9.e+-]+\s*p\s*$", "examples": ["50p"] })
    }
}

impl Said for crate::Limit {
    fn read(item: &Item, out: &mut Out) -> Option<Self> {
        let Some(text) = item.text() else {
            let what = format!("{} is not a queue limit", item.shown());
            out.problem(&item.at, what, "write for example \"50p\" (packets) or \"64kB\"");
            return None;
        };
        if text.trim().ends_with('p') && packets(text).is_some() {
            let Packets(n) = Packets::read(item, out)?;
            if n < 1.0 || n > f64::from(u32::MAX) || n != n.trunc() {
                let what = format!("{} is not a whole number of packets from 1", item.shown());
                out.problem(&item.at, what, "write for example \"50p\"");
                return None;
            }
            return Some(Self::Packets(n as u32));
        }
        match text.parse::<Bytes>() {
            Ok(bytes) if bytes > Bytes::ZERO => Some(Self::Bytes(bytes)),
            Ok(_) => {
                out.problem(&item.at, "nothing fits into it", "write for example \"50p\" (packets) or \"64kB\"");
                None
            }
            Err(QuantityError::Range { .. }) => {
                let what = format!("{} is out of range", item.shown());
                out.problem(&item.at, what, "a queue limit is above 0 and below 1000 GB");
                None
            }
            Err(_) => {
                let what = format!("{} is not a queue limit", item.shown());
                out.problem(&item.at, what, "write for example \"50p\" (packets) or \"64kB\"");
                None
            }
        }
    }
    fn schema() -> Json {
        json!({ "type": "string", "pattern": r"^\s*[0-9.e+-]+\s*(p|B|kB|MB|GB|KiB|MiB)\s*$", "examples": ["50p", "64kB"] })
    }
}

/// A list; one alone may stand without its brackets.
#[derive(Clone, Debug)]
pub(crate) struct Many<T> {
    pub(crate) all: Vec<At<T>>,
    /// Whether it stood without brackets.
    pub(crate) bare: bool,
}

impl<T: Said> Said for Many<T> {
    fn read(item: &Item, out: &mut Out) -> Option<Self> {
        match &item.value {
            Value::List(list) => {
                let all: Vec<_> = list.iter().filter_map(|i| At::read(i, out)).collect();
                // A list with a bad element is no list: what it lacks would only cause more messages.
                (all.len() == list.len()).then_some(Self { all, bare: false })
            }
            _ => Some(Self { all: vec![At::read(item, out)?], bare: true }),
        }
    }
    fn schema() -> Json {
        json!({ "anyOf": [T::schema(), { "type": "array", "items": T::schema() }] })
    }
}

impl<T: Said> Said for Vec<At<T>> {
    fn read(item: &Item, out: &mut Out) -> Option<Self> {
        match &item.value {
            Value::List(list) => Some(list.iter().filter_map(|i| At::read(i, out)).collect()),
            _ => {
                out.problem(&item.at, format!("{} is not a list", item.shown()), "put it in [ and ]");
                None
            }
        }
    }
    fn schema() -> Json {
        json!({ "type": "array", "items": T::schema() })
    }
}

/// Either a word that stands for "none of it", or a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OrNone<T> {
    /// "none".
    None,
    /// The value.
    Some(T),
}

impl<T: Said> Said for OrNone<T> {
    fn read(item: &Item, out: &mut Out) -> Option<Self> {
        if item.text() == Some("none") { Some(Self::None) } else { T::read(item, out).map(Self::Some) }
    }
    fn schema() -> Json {
        json!({ "anyOf": [{ "const": "none" }, T::schema()] })
    }
}

/// Read later, when it is known what it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Raw<T> {
    pub(crate) item: Item,
    as_if: std::marker::PhantomData<T>,
}

impl<T: Said> Said for Raw<T> {
    fn read(item: &Item, out: &mut Out) -> Option<Self> {
        let Some(table) = item.table() else {
            // Complains in the words of the real type.
            T::read(item, out);
            return None;
        };
        let keys = T::keys();
        let (known, strange): (Vec<_>, Vec<_>) = table.iter().partition(|(key, _)| keys.contains(&key.as_str()));
        for (key, item) in strange {
            out.unknown_key(&item.at, key, &keys);
        }
        let value = Value::Table(known.into_iter().cloned().collect());
        Some(Self { item: Item { value, at: item.at.clone() }, as_if: std::marker::PhantomData })
    }
    fn schema() -> Json {
        T::schema()
    }
}

/// A table without some of its keys, and those keys.
pub(crate) fn split(item: &Item, keys: &[&str]) -> (Item, Item) {
    let Some(table) = item.table() else { return (item.clone(), item.clone()) };
    let (taken, rest) = table.iter().cloned().partition(|(key, _)| keys.contains(&key.as_str()));
    let make = |table| Item { value: Value::Table(table), at: item.at.clone() };
    (make(taken), make(rest))
}
