//! The traits of values and tables. A type declares once how it is read, written and checked, and what its schema is.

use crate::problem::{Findings, remedy};
use crate::tree::{Item, Place, Table, Value, quoted};
use crate::{keep_known, nearest};
use serde_json::{Value as Json, json};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Deref;
use steadycast_units::{Bytes, QuantityError, Rate, Span};

/// A type with a JSON Schema.
pub trait Declared {
    /// Returns the JSON Schema of the type.
    fn schema() -> Json;
    /// Returns the keys of the type if it is a table.
    fn keys() -> Vec<&'static str> {
        Vec::new()
    }
    /// Returns the table that the short form `item` is equivalent to. Returns `None` if it is not a short form.
    fn long(_: &Item) -> Option<Table> {
        None
    }
    /// Returns an example for messages. It is empty if messages list the type's keys instead.
    fn example() -> &'static str {
        ""
    }
}

/// Replaces a short form by the equivalent table. Returns other values unchanged.
pub fn lengthened<T: Declared>(item: &Item) -> Cow<'_, Item> {
    match item.value {
        Value::Table(_) => Cow::Borrowed(item),
        _ => T::long(item).map_or(Cow::Borrowed(item), |table| {
            let keys = table.into_iter().map(|(key, one)| (key, Item { value: one.value, at: item.at.clone() }));
            Cow::Owned(Item { value: Value::Table(keys.collect()), at: item.at.clone() })
        }),
    }
}

/// A type that can be read as the value of a key.
pub trait FromToml: Declared + Sized {
    /// Reads the value. Problems are added to `out`.
    fn read(item: &Item, out: &mut Findings) -> Option<Self>;
}

/// A type that can be written as the value of a key. The same value results when it is read again.
pub trait ToToml {
    /// Returns the value to write. Returns `None` if the key is left out.
    fn value(&self) -> Option<Value>;
}

/// A value and its place in the file.
#[derive(Clone, Debug)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// The place of the value.
    pub at: Place,
}

impl<T> Deref for Spanned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

macro_rules! declared_as_its_value {
    ($($name:ident),+) => {$(
        impl<T: Declared> Declared for $name<T> {
            fn schema() -> Json {
                T::schema()
            }
            fn keys() -> Vec<&'static str> {
                T::keys()
            }
            fn long(item: &Item) -> Option<Table> {
                T::long(item)
            }
            fn example() -> &'static str {
                T::example()
            }
        }
    )+};
}
declared_as_its_value! { Spanned, Deferred }

impl<T: FromToml> FromToml for Spanned<T> {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        Some(Self { value: T::read(item, out)?, at: item.at.clone() })
    }
}

