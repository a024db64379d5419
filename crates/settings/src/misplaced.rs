//! Suggests what to do about a key that its table does not accept.
//!
//! There are three cases: the key is another program's name for a setting (`bitrate` for `rate`), it belongs in another
//! table, or it is misspelled.

use crate::tree::{Item, Place};
use crate::{Declared, nearest, remedy};
use serde_json::Value as Json;

/// A table that is being read. It is the table with the unknown key, or a table that encloses it.
pub struct Around {
    at: Place,
    /// Valid keys that are missing in the table.
    free: Vec<&'static str>,
    texts: Json,
    schema: fn() -> Json,
}

impl Around {
    /// Describes the table `table`, whose type is `T`.
    pub fn of<T: Declared>(table: &Item) -> Self {
        let free = T::keys().into_iter().filter(|key| table.get(key).is_none()).collect();
        Self { at: table.at.clone(), free, texts: texts(table), schema: T::schema }
    }
}

/// Returns the keys whose values are texts. The key that selects the kind is among them.
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
    /// Whether the key was set on the command line. Such a key replaces the same key in the file.
    replaces: bool,
}

/// Maximum number of tables that a remedy lists.
const MOST_TABLES: usize = 3;

/// The text of a remedy, and the path of the key that the text suggests. The path is relative to the table. The caller
/// needs the path, so that it does not report the suggested key as missing.
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
    /// Returns the remedy for the key. Returns `None` if no table accepts the key.
    pub(crate) fn remedy(&self, words: &[(&'static str, &[&str])], around: &[Around]) -> Option<Remedy> {
        let theirs = words.iter().filter(|(_, words)| words.contains(&self.key)).map(|(meant, _)| *meant);
        let known = self.entry().or_else(|| theirs.clone().find_map(|meant| self.reads(meant)));
        let placed = known.or_else(|| self.inside()).or_else(|| self.outside(around));
        let similar = || {
            let free = |key: &&str| self.free(key) && belongs(&self.schema, &self.texts, key);
            let free: Vec<_> = self.keys.iter().copied().filter(free).collect();
            let near = theirs.filter(|meant| free.contains(meant)).chain(nearest(self.key, &free)).next()?;
            let written = if self.takes(&[near]) { format!("\"{near}\"") } else { self.example(near)? };
            Some((format!("did you mean {written}?"), near.to_owned()))
        };
        placed.or_else(similar).or_else(|| self.several())
    }
    /// Returns a text that lists the table's keys. If the schema has other tables that accept the key, the text begins
    /// with at most [`MOST_TABLES`] of them.
    pub(crate) fn list(&self, around: &[Around]) -> String {
        let belong = |key: &&str| belongs(&self.schema, &self.texts, key);
        let keys = remedy(None, &self.keys.iter().copied().filter(belong).collect::<Vec<_>>());
        let root = around.first().filter(|root| root.at.key.is_empty() && root.at.key != self.table.at.key);
        let mut places = root.map_or_else(Vec::new, |root| self.places(&(root.schema)()));
        places.truncate(MOST_TABLES);
        if places.is_empty() { keys } else { format!("it is a key of {}; {keys}", places.join(", ")) }
    }
    /// Returns the paths of the tables below `root` that accept the key. Outer tables come before inner tables.
    fn places(&self, root: &Json) -> Vec<String> {
        let (mut found, mut level) = (Vec::new(), vec![(String::new(), root)]);
        while !level.is_empty() && found.len() < MOST_TABLES {
            let mut below = Vec::new();
            for (path, schema) in level {
                for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
                    let any = inner["anyOf"].as_array().into_iter().flatten();
                    for table in any.chain([inner, &inner["items"]]).filter(|one| !one["properties"].is_null()) {
                        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                        if takes(table, &[self.key], &self.value) && !found.contains(&path) {
                            found.push(path.clone());
                        }
                        below.push((path, table));
                    }
                }
            }
            level = below;
        }
        found
    }
    /// Suggests a key with a similar name whose value is a list of tables. A file may repeat such a key once for each
    /// entry.
    fn entry(&self) -> Option<Remedy> {
        let entries = self.value.as_array().filter(|all| !self.replaces && !all.is_empty())?;
        let lists = |key: &&str| !self.schema["properties"][*key]["items"]["properties"].is_null();
        let lists: Vec<_> = self.keys.iter().copied().filter(lists).collect();
        let near = nearest(&self.key.to_lowercase(), &lists).filter(|_| entries.iter().all(Json::is_object))?;
        Some((format!("write [[{near}]], once per entry"), near.to_owned()))
    }
    /// Returns the remedy for a key that other programs use for the setting `meant`.
    ///
    /// `meant` has one of three forms: a key of this table, a dotted path to a key of an inner table, or a line
    /// `KEY = VALUE`.
    fn reads(&self, meant: &str) -> Option<Remedy> {
        if let Some((key, _)) = meant.split_once(" = ") {
            return self.free(key).then(|| (format!("write {meant}"), key.to_owned()));
        }
        let path: Vec<&str> = meant.split('.').collect();
        let there = path.iter().try_fold(self.table, |table, key| table.get(key));
        match path[..] {
            [outer, ..] if !self.keys.contains(&outer) => None,
            // The file already sets the key that the user means.
            _ if there.is_some() && !self.replaces => {
                Some((format!("leave it out: {meant} already sets it"), String::new()))
            }
            [outer, key] => self.put(outer, key),
            _ => self.takes(&path).then(|| (format!("did you mean \"{meant}\"?"), meant.to_owned())),
        }
    }
    /// Returns the keys of the inner tables, or lists of tables, that accept the key. If the file contains some of
    /// these tables, only those are returned.
    fn able(&self) -> Vec<&'static str> {
        let able = |outer: &&str| {
            let schema = &self.schema["properties"][*outer];
            let own = self.table.get(outer).map_or(Json::Null, texts);
            let accepts = |inner| takes(inner, &[self.key], &self.value) && belongs(inner, &own, self.key);
            belongs(&self.schema, &self.texts, outer) && (accepts(schema) || accepts(&schema["items"]))
        };
        let able = self.keys.iter().copied().filter(able);
        let (there, absent): (Vec<_>, Vec<_>) = able.partition(|outer| self.table.get(outer).is_some());
        if there.is_empty() { absent } else { there }
    }
    /// Suggests the inner table that accepts the key, if only one inner table does. If one of the inner tables that
    /// accept the key already contains it, suggests to leave the key out, unless the key was set on the command line.
    fn inside(&self) -> Option<Remedy> {
        let able = self.able();
        let set = |outer: &&&str| self.table.get(outer).is_some_and(|there| there.get(self.key).is_some());
        match able.iter().find(set) {
            Some(outer) if !self.replaces => {
                Some((format!("leave it out: {outer}.{} already sets it", self.key), String::new()))
            }
            _ => able.first().filter(|_| able.len() == 1).and_then(|outer| self.put(outer, self.key)),
        }
    }
    /// Lists the inner tables that accept the key.
    fn several(&self) -> Option<Remedy> {
        let able = self.able();
        let named = |outer: &&str| match self.takes(&[outer, self.key]) {
            true => (*outer).to_owned(),
            false => format!("an entry of {outer}"),
        };
        let named: Vec<_> = able.iter().map(named).collect();
        let fits = (1..=MOST_TABLES).contains(&named.len()) && !self.replaces;
        fits.then(|| (format!("it belongs in {}", named.join(" or ")), String::new()))
    }
    fn put(&self, outer: &str, key: &str) -> Option<Remedy> {
        let (there, inner) = (self.table.get(outer), &self.schema["properties"][outer]);
        let known = self.keys.contains(&outer) && belongs(&self.schema, &self.texts, outer);
        let free = there.is_none_or(|there| there.table().is_some() && (self.replaces || there.get(key).is_none()));
        let own = there.map_or(Json::Null, texts);
        // A new table with only `key` is invalid if its `kind` has no default.
        let kind = &inner["properties"]["kind"];
        let begun = there.is_some() || kind["enum"].is_null() || !kind["default"].is_null();
        let remedy = match there {
            _ if !(known && free && begun && self.takes(&[outer, key]) && belongs(inner, &own, key)) => return None,
            Some(_) => format!("write {key} = … in {outer}, not beside it"),
            None => format!("write {outer} = {{ {key} = … }}"),
        };
        Some((remedy, format!("{outer}.{key}")))
    }
    /// Suggests the innermost of the enclosing tables that accept the key.
    fn outside(&self, around: &[Around]) -> Option<Remedy> {
        let mut inner = &self.table.at.key;
        // Skip the last entry of `around`, because it is the table itself.
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

/// Returns whether `table` may contain `key`. Some keys are valid only with certain values of another key, for example
/// `kind = "counts"`. The schema's description of such a key begins with these values.
fn belongs(schema: &Json, table: &Json, key: &str) -> bool {
    let about = schema["properties"][key]["description"].as_str().unwrap_or_default();
    // A description consists of parts such as "tcp, onoff: TEXT." or "vbr = rungs: TEXT." Collect the values before the
    // colons. Each value is either alone or written as KEY = VALUE.
    let heads = about.rsplit_once(": ").map_or("", |(heads, _)| heads).split(": ");
    let names = heads.flat_map(|head| head.rsplit(". ").next().unwrap_or_default().split(", "));
    let names = names.filter_map(|name| name.trim_start_matches("and ").split(" with ").next());
    let names = names.map(|name| name.split_once(" = ").map_or((None, name), |(by, name)| (Some(by), name)));
    let names: Vec<_> = names.collect();
    let mut kinds = schema["properties"].as_object().into_iter().flatten().filter(|(by, _)| *by != key);
    kinds.all(|(by, of)| {
        let words = of["enum"].as_array().into_iter().flatten();
        let named =
            |word: &&Json| names.iter().any(|(of, name)| of.is_none_or(|of| of == by) && word.as_str() == Some(name));
        let mut own = words.filter(named).peekable();
        let kind = table.get(by).unwrap_or(&of["default"]);
        own.peek().is_none() || kind.is_null() || own.any(|word| word == kind)
    })
}

/// Returns whether a key accepts `value`. `path` is the list of keys that leads to this key.
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
        // A reference in these schemas always refers to a table.
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
        // No setting with a whole number accepts a negative value.
        ("integer", Json::Number(number)) => number.is_u64(),
        _ => false,
    })
}

/// Returns whether `text` can match the schema's pattern. A quantity matches if the text ends in one of its units. Any
/// other text matches if each of its letters occurs in the pattern.
fn fits(schema: &Json, text: &str) -> bool {
    let Some(pattern) = schema["pattern"].as_str() else { return true };
    if schema["examples"].is_null() {
        return text.chars().filter(|c| c.is_alphabetic()).all(|letter| pattern.contains(letter));
    }
    let unit = text.trim().trim_start_matches(|c: char| c.is_ascii_digit() || ".e+-".contains(c)).trim_start();
    // The macro `quantities!` puts the units between these parts of a pattern.
    let units = pattern.rsplit(r"+\s*").next().unwrap_or_default().trim_end_matches(r"\s*$");
    units.trim_matches(['(', ')']).split('|').any(|one| one == unit)
}
