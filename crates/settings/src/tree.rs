//! A text as a tree in which each value knows where it was written: the common form of TOML, JSON and the command line.

use crate::problem::Findings;
use serde_json::Value as Json;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// Where a value was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Line of the file.
    pub line: Option<u32>,
    /// Its path.
    pub key: Arc<str>,
    /// Whether it came by `--set` and not from the file.
    pub set: bool,
}

impl Place {
    /// A line of the file; its path is given later.
    pub fn line(line: Option<u32>) -> Self {
        Self { line, key: Arc::from(""), set: false }
    }
    /// A key below this place, for one that is not there.
    pub fn below(&self, key: &str) -> Self {
        let path = if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) };
        Self { line: self.line, key: path.into(), set: self.set }
    }
}

/// A value with its place.
#[derive(Clone, Debug)]
pub struct Item {
    /// What was written.
    pub value: Value,
    /// Where.
    pub at: Place,
}

/// Keys in the order they were written.
pub type Table = Vec<(String, Item)>;

/// A value.
#[derive(Clone, Debug)]
pub enum Value {
    /// True or false.
    Bool(bool),
    /// An integer.
    Whole(i64),
    /// A float.
    Real(f64),
    /// A string.
    Text(String),
    /// A date, or null: what no key takes.
    Other(String),
    /// An array.
    List(Vec<Item>),
    /// A table.
    Table(Table),
}

impl From<Value> for Item {
    /// A value that was written nowhere.
    fn from(value: Value) -> Self {
        Self { value, at: Place::line(None) }
    }
}

impl Value {
    /// A list of values that were written nowhere.
    pub fn list(all: impl IntoIterator<Item = Self>) -> Self {
        Self::List(all.into_iter().map(Item::from).collect())
    }

    /// The value in TOML, on one line; a float in the shortest form that reads back the same.
    pub fn to_toml(&self) -> String {
        match self {
            Self::Bool(b) => b.to_string(),
            Self::Whole(n) => n.to_string(),
            Self::Real(x) => format!("{x:?}"),
            Self::Text(text) | Self::Other(text) => string(text),
            Self::List(all) => {
                format!("[{}]", all.iter().map(|i| i.value.to_toml()).collect::<Vec<_>>().join(", "))
            }
            Self::Table(table) => {
                let keys: Vec<_> = table.iter().map(|(k, i)| format!("{} = {}", bare(k), i.value.to_toml())).collect();
                format!("{{ {} }}", keys.join(", "))
            }
        }
    }

    /// The value in JSON, which has neither infinity nor "not a number": null stands for them.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Bool(b) => (*b).into(),
            Self::Whole(n) => (*n).into(),
            Self::Real(x) => (*x).into(),
            Self::Text(text) | Self::Other(text) => text.as_str().into(),
            Self::List(all) => all.iter().map(|i| i.value.to_json()).collect(),
            Self::Table(table) => table.iter().map(|(k, i)| (k.clone(), i.value.to_json())).collect(),
        }
    }
}

/// A string in TOML.
pub fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A key in TOML, in quotation marks where it needs them.
pub fn bare(key: &str) -> String {
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    if plain { key.to_owned() } else { string(key) }
}

impl Item {
    /// The table that it is.
    pub fn table(&self) -> Option<&Table> {
        if let Value::Table(table) = &self.value { Some(table) } else { None }
    }
    /// What stands behind a key of the table that it is.
    pub fn get(&self, key: &str) -> Option<&Item> {
        self.table()?.iter().find(|(k, _)| k == key).map(|(_, item)| item)
    }
    /// The text that it is.
    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }
    /// The table that it is without some of its keys, and those keys: (taken, rest).
    pub fn split(&self, keys: &[&str]) -> (Self, Self) {
        let Some(table) = self.table() else { return (self.clone(), self.clone()) };
        let (taken, rest) = table.iter().cloned().partition(|(key, _)| keys.contains(&key.as_str()));
        let make = |table| Self { value: Value::Table(table), at: self.at.clone() };
        (make(taken), make(rest))
    }
    /// As it would be written, cut to a length that fits into a message.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::Bool(b) => b.to_string(),
            Value::Whole(n) => n.to_string(),
            Value::Real(x) => short(&x.to_string()),
            Value::Text(t) => quoted(t),
            Value::Other(t) => short(t),
            Value::List(_) => "a list".into(),
            Value::Table(_) => "a table".into(),
        }
    }
}

/// In quotation marks, cut to 60 letters.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", short(text).escape_debug())
}

