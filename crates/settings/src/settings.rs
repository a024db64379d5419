//! The macros `settings!` (structs whose keys have defaults and ranges) and `kinds!` (enums of such structs).

use crate::problem::Findings;
use crate::table::{Declared, FromToml, ToToml};
use crate::tree::{Item, Table, Value};
use serde_json::{Map, Value as Json};
use std::fmt::Display;
use steadycast_units::Rate;

/// A struct that is read from a table of keys. The macro [`settings!`](crate::settings!) implements this trait.
pub trait Settings: Sized {
    /// Returns the keys of the table, in the order of their declaration.
    fn names() -> Vec<&'static str>;
    /// Reads the keys that are present. The values of all other keys are taken from `base`. If `base` is `None`, they
    /// have their defaults, and a missing key without a default is reported. Unknown keys are ignored.
    fn fill(item: &Item, base: Option<&Self>, out: &mut Findings) -> Option<Self>;
    /// Returns all keys with their values. The same settings result when this table is read again.
    fn table(&self) -> Table;
    /// Returns the schema of each key. The values of `base` are the defaults.
    fn properties(base: Option<&Self>) -> Map<String, Json>;
}

/// A rule that a value has to satisfy.
pub trait Rule<T> {
    /// Returns the problem and the remedy if a value violates the rule.
    fn broken(&self, value: &T) -> Option<(String, String)>;
    /// Adds the rule to the schema of a value, as far as JSON Schema can express the rule.
    fn describe(&self, _: &mut Map<String, Json>) {}
}

impl<T, F: Fn(&T) -> Option<(String, String)>> Rule<T> for F {
    fn broken(&self, value: &T) -> Option<(String, String)> {
        self(value)
    }
}

/// A range of valid values. It includes both ends.
#[derive(Clone, Copy, Debug)]
pub struct Within<T> {
    /// The smallest valid value.
    pub least: T,
    /// The largest valid value.
    pub most: T,
    /// The rest of a remedy that begins with "write a value ".
    pub remedy: &'static str,
}

impl<T: PartialOrd + Display + ToToml> Rule<T> for Within<T> {
    fn broken(&self, value: &T) -> Option<(String, String)> {
        let within = *value >= self.least && *value <= self.most;
        (!within).then(|| (format!("{value} is out of range"), format!("write a value {}", self.remedy)))
    }
    fn describe(&self, schema: &mut Map<String, Json>) {
        for (key, bound) in [("minimum", &self.least), ("maximum", &self.most)] {
            if let Some(Json::Number(bound)) = bound.value().map(|bound| bound.to_json()) {
                schema.insert(key.into(), bound.into());
            }
        }
    }
}

/// A variant of an enum that is declared with [`kinds!`](crate::kinds). Its defaults may depend on a value of the type
/// `C`.
pub trait Kind<C>: Settings {
    /// Reads the value. Override this function if defaults depend on the value of the type `C`, or if one key restricts
    /// another key.
    fn read_for(item: &Item, _: &C, out: &mut Findings) -> Option<Self> {
        Self::fill(item, None, out)
    }
}

/// A value was invalid. The problem has already been reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Reads the value of a key. Returns `None` if the key is absent.
///
/// # Errors
/// Returns [`Refused`] if the value is invalid. The problem is then in `out`.
pub fn field<T: FromToml>(
    item: &Item,
    key: &str,
    rules: &[&dyn Rule<T>],
    out: &mut Findings,
) -> Result<Option<T>, Refused> {
    let Some(item) = item.get(key) else { return Ok(None) };
    let value = T::read(item, out).ok_or(Refused)?;
    match rules.iter().find_map(|rule| rule.broken(&value)) {
        None => Ok(Some(value)),
        Some((what, remedy)) => {
            out.problem(&item.at, what, remedy);
            Err(Refused)
        }
    }
}