/// Declares tables whose keys are read individually. Every key is optional. The code that uses the table reports
/// missing keys.
///
/// The declaration can list further types after `..`. The table then also accepts the keys of these types and stores
/// them unread. If the table itself declares a key of such a type, the key is also stored for the type.
#[macro_export]
macro_rules! tables {
    ($(
        $(#[doc = $about:literal])+
        $name:ident {
            $($(#[doc = $doc:literal])+ $key:ident: $type:ty,)*
            $(..$part:ident($whose:literal): $other:ty,)*
        }
    )*) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Debug)]
        #[allow(dead_code, reason = "some keys serve only the schema and the list of known keys")]
        pub(crate) struct $name {
            pub(crate) here: $crate::tree::Place,
            $($(#[doc = $doc])+ pub(crate) $key: Option<$crate::Spanned<$type>>,)*
            $(#[doc = concat!("The keys of a", $whose, " that are \
                there.")] pub(crate) $part: $crate::Deferred<$other>,)*
        }
        impl $name {
            #[allow(dead_code, reason = "only some tables are asked")]
            pub(crate) const KEYS: &'static [&'static str] = &[$($crate::plain(stringify!($key))),*];
            /// Returns the keys that are present and their places.
            #[allow(dead_code, reason = "only some tables are asked")]
            pub(crate) fn present(&self) -> Vec<(&'static str, &$crate::tree::Place)> {
                #[allow(unused_mut, reason = "a table may have no keys of its own")]
                let mut all: Vec<(&'static str, &$crate::tree::Place)> = Vec::new();
                $(if let Some(present) = &self.$key {
                    all.push(($crate::plain(stringify!($key)), &present.at));
                })*
                $(for key in <$other as $crate::Declared>::keys() {
                    // Skip the table's own keys, because they are already in the list.
                    if let Some(item) = self.$part.item.get(key).filter(|_| !Self::KEYS.contains(&key)) {
                        all.push((key, &item.at));
                    }
                })*
                all
            }
        }
        impl $crate::FromToml for $name {
            fn read(item: &$crate::tree::Item, out: &mut $crate::Findings) -> Option<Self> {
                let Some(table) = item.table() else {
                    $crate::not_a_table::<Self>(item, out);
                    return None;
                };
                let mut read = Self {
                    here: item.at.clone(),
                    $($key: None,)*
                    $($part: $crate::Deferred::of(item.split(&<$other as $crate::Declared>::keys()).0),)*
                };
                // Remember this table, because an unknown key of an inner table may belong here.
                out.tables.push($crate::Around::of::<Self>(item));
                for (key, below) in table {
                    $(if key == $crate::plain(stringify!($key)) {
                        read.$key = $crate::FromToml::read(below, out);
                        continue;
                    })*
                    $(if read.$part.item.get(key).is_some() {
                        continue;
                    })*
                    out.unknown_key::<Self>(item, key, below);
                }
                out.tables.pop();
                Some(read)
            }
        }
        impl $crate::Declared for $name {
            fn keys() -> Vec<&'static str> {
                #[allow(unused_mut, reason = "most tables have only keys of their own")]
                let mut keys = Self::KEYS.to_vec();
                $(for key in <$other as $crate::Declared>::keys() {
                    if !keys.contains(&key) {
                        keys.push(key);
                    }
                })*
                keys
            }
            fn schema() -> $crate::serde_json::Value {
                let mut keys = $crate::serde_json::Map::new();
                $(keys.insert(
                    $crate::plain(stringify!($key)).to_owned(),
                    $crate::described(<$type as $crate::Declared>::schema(), &[$($doc),+]),
                );)*
                $($crate::add_keys(&mut keys, <$other as $crate::Declared>::schema(), $whose);)*
                $crate::described($crate::table_schema(keys, &[]), &[$($about),+])
            }
        }
    )*};
}

#[doc(hidden)]
pub fn not_a_table<T: Declared>(item: &Item, out: &mut Findings) {
    let remedy = match T::example() {
        "" => format!("write a table of: {}", T::keys().join(", ")),
        example => format!("write for example {example}"),
    };
    out.problem(&item.at, format!("{} is not a table", item.shown()), remedy);
}

/// Adds the keys of one kind to `all`, which contains the keys of the previous kinds. The description of each key
/// begins with the kinds that have it.
#[doc(hidden)]
pub fn add_keys(all: &mut serde_json::Map<String, Json>, mut schema: Json, whose: &str) {
    let Json::Object(keys) = schema["properties"].take() else { return };
    for (key, mut value) in keys {
        let about = value["description"].as_str().unwrap_or_default().to_owned();
        match all.get_mut(&key) {
            None => {
                value["description"] = format!("{whose}: {about}").into();
                all.insert(key, value);
            }
            Some(known) => {
                let known_about = known["description"].as_str().unwrap_or_default().to_owned();
                // Separate the defaults from the description, because the kinds may have different defaults.
                let (known_about, mut defaults) = match known_about.split_once(" Default ") {
                    Some((known_about, defaults)) => (known_about.to_owned(), Some(format!(" Default {defaults}"))),
                    None => (known_about, None),
                };
                let known_about = match known_about.split_once(": ") {
                    Some((others, same)) if same == about => format!("{others}, {whose}: {about}"),
                    _ => format!("{known_about} {whose}: {about}"),
                };
                let (old, new) = (known["default"].take(), value["default"].take());
                if defaults.is_none() && old == new {
                    known["default"] = old;
                } else if !(old.is_null() && new.is_null()) {
                    let first = defaults.take().or_else(|| (!old.is_null()).then(|| format!(" Default {old}.")));
                    let more = if new.is_null() { String::new() } else { format!("{whose}: {new}") };
                    defaults = Some(match first {
                        Some(first) if more.is_empty() => first,
                        Some(first) => format!("{}; {more}.", first.trim_end_matches('.')),
                        None => format!(" Default {more}."),
                    });
                }
                known["description"] = format!("{known_about}{}", defaults.unwrap_or_default()).into();
                // `take` has replaced a missing default by null. Remove it, because the schema must not show null as
                // the default.
                if let Json::Object(known) = known
                    && known["default"].is_null()
                {
                    known.remove("default");
                }
            }
        }
    }
}

/// Returns `key` without the prefix `r#`.
pub const fn plain(key: &'static str) -> &'static str {
    match key.as_bytes() {
        [b'r', b'#', ..] => key.split_at(2).1,
        _ => key,
    }
}

/// Returns the schema with a description that joins `lines`.
pub fn described(mut schema: Json, lines: &[&str]) -> Json {
    let text: Vec<_> = lines.iter().map(|l| l.trim()).collect();
    if let Json::Object(object) = &mut schema {
        object.insert("description".into(), Json::String(text.join(" ")));
    }
    schema
}

/// Declares enums whose values are written as words. Each variant is declared as `Value = "word",`.
#[macro_export]
macro_rules! words {
    ($($(#[$about:meta])+ $public:vis enum $type:ident { $($(#[$doc:meta])* $value:ident = $word:literal,)+ })*) => {$(
        $(#[$about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $public enum $type {
            $($(#[$doc])* $value,)+
        }
        impl $type {
            /// Returns the word that stands for this value.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
            /// Returns the value that `word` stands for. Returns `None` if the word is unknown.
            pub fn of(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$value),)+
                    _ => None,
                }
            }
        }
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
        impl $crate::Declared for $type {
            fn schema() -> $crate::serde_json::Value {
                $crate::serde_json::json!({ "enum": [$($word),+] })
            }
        }
        impl $crate::FromToml for $type {
            fn read(item: &$crate::tree::Item, out: &mut $crate::Findings) -> Option<Self> {
                let read = item.text().and_then(Self::of);
                if read.is_none() {
                    $crate::not_one_of(item, &[$($word),+], out);
                }
                read
            }
        }
        impl $crate::ToToml for $type {
            fn value(&self) -> Option<$crate::tree::Value> {
                Some($crate::tree::Value::Text(self.word().to_owned()))
            }
        }
    )*};
}

/// Reports that a value is not one of the valid `words`.
pub fn not_one_of(item: &Item, words: &[&str], out: &mut Findings) {
    let near = item.text().and_then(|t| nearest(t, words));
    let remedy = match near {
        Some(_) => remedy(near, words),
        None => format!("choose from: {}", words.join(", ")),
    };
    out.problem(&item.at, format!("{} is not one of its values", item.shown()), remedy);
}

impl Declared for String {
    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl FromToml for String {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        match item.text() {
            Some(text) if text.len() > 4096 => {
                out.refuse(&item.at, "this text is too long", "write at most 4096 bytes")
            }
            Some(text) => Some(text.to_owned()),
            None => out.refuse(&item.at, format!("{} is not a text", item.shown()), "put it in quotation marks"),
        }
    }
}

impl ToToml for String {
    fn value(&self) -> Option<Value> {
        Some(Value::Text(self.clone()))
    }
}

impl Declared for bool {
    fn schema() -> Json {
        json!({ "type": "boolean" })
    }
}

impl FromToml for bool {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        if let Value::Bool(b) = item.value {
            return Some(b);
        }
        out.refuse(&item.at, format!("{} is neither true nor false", item.shown()), "write true or false")
    }
}

impl ToToml for bool {
    fn value(&self) -> Option<Value> {
        Some(Value::Bool(*self))
    }
}

/// Returns the number that the user probably meant. It may be in quotation marks, have a unit or be a percentage.
/// Returns `None` if more than one reading is plausible.
fn bare(item: &Item) -> Option<f64> {
    let text = item.text()?.trim();
    if let Ok(rate) = text.parse::<Rate>() {
        // Numbers that stand for rates are in bit/s.
        return Some(rate.as_bps_f64());
    }
    let text = match text.split_once(',') {
        // The comma may be a decimal comma or a thousands separator. Three digits after it are ambiguous.
        Some((_, rest)) if rest.chars().take_while(char::is_ascii_digit).count() == 3 => return None,
        Some((whole, rest)) => &format!("{whole}.{rest}"),
        None => text,
    };
    // Return `None` for times, because the key may expect seconds or milliseconds.
    if text.parse::<Span>().is_ok() {
        return None;
    }
    // A frame rate may be a fraction, such as 30000/1001.
    if let Some((over, under)) = text.split_once('/') {
        let part = |text: &str| text.trim().parse::<f64>().ok();
        return part(over).zip(part(under)).map(|(over, under)| over / under).filter(|number| number.is_finite());
    }
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let number = number.parse::<f64>().ok().filter(|n| *n < 1e15)?;
    if unit.trim().starts_with(['k', 'K', 'M', 'G']) {
        return None;
    }
    match unit.trim() {
        "%" | "pct" | "percent" => Some(number / 100.0),
        unit if unit.contains(|c: char| !c.is_alphabetic()) => None,
        _ => Some(number),
    }
}

fn to_write(number: Option<f64>, example: &str) -> String {
    number.map_or_else(|| format!("write for example {example}"), |n| format!("write {n}"))
}

macro_rules! whole_numbers {
    ($($type:ty)*) => {$(
        impl Declared for $type {
            fn schema() -> Json {
                json!({ "type": "integer", "minimum": 0 })
            }
        }
        impl FromToml for $type {
            fn read(item: &Item, out: &mut Findings) -> Option<Self> {
                match item.value {
                    Value::Whole(n) if n >= 0 => {
                        let read = Self::try_from(n).ok();
                        if read.is_none() {
                            let remedy = format!("write at most {}", Self::MAX);
                            out.problem(&item.at, format!("{n} is out of range"), remedy);
                        }
                        read
                    }
                    // A digit string arrives here because TOML has no integers beyond the range of i64.
                    Value::Other(ref text) if text.bytes().all(|b| b.is_ascii_digit()) => {
                        let most = u64::from(Self::MAX).min(i64::MAX as u64);
                        let what = format!("{} is out of range", item.shown());
                        out.refuse(&item.at, what, format!("write at most {most}"))
                    }
                    _ => {
                        let what = format!("{} is not a whole number from 0", item.shown());
                        let number = bare(item).filter(|n| n.fract() == 0.0);
                        out.refuse(&item.at, what, to_write(number, "45"))
                    }
                }
            }
        }
        impl ToToml for $type {
            fn value(&self) -> Option<Value> {
                // TOML integers end at `i64::MAX`, so a larger value can't have been read from TOML.
                Some(Value::Whole(i64::try_from(*self).unwrap_or(i64::MAX)))
            }
        }
    )*};
}
whole_numbers! { u16 u32 u64 }

impl Declared for f64 {
    fn schema() -> Json {
        json!({ "type": "number" })
    }
}

impl FromToml for f64 {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        match item.value {
            Value::Whole(n) => Some(n as Self),
            Value::Real(x) if x.is_finite() => Some(x),
            _ => {
                let what = format!("{} is not a finite number", item.shown());
                out.refuse(&item.at, what, to_write(bare(item), "0.02"))
            }
        }
    }
}

