//! Remedies for a key that its table does not accept.
//!
//! The key may be another program's name of a setting (`bitrate` for `rate`), belong to a nearby table, or be
//! misspelled.

use crate::tree::{Item, Place};
use crate::{Declared, nearest};
use serde_json::Value as Json;

/// A table that is being read: the table with the unknown key, or a table around it.
pub struct Around {
    at: Place,
    /// Valid keys that the table does not set.
    free: Vec<&'static str>,
    texts: Json,
    schema: fn() -> Json,
}

impl Around {
    /// Describes a table of `T`.
    pub fn of<T: Declared>(table: &Item) -> Self {
        let free = T::keys().into_iter().filter(|key| table.get(key).is_none()).collect();
        Self { at: table.at.clone(), free, texts: texts(table), schema: T::schema }
    }
}

/// Returns the keys whose values are texts, including the one that selects the kind.
fn texts(table: &Item) -> Json {
    let words = table.table().into_iter().flatten().filter(|(_, item)| item.text().is_some());
    words.map(|(key, item)| (key.clone(), item.value.to_json())).collect()
}

pub(crate) struct Misplaced<'a> {
    table: &'a Item,
    key: &'a str,
    value: Json,
    keys: &'a [&'static str],
    schema: Json,
    texts: Json,
    /// On the command line, a key overrides one that is present.
    replaces: bool,
}

/// A remedy's text, and the path of the suggested key relative to the table. The suggested key is not also reported as
/// missing.
type Remedy = (String, String);