/// Returns the table without its unknown keys. The unknown keys are reported.
#[doc(hidden)]
pub fn keep_known<T: Declared>(item: &Item, out: &mut Findings) -> Option<Item> {
    let keys = T::keys();
    let Some(table) = item.table() else {
        crate::not_a_table::<T>(item, out);
        return None;
    };
    // Report all unknown keys at once, so that a user can correct the file in one pass.
    for (key, below) in table.iter().filter(|(key, _)| !keys.contains(&key.as_str())) {
        out.unknown_key::<T>(item, key, below);
    }
    Some(item.split(&keys).0)
}

/// Reports the keys that the selected kind does not have. The remedy lists the kinds that do have such a key.
#[doc(hidden)]
pub fn refuse_others(
    item: &Item,
    kind: &str,
    what: &str,
    own: &[&str],
    others: &[(&str, Vec<&str>)],
    out: &mut Findings,
) {
    let strange = item
        .table()
        .map_or(&[][..], |table| table)
        .iter()
        .filter(|(key, _)| key != kind && !own.contains(&key.as_str()));
    for (key, at) in strange {
        let (has, or) = match own {
            [] => ("leave it out".to_owned(), ", or"),
            own => (format!("it has: {}", own.join(", ")), "; or"),
        };
        let kinds: Vec<_> = others
            .iter()
            .filter(|(_, keys)| keys.contains(&key.as_str()))
            .map(|(kind, _)| format!("\"{kind}\""))
            .collect();
        let hint = match kinds.as_slice() {
            [] => String::new(),
            // If the table already selects a kind that has keys, the user probably wants this kind.
            _ if item.get(kind).is_some() && !own.is_empty() => String::new(),
            [one] => format!("{or} write {kind} = {one}"),
            [all @ .., last] => format!("{or} write {kind} = {} or {last}", all.join(", ")),
        };
        out.problem(&at.at, format!("not a key of {what}"), format!("{has}{hint}"));
    }
}

/// Adds the default value and the rules to the schema of a key.
#[doc(hidden)]
pub fn with_default<T: ToToml>(mut schema: Json, default: Option<&T>, rules: &[&dyn Rule<T>]) -> Json {
    if let Json::Object(schema) = &mut schema {
        rules.iter().for_each(|rule| rule.describe(schema));
        if let Some(default) = default.and_then(ToToml::value) {
            schema.insert("default".into(), default.to_json());
        }
    }
    schema
}

/// Returns a key with its value as an item. Returns `None` if [`ToToml::value`] does, because the key is then left out
/// of the table.
#[doc(hidden)]
pub fn entry<T: ToToml>(key: &str, value: &T) -> Option<(String, Item)> {
    Some((key.to_owned(), value.value()?.into()))
}

#[doc(hidden)]
pub fn kind_first(key: &str, kind: &str, rest: Table) -> Value {
    let kind = (key.to_owned(), Value::Text(kind.to_owned()).into());
    Value::Table(std::iter::once(kind).chain(rest).collect())
}

