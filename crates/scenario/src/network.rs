//! Nodes and links: shapes and ranges written out, each distinct text resolved once.

use crate::file::{
    LegExtra, LevelExtra, LinkExtra, LossKind, LossTable, QueueKind, QueueTable, RedPreset, ReorderTable, Shape, Spec,
};
use crate::file::{LegTable, LinkTable, Topology};
use crate::model::{
    Arq, CoDel, Direction, Directions, Jitter, JitterDist, Limit, Link, Loss, NodeIx, Queue, RateSpec, Red, Reorder,
    Trace,
};
use crate::name::{MAX_COUNT, Pattern};
use crate::problem::Out;
use crate::table::{At, OrNone, Raw, Said, split};
use crate::tree::{Item, Place, Value, merge, quoted};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadycast_units::{Bytes, Rate, Span};

/// A host that a flow brings along, in a dumbbell.
pub(crate) struct Host {
    pub(crate) name: String,
    /// On the left, sending, or on the right.
    pub(crate) left: bool,
}

/// Both directions of a link.
pub(crate) type Pair = (Arc<Direction>, Arc<Direction>);

/// A shape's link: the key it stands behind, keys beside its behaviour, its behaviour.
pub(crate) type Part<T> = (&'static str, Vec<(String, Value)>, T);

/// What the resolved text says of the network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) nodes: Vec<String>,
    /// Shape, and its links: key, extras, behaviour.
    pub(crate) shape: Option<(Shape, Vec<Part<Pair>>)>,
    /// New links: name, ends, behaviour.
    pub(crate) links: Vec<(Option<String>, [String; 2], Pair)>,
    /// Links that differ from what they came from.
    pub(crate) changed: Vec<(String, Pair)>,
}

/// The network, and how to find things in it.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) nodes: Vec<String>,
    index: BTreeMap<String, u32>,
    pub(crate) links: Vec<Link>,
    link_index: BTreeMap<String, usize>,
    /// Names that stand for several links.
    groups: BTreeMap<String, Vec<usize>>,
    /// Whether some nodes could not be read: then others may rightly name them.
    partial: bool,
    /// Where a shape's flows come from and go to, if they don't say.
    pub(crate) source: Option<u32>,
    pub(crate) ends: Vec<u32>,
    pub(crate) layout: Layout,
}

/// Reads files that a scenario names; each once.
pub(crate) struct Files {
    pub(crate) folder: PathBuf,
    traces: BTreeMap<PathBuf, Result<Arc<[Span]>, String>>,
}

const MAX_TRACE: u64 = 64 << 20;

impl Files {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), traces: BTreeMap::new() }
    }
    /// The absolute path of what a scenario calls `name`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
    /// Whether it is a file, and if not, says so.
    pub(crate) fn found(&self, name: &At<String>, what: &str, out: &mut Out) -> Option<PathBuf> {
        let path = self.path(name);
        let trouble = match std::fs::metadata(&path) {
            _ if name.is_empty() => "has an empty name".to_owned(),
            Ok(meta) if meta.is_file() && meta.len() == 0 => "is empty".to_owned(),
            Ok(meta) if meta.is_file() => return Some(path),
            Ok(_) => "is not a file".to_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "is not there".to_owned(),
            Err(error) => format!("can't be read ({})", error.kind()),
        };
        let here = if name.at.set { ", or to where the command is typed" } else { "" };
        let remedy = format!("paths are relative to the scenario's folder, {}{here}", self.folder.display());
        out.problem(&name.at, format!("{what} {} {trouble}", quoted(name)), remedy);
        None
    }
    fn trace(&mut self, name: &At<String>, looped: bool, out: &mut Out) -> Option<Trace> {
        let path = self.found(name, "the trace", out)?;
        match self.traces.entry(path.clone()).or_insert_with(|| read_trace(&path)) {
            Ok(opportunities) => Some(Trace { opportunities: opportunities.clone(), looped, path }),
            Err(what) => {
                let remedy =
                    "a Mahimahi trace has one line per 1500 bytes: when, in whole milliseconds, never decreasing";
                out.problem(&name.at, what.clone(), remedy);
                None
            }
        }
    }
}

fn read_trace(path: &Path) -> Result<Arc<[Span]>, String> {
    let shown = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let size = std::fs::metadata(path).map_err(|e| format!("{shown} can't be read ({})", e.kind()))?.len();
    if size > MAX_TRACE {
        return Err(format!("{shown} has {size} bytes; at most 64 MiB are read"));
    }
    let bytes = std::fs::read(path).map_err(|e| format!("{shown} can't be read ({})", e.kind()))?;
    let mut all = Vec::new();
    let mut last = 0u64;
    for (i, line) in bytes.split(|b| *b == b'\n').enumerate() {
        let text = String::from_utf8_lossy(line);
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        let ms: u32 = text
            .parse()
            .map_err(|_| format!("{shown}:{}: {} is not a time in whole milliseconds", i + 1, quoted(text)))?;
        if u64::from(ms) < last {
            return Err(format!("{shown}:{}: {ms} ms comes after {last} ms", i + 1));
        }
        last = u64::from(ms);
        all.push(Span::millis(last));
    }
    match all.last() {
        None => Err(format!("{shown} has no line")),
        Some(last) if last.is_zero() => Err(format!("{shown} ends at 0 ms: it takes no time")),
        Some(_) => Ok(all.into()),
    }
}

