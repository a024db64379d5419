//! A tree of values with their places in the text. TOML, JSON and command-line arguments are all converted to this
//! form.

use crate::problem::Findings;
use serde_json::Value as Json;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// The place at which a value was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The line of the file. It starts at 1.
    pub line: Option<u32>,
    /// The path of keys, for example `flow.video.controller`.
    pub key: Arc<str>,
    /// Whether the value was set by `--set` and not in the file.
    pub set: bool,
}

impl Place {
    /// Returns a place that has a line but no path of keys.
    pub fn line(line: Option<u32>) -> Self {
        Self { line, key: Arc::from(""), set: false }
    }
    /// Returns the place of `key` in the table at this place. The key need not exist.
    pub fn below(&self, key: &str) -> Self {
        let path = if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) };
        Self { line: self.line, key: path.into(), set: self.set }
    }
}

/// A value and its place in the text.
#[derive(Clone, Debug)]
pub struct Item {
    /// The value.
    pub value: Value,
    /// The place of the value.
    pub at: Place,
}

/// Keys and values, in the order of the file.
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
    /// A value that no key accepts: a date, a null in a JSON list, or a number that is out of range.
    Other(String),
    /// An array.
    List(Vec<Item>),
    /// A table.
    Table(Table),
}

impl From<Value> for Item {
    /// Creates an item without a place in the file.
    fn from(value: Value) -> Self {
        Self { value, at: Place::line(None) }
    }
}

impl Value {
    /// Returns a list of values that have no places.
    pub fn list(all: impl IntoIterator<Item = Self>) -> Self {
        Self::List(all.into_iter().map(Item::from).collect())
    }

    /// Returns the value as TOML on one line. Floats have their shortest form.
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

    /// Returns the value as JSON. Infinity and NaN become null.
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

/// Returns a text as a TOML string.
pub fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            // TOML strings must not contain control characters.
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a key in TOML syntax. It is put in quotation marks if it needs them.
pub fn bare(key: &str) -> String {
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    if plain { key.to_owned() } else { string(key) }
}

impl Item {
    /// Returns the table. Returns `None` if the value has another type.
    pub fn table(&self) -> Option<&Table> {
        if let Value::Table(table) = &self.value { Some(table) } else { None }
    }
    /// Returns the value of a key. Returns `None` if the key is missing or the value is not a table.
    pub fn get(&self, key: &str) -> Option<&Item> {
        self.table()?.iter().find(|(k, _)| k == key).map(|(_, item)| item)
    }
    /// Returns the text. Returns `None` if the value has another type.
    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }
    /// Splits a table in two: the keys that are in `keys`, and all other keys.
    pub fn split(&self, keys: &[&str]) -> (Self, Self) {
        let Some(table) = self.table() else { return (self.clone(), self.clone()) };
        let (taken, rest) = table.iter().cloned().partition(|(key, _)| keys.contains(&key.as_str()));
        let make = |table| Self { value: Value::Table(table), at: self.at.clone() };
        (make(taken), make(rest))
    }
    /// Returns the value as a user would write it. Long values are shortened for a message.
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

/// Returns the text in quotation marks. It is shortened to 60 characters.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", short(text).escape_debug())
}

