//! A scenario's text as a tree in which each value knows where it was written: the common form of TOML, JSON and `--set`.

use crate::problem::{Out, Problem};
use std::path::Path;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// Where a value was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    /// Line of the file.
    pub(crate) line: Option<u32>,
    /// Its path.
    pub(crate) key: Arc<str>,
    /// Whether it came by `--set` and not from the file.
    pub(crate) set: bool,
}

impl Place {
    pub(crate) fn line(line: Option<u32>) -> Self {
        Self { line, key: Arc::from(""), set: false }
    }
    /// A key below this place, for one that is not there.
    pub(crate) fn below(&self, key: &str) -> Self {
        let path = if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) };
        Self { line: self.line, key: path.into(), set: self.set }
    }
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) value: Value,
    pub(crate) at: Place,
}

/// Keys in the order they were written.
pub(crate) type Table = Vec<(String, Item)>;

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Bool(bool),
    Whole(i64),
    Real(f64),
    Text(String),
    /// A date, or null: what no key takes.
    Other(String),
    List(Vec<Item>),
    Table(Table),
}

impl Item {
    pub(crate) fn table(&self) -> Option<&Table> {
        if let Value::Table(table) = &self.value { Some(table) } else { None }
    }
    pub(crate) fn get(&self, key: &str) -> Option<&Item> {
        self.table()?.iter().find(|(k, _)| k == key).map(|(_, item)| item)
    }
    pub(crate) fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }
    /// As it would be written, cut to a length that fits into a message.
    pub(crate) fn shown(&self) -> String {
        match &self.value {
            Value::Bool(b) => b.to_string(),
            Value::Whole(n) => n.to_string(),
            Value::Real(x) => x.to_string(),
            Value::Text(t) => quoted(t),
            Value::Other(t) => t.clone(),
            Value::List(_) => "a list".into(),
            Value::Table(_) => "a table".into(),
        }
    }
}

/// In quotation marks, cut to 60 letters.
pub(crate) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("\"{}{more}\"", short.escape_debug())
}

/// The largest text that is read.
pub(crate) const MAX_TEXT: usize = 4 << 20;
/// The deepest nesting of tables.
const MAX_DEPTH: usize = 16;

/// Reads TOML; syntax errors go to `out`.
pub(crate) fn from_toml(text: &str, out: &mut Out) -> Item {
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
        let (what, remedy) = explain(error.message(), found);
        // The parser points at the key only where a key is the trouble.
        let key = if error.message().contains("duplicate") { key } else { "" };
        out.raw(Some(lines.at(span.start)), key, what, remedy);
    }
    if !errors.is_empty() {
        return empty;
    }
    let span = document.span();
    let mut item = convert(&DeValue::Table(document.into_inner()), span.start, &lines, 0, out);
    item.at.line = Some(1);
    item
}

fn explain(message: &str, found: &str) -> (String, String) {
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

/// Where dotted keys or brackets nest deeper than any scenario needs. The parser bounds brackets but not dots, and a tree
/// of a million levels could not even be dropped.
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

fn convert(value: &DeValue<'_>, offset: usize, lines: &Lines, depth: usize, out: &mut Out) -> Item {
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
pub(crate) fn from_json(json: &serde_json::Value, depth: usize, out: &mut Out) -> Item {
    use serde_json::Value as Json;
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

/// Gives each value its path. Flows and links are called by their names, other tables in lists by their place.
pub(crate) fn give_paths(item: &mut Item, path: &str) {
    item.at.key = Arc::from(path);
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match &mut item.value {
        Value::Table(table) => {
            for (key, below) in table {
                let path = join(key);
                give_paths(below, &path);
            }
        }
        Value::List(list) => {
            for (i, below) in list.iter_mut().enumerate() {
                let named = matches!(path, "flow" | "link" | "simulcast");
                let name = if named { name_of(below) } else { None };
                let path = match (name, &below.value) {
                    (Some(name), _) => format!("{path}.{name}"),
                    (None, Value::Table(_)) => format!("{path}[{}]", i + 1),
                    _ => path.to_owned(),
                };
                give_paths(below, &path);
            }
        }
        _ => {}
    }
}

/// `over` laid on `base`: tables key by key, everything else replaced. A table that says another `kind` (or `preset`)
/// replaces the one below it, and `rate` and `trace` replace each other.
pub(crate) fn merge(base: &Item, over: &Item) -> Item {
    let (Some(below), Some(above)) = (base.table(), over.table()) else { return over.clone() };
    let other = |key: &str| {
        let text = |i: &Item| i.get(key).and_then(Item::text).map(str::to_owned);
        text(over).is_some() && text(over) != text(base)
    };
    if other("kind") || other("preset") {
        // Another queue of the same length: what only the old kind knew goes.
        let mut whole = above.clone();
        if over.get("limit").is_none() {
            whole.extend(below.iter().filter(|(key, _)| key == "limit").cloned());
        }
        return Item { value: Value::Table(whole), at: over.at.clone() };
    }
    let has = |key: &str| above.iter().any(|(k, _)| k == key);
    let mut merged: Table = below
        .iter()
        .filter(|(key, _)| !(key == "rate" && has("trace") || matches!(key.as_str(), "trace" | "loop") && has("rate")))
        .cloned()
        .collect();
    for (key, item) in above {
        match merged.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = merge(old, item),
            None => merged.push((key.clone(), item.clone())),
        }
    }
    Item { value: Value::Table(merged), at: base.at.clone() }
}

/// Line numbers of a text.
pub(crate) struct Lines(Vec<usize>);

impl Lines {
    pub(crate) fn of(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i).collect())
    }
    /// The line of a byte, from 1.
    pub(crate) fn at(&self, offset: usize) -> u32 {
        self.0.partition_point(|newline| *newline < offset) as u32 + 1
    }
}

