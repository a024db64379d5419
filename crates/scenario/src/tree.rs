//! Operations on the parsed tree of a scenario: gives each value its path, merges trees, and applies the changes of
//! `--set`.

use crate::named::keep_set;
use crate::network::TRACED;
use std::path::Path;
use std::sync::Arc;
use steadycast_settings::tree::{Item, MAX_DEPTH, Place, Table, Value, read_value};
use steadycast_settings::{Problem, nearest};

/// Sets the path of each value. Paths contain the names of flows, links and simulcasts. Other list entries have an
/// index.
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
                // Use the name of an entry in these three lists. If it has no name, and in all other lists, use the
                // index, starting at 1.
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

/// Merges `over` into `base`. Tables are merged key by key. Any other value in `over` replaces the value in `base`. If
/// a table in `over` has another `kind` or `preset`, it replaces the whole table in `base`. A property can be a
/// constant or can come from a file, as with the keys `rate` and `trace`. If `over` has one of these keys, the other
/// key is removed.
pub(crate) fn merge(base: &Item, over: &Item) -> Item {
    merge_below("", base, over)
}

/// Merges two values of the key `parent`.
fn merge_below(parent: &str, base: &Item, over: &Item) -> Item {
    let (Some(below), Some(above)) = (base.table(), over.table()) else { return over.clone() };
    let other = |key: &str| {
        let text = |i: &Item| i.get(key).and_then(Item::text).map(str::to_owned);
        text(over).is_some() && text(over) != text(base)
    };
    if other("kind") || other("preset") {
        // A queue keeps its `limit` when its `kind` changes.
        let mut whole = above.clone();
        if over.get("limit").is_none() {
            whole.extend(below.iter().filter(|(key, _)| key == "limit").cloned());
        }
        return Item { value: Value::Table(whole), at: over.at.clone() };
    }
    let mut merged = below.clone();
    let had_trace = has_trace(below);
    drop_replaced(&mut merged, |key| above.iter().any(|(k, _)| k == key), |_| false);
    for (key, item) in above {
        match merged.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = merge_below(key, old, item),
            None => merged.push((key.clone(), item.clone())),
        }
    }
    if had_trace && parent != "back" {
        let new = [over.get("loop"), over.get("back").and_then(|back| back.get("loop"))];
        drop_idle_loops(&mut merged, |item| new.iter().flatten().any(|new| new.at == item.at));
    }
    Item { value: Value::Table(merged), at: base.at.clone() }
}

/// Removes the constants and files of a link that new values of other keys replace ([`TRACED`]). `is_new` states
/// whether a key gets a new value. Entries for which `keep` is true stay.
fn drop_replaced(link: &mut Table, is_new: impl Fn(&str) -> bool, keep: impl Fn(&Item) -> bool) {
    let gone = |key: &str| TRACED.iter().any(|(it, file, _)| key == *it && is_new(file) || key == *file && is_new(it));
    link.retain(|(key, item)| !gone(key) || keep(item));
}

/// Removes `loop` from both directions of a link whose last trace was removed, because it has no effect without a
/// trace. Entries for which `keep` is true stay. A direction without a trace of its own may repeat the other one's, so
/// this must not be called for the table `back` alone.
fn drop_idle_loops(link: &mut Table, keep: impl Fn(&Item) -> bool) {
    if has_trace(link) {
        return;
    }
    link.retain(|(key, item)| key != "loop" || keep(item));
    for (_, back) in link.iter_mut().filter(|(key, _)| key == "back") {
        if let Value::Table(back) = &mut back.value {
            back.retain(|(key, item)| key != "loop" || keep(item));
        }
    }
}

/// Returns whether a property of the link comes from a file, in one of its directions.
fn has_trace(link: &Table) -> bool {
    let is_trace = |key: &str| TRACED.iter().any(|(_, file, _)| key == *file);
    link.iter().any(|(key, item)| is_trace(key) || (key == "back" && item.table().is_some_and(has_trace)))
}

/// Returns whether `--set` has set this value or a part of it.
fn is_set(item: &Item) -> bool {
    item.at.set
        || match &item.value {
            Value::Table(table) => table.iter().any(|(_, below)| is_set(below)),
            Value::List(list) => list.iter().any(is_set),
            _ => false,
        }
}