fn short(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Maximum size of a text that is parsed, in bytes.
pub const MAX_TEXT: usize = 4 << 20;
/// A file with at least this number of syntax errors is probably not a TOML file.
const OTHER_KIND_ERRORS: usize = 20;
/// Maximum depth to which tables may be nested.
pub const MAX_DEPTH: usize = 16;

/// Parses TOML. Syntax errors are added to `out`.
pub fn from_toml(text: &str, out: &mut Findings) -> Item {
    let empty = Item { value: Value::Table(Vec::new()), at: Place::line(Some(1)) };
    // Check size and depth first, so that a hostile or wrong file cannot exhaust the memory or the stack.
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
    // Later errors usually follow from the first ones. With very many errors, report only the first, because the file
    // is probably not a TOML file.
    let is_other = errors.len() >= OTHER_KIND_ERRORS;
    for error in errors.iter().take(if is_other { 1 } else { OTHER_KIND_ERRORS }) {
        let span = error.span().unwrap_or(0..0);
        let found = text.get(span.clone()).unwrap_or("").trim();
        let key = found.split(['=', '\n']).next().unwrap_or("").trim();
        let heads = error.message().contains("duplicate key")
            && (found.starts_with('[') || text[..span.start.min(text.len())].ends_with('['));
        let (what, mut remedy) = explain(error.message(), found, heads);
        if is_other {
            remedy.push_str("; or name another file: many more of its lines are not TOML");
        }
        // The error's position is the position of a key only if the key is a duplicate.
        let key = if error.message().contains("duplicate") { key } else { "" };
        out.raw(Some(lines.at(span.start)), key, what, remedy);
        if heads {
            break; // keys below a duplicate heading would be duplicates, too
        }
    }
    // Return an empty table after an error. A tree without the invalid parts would lead to messages such as "missing".
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
        // The user meant the two tables as a single table or as a list of tables.
        let name = found.trim_matches(['[', ']']);
        return (
            "a table of this name is there already".into(),
            format!("join the two tables; or, if it is a list, write [[{name}]] each time, with two brackets"),
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

/// Returns the position at which dotted keys or brackets are nested too deeply. This check is needed because the parser
/// limits only brackets. Without the check, dropping a tree with a million levels would overflow the stack.
fn too_deep(text: &str) -> Option<usize> {
    use toml_parser::lexer::TokenKind;
    let (mut dots, mut open) = (0usize, 0usize);
    for token in toml_parser::Source::new(text).lex() {
        match token.kind() {
            TokenKind::Dot => dots += 1,
            TokenKind::Newline | TokenKind::Comma | TokenKind::Equals => dots = 0,
            TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket => open += 1,
            // Ignore a closing bracket without an opening bracket, because the parser reports it.
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
    // The limit is doubled, because brackets and dotted keys can each be nested up to [`MAX_DEPTH`].
    if depth > 2 * MAX_DEPTH {
        out.raw(at.line, "", "keys nested too deep".into(), format!("at most {MAX_DEPTH} levels"));
        return Item { value: Value::Table(Vec::new()), at };
    }
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Integer(n) => match i64::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) => Value::Whole(n),
            // The number exceeds i64. The code that reads a whole number from it reports this.
            Err(_) => Value::Other(n.to_string()),
        },
        DeValue::Float(x) => x.as_str().parse().map_or_else(|_| Value::Other(x.to_string()), Value::Real),
        DeValue::Datetime(d) => Value::Other(d.to_string()),
        DeValue::Array(list) => {
            Value::List(list.iter().map(|i| convert(i.get_ref(), i.span().start, lines, depth + 1, out)).collect())
        }
        DeValue::Table(table) => {
            let mut entries: Vec<_> = table.iter().collect();
            // Restore the order of the file, because the parser's table does not keep it and problems are reported in
            // this order.
            entries.sort_by_key(|(key, _)| key.span().start);
            Value::Table(
                entries
                    .into_iter()
                    .map(|(key, value)| {
                        let mut item = convert(value.get_ref(), value.span().start, lines, depth + 1, out);
                        // Use the key's line, because the value can begin on a later line.
                        item.at.line = Some(lines.at(key.span().start));
                        (key.get_ref().to_string(), item)
                    })
                    .collect(),
            )
        }
    };
    Item { value, at }
}

/// Converts JSON that another program wrote. A key whose value is null is left out.
pub fn from_json(json: &Json, depth: usize, out: &mut Findings) -> Item {
    let at = Place::line(None);
    // Limit the depth, so that JSON from another program cannot exhaust the stack.
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

struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i).collect())
    }
    /// Returns the line that contains the byte offset. Lines start at 1.
    fn at(&self, offset: usize) -> u32 {
        self.0.partition_point(|newline| *newline < offset) as u32 + 1
    }
}

/// Parses a value from the command line. A text that is not a TOML value becomes a string, so that
/// `--set flow.video.controller=asmp` needs no quotation marks.
pub fn read_value(text: &str) -> Value {
    if text.len() > 10_000 || too_deep(text).is_some() {
        return Value::Text(text.to_owned());
    }
    let (value, errors) = DeValue::parse_recoverable(text);
    if !errors.is_empty() {
        return Value::Text(text.to_owned());
    }
    // `convert` reports only excessive nesting, which `too_deep` has already excluded. So the findings can be ignored.
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