/// A link that is to be made.
struct Draft {
    name: String,
    ends: (u32, u32),
    spec: usize,
    over: Vec<usize>,
    at: Place,
}

/// Collects links before they are resolved.
#[derive(Default)]
struct Drafts {
    links: Vec<Draft>,
    /// Distinct texts.
    specs: Vec<Item>,
    full: bool,
}

impl Drafts {
    fn spec(&mut self, item: Item) -> usize {
        self.specs.push(item);
        self.specs.len() - 1
    }
    fn link(&mut self, name: String, a: u32, b: u32, spec: usize, at: &Place, out: &mut Out) {
        if self.links.len() as u64 >= MAX_COUNT {
            if !self.full {
                out.problem(at, "more than 200000 links", "make it smaller");
            }
            self.full = true;
            return;
        }
        self.links.push(Draft { name, ends: (a, b), spec, over: Vec::new(), at: at.clone() });
    }
}

impl Network {
    pub(crate) fn node(&self, name: &str) -> Option<NodeIx> {
        self.index.get(name).map(|i| NodeIx(*i))
    }
    /// Looks a node up, or says that it is not there.
    pub(crate) fn find(&self, name: &str, at: &Place, out: &mut Out) -> Option<NodeIx> {
        let found = self.node(name);
        if found.is_none() && !self.partial {
            let known: Vec<_> = self.nodes.iter().take(2000).map(String::as_str).collect();
            out.unknown_name(at, "node", name, &known);
        }
        found
    }
    /// The links that a name, a group's name or a range means.
    pub(crate) fn find_links(&self, name: &str, at: &Place, out: &mut Out) -> Vec<usize> {
        if let Some(group) = self.groups.get(name) {
            return group.clone();
        }
        let pattern = match Pattern::read(name) {
            Ok(pattern) => pattern,
            Err((what, remedy)) => {
                out.problem(at, what, remedy);
                return Vec::new();
            }
        };
        let mut all = Vec::new();
        for name in pattern.names() {
            let Some(i) = self.link_index.get(&name) else {
                let known: Vec<_> =
                    self.link_index.keys().chain(self.groups.keys()).take(2000).map(String::as_str).collect();
                out.unknown_name(at, "link", &name, &known);
                return Vec::new();
            };
            all.push(*i);
        }
        all
    }

    fn add(&mut self, name: String, at: &Place, out: &mut Out) -> u32 {
        if let Some(i) = self.index.get(&name) {
            out.problem(at, format!("two nodes are called {}", quoted(&name)), "call one of them something else");
            return *i;
        }
        if self.nodes.len() as u64 >= MAX_COUNT {
            out.problem(at, "more than 200000 nodes", "make it smaller");
            return 0;
        }
        let i = self.nodes.len() as u32;
        self.index.insert(name.clone(), i);
        self.nodes.push(name);
        i
    }