/// Applies one assignment `PATH=VALUE` of the command line.
///
/// # Errors
/// The path is wrong. A wrong value is not an error here, because it is reported when the tree is read.
pub(crate) fn set(root: &mut Item, assignment: &str, folder: &Path, link_keys: &[&str]) -> Result<(), Problem> {
    let fail = |what: String, remedy: String| Problem {
        file: "--set".into(),
        line: None,
        key: assignment.split('=').next().unwrap_or_default().to_owned(),
        what,
        remedy,
    };
    let form = || {
        "write PATH=VALUE, PATH being flow.NAME.KEY, link.NAME.KEY, simulcast.NAME.KEY, topology.KEY, clip or a key of \
            the top"
            .to_owned()
    };
    let Some((path, text)) = assignment.split_once('=') else {
        return Err(fail("there is no \"=\"".into(), form()));
    };
    let (path, text) = (path.trim(), text.trim());
    if path.is_empty() || path.split('.').any(str::is_empty) {
        return Err(fail("the path has an empty part".into(), form()));
    }
    // Limit the number of keys, because `put` recurses once per key.
    if path.len() > 1000 || path.split('.').count() > MAX_DEPTH {
        return Err(fail("the path is too long".into(), form()));
    }
    let mut value = read_value(text);
    if matches!(path.rsplit('.').next(), Some("clip" | "trace" | "delay_trace" | "loss_trace")) {
        find_file(&mut value, folder);
    }
    let at = Place { line: None, key: Arc::from(path), set: true };
    let (head, rest) = path.split_once('.').unwrap_or((path, ""));
    if path == "network"
        && root.get("network").is_none()
        && let Value::Table(table) = &mut root.value
    {
        // Remove the topology of the file, because the network that `--set` chose replaces it.
        table.retain_mut(|(key, topology)| key != "topology" || keep_set(topology));
    }
    if path == "clip" {
        return play(root, &value, &at).map_err(|(what, remedy)| fail(what, remedy));
    }
    if !matches!(head, "flow" | "link" | "simulcast") || rest.is_empty() {
        return put(root, &path.split('.').collect::<Vec<_>>(), value, &at).map_err(|what| fail(what, form()));
    }
    let names: Vec<String> = list(root, head).iter().map(|item| name_of(item).unwrap_or_default()).collect();
    // Try the longest name first, because both names and keys can contain dots.
    let splits = || rest.match_indices('.').rev().map(|(dot, _)| (&rest[..dot], &rest[dot + 1..]));
    let meant = |(name, keys): (&str, &str)| -> Option<(Vec<usize>, String)> {
        let all = (0..names.len()).filter(|n| is_meant(name, &names[*n]));
        // If two flows have the same name, take the first. The duplicate is reported later.
        let all: Vec<_> = if names.iter().any(|n| n == name) { all.take(1).collect() } else { all.collect() };
        (!all.is_empty()).then(|| (all, keys.to_owned()))
    };
    let exact = splits().find(|(name, _)| names.iter().any(|n| n == name));
    let (places, keys) = match exact.and_then(meant).or_else(|| splits().find_map(meant)) {
        Some(found) => found,
        None if rest.contains('*') => {
            return Err(fail(format!("no {head} has a name like this"), format!("there are: {}", names.join(", "))));
        }
        None if head == "link" => {
            // The topology may have made this link without a `[[link]]` entry. Assume that the link's name ends before
            // the first part that is a key of links, and add an entry for it.
            let parts: Vec<_> = rest.split('.').collect();
            let Some(split) = (1..parts.len()).find(|i| link_keys.contains(&parts[*i])) else {
                let last = parts.last().copied().unwrap_or_default();
                let remedy = nearest(last, link_keys).map_or_else(
                    || format!("its keys are: {}", link_keys.join(", ")),
                    |k| format!("did you mean \"{k}\"?"),
                );
                return Err(fail("no key of a link".into(), remedy));
            };
            let name = Item { value: Value::Text(parts[..split].join(".")), at: at.clone() };
            let Some(list) = list_mut(root, head, &at) else {
                return Err(fail(format!("\"{head}\" is not a list of tables"), form()));
            };
            list.push(Item { value: Value::Table(vec![("name".into(), name)]), at: at.clone() });
            (vec![list.len() - 1], parts[split..].join("."))
        }
        None => {
            let known: Vec<_> = names.iter().map(String::as_str).collect();
            let near = splits().collect::<Vec<_>>().into_iter().rev().find_map(|(wrong, _)| nearest(wrong, &known));
            return Err(fail(
                format!("no such {head}"),
                near.map_or_else(|| format!("there are: {}", names.join(", ")), |n| format!("did you mean \"{n}\"?")),
            ));
        }
    };
    let Some(list) = list_mut(root, head, &at) else {
        return Err(fail(format!("\"{head}\" is not a list of tables"), form()));
    };
    let keys: Vec<_> = keys.split('.').collect();
    for place in places {
        put(&mut list[place], &keys, value.clone(), &at).map_err(|what| fail(what, form()))?;
    }
    Ok(())
}

/// Whether `given`, a name in an assignment, refers to the entry called `name`. It does if it is equal to `name`, with
/// or without the range. It can also be a pattern in which `*` stands for any text.
fn is_meant(given: &str, name: &str) -> bool {
    let base = match name.split_once('[').and_then(|(before, rest)| Some((before, rest.split_once(']')?.1))) {
        // Also accept `tcp` for the range `tcp-[1-3]`.
        Some((before, after)) => format!("{}{after}", before.trim_end_matches(['-', '.'])),
        None => name.to_owned(),
    };
    !name.is_empty() && (given == name || given == base || is_like(given, name) || is_like(given, &base))
}

