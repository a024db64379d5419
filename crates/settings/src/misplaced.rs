//! What is meant by a key that its table has not: what others call so, a place nearby that takes it, or a typing error.

use crate::tree::{Item, Place};
use crate::{Declared, nearest};
use serde_json::Value as Json;

/// A table that is being read, as it is asked whether what stands in it belongs beside it.
pub struct Around {
    at: Place,
    /// Its keys that are not there yet.
    free: Vec<&'static str>,
    told: Json,
    schema: fn() -> Json,
}

impl Around {
    /// A table of `T`.
    pub fn of<T: Declared>(table: &Item) -> Self {
        let free = T::keys().into_iter().filter(|key| table.get(key).is_none()).collect();
        Self { at: table.at.clone(), free, told: told(table), schema: T::schema }
    }
}

/// A table's words, among which are those that tell kinds apart.
fn told(table: &Item) -> Json {
    let words = table.table().into_iter().flatten().filter(|(_, item)| item.text().is_some());
    words.map(|(key, item)| (key.clone(), item.value.to_json())).collect()
}

/// A key that its table has not.
pub(crate) struct Misplaced<'a> {
    table: &'a Item,
    key: &'a str,
    value: Json,
    /// The keys of this table.
    keys: &'a [&'static str],
    schema: Json,
    told: Json,
    /// It came from the command line, where a key takes the place of one that is there.
    replaces: bool,
}

/// What to write in a key's place, and the path of the key that this gives from its table on: it is then not missed.
type Remedy = (String, String);