    /// Builds it all.
    pub(crate) fn build(
        topology: Option<&At<Topology>>,
        nodes: Option<&At<Vec<At<String>>>>,
        links: &[At<Raw<LinkTable>>],
        hosts: &[Host],
        files: &mut Files,
        out: &mut Out,
    ) -> Self {
        let mut net = Self::default();
        let mut drafts = Drafts::default();
        let mut shaped = Vec::new();
        // A list of nodes, or a shape, that could not even be read has had its say.
        net.partial = !out.problems.is_empty() && nodes.is_none() && topology.is_none();
        if let Some(topology) = topology {
            let before = out.problems.len();
            net.shape(topology, hosts, &mut drafts, &mut shaped, out);
            net.partial |= out.problems.len() > before;
        }
        for pattern in nodes.map_or(&[][..], |n| &n.value) {
            match Pattern::read(pattern) {
                Ok(read) if net.nodes.len() as u64 + read.count() > MAX_COUNT => {
                    net.partial = true;
                    out.problem(&pattern.at, "more than 200000 nodes", "make it smaller");
                }
                Ok(read) => {
                    for name in read.names() {
                        net.add(name, &pattern.at, out);
                    }
                    net.layout.nodes.push(pattern.value.clone());
                }
                Err((what, remedy)) => {
                    net.partial = true;
                    out.problem(&pattern.at, what, remedy);
                }
            }
        }
        let mut made = Vec::new();
        let mut over = Vec::new();
        for link in links {
            let (extra, rest) = split(&link.item, LinkExtra::KEYS);
            let Some(extra) = LinkExtra::read(&extra, out) else { continue };
            if link.item.get("between").is_some() {
                net.new_link(&extra, rest, &link.at, &mut drafts, &mut made, out);
            } else {
                over.push((extra, rest, link.at.clone()));
            }
        }
        net.name_links(&drafts, out);
        let mut covers = Vec::new();
        let mut pieces = Vec::new();
        let mut changes = 0;
        for (extra, rest, at) in over {
            let Some(name) = &extra.name else {
                out.missing(&at, "name", "name the link to change, or write between = [\"a\", \"b\"] for a new one");
                continue;
            };
            let mut meant = net.find_links(name, &name.at, out);
            changes += meant.len() as u64;
            if changes > 10 * MAX_COUNT {
                out.problem(&name.at, "more than two million changes of links", "make it smaller");
                break;
            }
            for i in &meant {
                if let Some(draft) = drafts.links.get_mut(*i) {
                    draft.over.push(pieces.len());
                }
            }
            meant.sort_unstable();
            covers.push((name.value.clone(), meant));
            pieces.push(rest);
        }
        let base: Vec<Option<Pair>> = drafts.specs.iter().map(|item| read_spec(item, files, out)).collect();
        let mut memo = BTreeMap::<(usize, Vec<usize>), (Option<Pair>, Vec<usize>)>::new();
        for (i, draft) in drafts.links.iter().enumerate() {
            let pair = if draft.over.is_empty() {
                base[draft.spec].clone()
            } else {
                let key = (draft.spec, draft.over.clone());
                let entry = memo.entry(key).or_insert_with(|| {
                    let item = draft.over.iter().fold(drafts.specs[draft.spec].clone(), |i, o| merge(&i, &pieces[*o]));
                    (read_spec(&item, files, out), Vec::new())
                });
                entry.1.push(i);
                entry.0.clone()
            };
            if draft.ends.0 == draft.ends.1 {
                let node = net.nodes.get(draft.ends.0 as usize).map_or("", String::as_str);
                let what = format!("a link from {} to itself", quoted(node));
                out.problem(&draft.at, what, "give it two different ends");
            }
            let Some((forward, back)) = pair else { continue };
            let (a, b) = (NodeIx(draft.ends.0), NodeIx(draft.ends.1));
            net.links.push(Link { name: draft.name.clone(), a, b, forward, back });
        }
        // Without problems, every draft became a link and has the same place.
        for ((_, over), (pair, which)) in memo {
            let Some(pair) = pair else { continue };
            let whole = over.iter().filter_map(|o| covers.get(*o)).find(|(_, meant)| *meant == which);
            match whole {
                Some((name, _)) => net.layout.changed.push((name.clone(), pair)),
                None => {
                    for i in which {
                        net.layout.changed.push((drafts.links[i].name.clone(), pair.clone()));
                    }
                }
            }
        }
        for (name, ends, spec) in made {
            if let Some(pair) = &base[spec] {
                net.layout.links.push((name, ends, pair.clone()));
            }
        }
        if let Some(shape) = topology.and_then(|t| t.shape.as_ref()) {
            let parts = shaped.into_iter().filter_map(|(key, extras, spec)| Some((key, extras, base[spec].clone()?)));
            net.layout.shape = Some((shape.value, parts.collect()));
        }
        net
    }

    fn name_links(&mut self, drafts: &Drafts, out: &mut Out) {
        for (i, draft) in drafts.links.iter().enumerate() {
            if self.link_index.insert(draft.name.clone(), i).is_some() {
                let what = format!("two links are called {}", quoted(&draft.name));
                out.problem(&draft.at, what, "give one another name; to change a link, leave \"between\" out");
            }
        }
    }

    fn new_link(
        &mut self,
        extra: &LinkExtra,
        rest: Item,
        at: &Place,
        drafts: &mut Drafts,
        made: &mut Vec<(Option<String>, [String; 2], usize)>,
        out: &mut Out,
    ) {
        let Some(between) = &extra.between else { return };
        let [a, b] = between.value.as_slice() else {
            out.problem(&between.at, "a link has two ends", "write between = [\"a\", \"b\"]");
            return;
        };
        let mut read =
            |text: &At<String>| Pattern::read(text).map_err(|(what, remedy)| out.problem(&text.at, what, remedy)).ok();
        let (Some(first), Some(second)) = (read(a), read(b)) else { return };
        if first.is_range() && second.is_range() && first.count() != second.count() {
            let what = format!("{} ends on one side, {} on the other", first.count(), second.count());
            out.problem(&between.at, what, "make the ranges equally long, or one side a single node");
            return;
        }
        if drafts.links.len() as u64 + first.count().max(second.count()) > MAX_COUNT {
            out.problem(&between.at, "more than 200000 links", "make it smaller");
            return;
        }
        let (froms, tos) = (first.names(), second.names());
        let count = froms.len().max(tos.len());
        let many = first.is_range() || second.is_range();
        let spec = drafts.spec(rest);
        let mut members = Vec::new();
        for i in 0..count {
            let from = &froms[i.min(froms.len() - 1)];
            let to = &tos[i.min(tos.len() - 1)];
            let (Some(a), Some(b)) = (self.find(from, &a.at, out), self.find(to, &b.at, out)) else { return };
            let name = match &extra.name {
                None => format!("{from}-{to}"),
                Some(name) if !many => name.value.clone(),
                Some(name) => format!("{}-{}", name.value, if second.is_range() { to } else { from }),
            };
            members.push(drafts.links.len());
            drafts.link(name, a.0, b.0, spec, at, out);
        }
        if let Some(name) = &extra.name {
            match Pattern::read(name) {
                Ok(read) if read.is_range() => {
                    let what = format!("{} is a range", quoted(name));
                    out.problem(&name.at, what, "leave it out: links are called NAME-END by themselves");
                }
                Ok(_) => {}
                Err((what, remedy)) => out.problem(&name.at, what, remedy),
            }
        }
        if many {
            let group = extra.name.as_ref().map_or_else(|| format!("{}-{}", a.value, b.value), |n| n.value.clone());
            self.groups.insert(group, members);
        }
        made.push((extra.name.as_ref().map(|n| n.value.clone()), [a.value.clone(), b.value.clone()], spec));
    }