impl ToToml for f64 {
    fn value(&self) -> Option<Value> {
        Some(Value::Real(*self))
    }
}

/// Returns the problem and the remedy for a quantity that could not be parsed.
pub fn quantity(error: &QuantityError) -> (String, String) {
    match error {
        QuantityError::NoNumber { text, example } => (
            format!("{} has no number that can be read", quoted(text)),
            format!("write digits and a point, for example \"{example}\""),
        ),
        QuantityError::Unit { text, what, units, example } => {
            (format!("{} has no unit of {what}", quoted(text)), format!("use {units}, for example \"{example}\""))
        }
        QuantityError::Range { text, what, limit } => {
            (format!("{} is out of range", quoted(text)), format!("a {what} is at least 0 and below {limit}"))
        }
    }
}

macro_rules! quantities {
    ($($type:ty, $what:literal, $example:literal, $units:expr, $pattern:literal;)*) => {$(
        impl Declared for $type {
            fn schema() -> Json {
                json!({ "type": "string", "pattern": $pattern, "examples": [$example] })
            }
        }
        impl FromToml for $type {
            fn read(item: &Item, out: &mut Findings) -> Option<Self> {
                let Some(text) = item.text() else {
                    let [one, other] = $units;
                    // Suggest the same number with units, if it is plausible.
                    let remedy = match item.value {
                        Value::Whole(n) if (0..10_000).contains(&n) => {
                            format!("write its unit, as \"{n}{one}\" or \"{n}{other}\"")
                        }
                        Value::Real(x) if (0.0..1e4).contains(&x) => {
                            format!("write its unit, as \"{x}{one}\" or \"{x}{other}\"")
                        }
                        _ => concat!("write for example \"", $example, "\"").to_owned(),
                    };
                    return out.refuse(&item.at, format!("{} is not a {}", item.shown(), $what), remedy);
                };
                match text.parse::<$type>() {
                    Ok(value) => Some(value),
                    Err(error) => {
                        let (what, remedy) = quantity(&error);
                        out.refuse(&item.at, what, remedy)
                    }
                }
            }
        }
        impl ToToml for $type {
            fn value(&self) -> Option<Value> {
                Some(Value::Text(self.to_string()))
            }
        }
    )*};
}
quantities! {
    Rate, "rate", "4Mbps", ["Mbps", "kbps"], r"^\s*[0-9.e+-]+\s*(bps|kbps|Mbps|Gbps)\s*$";
    Span, "time", "10ms", ["s", "ms"], r"^\s*[0-9.e+-]+\s*(ns|us|µs|ms|s|min|h)\s*$";
    Bytes, "size", "1018B", ["B", "kB"], r"^\s*[0-9.e+-]+\s*(B|kB|MB|GB|KiB|MiB)\s*$";
}