/// Declares structs whose keys have defaults and ranges.
///
/// After a key's type, the following can be given, in this order:
///
/// - `as TYPE`: the key is read and written as this type.
/// - `where (RULE)`: the values that are valid.
/// - `= DEFAULT`, or `=> "what to write"` for a required key. Without either, the key is required, unless a base is
///   given.
///
/// A mode before a key changes its meaning:
///
/// - `[flat] name: Type = DEFAULT` adds the keys of another struct.
/// - `[inner] name: Type` declares a field that is not a key.
/// - `[kind] name: Type` adds the keys of an enum that [`kinds!`](crate::kinds) declares.
///
/// After the struct's name, `checked by FUNCTION` sets a function that checks the whole struct. Its type is
/// `fn(&Self, &Item, &mut Findings)`. With `, short "KEY" "EXAMPLE"`, users may write the value of this key in place of
/// the table. The example is shown in messages.
#[macro_export]
macro_rules! settings {
    ($(
        $(#[doc = $about:literal])+
        $(#[derive($($derive:ident),+)])?
        $name:ident $(checked by $whole:path)? $(, short $short:literal $example:literal)? {
            $(
                $(#[doc = $doc:literal])+
                $([$mode:ident])? $key:ident: $type:ty $(as $with:ty)? $(where ($rule:expr))? $(= $default:expr)? $(=> $missing:literal)?,
            )*
        }
    )*) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq $($(, $derive)+)?)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $key: $type,)*
        }
        impl $crate::Settings for $name {
            fn names() -> Vec<&'static str> {
                let mut all: Vec<&'static str> = Vec::new();
                $($crate::settings!(@names all; $([$mode])? $key: $type);)*
                all
            }
            fn fill(item: &$crate::tree::Item, base: Option<&Self>, out: &mut $crate::Findings) -> Option<Self> {
                $($crate::settings!(
                    @read item, base, out; $([$mode])? $key: $type; [$($with)?]; [$($rule)?]; [$($default)?]; [$($missing)?]
                );)*
                let whole = Self { $($key: $key?,)* };
                $(
                    let before = out.problems.len();
                    $whole(&whole, item, out);
                    if out.problems.len() > before {
                        return None;
                    }
                )?
                Some(whole)
            }
            fn table(&self) -> $crate::tree::Table {
                let mut all = $crate::tree::Table::new();
                $($crate::settings!(@write self, all; $([$mode])? $key: $type; [$($with)?]);)*
                all
            }
            fn properties(base: Option<&Self>) -> $crate::serde_json::Map<String, $crate::serde_json::Value> {
                let mut all = $crate::serde_json::Map::new();
                $($crate::settings!(
                    @schema base, all; $([$mode])? $key: $type; [$($with)?]; [$($rule)?]; [$($default)?]; [$($doc),+]
                );)*
                all
            }
        }
        impl $crate::Declared for $name {
            fn keys() -> Vec<&'static str> {
                <Self as $crate::Settings>::names()
            }
            fn schema() -> $crate::serde_json::Value {
                let short = &[$($crate::settings!(@short $short))?];
                let table = $crate::table_schema(<Self as $crate::Settings>::properties(None), short);
                $crate::described(table, &[$($about),+])
            }
            $(
                fn long(item: &$crate::tree::Item) -> Option<$crate::tree::Table> {
                    Some(vec![($short.to_owned(), item.clone())])
                }
                fn example() -> &'static str {
                    $example
                }
            )?
        }
        impl $crate::FromToml for $name {
            fn read(item: &$crate::tree::Item, out: &mut $crate::Findings) -> Option<Self> {
                let known = $crate::keep_known::<Self>(&$crate::lengthened::<Self>(item), out)?;
                <Self as $crate::Settings>::fill(&known, None, out)
            }
        }
        impl $crate::ToToml for $name {
            fn value(&self) -> Option<$crate::tree::Value> {
                Some($crate::tree::Value::Table($crate::Settings::table(self)))
            }
        }
    )*};

    (@short $key:literal) => { "string" };
    (@names $all:ident; $key:ident: $type:ty) => { $all.push($crate::plain(stringify!($key))); };
    (@names $all:ident; [flat] $key:ident: $type:ty) => { $all.extend(<$type as $crate::Settings>::names()); };
    (@names $all:ident; [kind] $key:ident: $type:ty) => { $all.extend(<$type as $crate::Declared>::keys()); };
    (@names $all:ident; [inner] $key:ident: $type:ty) => {};

    (@with $type:ty;) => { $type };
    (@with $type:ty; $with:ty) => { $with };

    (@absent $item:ident, $out:ident, $key:ident: $type:ty; $default:expr;) => { Some({ let default: $type = $default; default }) };
    (@absent $item:ident, $out:ident, $key:ident: $type:ty; ; $missing:literal) => {{
        $out.lack(&$item.at, $crate::plain(stringify!($key)), $missing)
    }};
    (@absent $item:ident, $out:ident, $key:ident: $type:ty; ;) => {
        $crate::settings!(@absent $item, $out, $key: $type; ; "give it a value")
    };

    (@read $item:ident, $base:ident, $out:ident; $key:ident: $type:ty; [$($with:ty)?]; [$($rule:expr)?]; [$($default:expr)?]; [$($missing:literal)?]) => {
        let $key: Option<$type> = match $crate::field::<$crate::settings!(@with $type; $($with)?)>(
            $item,
            $crate::plain(stringify!($key)),
            &[$(&$rule)?],
            $out,
        ) {
            Ok(Some(value)) => Some(value.into()),
            Ok(None) => match $base {
                Some(base) => Some(base.$key.clone()),
                None => $crate::settings!(@absent $item, $out, $key: $type; $($default)?; $($missing)?),
            },
            Err($crate::Refused) => None,
        };
    };
    (@read $item:ident, $base:ident, $out:ident; [flat] $key:ident: $type:ty; []; []; [$default:expr]; []) => {
        let $key: Option<$type> = match $base {
            Some(base) => <$type as $crate::Settings>::fill($item, Some(&base.$key), $out),
            None => <$type as $crate::Settings>::fill($item, Some(&$default), $out),
        };
    };
    (@read $item:ident, $base:ident, $out:ident; [kind] $key:ident: $type:ty; []; []; []; []) => {
        let own = $item.split(&<$type as $crate::Declared>::keys()).0;
        let $key: Option<$type> = match $base {
            // The file sets none of this enum's keys, so take the value from `base`.
            Some(base) if own.table().is_none_or(|keys| keys.is_empty()) => Some(base.$key.clone()),
            _ => <$type>::read_for(&own, &(), $out),
        };
    };
    (@read $item:ident, $base:ident, $out:ident; [inner] $key:ident: $type:ty; []; []; [$($default:expr)?]; []) => {
        let $key: Option<$type> = match $base {
            Some(base) => Some(base.$key.clone()),
            None => $crate::settings!(@absent $item, $out, $key: $type; $($default)?;),
        };
    };

    (@write $self:ident, $all:ident; $key:ident: $type:ty; [$($with:ty)?]) => {
        let value: $crate::settings!(@with $type; $($with)?) = $self.$key.clone().into();
        $all.extend($crate::entry($crate::plain(stringify!($key)), &value));
    };
    (@write $self:ident, $all:ident; [flat] $key:ident: $type:ty; []) => {
        $all.extend($crate::Settings::table(&$self.$key));
    };
    (@write $self:ident, $all:ident; [kind] $key:ident: $type:ty; []) => {
        if let Some($crate::tree::Value::Table(keys)) = $crate::ToToml::value(&$self.$key) {
            $all.extend(keys);
        }
    };
    (@write $self:ident, $all:ident; [inner] $key:ident: $type:ty; []) => {};

    (@schema $base:ident, $all:ident; $key:ident: $type:ty; [$($with:ty)?]; [$($rule:expr)?]; [$($default:expr)?]; [$($doc:literal),+]) => {
        {
            #[allow(unused_mut, unused_assignments, reason = "a key that must be there has no default")]
            let mut default: Option<$type> = None;
            $(default = Some($default);)?
            type With = $crate::settings!(@with $type; $($with)?);
            let default = $base.map(|base| base.$key.clone()).or(default).map(With::from);
            let schema = $crate::with_default::<With>(<With as $crate::Declared>::schema(), default.as_ref(), &[$(&$rule)?]);
            $all.insert($crate::plain(stringify!($key)).to_owned(), $crate::described(schema, &[$($doc),+]));
        }
    };
    (@schema $base:ident, $all:ident; [flat] $key:ident: $type:ty; []; []; [$default:expr]; [$($doc:literal),+]) => {
        let default: $type = $default;
        let base = $base.map_or(&default, |base| &base.$key);
        $all.extend(<$type as $crate::Settings>::properties(Some(base)));
    };
    (@schema $base:ident, $all:ident; [kind] $key:ident: $type:ty; []; []; []; [$($doc:literal),+]) => {
        if let $crate::serde_json::Value::Object(keys) = <$type as $crate::Declared>::schema()["properties"].take() {
            $all.extend(keys);
        }
    };
    (@schema $base:ident, $all:ident; [inner] $key:ident: $type:ty; []; []; [$($default:expr)?]; [$($doc:literal),+]) => {};
}