    fn shape(
        &mut self,
        topology: &At<Topology>,
        hosts: &[Host],
        drafts: &mut Drafts,
        shaped: &mut Vec<Part<usize>>,
        out: &mut Out,
    ) {
        let Some(shape) = &topology.shape else {
            out.missing(&topology.at, "shape", "choose from: dumbbell, star, chain, parking-lot, tree");
            return;
        };
        let allowed: &[&str] = match shape.value {
            Shape::Dumbbell => &["bottleneck", "access"],
            Shape::Star => &["legs"],
            Shape::Chain | Shape::ParkingLot => &["hops"],
            Shape::Tree => &["levels"],
        };
        for (key, at) in topology.present() {
            if key != "shape" && !allowed.contains(&key) {
                let remedy = format!("this shape has: {}", allowed.join(", "));
                out.problem(at, "not a key of this shape", remedy);
            }
        }
        let at = &topology.at;
        match shape.value {
            Shape::Dumbbell => {
                let mut part = |key: &'static str, raw: &Option<At<Raw<LinkTable>>>, out: &mut Out| {
                    let (extra, rest) =
                        raw.as_ref().map_or_else(|| (empty(at), empty(at)), |raw| split(&raw.item, LinkExtra::KEYS));
                    refuse(&extra, "this link's name and ends come from the shape", out);
                    let spec = drafts.spec(rest);
                    shaped.push((key, Vec::new(), spec));
                    spec
                };
                if topology.bottleneck.is_none() {
                    out.missing(at, "bottleneck", "write for example { rate = \"4Mbps\", delay = \"10ms\" }");
                }
                let middle = part("bottleneck", &topology.bottleneck, out);
                let access = part("access", &topology.access, out);
                let (left, right) = (self.add("left".into(), at, out), self.add("right".into(), at, out));
                drafts.link("bottleneck".into(), left, right, middle, at, out);
                for host in hosts {
                    let node = self.add(host.name.clone(), at, out);
                    if host.left {
                        drafts.link(format!("{}-left", host.name), node, left, access, at, out);
                    } else {
                        drafts.link(format!("right-{}", host.name), right, node, access, at, out);
                    }
                }
            }
            Shape::Star => {
                let hub = self.add("hub".into(), at, out);
                self.source = Some(hub);
                let legs = self.legs("legs", topology.legs.as_ref(), at, "leg", drafts, shaped, out);
                for (name, spec, at) in legs {
                    let node = self.add(name.clone(), &at, out);
                    self.ends.push(node);
                    drafts.link(format!("hub-{name}"), hub, node, spec, &at, out);
                }
            }
            Shape::Chain | Shape::ParkingLot => {
                let mut last = ("n0".to_owned(), self.add("n0".into(), at, out));
                self.source = Some(last.1);
                for (name, spec, at) in self.legs("hops", topology.hops.as_ref(), at, "n", drafts, shaped, out) {
                    let node = self.add(name.clone(), &at, out);
                    drafts.link(format!("{}-{name}", last.0), last.1, node, spec, &at, out);
                    last = (name, node);
                }
                self.ends = vec![last.1];
            }
            Shape::Tree => self.tree(topology, drafts, shaped, out),
        }
    }

    /// Legs or hops: node at the end, its text, its place.
    #[allow(clippy::too_many_arguments, reason = "legs and hops differ only in two words")]
    fn legs(
        &self,
        key: &'static str,
        legs: Option<&At<Vec<At<Raw<LegTable>>>>>,
        at: &Place,
        stem: &str,
        drafts: &mut Drafts,
        shaped: &mut Vec<Part<usize>>,
        out: &mut Out,
    ) -> Vec<(String, usize, Place)> {
        let legs = legs.map_or(&[][..], |l| &l.value);
        if legs.is_empty() {
            out.missing(at, key, "write for example [{ rate = \"2Mbps\", delay = \"10ms\", count = 4 }]");
        }
        let mut all: Vec<(String, usize, Place)> = Vec::new();
        for leg in legs {
            let (extra, rest) = split(&leg.item, LegExtra::KEYS);
            let mut kept = extra.table().cloned().unwrap_or_default();
            let Some(extra) = LegExtra::read(&extra, out) else { continue };
            let spec = drafts.spec(rest);
            let first = all.len() as u64 + 1;
            let count = extra.count.as_ref().map(|c| c.value);
            if let Some(count) = extra.count.as_ref().filter(|c| all.len() as u64 + c.value > MAX_COUNT) {
                out.problem(&count.at, "more than 200000 nodes", "make it smaller");
                continue;
            }
            let names = match &extra.name {
                None => (first..first + count.unwrap_or(1)).map(|n| format!("{stem}{n}")).collect(),
                Some(name) => match Pattern::read(name) {
                    Ok(read) if count.is_some_and(|c| c != read.count()) => {
                        let what = format!("{} names for {} of them", read.count(), count.unwrap_or(1));
                        out.problem(&name.at, what, "make the range as long as count");
                        continue;
                    }
                    Ok(read) => read.names(),
                    Err((what, remedy)) => {
                        out.problem(&name.at, what, remedy);
                        continue;
                    }
                },
            };
            shaped.push((key, kept.drain(..).map(|(k, item)| (k, item.value)).collect(), spec));
            all.extend(names.into_iter().map(|name| (name, spec, leg.at.clone())));
        }
        all
    }

    fn tree(&mut self, topology: &At<Topology>, drafts: &mut Drafts, shaped: &mut Vec<Part<usize>>, out: &mut Out) {
        let levels = topology.levels.as_ref().map_or(&[][..], |l| &l.value);
        if levels.is_empty() {
            let remedy = "write for example [{ fanout = 10, rate = \"10Mbps\" }, { fanout = 100, delay = \"5ms\" }]";
            out.missing(&topology.at, "levels", remedy);
        }
        let root = self.add("root".into(), &topology.at, out);
        self.source = Some(root);
        let mut above = vec![("root".to_owned(), root)];
        for (depth, level) in levels.iter().enumerate() {
            let (extra, rest) = split(&level.item, LevelExtra::KEYS);
            let kept = extra.table().cloned().unwrap_or_default();
            let Some(extra) = LevelExtra::read(&extra, out) else { return };
            let Some(fanout) = &extra.fanout else {
                out.missing(&level.at, "fanout", "write for example fanout = 10");
                return;
            };
            if fanout.value == 0 || fanout.value.saturating_mul(above.len() as u64) > MAX_COUNT {
                let what = format!("{} on this level", fanout.value.saturating_mul(above.len() as u64));
                out.problem(&fanout.at, what, "a level has from 1 to 200000 nodes");
                return;
            }
            let spec = drafts.spec(rest);
            shaped.push(("levels", kept.into_iter().map(|(k, item)| (k, item.value)).collect(), spec));
            let last = depth + 1 == levels.len();
            let mut below = Vec::new();
            for (parent, a) in &above {
                for _ in 0..fanout.value {
                    let n = below.len() + 1;
                    let name = if last { format!("leaf{n}") } else { format!("t{}.{n}", depth + 1) };
                    let b = self.add(name.clone(), &level.at, out);
                    drafts.link(format!("{parent}-{name}"), *a, b, spec, &level.at, out);
                    below.push((name, b));
                }
            }
            above = below;
        }
        self.ends = above.into_iter().map(|(_, node)| node).collect();
    }
}

