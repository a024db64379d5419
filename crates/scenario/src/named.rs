//! Networks: with the key `network = "NAME"`, a scenario uses the topology and the events of another file.

use crate::file::{EventTable, OTHER_WORDS, Topology};
use crate::loaded::{Document, text_of};
use crate::network::TRACED;
use crate::text::items;
use crate::tree::{find_file, merge, name_of};
use std::path::{Path, PathBuf};
use steadycast_settings::tree::{Item, Place, Table, Value, from_toml, quoted};
use steadycast_settings::{Deferred, Findings, FromToml, Problems, Spanned, nearest, remedy, tables, words};
use steadycast_units::Span;

tables! {
    /// A network file, to which scenarios refer by its name.
    NetworkFile {
        /// A description in one sentence.
        about: String,
        /// The source of its numbers.
        source: String,
        /// The licence of these numbers.
        licence: String,
        /// published, model, synthetic or measured.
        kind: NetworkKind,
        /// A dumbbell.
        topology: Deferred<Topology>,
        /// Changes of its link.
        event: Vec<Spanned<Deferred<EventTable>>>,
    }
}

words! {
    /// The kind of evidence for a network's numbers.
    pub(crate) enum NetworkKind {
        Published = "published",
        Model = "model",
        Synthetic = "synthetic",
        Measured = "measured",
    }
}

/// Words that can follow a `+` in the key `network`. Each word adds a TCP flow, whose keys are the second string.
const BESIDE: [(&str, &str); 4] = [
    ("cubic", "congestion = \"cubic\""),
    ("newreno", "congestion = \"newreno\""),
    ("bbr", "congestion = \"bbr\""),
    ("web", "congestion = \"cubic\"\nbytes = \"300kB\"\noff = { dist = \"exponential\", mean = \"4s\" }"),
];

/// Maximum number of flows that one `+` can add.
const MOST_BESIDE: usize = 99;

pub(crate) struct Named {
    pub(crate) text: String,
    key: Place,
    /// The network's content, with absolute paths. Its key `flow` contains the TCP flows that `+WORD` adds.
    root: Item,
}

/// Returns the content of the network `name` as a table on one line of TOML. Paths are absolute, and the key `flow`
/// contains the TCP flows that `+WORD` adds. If `name` is a relative path, it starts in `folder`. If it is a plain
/// name, its file is in the folder `networks`.
///
/// # Errors
/// No such network exists, or its file has problems.
pub fn network(name: &str, folder: &Path, networks: &Path) -> Result<String, Problems> {
    let mut out = Findings::new(name);
    let key = Item { value: Value::Text(name.to_owned()), at: Place::line(None) };
    Named::read(&key, folder, Some(networks), &mut out)
        .map(|one| one.root.value.to_toml())
        .ok_or(Problems(out.problems))
}

impl Named {
    /// Reads the network to which `key` refers. `key` is the value of the key `network`.
    pub(crate) fn read(key: &Item, folder: &Path, networks: Option<&Path>, out: &mut Findings) -> Option<Self> {
        let whole = String::read(key, out)?;
        // Search for `+` only after `.toml`, because a path can contain a `+` as well.
        let end = whole.rfind(".toml").map(|at| at + ".toml".len()).or_else(|| whole.find('+'));
        let (name, beside) = whole.split_at(end.unwrap_or(whole.len()));
        let path = place(name, key, folder, networks, out)?;
        if !path.exists() {
            let what = format!("there is no file {}", quoted(name));
            return out.refuse(
                &key.at,
                what,
                "name a network's file, relative to the scenario's folder or, in --set, to the current one; or one of \
                 those that `steadycast networks` lists",
            );
        }
        let shown = path.display().to_string();
        let mut own = Findings::new(&shown).knowing(OTHER_WORDS);
        let text = match text_of(&path) {
            Ok(text) => text,
            Err((line, what, _)) => {
                own.raw(
                    line,
                    "",
                    what,
                    "name a network's file, or one of those that `steadycast networks` lists".into(),
                );
                String::new()
            }
        };
        let mut root = if is_trace(&text) {
            let remedy = format!("write --set topology.bottleneck.trace={name}, beside a network");
            own.raw(Some(1), "", "this is a trace of a link, not a network".into(), remedy);
            Item { value: Value::Table(Vec::new()), at: key.at.clone() }
        } else {
            from_toml(&text, &mut own)
        };
        if own.problems.is_empty() {
            crate::tree::give_paths(&mut root, "");
            NetworkFile::read(&root, &mut own);
            let shape = root.get("topology").and_then(|topology| topology.get("shape"));
            if shape.and_then(Item::text) != Some("dumbbell") {
                let at = shape.map_or_else(|| root.at.below("topology.shape"), |shape| shape.at.clone());
                own.problem(&at, "a network is a dumbbell", "write shape = \"dumbbell\" in its [topology]");
            }
        }
        if own.problems.is_empty() {
            own.problems = alone(&root, &path).err().map_or_else(Vec::new, |problems| problems.0);
        }
        if !own.problems.is_empty() {
            out.problems.extend(own.problems);
            return None;
        }
        let from = std::path::absolute(&path).unwrap_or(path);
        // The network's file has been checked by itself. Report later problems with its content at the scenario's key
        // `network`.
        moved(&mut root, &key.at, from.parent().unwrap_or(Path::new("")));
        let flows = flows_beside(beside, &key.at, out)?;
        let mut one = Self { text, key: key.at.clone(), root };
        one.put("flow", Value::List(flows));
        Some(one)
    }