/// Declares enums of settings. The key `kind` selects the variant. Another key can be given after `by`.
///
/// Each variant consists of a word, an optional type and a phrase for messages, as in "a RED queue has no key
/// `target`".
///
/// The type after `for` is the parameter `C` of [`Kind`]. These options may follow:
///
/// - `default KIND`: the variant that is used if the key is missing. Without this option, the key is required.
/// - `example TEXT`: an example for messages.
/// - `short FUNCTION`: a function `fn(&Item) -> Option<Table>` that converts further short forms to a table. A
///   variant's word alone is always accepted as a short form.
#[macro_export]
macro_rules! kinds {
    ($(
        $(#[doc = $about:literal])+
        $(#[derive($($derive:ident),+)])?
        $name:ident for $context:ty $(, by $by:literal)? $(, default $standard:literal)?
            $(, example $example:literal)? $(, short $short:path)? {
            $(
                $(#[doc = $doc:literal])+
                $word:literal => $kind:ident $(($type:ty))?, $what:literal;
            )+
        }
    )*) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq $($(, $derive)+)?)]
        pub enum $name {
            $($(#[doc = $doc])+ $kind $(($type))?,)+
        }
        impl $name {
            /// The key that selects the variant.
            pub const KEY: &'static str = $crate::kinds!(@key $($by)?);
            /// The words of the variants, in the order of their declaration.
            pub const KINDS: &'static [&'static str] = &[$($word),+];

            /// Returns the word of this variant.
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind { .. } => $word,)+
                }
            }
            /// Returns the word and the keys of each variant.
            fn each() -> Vec<(&'static str, Vec<&'static str>)> {
                vec![$(($word, $crate::kinds!(@names $($type)?))),+]
            }
            /// Reads the value. `context` may determine its defaults. Problems are added to `out`.
            pub fn read_for(item: &$crate::tree::Item, context: &$context, out: &mut $crate::Findings) -> Option<Self> {
                let item = &$crate::keep_known::<Self>(&$crate::lengthened::<Self>(item), out)?;
                #[allow(unused_variables, reason = "there may be no default")]
                let standard: Option<&str> = None;
                $(let standard = Some($standard);)?
                let kind = match (item.get(Self::KEY), standard) {
                    // If the kind is not a text, the last arm of the `match` below reports it.
                    (Some(kind), _) => kind.text().unwrap_or_default(),
                    (None, Some(standard)) => standard,
                    (None, None) => {
                        return out.lack(&item.at, Self::KEY, &format!("choose from: {}", Self::KINDS.join(", ")));
                    }
                };
                let all = Self::each();
                let own = all.iter().find(|(word, _)| *word == kind).map_or(&[][..], |(_, keys)| keys);
                match kind {
                    $($word => {
                        let before = out.problems.len();
                        $crate::refuse_others(item, Self::KEY, $what, own, &all, out);
                        let read = $crate::kinds!(@read Self::$kind $(($type))?; item, context, out);
                        // Return `None` if the table has a key of another kind.
                        if out.problems.len() > before { None } else { read }
                    })+
                    _ => {
                        if let Some(kind) = item.get(Self::KEY) {
                            $crate::not_one_of(kind, Self::KINDS, out);
                        }
                        None
                    }
                }
            }
        }
        impl $crate::Declared for $name {
            fn keys() -> Vec<&'static str> {
                let mut keys = vec![Self::KEY];
                for key in Self::each().into_iter().flat_map(|(_, keys)| keys) {
                    if !keys.contains(&key) {
                        keys.push(key);
                    }
                }
                keys
            }
            fn schema() -> $crate::serde_json::Value {
                let mut keys = $crate::serde_json::Map::new();
                let kinds: &[(&str, &[&str])] = &[$(($word, &[$($doc),+])),+];
                $($crate::kinds!(@schema keys, Self::KEY, $word $(, $type)?);)+
                let kind = $crate::kind_schema(kinds, &[$($standard)?]);
                keys.insert(Self::KEY.to_owned(), kind);
                // The schema accepts numbers if `long` accepts numbers. Test this with 0.0, which stands for any
                // number.
                let number = <Self as $crate::Declared>::long(&$crate::tree::Value::Real(0.0).into()).map(|_| "number");
                let short: Vec<_> = ["string"].into_iter().chain(number).collect();
                $crate::described($crate::table_schema(keys, &short), &[$($about),+])
            }
            fn long(item: &$crate::tree::Item) -> Option<$crate::tree::Table> {
                $(if let Some(table) = $short(item) {
                    return Some(table);
                })?
                item.text().map(|_| vec![(Self::KEY.to_owned(), item.clone())])
            }
            $(
                fn example() -> &'static str {
                    $example
                }
            )?
        }
        impl $crate::ToToml for $name {
            fn value(&self) -> Option<$crate::tree::Value> {
                $($crate::kinds!(@write self, Self::$kind $(($type))?, $word);)+
                None
            }
        }
    )*};

    (@key) => { "kind" };
    (@key $by:literal) => { $by };
    (@names) => { Vec::new() };
    (@names $type:ty) => { <$type as $crate::Settings>::names() };
    (@read Self::$kind:ident; $item:ident, $context:ident, $out:ident) => { Some(Self::$kind) };
    (@read Self::$kind:ident($type:ty); $item:ident, $context:ident, $out:ident) => {
        <$type as $crate::Kind<_>>::read_for($item, $context, $out).map(Self::$kind)
    };
    (@schema $keys:ident, $key:expr, $word:literal) => {};
    (@schema $keys:ident, $key:expr, $word:literal, $type:ty) => {
        $crate::add_keys(&mut $keys, <$type as $crate::Declared>::schema(), &$crate::of_kind($key, $word));
    };
    (@write $self:ident, Self::$kind:ident, $word:literal) => {
        if matches!($self, Self::$kind) {
            return Some($crate::kind_first(Self::KEY, $word, $crate::tree::Table::new()));
        }
    };
    (@write $self:ident, Self::$kind:ident($type:ty), $word:literal) => {
        if let Self::$kind(settings) = $self {
            return Some($crate::kind_first(Self::KEY, $word, <$type as $crate::Settings>::table(settings)));
        }
    };
}