fn is_like(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    // A pattern without `*` has only one part, so there is no `last`. Return false, because the caller has already
    // compared the names for equality.
    let (Some(first), Some(last)) = (parts.next(), parts.next_back()) else { return false };
    let Some(mut rest) = name.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else { return false };
    // Use the leftmost match of each part, because it leaves the longest rest for the parts that follow.
    parts.all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

/// Makes a file's path absolute if the current folder contains the file. Otherwise the path is relative to the
/// scenario's folder.
pub(crate) fn find_file(value: &mut Value, folder: &Path) {
    let is_there = |name: &str| Path::new(name).canonicalize().ok() == folder.join(name).canonicalize().ok();
    match value {
        Value::Text(name) if Path::new(name).is_file() && !is_there(name) => {
            if let Ok(path) = std::path::absolute(&name) {
                *name = path.to_string_lossy().into_owned();
            }
        }
        Value::List(list) => list.iter_mut().for_each(|item| find_file(&mut item.value, folder)),
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

/// Makes all videos play `clip`. A video that had no clip before loses the size and frame rate of its encoder, because
/// they belong to its previous medium. Values from `--set` are kept.
fn play(root: &mut Item, clip: &Value, at: &Place) -> Result<(), (String, String)> {
    let flows = list_mut(root, "flow", at).map(|list| list.as_mut_slice()).unwrap_or_default();
    let mut videos = 0;
    for flow in flows.iter_mut().filter(|flow| flow.get("kind").and_then(Item::text) == Some("video")) {
        videos += 1;
        let plays_another_medium = flow.get("clip").is_none();
        if let (true, Some(Value::Table(encode))) = (plays_another_medium, value_mut(flow, "encode")) {
            encode.retain(|(key, given)| given.at.set || !matches!(key.as_str(), "size" | "fps"));
        }
        // Give the value the path of the flow that plays the clip, so that problems with the clip are reported there.
        let place = Place { key: Arc::from(format!("flow.{}.clip", name_of(flow).unwrap_or_default())), ..at.clone() };
        put(flow, &["clip"], clip.clone(), &place).map_err(|what| (what, "leave it out".to_owned()))?;
    }
    if videos == 0 {
        return Err(("this scenario has no video".into(), "leave it out".into()));
    }
    Ok(())
}

fn value_mut<'a>(item: &'a mut Item, key: &str) -> Option<&'a mut Value> {
    let Value::Table(table) = &mut item.value else { return None };
    table.iter_mut().find(|(k, _)| k == key).map(|(_, item)| &mut item.value)
}

/// Returns the name of a flow or link. If a link has no name, this is its default name, which consists of the names of
/// its ends.
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
    put_below("", item, keys, value, at)
}

/// Sets a value below the value of the key `parent`.
fn put_below(parent: &str, item: &mut Item, keys: &[&str], value: Value, at: &Place) -> Result<(), String> {
    let Some((key, rest)) = keys.split_first() else {
        *item = Item { value, at: at.clone() };
        return Ok(());
    };
    match &mut item.value {
        Value::Table(table) => {
            // A table with a name is a flow. Do not drop its keys when its kind changes, because keys that do not fit
            // the new kind are reported later.
            if let ([kind], Value::Text(new)) = (keys, &value)
                && *kind == "kind"
                && table.iter().any(|(k, old)| k == "kind" && old.text().is_some_and(|old| old != new))
                && !table.iter().any(|(k, _)| k == "name")
            {
                // In other tables, such as a queue or a loss, drop the keys that belong to the old kind.
                table.retain(|(k, _)| matches!(k.as_str(), "kind" | "limit" | "direction"));
            }
            // Keep values that `--set` has set, because two assignments that exclude each other are a mistake. Flows,
            // which have a `kind`, also have the keys `rate` and `trace`, but neither replaces the other.
            let has_kind = table.iter().any(|(k, _)| k == "kind");
            let had_trace = has_trace(table);
            if !has_kind {
                drop_replaced(table, |new| new == *key, is_set);
            }
            let place = table.iter().position(|(k, _)| k == key).unwrap_or_else(|| {
                table.push(((*key).to_owned(), Item { value: Value::Table(Vec::new()), at: at.clone() }));
                table.len() - 1
            });
            put_below(key, &mut table[place].1, rest, value, at)?;
            // Check after the assignment, because it may have removed a trace of the direction `back`.
            if had_trace && !has_kind && parent != "back" {
                drop_idle_loops(table, is_set);
            }
            Ok(())
        }
        Value::List(list) => {
            let count = list.len();
            // Count from 1, as the paths in error messages do.
            let place = key.parse::<usize>().ok().filter(|n| (1..=count).contains(n));
            let Some(place) = place else { return Err(format!("\"{key}\" is no place from 1 to {count}")) };
            put_below(key, &mut list[place - 1], rest, value, at)
        }
        // Replace a plain value with a table if the path continues below it.
        _ => {
            item.value = Value::Table(Vec::new());
            put_below(parent, item, keys, value, at)
        }
    }
}