    /// Merges the scenario `over` with the network. The scenario's topology keys override the network's.
    ///
    /// In the result, the network's events come before the scenario's events, but the scenario's flows come before the
    /// network's flows.
    pub(crate) fn below(mut self, over: &mut Item, out: &mut Findings) {
        let joins = |link: &&Item| link.get("between").is_some();
        let own = over.get("nodes").or_else(|| items(over.get("link")).iter().find(joins));
        if let Some(own) = own {
            let remedy =
                "leave it out, or leave \"network\" out; what differs stands in topology.bottleneck or .access";
            out.problem(&own.at, "the network has its own nodes and links", remedy);
        }
        let shape = over.get("topology").and_then(|topology| topology.get("shape"));
        if let Some(shape) = shape.filter(|shape| shape.text() != Some("dumbbell")) {
            out.problem(&shape.at, "the network is a dumbbell", "leave the shape out, or leave \"network\" out");
        }
        if let (Some(base), Some(above)) = (self.root.get("topology"), over.get("topology")) {
            let topology = merge(base, above).value;
            self.put("topology", topology);
        }
        let names: Vec<_> = items(over.get("flow")).iter().filter_map(name_of).collect();
        let mut flows = items(over.get("flow")).to_vec();
        for flow in items(self.root.get("flow")) {
            if let Some(name) = name_of(flow).filter(|name| names.contains(name)) {
                let what = format!("a flow of the scenario is called {} as well", quoted(&name));
                out.problem(&self.key, what, "call it something else");
            }
            flows.push(flow.clone());
        }
        // Ignore problems with times here, because they are reported when the scenario is read.
        let span = |key: &Item| Span::read(key, &mut Findings::new(""));
        let end = over.get("duration").and_then(span).unwrap_or(Span::MAX);
        let comes = |event: &&Item| event.get("at").and_then(span).is_none_or(|at| at <= end);
        let events = items(self.root.get("event")).iter().filter(comes).chain(items(over.get("event")));
        let events: Vec<_> = events.cloned().collect();
        let topology = self.root.get("topology").map(|topology| topology.value.clone());
        let Value::Table(table) = &mut over.value else { return };
        let lists = [("event", events), ("flow", flows)].into_iter().filter(|(_, all)| !all.is_empty());
        let lists = lists.map(|(key, all)| (key, Value::List(all)));
        for (key, value) in topology.map(|topology| ("topology", topology)).into_iter().chain(lists) {
            match table.iter_mut().find(|(k, _)| k == key) {
                Some((_, old)) => old.value = value,
                None => table.push((key.to_owned(), Item { value, at: self.key.clone() })),
            }
        }
    }

    fn put(&mut self, key: &str, value: Value) {
        let Value::Table(table) = &mut self.root.value else { return };
        table.retain(|(k, _)| k != key);
        table.push((key.to_owned(), Item { value, at: self.key.clone() }));
    }
}