impl<'a> Misplaced<'a> {
    /// A key of a table of `T`, which has these.
    pub(crate) fn of<T: Declared>(table: &'a Item, key: &'a str, item: &Item, keys: &'a [&'static str]) -> Self {
        Self {
            table,
            key,
            value: item.value.to_json(),
            keys,
            schema: T::schema(),
            told: told(table),
            replaces: item.at.set,
        }
    }
    /// The remedy; `None`: nothing that could be done would be taken.
    pub(crate) fn remedy(&self, words: &[(&'static str, &[&str])], around: &[Around]) -> Option<Remedy> {
        let theirs = words.iter().filter(|(_, words)| words.contains(&self.key)).map(|(meant, _)| *meant);
        let known = theirs.clone().find_map(|meant| self.reads(meant));
        known.or_else(|| self.inside()).or_else(|| self.outside(around)).or_else(|| {
            let free = |key: &&str| self.free(key) && belongs(&self.schema, &self.told, key);
            let free: Vec<_> = self.keys.iter().copied().filter(free).collect();
            let near = theirs.filter(|meant| free.contains(meant)).chain(nearest(self.key, &free)).next()?;
            let written = if self.takes(&[near]) { format!("\"{near}\"") } else { self.example(near)? };
            Some((format!("did you mean {written}?"), near.to_owned()))
        })
    }
    /// What others mean by the key, if it can stand here: a key, one of a table, or a line.
    fn reads(&self, meant: &str) -> Option<Remedy> {
        if let Some((key, _)) = meant.split_once(" = ") {
            return self.free(key).then(|| (format!("write {meant}"), key.to_owned()));
        }
        let path: Vec<&str> = meant.split('.').collect();
        let there = path.iter().try_fold(self.table, |table, key| table.get(key));
        match path[..] {
            [outer, ..] if !self.keys.contains(&outer) => None,
            _ if there.is_some() && !self.replaces => {
                Some((format!("leave it out: {meant} says it already"), String::new()))
            }
            [outer, key] => self.put(outer, key),
            _ => self.takes(&path).then(|| (format!("did you mean \"{meant}\"?"), meant.to_owned())),
        }
    }
    /// The one table of this table that takes the key.
    fn inside(&self) -> Option<Remedy> {
        let mut all = self.keys.iter().filter_map(|outer| self.put(outer, self.key));
        all.next().filter(|_| all.next().is_none())
    }
    fn put(&self, outer: &str, key: &str) -> Option<Remedy> {
        let (there, inner) = (self.table.get(outer), &self.schema["properties"][outer]);
        let known = self.keys.contains(&outer) && belongs(&self.schema, &self.told, outer);
        let free = there.is_none_or(|there| there.table().is_some() && (self.replaces || there.get(key).is_none()));
        let own = there.map_or(Json::Null, told);
        // A table that has to say its kind first is not begun with another key.
        let kind = &inner["properties"]["kind"];
        let begun = there.is_some() || kind["enum"].is_null() || !kind["default"].is_null();
        let remedy = match there {
            _ if !(known && free && begun && self.takes(&[outer, key]) && belongs(inner, &own, key)) => return None,
            Some(_) => format!("write {key} = … in {outer}, not beside it"),
            None => format!("write {outer} = {{ {key} = … }}"),
        };
        Some((remedy, format!("{outer}.{key}")))
    }
    /// The nearest table around that takes the key.
    fn outside(&self, around: &[Around]) -> Option<Remedy> {
        let mut inner = &self.table.at.key;
        for table in around.iter().rev().filter(|table| table.at.key != self.table.at.key) {
            let taken = || {
                let schema = (table.schema)();
                belongs(&schema, &table.told, self.key) && takes(&schema, &[self.key], &self.value)
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
    /// The key with a value that it takes.
    fn example(&self, key: &str) -> Option<String> {
        let schema = &self.schema["properties"][key];
        let any = schema["anyOf"].as_array().into_iter().flatten().chain([schema]);
        any.filter_map(|one| one["examples"].get(0)).map(|example| format!("{key} = {example}")).next()
    }
}

/// Whether a table has a key, as far as its kind decides: descriptions begin with the kinds that have it.
fn belongs(schema: &Json, table: &Json, key: &str) -> bool {
    let about = format!(" {}", schema["properties"][key]["description"].as_str().unwrap_or_default());
    let mut kinds = schema["properties"].as_object().into_iter().flatten().filter(|(by, _)| *by != key);
    kinds.all(|(by, of)| {
        let words = of["enum"].as_array().into_iter().flatten();
        let named = |word: &&Json| {
            let ends = [": ", ", ", " with "].map(|end| format!(" {}{end}", word.as_str().unwrap_or_default()));
            ends.iter().any(|said| about.contains(said))
        };
        let mut own = words.filter(named).peekable();
        let kind = table.get(by).unwrap_or(&of["default"]);
        own.peek().is_none() || kind.is_null() || own.any(|word| word == kind)
    })
}

/// Whether a value may stand behind the key to which a path of keys leads.
fn takes(schema: &Json, path: &[&str], value: &Json) -> bool {
    match path {
        [] => admits(schema, value),
        [key, rest @ ..] => schema["properties"].get(key).is_some_and(|below| takes(below, rest, value)),
    }
}

/// Whether a value matches a JSON schema by its type, enumerated words, unit pattern and keys.
fn admits(schema: &Json, value: &Json) -> bool {
    if let Some(any) = schema["anyOf"].as_array() {
        return any.iter().any(|one| admits(one, value));
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.contains(value);
    }
    let types = match &schema["type"] {
        Json::Array(types) => types.clone(),
        // What is told elsewhere is a table.
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
        ("integer", Json::Number(number)) => number.is_u64(),
        _ => false,
    })
}

/// Whether a text could be of a pattern: it ends in one of the units of a quantity, which has examples, or has no
/// letter that the pattern has not.
fn fits(schema: &Json, text: &str) -> bool {
    let Some(pattern) = schema["pattern"].as_str() else { return true };
    if schema["examples"].is_null() {
        return text.chars().filter(|c| c.is_alphabetic()).all(|letter| pattern.contains(letter));
    }
    let unit = text.trim().trim_start_matches(|c: char| c.is_ascii_digit() || ".e+-".contains(c)).trim_start();
    let units = pattern.rsplit(r"+\s*").next().unwrap_or_default().trim_end_matches(r"\s*$");
    units.trim_matches(['(', ')']).split('|').any(|one| one == unit)
}