fn empty(at: &Place) -> Item {
    Item { value: Value::Table(Vec::new()), at: at.clone() }
}

fn refuse(extra: &Item, why: &str, out: &mut Out) {
    for (_, item) in extra.table().map_or(&[][..], |t| t) {
        out.problem(&item.at, "not a key here", why);
    }
}

/// Both directions of a link, from its text.
fn read_spec(item: &Item, files: &mut Files, out: &mut Out) -> Option<Pair> {
    let before = out.problems.len();
    let (back, both) = split(item, &["back"]);
    let spec = Spec::read(&both, out)?;
    let toward = spec.loss.as_ref().and_then(|l| l.direction.as_ref()).map_or(Directions::Forward, |d| d.value);
    let forward = direction(&spec, toward.forward(), files, out);
    let (_, lossless) = split(&both, &["loss"]);
    let base = if toward.back() { both } else { lossless };
    let back = match back.get("back") {
        None => Spec::read(&base, out)?,
        Some(over) => {
            if let Some(at) = over.get("loss").and_then(|l| l.get("direction")).map(|d| &d.at) {
                out.problem(at, "not a key here", "what stands in \"back\" has its direction");
            }
            Spec::read(&merge(&base, over), out)?
        }
    };
    let back = direction(&back, true, files, out);
    let (Some(forward), Some(back)) = (forward, back) else { return None };
    if out.problems.len() > before {
        return None;
    }
    let forward = Arc::new(forward);
    let back = if *forward == back { forward.clone() } else { Arc::new(back) };
    Some((forward, back))
}