/// A number of packets, such as "50p". It may have a fraction, so settings that need a whole number must check this.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packets(pub f64);

/// Parses a number of packets, such as "50p". Returns `None` if the text has another form.
pub fn packets(text: &str) -> Option<f64> {
    let number = text.trim().strip_suffix('p')?.trim();
    // Check the characters as well, because Rust's parser accepts "inf" and "nan".
    let plain = number.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e'));
    number.parse::<f64>().ok().filter(|x| plain && x.is_finite())
}

impl Declared for Packets {
    fn schema() -> Json {
        json!({ "type": "string", "pattern": r"^\s*[0-9.e+-]+\s*p\s*$", "examples": ["50p"] })
    }
}

impl FromToml for Packets {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        match item.text().and_then(packets) {
            Some(n) if (0.0..=1e9).contains(&n) => Some(Self(n)),
            Some(_) => out.refuse(
                &item.at,
                format!("{} is out of range", item.shown()),
                "write a number from \"0p\" to \"1000000000p\"",
            ),
            None => {
                let what = format!("{} is not a number of packets", item.shown());
                out.refuse(&item.at, what, "write for example \"50p\"")
            }
        }
    }
}

impl ToToml for Packets {
    fn value(&self) -> Option<Value> {
        Some(Value::Text(format!("{}p", self.0)))
    }
}