/// One `PATH=VALUE` of the command line, laid into the tree.
///
/// # Errors
/// What is wrong with the path; a wrong value shows when the tree is read.
pub(crate) fn set(root: &mut Item, assignment: &str, folder: &Path, link_keys: &[&str]) -> Result<(), Problem> {
    let fail = |what: String, remedy: String| Problem {
        file: "--set".into(),
        line: None,
        key: assignment.split('=').next().unwrap_or_default().to_owned(),
        what,
        remedy,
    };
    let form = || {
        "write PATH=VALUE, PATH being flow.NAME.KEY, link.NAME.KEY, simulcast.NAME.KEY, topology.KEY or a key of the top".to_owned()
    };
    let Some((path, text)) = assignment.split_once('=') else {
        return Err(fail("there is no \"=\"".into(), form()));
    };
    let (path, text) = (path.trim(), text.trim());
    if path.is_empty() || path.split('.').any(str::is_empty) {
        return Err(fail("the path has an empty part".into(), form()));
    }
    if path.len() > 1000 || path.split('.').count() > MAX_DEPTH {
        return Err(fail("the path is too long".into(), form()));
    }
    let mut value = read_value(text);
    if matches!(path.rsplit('.').next(), Some("clip" | "trace")) {
        find_file(&mut value, folder);
    }
    let at = Place { line: None, key: Arc::from(path), set: true };
    let (head, rest) = path.split_once('.').unwrap_or((path, ""));
    if !matches!(head, "flow" | "link" | "simulcast") || rest.is_empty() {
        return put(root, &path.split('.').collect::<Vec<_>>(), value, &at).map_err(|what| fail(what, form()));
    }
    let names: Vec<String> = list(root, head).iter().filter_map(name_of).collect();
    let known = names.iter().filter(|n| rest.strip_prefix(n.as_str()).is_some_and(|r| r.starts_with('.')));
    let (name, keys) = match known.max_by_key(|n| n.len()) {
        Some(name) => (name.clone(), rest[name.len() + 1..].to_owned()),
        None if head == "link" => {
            // A link of the shape: the name ends where a link's key begins.
            let parts: Vec<_> = rest.split('.').collect();
            let Some(split) = (1..parts.len()).find(|i| link_keys.contains(&parts[*i])) else {
                let last = parts.last().copied().unwrap_or_default();
                let remedy = steadycast_control::registry::nearest(last, link_keys).map_or_else(
                    || format!("its keys are: {}", link_keys.join(", ")),
                    |k| format!("did you mean \"{k}\"?"),
                );
                return Err(fail("no key of a link".into(), remedy));
            };
            (parts[..split].join("."), parts[split..].join("."))
        }
        None => {
            let near = (1..=rest.matches('.').count())
                .filter_map(|n| rest.match_indices('.').nth(n - 1).map(|(i, _)| &rest[..i]))
                .find_map(|wrong| {
                    let known: Vec<_> = names.iter().map(String::as_str).collect();
                    steadycast_control::registry::nearest(wrong, &known).map(str::to_owned)
                });
            return Err(fail(
                format!("no such {head}"),
                near.map_or_else(|| format!("there are: {}", names.join(", ")), |n| format!("did you mean \"{n}\"?")),
            ));
        }
    };
    let entry = match list_mut(root, head, &at) {
        None => return Err(fail(format!("\"{head}\" is not a list of tables"), form())),
        Some(list) => {
            let place = list.iter().position(|item| name_of(item).as_deref() == Some(name.as_str()));
            let place = place.unwrap_or_else(|| {
                let text = Item { value: Value::Text(name.clone()), at: at.clone() };
                list.push(Item { value: Value::Table(vec![("name".into(), text)]), at: at.clone() });
                list.len() - 1
            });
            &mut list[place]
        }
    };
    put(entry, &keys.split('.').collect::<Vec<_>>(), value, &at).map_err(|what| fail(what, form()))
}