/// One direction, with every default filled in.
fn direction(spec: &Spec, lossy: bool, files: &mut Files, out: &mut Out) -> Option<Direction> {
    let rate = rate(spec.rate.as_ref(), spec.trace.as_ref(), spec.r#loop.as_ref(), files, out)?;
    let delay = spec.delay.as_ref().map_or(Span::ZERO, |d| d.value);
    let jitter = spec.jitter.as_ref().and_then(|jitter| {
        let Some(mean) = &jitter.mean else {
            out.missing(&jitter.at, "mean", "write for example mean = \"2ms\"");
            return None;
        };
        let dist = jitter.dist.as_ref().map_or(JitterDist::Exponential, |d| d.value);
        let reorder = jitter.reorder.as_ref().is_some_and(|r| r.value);
        (!mean.is_zero()).then_some(Jitter { mean: mean.value, dist, reorder })
    });
    let arq = spec.arq.as_ref().and_then(|arq| {
        let per_try = arq.per_try.as_ref().map(|p| p.value);
        match &arq.tries {
            None => out.missing(&arq.at, "tries", "write for example tries = 7"),
            Some(tries) if !(1..=1000).contains(&tries.value) => {
                out.problem(
                    &tries.at,
                    format!("{} is out of range", tries.value),
                    "from 1 (no retransmission) to 1000",
                );
            }
            Some(tries) => {
                if per_try.is_none() {
                    out.missing(&arq.at, "per_try", "write for example per_try = \"1ms\"");
                }
                return Some(Arq { tries: tries.value as u32, per_try: per_try? });
            }
        }
        None
    });
    let loss = match &spec.loss {
        Some(table) if lossy => loss(table, out)?,
        _ => Loss::None,
    };
    let queue = queue(spec.queue.as_ref(), &rate, delay, out)?;
    let mtu = spec.mtu.as_ref().map_or(Bytes::new(1500), |m| m.value);
    if let Some(said) = spec.mtu.as_ref().filter(|m| !(68..=65_535).contains(&m.get())) {
        out.problem(&said.at, format!("{} is out of range", said.value), "from \"68B\" to \"65535B\"");
    }
    let reorder = spec.reorder.as_ref().map_or(Some(Reorder::default()), |table| reorder(table, out))?;
    let duplicate = spec.duplicate.as_ref().map_or(Some(0.0), |said| probability(said, out))?;
    Some(Direction { rate, delay, jitter, arq, loss, reorder, duplicate, queue, mtu })
}

/// Which packets come late.
pub(crate) fn reorder(table: &At<ReorderTable>, out: &mut Out) -> Option<Reorder> {
    let Some(p) = &table.p else {
        out.missing(&table.at, "p", "write a probability from 0 to 1");
        return None;
    };
    let p = probability(p, out)?;
    match &table.by {
        Some(by) if by.is_zero() && p > 0.0 => {
            out.problem(&by.at, "nothing comes later", "write for example by = \"20ms\", or p = 0");
            None
        }
        Some(by) => Some(Reorder { p, by: by.value }),
        None if p == 0.0 => Some(Reorder::default()),
        None => {
            out.missing(&table.at, "by", "write for example by = \"20ms\"");
            None
        }
    }
}

/// A number that is one.
pub(crate) fn probability(said: &At<f64>, out: &mut Out) -> Option<f64> {
    if (0.0..=1.0).contains(&said.value) {
        return Some(said.value);
    }
    let remedy = match said.value {
        percent if percent > 1.0 && percent <= 100.0 => format!("from 0 to 1: {percent} % is {}", percent / 100.0),
        _ => "a probability is from 0 to 1".to_owned(),
    };
    out.problem(&said.at, format!("{} is no probability", said.value), remedy);
    None
}

/// A rate or a trace.
pub(crate) fn rate(
    rate: Option<&At<OrNone<Rate>>>,
    trace: Option<&At<String>>,
    looped: Option<&At<bool>>,
    files: &mut Files,
    out: &mut Out,
) -> Option<RateSpec> {
    match (rate, trace) {
        (Some(_), Some(trace)) => {
            out.problem(&trace.at, "both a rate and a trace", "leave one of them out");
            None
        }
        (None, Some(trace)) => files.trace(trace, looped.is_none_or(|l| l.value), out).map(RateSpec::Trace),
        (rate, None) => {
            if let Some(looped) = looped {
                out.problem(&looped.at, "there is no trace to loop", "write trace = \"FILE\", or leave it out");
            }
            match rate.map(|r| (r.value, &r.at)) {
                None | Some((OrNone::None, _)) => Some(RateSpec::Unlimited),
                Some((OrNone::Some(Rate::ZERO), at)) => {
                    out.problem(at, "nothing passes at a rate of 0", "write a rate above 0, or \"none\" for no limit");
                    None
                }
                Some((OrNone::Some(rate), _)) => Some(RateSpec::Constant(rate)),
            }
        }
    }
}

/// Which packets get lost.
pub(crate) fn loss(table: &At<LossTable>, out: &mut Out) -> Option<Loss> {
    let Some(kind) = &table.kind else {
        out.missing(&table.at, "kind", "choose from: bernoulli, run, gilbert, list, none");
        return None;
    };
    let (word, keys): (&str, &[&str]) = match kind.value {
        LossKind::None => ("none", &[]),
        LossKind::Bernoulli => ("bernoulli", &["p"]),
        LossKind::Run => ("run", &["mean"]),
        LossKind::Gilbert => ("gilbert", &["p_bad", "p_good", "loss_good", "loss_bad"]),
        LossKind::List => ("list", &["packets"]),
    };
    for (key, at) in table.present() {
        if !matches!(key, "kind" | "direction") && !keys.contains(&key) {
            let remedy = format!("{word} has: {}", if keys.is_empty() { "none".into() } else { keys.join(", ") });
            out.problem(at, format!("not a key of {word} loss"), remedy);
        }
    }
    let share = |said: &Option<At<f64>>, key: &str, default: Option<f64>, out: &mut Out| match said {
        Some(p) => probability(p, out),
        None => {
            if default.is_none() {
                out.missing(&table.at, key, "write a probability from 0 to 1");
            }
            default
        }
    };
    Some(match kind.value {
        LossKind::None => Loss::None,
        LossKind::Bernoulli => Loss::Bernoulli { p: share(&table.p, "p", None, out)? },
        LossKind::Run => match &table.mean {
            None => {
                out.missing(&table.at, "mean", "write for example mean = \"50p\"");
                return None;
            }
            Some(mean) if mean.0 < 1.0 => {
                out.problem(&mean.at, format!("runs of {} packets", mean.0), "the mean run is at least \"1p\"");
                return None;
            }
            Some(mean) => Loss::Run { mean: mean.0 },
        },
        LossKind::Gilbert => {
            let p_bad = share(&table.p_bad, "p_bad", None, out);
            let p_good = share(&table.p_good, "p_good", None, out);
            let loss_good = share(&table.loss_good, "loss_good", Some(0.0), out);
            let loss_bad = share(&table.loss_bad, "loss_bad", Some(1.0), out);
            Loss::Gilbert { p_bad: p_bad?, p_good: p_good?, loss_good: loss_good?, loss_bad: loss_bad? }
        }
        LossKind::List => {
            let Some(packets) = &table.packets else {
                out.missing(&table.at, "packets", "write for example packets = [7, 9]");
                return None;
            };
            for said in packets.iter().filter(|p| p.value == 0) {
                out.problem(&said.at, "there is no packet 0", "packets are counted from 1");
            }
            let mut all: Vec<u64> = packets.iter().map(|p| p.value).collect();
            all.sort_unstable();
            all.dedup();
            if all.len() < packets.len() {
                out.problem(&packets.at, "a packet is listed twice", "list each packet once");
            }
            Loss::List { packets: all.into() }
        }
    })
}

/// ns-2's mean packet size for RED.
const NS2_MEAN_PACKET: f64 = 500.0;

fn queue(table: Option<&At<QueueTable>>, rate: &RateSpec, delay: Span, out: &mut Out) -> Option<Queue> {
    let Some(table) = table else { return Some(Queue::DropTail { limit: Limit::Packets(50) }) };
    let kind = table.kind.as_ref().map_or(QueueKind::DropTail, |k| k.value);
    let codel_keys = ["kind", "limit", "target", "interval", "ecn"];
    let (word, keys, most): (&str, &[&str], u32) = match kind {
        QueueKind::DropTail => ("drop-tail", &["kind", "limit"], 50),
        QueueKind::Red => {
            ("RED", &["kind", "limit", "preset", "min", "max", "max_p", "weight", "gentle", "ecn", "mean_packet"], 50)
        }
        QueueKind::CoDel => ("CoDel", &codel_keys, 1000),
        QueueKind::FqCoDel => ("FQ-CoDel", &["kind", "limit", "target", "interval", "ecn", "flows", "quantum"], 10_240),
    };
    for (key, at) in table.present() {
        if !keys.contains(&key) {
            let others = if table.kind.is_some() { "" } else { "; or write kind = \"red\", \"codel\" or \"fq-codel\"" };
            let remedy = format!("it has: {}{others}", keys[1..].join(", "));
            out.problem(at, format!("not a key of a {word} queue"), remedy);
        }
    }
    let limit = table.limit.as_ref().map_or(Limit::Packets(most), |l| l.value);
    match kind {
        QueueKind::DropTail => Some(Queue::DropTail { limit }),
        QueueKind::Red => red(table, limit, rate, delay, out),
        QueueKind::CoDel | QueueKind::FqCoDel => codel(table, limit, kind == QueueKind::FqCoDel, out),
    }
}

/// CoDel's parameters, those that are not given as RFC 8289, sections 4.2 and 4.3, and RFC 8290, section 5.2, have them.
fn codel(table: &At<QueueTable>, limit: Limit, fair: bool, out: &mut Out) -> Option<Queue> {
    let span = |said: &Option<At<Span>>, default: u64, out: &mut Out| match said {
        Some(said) if said.is_zero() => {
            out.problem(&said.at, "takes no time", format!("above \"0ms\"; without it \"{default}ms\""));
            Span::millis(default)
        }
        said => said.as_ref().map_or(Span::millis(default), |s| s.value),
    };
    let target = span(&table.target, 5, out);
    let interval = span(&table.interval, 100, out);
    if target >= interval {
        let at = table.target.as_ref().or(table.interval.as_ref()).map_or(&table.at, |said| &said.at);
        let what = format!("the target of {target} is not below the interval of {interval}");
        out.problem(at, what, "the interval is the longest usual round-trip time, the target a twentieth of that");
    }
    let codel = CoDel { limit, target, interval, ecn: table.ecn.as_ref().is_some_and(|e| e.value) };
    if !fair {
        return Some(Queue::CoDel(codel));
    }
    let flows = table.flows.as_ref().map_or(1024, |f| f.value);
    if let Some(said) = table.flows.as_ref().filter(|f| !(1..=65_536).contains(&f.value)) {
        out.problem(&said.at, format!("{} is out of range", said.value), "from 1 to 65536");
    }
    let quantum = table.quantum.as_ref().map_or(Bytes::new(1514), |q| q.value);
    if let Some(said) = table.quantum.as_ref().filter(|q| !(64..=1_048_576).contains(&q.get())) {
        out.problem(&said.at, format!("{} is out of range", said.value), "from \"64B\" to \"1MiB\"");
    }
    Some(Queue::FqCoDel { codel, flows: flows as u32, quantum })
}

fn red(table: &At<QueueTable>, limit: Limit, rate: &RateSpec, delay: Span, out: &mut Out) -> Option<Queue> {
    let preset = table.preset.as_ref().map_or(RedPreset::Ns2, |p| p.value);
    let mut red = match preset {
        RedPreset::Classic => Red {
            limit,
            min: Limit::Packets(5),
            max: Limit::Packets(15),
            max_p: 0.1,
            weight: 0.002,
            gentle: true,
            ecn: false,
            mean_packet: Bytes::new(1000),
        },
        RedPreset::Ns2 => {
            let mean = table.mean_packet.as_ref().map_or(NS2_MEAN_PACKET, |m| m.as_f64()).max(1.0);
            let constant = match rate {
                RateSpec::Constant(rate) => Some(*rate),
                RateSpec::Trace(trace) => Some(trace.mean_rate()),
                RateSpec::Unlimited => None,
            };
            let explicit = table.min.is_some() && table.max.is_some() && table.weight.is_some();
            if constant.is_none() && !explicit {
                let remedy = "give the link a rate, or write preset = \"classic\"";
                out.problem(&table.at, "RED's ns2 parameters derive from a rate, and there is none", remedy);
                return None;
            }
            let (min, weight) = ns2_red(constant.unwrap_or(Rate::mbps(1)), delay, mean);
            Red {
                limit,
                min: Limit::Bytes(Bytes::new(min)),
                max: Limit::Bytes(Bytes::new(3 * min)),
                max_p: 0.1,
                weight,
                gentle: true,
                ecn: false,
                mean_packet: Bytes::new(mean as u64),
            }
        }
    };
    let share = |said: &Option<At<f64>>, into: &mut f64, out: &mut Out| {
        if let Some(said) = said {
            if said.value > 0.0 && said.value <= 1.0 {
                *into = said.value;
            } else {
                out.problem(&said.at, format!("{} is out of range", said.value), "above 0, at most 1");
            }
        }
    };
    share(&table.max_p, &mut red.max_p, out);
    share(&table.weight, &mut red.weight, out);
    red.min = table.min.as_ref().map_or(red.min, |m| m.value);
    red.max = table.max.as_ref().map_or(red.max, |m| m.value);
    red.gentle = table.gentle.as_ref().map_or(red.gentle, |g| g.value);
    red.ecn = table.ecn.as_ref().map_or(red.ecn, |e| e.value);
    red.mean_packet = table.mean_packet.as_ref().map_or(red.mean_packet, |m| m.value);
    if let Some(said) = table.mean_packet.as_ref().filter(|m| !(1..=65_535).contains(&m.get())) {
        out.problem(&said.at, format!("{} is out of range", said.value), "from \"1B\" to \"65535B\"");
    }
    let at = table.max.as_ref().or(table.min.as_ref()).map_or_else(|| table.at.below("max"), |m| m.at.clone());
    let ordered = match (red.min, red.max) {
        (Limit::Packets(min), Limit::Packets(max)) => min < max,
        (Limit::Bytes(min), Limit::Bytes(max)) => min < max,
        _ => {
            out.problem(&at, "one threshold in packets, the other in bytes", "write min and max in the same unit");
            return None;
        }
    };
    if !ordered {
        out.problem(&at, "min is not below max", "write for example min = \"5p\", max = \"15p\"");
    }
    Some(Queue::Red(red))
}

/// ns-2's automatic configuration of RED (ns-2.35, `queue/red.cc`): the lower threshold in bytes, and the weight.
///
/// ```text
/// min = max(5, C · 5 ms / 2) packets of the mean size      w = 1 − exp(−1 / (10 · rtt · C)),  rtt = max(0.1 s, 3 (delay + 1/C))
/// ```
/// with C the rate in packets of the mean size per second.
fn ns2_red(rate: Rate, delay: Span, mean_packet: f64) -> (u64, f64) {
    let packets = (rate.as_bytes_per_s() / mean_packet).max(1e-9);
    let min = (packets * 0.005 / 2.0).max(5.0) * mean_packet;
    let rtt = (3.0 * (delay.as_secs_f64() + 1.0 / packets)).max(0.1);
    let weight = 1.0 - libm::exp(-1.0 / (10.0 * rtt * packets));
    ((min + 0.5) as u64, weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ns2_configures_red_as_the_specification_prints() {
        for (kbps, weight) in [(500, 0.00797), (1000, 0.00399), (1500, 0.00266)] {
            let (min, w) = ns2_red(Rate::kbps(kbps), Span::millis(20), NS2_MEAN_PACKET);
            assert_eq!(min, 2500, "below 8 Mb/s the threshold is 5 packets of 500 B");
            assert!((w - weight).abs() < 5e-6, "{kbps} kb/s: {w}");
        }
        assert_eq!(
            ns2_red(Rate::mbps(16), Span::millis(20), NS2_MEAN_PACKET).0,
            5000,
            "16 Mb/s: 4000 packets/s · 2.5 ms"
        );
    }
}