/// Cut to 60 letters.
fn short(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The largest text that is read.
pub const MAX_TEXT: usize = 4 << 20;
/// The deepest nesting of tables.
pub const MAX_DEPTH: usize = 16;

/// Reads TOML; syntax errors go to `out`.
pub fn from_toml(text: &str, out: &mut Findings) -> Item {
    let empty = Item { value: Value::Table(Vec::new()), at: Place::line(Some(1)) };
    if text.len() > MAX_TEXT {
        out.raw(None, "", format!("the file has {} bytes", text.len()), "a scenario has at most 4 MiB".into());
        return empty;
    }
    let lines = Lines::of(text);
    if let Some(offset) = too_deep(text) {
        out.raw(Some(lines.at(offset)), "", "keys nested too deep".into(), format!("at most {MAX_DEPTH} levels"));
        return empty;
    }
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors.iter().take(20) {
        let span = error.span().unwrap_or(0..0);
        let found = text.get(span.clone()).unwrap_or("").trim();
        let key = found.split(['=', '\n']).next().unwrap_or("").trim();
        let heads = error.message().contains("duplicate key")
            && (found.starts_with('[') || text[..span.start.min(text.len())].ends_with('['));
        let (what, remedy) = explain(error.message(), found, heads);
        // The parser points at the key only where a key is the trouble.
        let key = if error.message().contains("duplicate") { key } else { "" };
        out.raw(Some(lines.at(span.start)), key, what, remedy);
        if heads {
            break; // What stands under such a heading is taken for the first one's, and would be refused as well.
        }
    }
    if !errors.is_empty() {
        return empty;
    }
    let span = document.span();
    let mut item = convert(&DeValue::Table(document.into_inner()), span.start, &lines, 0, out);
    item.at.line = Some(1);
    item
}

fn explain(message: &str, found: &str, heads: bool) -> (String, String) {
    if heads {
        let name = found.trim_matches(['[', ']']);
        return (
            "a table of this name is there already".into(),
            format!("write [[{name}]] each time, with two brackets"),
        );
    }
    if message.contains("duplicate key") {
        return ("written twice".into(), "leave one of them out".into());
    }
    let near = found.chars().take(30).collect::<String>();
    let near = if near.is_empty() { String::new() } else { format!(" at {}", quoted(&near)) };
    (
        format!("not TOML: {}{near}", message.replace('\n', " ")),
        "write key = value; texts stand in quotation marks".into(),
    )
}

/// Where dotted keys or brackets nest deeper than any scenario needs. The parser bounds brackets but not dots, and a
/// tree of a million levels could not even be dropped.
fn too_deep(text: &str) -> Option<usize> {
    use toml_parser::lexer::TokenKind;
    let (mut dots, mut open) = (0usize, 0usize);
    for token in toml_parser::Source::new(text).lex() {
        match token.kind() {
            TokenKind::Dot => dots += 1,
            TokenKind::Newline | TokenKind::Comma | TokenKind::Equals => dots = 0,
            TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket => open += 1,
            TokenKind::RightSquareBracket | TokenKind::RightCurlyBracket => open = open.saturating_sub(1),
            _ => {}
        }
        if dots > MAX_DEPTH || open > MAX_DEPTH {
            return Some(token.span().start());
        }
    }
    None
}

fn convert(value: &DeValue<'_>, offset: usize, lines: &Lines, depth: usize, out: &mut Findings) -> Item {
    let at = Place::line(Some(lines.at(offset)));
    if depth > 2 * MAX_DEPTH {
        out.raw(at.line, "", "keys nested too deep".into(), format!("at most {MAX_DEPTH} levels"));
        return Item { value: Value::Table(Vec::new()), at };
    }
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Integer(n) => match i64::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) => Value::Whole(n),
            Err(_) => Value::Other(n.to_string()),
        },
        DeValue::Float(x) => x.as_str().parse().map_or_else(|_| Value::Other(x.to_string()), Value::Real),
        DeValue::Datetime(d) => Value::Other(d.to_string()),
        DeValue::Array(list) => {
            Value::List(list.iter().map(|i| convert(i.get_ref(), i.span().start, lines, depth + 1, out)).collect())
        }
        DeValue::Table(table) => {
            let mut entries: Vec<_> = table.iter().collect();
            entries.sort_by_key(|(key, _)| key.span().start);
            Value::Table(
                entries
                    .into_iter()
                    .map(|(key, value)| {
                        let mut item = convert(value.get_ref(), value.span().start, lines, depth + 1, out);
                        item.at.line = Some(lines.at(key.span().start));
                        (key.get_ref().to_string(), item)
                    })
                    .collect(),
            )
        }
    };
    Item { value, at }
}

/// Reads JSON, as another program hands it over; null is as good as absent.
pub fn from_json(json: &Json, depth: usize, out: &mut Findings) -> Item {
    let at = Place::line(None);
    if depth > MAX_DEPTH {
        out.raw(None, "", "keys nested too deep".into(), format!("at most {MAX_DEPTH} levels"));
        return Item { value: Value::Table(Vec::new()), at };
    }
    let value = match json {
        Json::Null => Value::Other("null".into()),
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(n), _) => Value::Whole(n),
            (None, Some(x)) => Value::Real(x),
            (None, None) => Value::Other(n.to_string()),
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(list) => Value::List(list.iter().map(|i| from_json(i, depth + 1, out)).collect()),
        Json::Object(table) => Value::Table(
            table
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.clone(), from_json(value, depth + 1, out)))
                .collect(),
        ),
    };
    Item { value, at }
}

/// Line numbers of a text.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i).collect())
    }
    /// The line of a byte, from 1.
    fn at(&self, offset: usize) -> u32 {
        self.0.partition_point(|newline| *newline < offset) as u32 + 1
    }
}

/// A TOML value from the command line, or else the text itself: `--set flow.video.controller=asmp` needs no quotation
/// marks.
pub fn read_value(text: &str) -> Value {
    if text.len() > 10_000 || too_deep(text).is_some() {
        return Value::Text(text.to_owned());
    }
    let (value, errors) = DeValue::parse_recoverable(text);
    if !errors.is_empty() {
        return Value::Text(text.to_owned());
    }
    let mut ignored = Findings::new("--set");
    let mut item = convert(value.get_ref(), 0, &Lines::of(text), 0, &mut ignored);
    mark(&mut item);
    item.value
}

fn mark(item: &mut Item) {
    item.at = Place { line: None, key: Arc::from(""), set: true };
    match &mut item.value {
        Value::List(list) => list.iter_mut().for_each(mark),
        Value::Table(table) => table.iter_mut().for_each(|(_, item)| mark(item)),
        _ => {}
    }
}