/// A TOML value, or else the text itself: `--set flow.video.controller=asmp` needs no quotation marks.
fn read_value(text: &str) -> Value {
    if text.len() > 10_000 || too_deep(text).is_some() {
        return Value::Text(text.to_owned());
    }
    let (value, errors) = DeValue::parse_recoverable(text);
    if !errors.is_empty() {
        return Value::Text(text.to_owned());
    }
    let mut ignored = Out::new("--set");
    let mut item = convert(value.get_ref(), 0, &Lines::of(text), 0, &mut ignored);
    mark(&mut item);
    item.value
}

/// Whoever types a file's name means the folder in which they type it, unless the scenario has one of that name.
fn find_file(value: &mut Value, folder: &Path) {
    match value {
        Value::Text(name) if !folder.join(&name).exists() && Path::new(name).is_file() => {
            if let Ok(path) = std::path::absolute(&name) {
                *name = path.to_string_lossy().into_owned();
            }
        }
        Value::List(list) => list.iter_mut().for_each(|item| find_file(&mut item.value, folder)),
        _ => {}
    }
}

fn mark(item: &mut Item) {
    item.at = Place { line: None, key: Arc::from(""), set: true };
    match &mut item.value {
        Value::List(list) => list.iter_mut().for_each(mark),
        Value::Table(table) => table.iter_mut().for_each(|(_, item)| mark(item)),
        _ => {}
    }
}

fn list<'a>(root: &'a Item, key: &str) -> &'a [Item] {
    match root.get(key).map(|i| &i.value) {
        Some(Value::List(list)) => list,
        _ => &[],
    }
}

fn list_mut<'a>(root: &'a mut Item, key: &str, at: &Place) -> Option<&'a mut Vec<Item>> {
    let Value::Table(table) = &mut root.value else { return None };
    if !table.iter().any(|(k, _)| k == key) {
        table.push((key.to_owned(), Item { value: Value::List(Vec::new()), at: at.clone() }));
    }
    match table.iter_mut().find(|(k, _)| k == key).map(|(_, item)| &mut item.value) {
        Some(Value::List(list)) => Some(list),
        _ => None,
    }
}

/// What a flow or link is called: its name, or a link's default name from its ends.
pub(crate) fn name_of(item: &Item) -> Option<String> {
    if let Some(name) = item.get("name") {
        return name.text().map(str::to_owned);
    }
    match item.get("between").map(|i| &i.value) {
        Some(Value::List(ends)) => match ends.as_slice() {
            [a, b] => Some(format!("{}-{}", a.text()?, b.text()?)),
            _ => None,
        },
        _ => None,
    }
}

fn put(item: &mut Item, keys: &[&str], value: Value, at: &Place) -> Result<(), String> {
    let Some((key, rest)) = keys.split_first() else {
        *item = Item { value, at: at.clone() };
        return Ok(());
    };
    match &mut item.value {
        Value::Table(table) => {
            if let ([kind], Value::Text(new)) = (keys, &value)
                && *kind == "kind"
                && table.iter().any(|(k, old)| k == "kind" && old.text().is_some_and(|old| old != new))
                && !table.iter().any(|(k, _)| k == "name")
            {
                // Another queue or loss: what only the old kind knew goes.
                table.retain(|(k, _)| matches!(k.as_str(), "kind" | "limit" | "direction"));
            }
            let place = table.iter().position(|(k, _)| k == key).unwrap_or_else(|| {
                table.push(((*key).to_owned(), Item { value: Value::Table(Vec::new()), at: at.clone() }));
                table.len() - 1
            });
            put(&mut table[place].1, rest, value, at)
        }
        Value::List(list) => {
            let count = list.len();
            let place = key.parse::<usize>().ok().filter(|n| (1..=count).contains(n));
            let Some(place) = place else { return Err(format!("\"{key}\" is no place from 1 to {count}")) };
            put(&mut list[place - 1], rest, value, at)
        }
        // A plain value gives way to a table: vbr = "…" never has keys, but queue = … may be set from nothing.
        _ => {
            item.value = Value::Table(Vec::new());
            put(item, keys, value, at)
        }
    }
}