/// Returns the path of the network's file. `name` is either the file's path, or the file's name without `.toml` if the
/// file is in the folder `networks`. Reports a problem if no such file is in that folder.
fn place(name: &str, key: &Item, folder: &Path, networks: Option<&Path>, out: &mut Findings) -> Option<PathBuf> {
    if name.contains(['/', '\\']) || name.ends_with(".toml") {
        let mut name = Value::Text(name.to_owned());
        // Look in the current folder as well, because a path in `--set` can be relative to it.
        if key.at.set {
            find_file(&mut name, folder);
        }
        return Item::from(name).text().map(|name| folder.join(name));
    }
    let listed = networks.map(|networks| (networks, std::fs::read_dir(networks)));
    let Some((networks, Ok(listed))) = listed else {
        let what = format!("no network is called {}", quoted(name));
        return out.refuse(&key.at, what, "write the path of a network's file");
    };
    let mut known: Vec<String> = listed
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".toml").map(str::to_owned))
        // Skip sets.toml: it lists sets of networks and is not a network itself.
        .filter(|name| name != "sets")
        .collect();
    // Sort the names, because the order of a folder's entries differs between machines.
    known.sort();
    if !known.iter().any(|one| one == name) {
        out.unknown_name(&key.at, "network", name, &known.iter().map(String::as_str).collect::<Vec<_>>());
        return None;
    }
    Some(networks.join(format!("{name}.toml")))
}

/// Whether the text is a trace instead of TOML. The first line of a trace is a number, or contains column separators
/// but none of `=`, `[` and `{`.
fn is_trace(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default();
    first.parse::<f64>().is_ok() || first.contains([',', ';', '\t']) && !first.contains(['=', '[', '{'])
}

/// Checks a network's file without a scenario. Adds a flow whose packets fit through any link, because a scenario needs
/// at least one flow.
fn alone(root: &Item, path: &Path) -> Result<(), Problems> {
    let mut out = Findings::new("");
    let mut probe = from_toml(
        "duration = \"1s\"\nflow = [{ name = \"probe\", kind = \"cbr\", rate = \"1kbps\", packet = \"68B\" }]",
        &mut out,
    );
    let (taken, _) = root.split(&["topology", "event"]);
    if let (Value::Table(all), Some(own)) = (&mut probe.value, taken.table()) {
        all.extend(own.iter().cloned());
    }
    Document::of_tree(probe, path).check().map(|_| ())
}

/// Returns the flows that a suffix such as `+cubic` or `+2cubic+web` adds. Their names are beside1, beside2 and so on.
fn flows_beside(beside: &str, at: &Place, out: &mut Findings) -> Option<Vec<Item>> {
    let mut all = Vec::new();
    for part in beside.split('+').skip(1) {
        let word = part.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = &part[..part.len() - word.len()];
        let count = if number.is_empty() { Ok(1) } else { number.parse() };
        let Some((_, keys)) = BESIDE.iter().find(|(one, _)| *one == word) else {
            let known = BESIDE.map(|(one, _)| one);
            let what = format!("no traffic is called {}", quoted(word));
            return out.refuse(at, what, remedy(nearest(word, &known), &known));
        };
        let Some(count) = count.ok().filter(|count| (1..=MOST_BESIDE).contains(count)) else {
            let what = format!("{} flows of {word}", quoted(number));
            return out.refuse(at, what, format!("from 1 to {MOST_BESIDE}: +2{word}"));
        };
        for _ in 0..count {
            let name = format!("beside{}", all.len() + 1);
            let text = format!("name = \"{name}\"\nkind = \"tcp\"\npreset = \"linux\"\n{keys}");
            let mut flow = from_toml(&text, out);
            moved(&mut flow, at, Path::new(""));
            all.push(flow);
        }
    }
    Some(all)
}

/// Sets the place of all values in `item` to `at`, and converts paths of trace files to absolute paths below `folder`.
fn moved(item: &mut Item, at: &Place, folder: &Path) {
    item.at = at.clone();
    match &mut item.value {
        Value::List(list) => list.iter_mut().for_each(|below| moved(below, at, folder)),
        Value::Table(table) => {
            for (key, below) in table {
                moved(below, at, folder);
                if let Value::Text(name) = &mut below.value
                    && TRACED.iter().any(|(_, file, _)| file == key)
                {
                    *name = folder.join(&*name).to_string_lossy().into_owned();
                }
            }
        }
        _ => {}
    }
}

/// Removes all keys of a topology that `--set` has not set. This is done for `--set network=…`, because that network
/// replaces the topology in the file. Returns whether any key is left.
pub(crate) fn keep_set(item: &mut Item) -> bool {
    let Value::Table(table) = &mut item.value else { return item.at.set };
    let kept: Table = std::mem::take(table)
        .into_iter()
        .filter_map(|(key, mut below)| keep_set(&mut below).then_some((key, below)))
        .collect();
    *table = kept;
    !table.is_empty() || item.at.set
}