/// A list of values. A user may write a single value without brackets.
#[derive(Clone, Debug)]
pub struct OneOrMany<T> {
    /// The values.
    pub all: Vec<Spanned<T>>,
    /// Whether a single value was written without brackets.
    pub bare: bool,
}

impl<T: Declared> Declared for OneOrMany<T> {
    fn schema() -> Json {
        json!({ "anyOf": [T::schema(), { "type": "array", "items": T::schema() }] })
    }
}

impl<T: FromToml> FromToml for OneOrMany<T> {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        match &item.value {
            Value::List(list) => {
                let all: Vec<_> = list.iter().filter_map(|i| Spanned::read(i, out)).collect();
                // Return `None` if an element was invalid, because a shorter list would cause misleading messages.
                (all.len() == list.len()).then_some(Self { all, bare: false })
            }
            _ => Some(Self { all: vec![Spanned::read(item, out)?], bare: true }),
        }
    }
}

impl<T: Declared> Declared for Vec<T> {
    fn schema() -> Json {
        json!({ "type": "array", "items": T::schema() })
    }
}

impl<T: FromToml> FromToml for Vec<T> {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        match &item.value {
            // Leave out invalid elements. They were already reported.
            Value::List(list) => Some(list.iter().filter_map(|i| T::read(i, out)).collect()),
            Value::Table(_) => {
                let name = item.at.key.rsplit('.').next().unwrap_or_default();
                let remedy = format!("write [[{name}]], with two brackets on each side, or a list of tables");
                out.refuse(&item.at, "this is a single table, but the key is a list of tables", remedy)
            }
            _ => out.refuse(&item.at, format!("{} is not a list", item.shown()), "put it in [ and ]"),
        }
    }
}