/// Returns the schema of a table. Values of the types in `short` are accepted in place of the table.
#[doc(hidden)]
pub fn table_schema(keys: Map<String, Json>, short: &[&str]) -> Json {
    let types: Vec<_> = ["object"].into_iter().chain(short.iter().copied()).collect();
    let types = if short.is_empty() { Json::from("object") } else { types.into() };
    serde_json::json!({ "type": types, "properties": keys, "additionalProperties": false })
}

/// Returns the prefix of the descriptions of keys that are valid only if `key` has the value `kind`.
#[doc(hidden)]
pub fn of_kind(key: &str, kind: &str) -> String {
    if key == "kind" { kind.to_owned() } else { format!("{key} = {kind}") }
}

#[doc(hidden)]
pub fn kind_schema(kinds: &[(&str, &[&str])], default: &[&str]) -> Json {
    let words: Vec<_> = kinds.iter().map(|(word, _)| *word).collect();
    let about: Vec<_> = kinds
        .iter()
        .map(|(word, about)| format!("{word}: {}", about.iter().map(|l| l.trim()).collect::<Vec<_>>().join(" ")))
        .collect();
    let mut schema = serde_json::json!({ "enum": words, "description": about.join(" ") });
    if let [default] = default {
        schema["default"] = (*default).into();
    }
    schema
}

/// Returns a problem and a remedy if the rate is 0.
pub fn positive(rate: &Rate) -> Option<(String, String)> {
    (*rate == Rate::ZERO).then(|| ("a rate of 0".into(), "write a rate above 0".into()))
}