impl<'a> Misplaced<'a> {
    pub(crate) fn of<T: Declared>(table: &'a Item, key: &'a str, item: &Item, keys: &'a [&'static str]) -> Self {
        Self {
            table,
            key,
            value: item.value.to_json(),
            keys,
            schema: T::schema(),
            texts: texts(table),
            replaces: item.at.set,
        }
    }
    /// Returns the remedy; `None` if no table accepts the key.
    pub(crate) fn remedy(&self, words: &[(&'static str, &[&str])], around: &[Around]) -> Option<Remedy> {
        let theirs = words.iter().filter(|(_, words)| words.contains(&self.key)).map(|(meant, _)| *meant);
        let known = theirs.clone().find_map(|meant| self.reads(meant));
        known.or_else(|| self.inside()).or_else(|| self.outside(around)).or_else(|| {
            let free = |key: &&str| self.free(key) && belongs(&self.schema, &self.texts, key);
            let free: Vec<_> = self.keys.iter().copied().filter(free).collect();
            let near = theirs.filter(|meant| free.contains(meant)).chain(nearest(self.key, &free)).next()?;
            let written = if self.takes(&[near]) { format!("\"{near}\"") } else { self.example(near)? };
            Some((format!("did you mean {written}?"), near.to_owned()))
        })
    }
    /// Returns the remedy for a key that is another program's name of `meant`.
    ///
    /// `meant` is a key of this table, a dotted path to an inner table's key, or a line with a key and its value.
    fn reads(&self, meant: &str) -> Option<Remedy> {
        if let Some((key, _)) = meant.split_once(" = ") {
            return self.free(key).then(|| (format!("write {meant}"), key.to_owned()));
        }
        let path: Vec<&str> = meant.split('.').collect();
        let there = path.iter().try_fold(self.table, |table, key| table.get(key));
        match path[..] {
            [outer, ..] if !self.keys.contains(&outer) => None,
            // The file already sets the key that is meant.
            _ if there.is_some() && !self.replaces => {
                Some((format!("leave it out: {meant} already sets it"), String::new()))
            }
            [outer, key] => self.put(outer, key),
            _ => self.takes(&path).then(|| (format!("did you mean \"{meant}\"?"), meant.to_owned())),
        }
    }
    /// Suggests the inner table that accepts the key, if exactly one does.
    fn inside(&self) -> Option<Remedy> {
        let mut all = self.keys.iter().filter_map(|outer| self.put(outer, self.key));
        all.next().filter(|_| all.next().is_none())
    }
    fn put(&self, outer: &str, key: &str) -> Option<Remedy> {
        let (there, inner) = (self.table.get(outer), &self.schema["properties"][outer]);
        let known = self.keys.contains(&outer) && belongs(&self.schema, &self.texts, outer);
        let free = there.is_none_or(|there| there.table().is_some() && (self.replaces || there.get(key).is_none()));
        let own = there.map_or(Json::Null, texts);
        // A new table with only `key` would be invalid without a default `kind`.
        let kind = &inner["properties"]["kind"];
        let begun = there.is_some() || kind["enum"].is_null() || !kind["default"].is_null();
        let remedy = match there {
            _ if !(known && free && begun && self.takes(&[outer, key]) && belongs(inner, &own, key)) => return None,
            Some(_) => format!("write {key} = … in {outer}, not beside it"),
            None => format!("write {outer} = {{ {key} = … }}"),
        };
        Some((remedy, format!("{outer}.{key}")))
    }
    /// Suggests the innermost enclosing table that accepts the key.
    fn outside(&self, around: &[Around]) -> Option<Remedy> {
        let mut inner = &self.table.at.key;
        // The last entry of `around` is the table itself.
        for table in around.iter().rev().filter(|table| table.at.key != self.table.at.key) {
            let taken = || {
                let schema = (table.schema)();
                belongs(&schema, &table.texts, self.key) && takes(&schema, &[self.key], &self.value)
            };
            if table.free.contains(&self.key) && taken() {
                let remedy = match &*table.at.key {
                    "" if !self.table.at.set => "write it at the head of the file, above all [tables]".to_owned(),
                    _ => format!("write it beside {inner}, not in it"),
                };
                return Some((remedy, String::new()));
            }
            inner = &table.at.key;
        }
        None
    }
    fn free(&self, key: &str) -> bool {
        self.keys.contains(&key) && (self.replaces || self.table.get(key).is_none())
    }
    fn takes(&self, path: &[&str]) -> bool {
        takes(&self.schema, path, &self.value)
    }
    fn example(&self, key: &str) -> Option<String> {
        let schema = &self.schema["properties"][key];
        let any = schema["anyOf"].as_array().into_iter().flatten().chain([schema]);
        any.filter_map(|one| one["examples"].get(0)).map(|example| format!("{key} = {example}")).next()
    }
}

/// Returns whether `table` may have `key`. Some keys are valid only if another key has certain values, for example
/// `kind = "counts"`. Their description in the schema begins with these values.
fn belongs(schema: &Json, table: &Json, key: &str) -> bool {
    // Each name is searched with a blank before it.
    let about = format!(" {}", schema["properties"][key]["description"].as_str().unwrap_or_default());
    let mut kinds = schema["properties"].as_object().into_iter().flatten().filter(|(by, _)| *by != key);
    kinds.all(|(by, of)| {
        let words = of["enum"].as_array().into_iter().flatten();
        let named = |word: &&Json| {
            let ends = [": ", ", ", " with "].map(|end| format!(" {}{end}", word.as_str().unwrap_or_default()));
            ends.iter().any(|lead| about.contains(lead))
        };
        let mut own = words.filter(named).peekable();
        let kind = table.get(by).unwrap_or(&of["default"]);
        own.peek().is_none() || kind.is_null() || own.any(|word| word == kind)
    })
}

/// Whether the key at the end of a path of keys accepts the value.
fn takes(schema: &Json, path: &[&str], value: &Json) -> bool {
    match path {
        [] => admits(schema, value),
        [key, rest @ ..] => schema["properties"].get(key).is_some_and(|below| takes(below, rest, value)),
    }
}

fn admits(schema: &Json, value: &Json) -> bool {
    if let Some(any) = schema["anyOf"].as_array() {
        return any.iter().any(|one| admits(one, value));
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.contains(value);
    }
    let types = match &schema["type"] {
        Json::Array(types) => types.clone(),
        // A reference always refers to a table.
        Json::Null if !schema["$ref"].is_null() => return value.is_object(),
        Json::Null => return schema.get("const").is_none_or(|word| word == value),
        one => vec![one.clone()],
    };
    types.iter().filter_map(Json::as_str).any(|one| match (one, value) {
        ("object", Json::Object(table)) => table.iter().all(|(key, value)| match schema["properties"].get(key) {
            Some(below) => admits(below, value),
            None => schema["additionalProperties"] != false,
        }),
        ("array", Json::Array(all)) => all.iter().all(|one| admits(&schema["items"], one)),
        ("string", Json::String(text)) => fits(schema, text),
        ("number", Json::Number(_)) | ("boolean", Json::Bool(_)) => true,
        // Whole numbers in files are never negative.
        ("integer", Json::Number(number)) => number.is_u64(),
        _ => false,
    })
}

/// Whether a text can match a pattern. It can if it ends in a unit of the quantity, or if each of its letters occurs in
/// the pattern.
fn fits(schema: &Json, text: &str) -> bool {
    let Some(pattern) = schema["pattern"].as_str() else { return true };
    if schema["examples"].is_null() {
        return text.chars().filter(|c| c.is_alphabetic()).all(|letter| pattern.contains(letter));
    }
    let unit = text.trim().trim_start_matches(|c: char| c.is_ascii_digit() || ".e+-".contains(c)).trim_start();
    // `quantities!` puts the units between these parts of a pattern.
    let units = pattern.rsplit(r"+\s*").next().unwrap_or_default().trim_end_matches(r"\s*$");
    units.trim_matches(['(', ')']).split('|').any(|one| one == unit)
}