impl<T: Declared> Declared for Option<T> {
    fn schema() -> Json {
        T::schema()
    }
}

impl<T: FromToml> FromToml for Option<T> {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        T::read(item, out).map(Some)
    }
}

impl<T: ToToml> ToToml for Option<T> {
    fn value(&self) -> Option<Value> {
        self.as_ref()?.value()
    }
}

/// A value or the word "none".
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OrNone<T> {
    /// The word "none".
    None,
    /// The value.
    Some(T),
}

impl<T> OrNone<T> {
    /// Returns the value. Returns `None` for the word "none".
    pub const fn as_option(&self) -> Option<&T> {
        match self {
            Self::None => None,
            Self::Some(value) => Some(value),
        }
    }
}

impl<T: Declared> Declared for OrNone<T> {
    fn schema() -> Json {
        json!({ "anyOf": [{ "const": "none" }, T::schema()] })
    }
}

impl<T: FromToml> FromToml for OrNone<T> {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        if item.text() == Some("none") { Some(Self::None) } else { T::read(item, out).map(Self::Some) }
    }
}

impl<T: ToToml> ToToml for OrNone<T> {
    fn value(&self) -> Option<Value> {
        match self {
            Self::None => Some(Value::Text("none".into())),
            Self::Some(value) => value.value(),
        }
    }
}

/// A table that is read later, when the values on which it depends are known.
#[derive(Clone, Debug)]
pub struct Deferred<T> {
    /// The table as it was written.
    pub item: Item,
    as_if: PhantomData<T>,
}

impl<T> Deferred<T> {
    /// Wraps a table whose keys have already been checked.
    pub fn of(item: Item) -> Self {
        Self { item, as_if: PhantomData }
    }
}

impl<T: Declared> FromToml for Deferred<T> {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        keep_known::<T>(&lengthened::<T>(item), out).map(Self::of)
    }
}
