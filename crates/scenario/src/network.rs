//! Nodes and links: expands shapes and ranges. Each distinct table of link properties is read only once.

use crate::file::{LegExtra, LegTable, LevelExtra, LinkExtra, LinkTable, Shape, Spec, Topology};
use crate::flow::checked;
use crate::model::{Direction, Directions, Link, NodeIx, RateSpec, Series};
use crate::name::{MAX_COUNT, Pattern};
use crate::recorded::{Fault, MOST_BYTES, Quantity, Recorded, recorded};
use crate::trace_doubts::{Doubt, in_words};
use crate::tree::merge;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadycast_control::registry::Registry;
use steadycast_link::{self as link, Limit, LinkProperties, Loss, Opportunities, Policer, Queue, Shaper};
use steadycast_settings::tree::{Item, Place, Value, quoted};
use steadycast_settings::{Deferred, Findings, FromToml, OrNone, Spanned};
use steadycast_units::{Bytes, Rate, Span};

/// A host that a flow adds to a dumbbell.
pub(crate) struct Host {
    pub(crate) name: String,
    /// Whether the host is on the left, where senders are. Receivers are on the right.
    pub(crate) left: bool,
}

pub(crate) type Pair = (Arc<Direction>, Arc<Direction>);

/// A kind of link in a topology's shape. The first element is its key in the file. The second one has the keys that
/// describe no behaviour (name, count, fanout). The third one is its behaviour (rate, delay, queue and so on).
pub(crate) type Part<T> = (&'static str, Vec<(String, Value)>, T);

/// The network in the form that [`Loaded::resolved_toml`](crate::Loaded::resolved_toml) writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) nodes: Vec<String>,
    /// The shape, and the kinds of links in it.
    pub(crate) shape: Option<(Shape, Vec<Part<Pair>>)>,
    /// The links that `[[link]]` entries with `between` create. The elements are: the entry's name, the names of the
    /// two ends, and the behaviour in both directions.
    pub(crate) links: Vec<(Option<String>, [String; 2], Pair)>,
    /// The links that `[[link]]` entries without `between` have changed. The elements are: the name of the links, and
    /// their new behaviour in both directions.
    pub(crate) changed: Vec<(String, Pair)>,
}

#[derive(Default)]
pub(crate) struct Network {
    pub(crate) nodes: Vec<String>,
    index: BTreeMap<String, u32>,
    pub(crate) links: Vec<Link>,
    link_index: BTreeMap<String, usize>,
    /// Names that refer to several links, with the indexes of these links.
    groups: BTreeMap<String, Vec<usize>>,
    /// Whether some nodes could not be read. In this case unknown names are not reported.
    pub(crate) partial: bool,
    /// The node at which flows start by default, if the network has a shape.
    pub(crate) source: Option<u32>,
    /// The nodes at which flows end by default, if the network has a shape.
    pub(crate) ends: Vec<u32>,
    pub(crate) layout: Layout,
}

/// Reads the files that a scenario refers to, each file once.
pub(crate) struct Files {
    pub(crate) folder: PathBuf,
    pub(crate) registry: Registry,
    /// The duration of the run. It limits how often a trace can repeat.
    pub(crate) duration: Span,
    traces: BTreeMap<(PathBuf, Quantity), Result<Recorded, Fault>>,
}

/// Maximum number of changes that a trace may cause in a run.
const MOST_CHANGES: f64 = 4e6;

impl Files {
    pub(crate) fn new(folder: &Path, registry: Registry) -> Self {
        Self { folder: folder.to_owned(), registry, duration: Span::ZERO, traces: BTreeMap::new() }
    }
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
    pub(crate) fn found(&self, name: &Spanned<String>, what: &str, out: &mut Findings) -> Option<PathBuf> {
        let path = self.path(name);
        let trouble = match std::fs::metadata(&path) {
            // Check for an empty name first, because the path would then be the folder itself.
            _ if name.is_empty() => "has an empty name".to_owned(),
            Ok(meta) if meta.is_file() && meta.len() == 0 => {
                let what = format!("{what} {} is empty", quoted(name));
                return out.refuse(&name.at, what, "name a file that has content");
            }
            Ok(meta) if meta.is_file() => return Some(path),
            Ok(_) => "is not a file".to_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "does not exist".to_owned(),
            Err(error) => format!("can't be read ({})", error.kind()),
        };
        // For `--set`, mention the current folder as well, because `tree::find_file` also looks there.
        let here = if name.at.set { ", or to the current folder" } else { "" };
        let remedy =
            format!("name a file; its path is relative to the scenario's folder, {}{here}", self.folder.display());
        out.refuse(&name.at, format!("{what} {} {trouble}", quoted(name)), remedy)
    }
    fn recorded(&mut self, path: &Path, quantity: Quantity) -> &Result<Recorded, Fault> {
        self.traces.entry((path.to_owned(), quantity)).or_insert_with(|| read_file(path, quantity))
    }
    fn trace(&mut self, name: &Spanned<String>, repeat: Option<bool>, out: &mut Findings) -> Option<RateSpec> {
        let path = self.found(name, "the trace", out)?;
        // Read every other format as a table.
        let Ok(Recorded::Opportunities(at, doubts)) = self.recorded(&path, Quantity::Rate) else {
            return self.series(name, repeat, Quantity::Rate, out).map(RateSpec::Table);
        };
        let (at, doubts) = (at.clone(), doubts.clone());
        self.warn(name, &doubts, out);
        let last = at.last().copied().unwrap_or_default();
        self.warn_of_end(name, last, repeat, Some("nothing leaves the link from then on"), out);
        Some(RateSpec::Trace(Opportunities { at, looped: repeat.unwrap_or(true) }, path))
    }
    /// Warns of the doubts about a trace. Leaves out doubts that matter only after the end of the run.
    fn warn(&self, name: &Spanned<String>, doubts: &[Doubt], out: &mut Findings) {
        for doubt in doubts.iter().filter(|doubt| doubt.from <= self.duration) {
            out.warn(&name.at, doubt.what.clone(), doubt.remedy.clone());
        }
    }
    /// Warns of a trace that is shorter than the run, if `repeat` is not set or if the link stops at the end of the
    /// trace.
    ///
    /// With some formats, the link stops there unless the trace repeats. For these formats, `stops` is the text that
    /// describes it. With other formats, the last value stays valid.
    fn warn_of_end(
        &self,
        name: &Spanned<String>,
        lasts: Span,
        repeat: Option<bool>,
        stops: Option<&str>,
        out: &mut Findings,
    ) {
        let of = format!("{} lasts {} of the run's {}", quoted(name), in_words(lasts), in_words(self.duration));
        match (repeat, stops) {
            _ if lasts >= self.duration => {}
            (None, _) => {
                let then = stops.unwrap_or("its last value holds from then on");
                let remedy = format!("write loop = true if that is meant; with loop = false, {then}");
                out.warn(&name.at, format!("{of}, and starts again each time it ends"), remedy);
            }
            (Some(false), Some(stops)) => {
                out.warn(&name.at, format!("{of}, and {stops}"), "write loop = true, or a shorter duration");
            }
            _ => {}
        }
    }
    /// Reads a file that contains values over time. Refuses the file if the values change too often during the run.
    fn series(
        &mut self,
        name: &Spanned<String>,
        repeat: Option<bool>,
        quantity: Quantity,
        out: &mut Findings,
    ) -> Option<Series> {
        let path = self.found(name, "the trace", out)?;
        let rows = match self.recorded(&path, quantity) {
            Ok(Recorded::Rows(rows) | Recorded::Pattern(rows, _)) => rows.clone(),
            // This format exists for rates only, and `trace` has handled it before this call.
            Ok(Recorded::Opportunities(..)) => return None,
            Err((what, remedy)) => return out.refuse(&name.at, what.clone(), remedy.clone()),
        };
        self.warn(name, &rows.doubts, out);
        self.warn_of_end(name, rows.period, repeat, None, out);
        let looped = repeat.unwrap_or(true);
        // Limit the number of changes, because each is an event of the simulation. A short trace that repeats can have
        // very many.
        let rounds = if looped { self.duration.ratio(rows.period) } else { 1.0 };
        if rounds * rows.values.len() as f64 > MOST_CHANGES {
            let what = format!("{} changes again and again, more than 4 million times", quoted(name));
            return out.refuse(&name.at, what, "write loop = false, a shorter duration, or fewer lines");
        }
        Some(Series { rows, looped, path })
    }
    /// Adds the delay and the loss that a `trace` in AlphaRTC's format contains. A link's own delay or loss takes
    /// precedence.
    fn with_others(&mut self, item: &Item) -> Item {
        let mut all = item.clone();
        let Some(trace) = item.get("trace") else { return all };
        let path = self.path(trace.text().unwrap_or_default());
        // Ignore a missing file, because it is reported when the rate is read.
        let known = path.is_file().then(|| self.recorded(&path, Quantity::Rate));
        if let (Some(Ok(Recorded::Pattern(_, others))), Value::Table(table)) = (known, &mut all.value) {
            for (key, instead, _) in TRACED.into_iter().filter(|(.., quantity)| others.contains(quantity)) {
                if item.get(key).is_none() && item.get(instead).is_none() {
                    table.push((instead.into(), trace.clone()));
                }
            }
        }
        all
    }
}

/// Link properties that can come from a file. The elements are: the key of the constant value, the key of the file, and
/// the property itself.
pub(crate) const TRACED: [(&str, &str, Quantity); 3] = [
    ("rate", "trace", Quantity::Rate),
    ("delay", "delay_trace", Quantity::Delay),
    ("loss", "loss_trace", Quantity::Loss),
];

fn read_file(path: &Path, quantity: Quantity) -> Result<Recorded, Fault> {
    let shown = path.file_name().unwrap_or_default().to_string_lossy();
    let unread =
        |error: std::io::Error| (format!("{shown} can't be read ({})", error.kind()), "name another file".into());
    let size = std::fs::metadata(path).map_err(unread)?.len();
    if size > MOST_BYTES {
        return Err((format!("{shown} has {size} bytes; at most 64 MiB are read"), "write a shorter one".into()));
    }
    recorded(&std::fs::read(path).map_err(unread)?, &shown, quantity)
}

/// A link whose properties have not been read yet.
struct Draft {
    name: String,
    ends: (u32, u32),
    spec: usize,
    over: Vec<usize>,
    at: Place,
}

/// A `[[link]]` entry without `between`, which changes existing links. `links` are the indexes of the links to which
/// its name refers.
struct Change {
    name: String,
    links: Vec<usize>,
    keys: Item,
}

#[derive(Default)]
struct Drafts {
    links: Vec<Draft>,
    /// Distinct tables of link properties. [`Draft::spec`] is an index into this list.
    specs: Vec<Item>,
    full: bool,
}

impl Drafts {
    fn spec(&mut self, item: Item) -> usize {
        self.specs.push(item);
        self.specs.len() - 1
    }
    fn link(&mut self, name: String, a: u32, b: u32, spec: usize, at: &Place, out: &mut Findings) {
        if self.links.len() as u64 >= MAX_COUNT {
            // Report only the first link beyond the limit.
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
    /// Returns the node called `name`. Adds a problem if it does not exist.
    pub(crate) fn find(&self, name: &str, at: &Place, out: &mut Findings) -> Option<NodeIx> {
        let found = self.node(name);
        if found.is_none() && !self.partial {
            // Limit the number of known names, because the unknown name is compared with each of them to find a similar
            // one.
            let known: Vec<_> = self.nodes.iter().take(2000).map(String::as_str).collect();
            out.unknown_name(at, "node", name, &known);
        }
        found
    }
    /// Returns the indexes of the links to which `name` refers. It can be a link's name, the name of a group of links,
    /// or a range.
    pub(crate) fn find_links(&self, name: &str, at: &Place, out: &mut Findings) -> Vec<usize> {
        if let Some(group) = self.groups.get(name) {
            return group.clone();
        }
        let Some(pattern) = Pattern::read_or_report(name, at, out) else { return Vec::new() };
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

    fn add(&mut self, name: String, at: &Place, out: &mut Findings) -> u32 {
        if let Some(i) = self.index.get(&name) {
            out.problem(at, format!("two nodes are called {}", quoted(&name)), "call one of them something else");
            // Use the existing node for the second entry as well, so that the links of both entries are checked.
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

    /// Builds the network from the tables of the file and the flows' hosts.
    pub(crate) fn build(
        topology: Option<&Spanned<Topology>>,
        nodes: Option<&Spanned<Vec<Spanned<String>>>>,
        links: &[Spanned<Deferred<LinkTable>>],
        hosts: &[Host],
        files: &mut Files,
        out: &mut Findings,
    ) -> Self {
        let mut net = Self::default();
        let mut drafts = Drafts::default();
        let mut shaped = Vec::new();
        // If the list of nodes or the shape could not be read, that problem has been reported. Do not report unknown
        // names in this case, because they may only be a consequence.
        net.partial = !out.problems.is_empty() && nodes.is_none() && topology.is_none();
        if let Some(topology) = topology {
            let before = out.problems.len();
            net.shape(topology, hosts, &mut drafts, &mut shaped, out);
            net.partial |= out.problems.len() > before;
        }
        net.named(nodes.map_or(&[][..], |n| &n.value), out);
        let mut made = Vec::new();
        let mut over = Vec::new();
        for link in links {
            let (extra, rest) = link.item.split(LinkExtra::KEYS);
            let Some(extra) = LinkExtra::read(&extra, out) else { continue };
            if link.item.get("between").is_some() {
                net.new_link(&extra, rest, &link.at, &mut drafts, &mut made, out);
            } else {
                over.push((extra, rest, link.at.clone()));
            }
        }
        // Name all new links before looking for links to change, because a change can come first in the file.
        net.name_links(&drafts, out);
        let changes = net.changes(over, &mut drafts, out);
        // Read each table once. A range of 100,000 links has only one table.
        let base: Vec<Option<Pair>> = drafts.specs.iter().map(|item| read_spec(item, files, out)).collect();
        net.make_links(&drafts, &base, &changes, files, out);
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

    fn named(&mut self, patterns: &[Spanned<String>], out: &mut Findings) {
        for pattern in patterns {
            match Pattern::read_or_report(pattern, &pattern.at, out) {
                Some(read) if self.nodes.len() as u64 + read.count() > MAX_COUNT => {
                    self.partial = true;
                    out.problem(&pattern.at, "more than 200000 nodes", "make it smaller");
                }
                Some(read) => {
                    for name in read.names() {
                        self.add(name, &pattern.at, out);
                    }
                    self.layout.nodes.push(pattern.value.clone());
                }
                None => self.partial = true,
            }
        }
    }

    /// Finds the links that are changed by each `[[link]]` entry without `between`. Adds the index of the change to the
    /// drafts of these links.
    fn changes(&self, over: Vec<(LinkExtra, Item, Place)>, drafts: &mut Drafts, out: &mut Findings) -> Vec<Change> {
        let (mut all, mut count) = (Vec::new(), 0);
        for (extra, rest, at) in over {
            let Some(name) = &extra.name else {
                out.missing(&at, "name", "name the link to change, or write between = [\"a\", \"b\"] for a new one");
                continue;
            };
            let mut links = self.find_links(name, &name.at, out);
            count += links.len() as u64;
            // Limit the total, because each entry can change a whole range of links.
            if count > 10 * MAX_COUNT {
                out.problem(&name.at, "more than two million changes of links", "make it smaller");
                break;
            }
            for i in &links {
                if let Some(draft) = drafts.links.get_mut(*i) {
                    draft.over.push(all.len());
                }
            }
            // Sort the indexes, because `make_links` compares this list with lists that are in ascending order.
            links.sort_unstable();
            all.push(Change { name: name.value.clone(), links, keys: rest });
        }
        all
    }

    /// Creates the links from their drafts. `base` has an element for each table in `drafts.specs`: the behaviour of a
    /// link to which no change applies.
    fn make_links(
        &mut self,
        drafts: &Drafts,
        base: &[Option<Pair>],
        changes: &[Change],
        files: &mut Files,
        out: &mut Findings,
    ) {
        // Links that have the same table and the same changes share one result.
        let mut memo = BTreeMap::<(usize, Vec<usize>), (Option<Pair>, Vec<usize>)>::new();
        for (i, draft) in drafts.links.iter().enumerate() {
            let pair = if draft.over.is_empty() {
                base[draft.spec].clone()
            } else {
                let key = (draft.spec, draft.over.clone());
                let entry = memo.entry(key).or_insert_with(|| {
                    let item =
                        draft.over.iter().fold(drafts.specs[draft.spec].clone(), |i, o| merge(&i, &changes[*o].keys));
                    (read_spec(&item, files, out), Vec::new())
                });
                entry.1.push(i);
                entry.0.clone()
            };
            if draft.ends.0 == draft.ends.1 {
                let node = self.nodes.get(draft.ends.0 as usize).map_or("", String::as_str);
                let what = format!("a link from {} to itself", quoted(node));
                out.problem(&draft.at, what, "give it two different ends");
            }
            let Some((forward, back)) = pair else { continue };
            let (a, b) = (NodeIx(draft.ends.0), NodeIx(draft.ends.1));
            self.links.push(Link { name: draft.name.clone(), a, b, forward, back });
        }
        // Drafts and links have the same indexes here, because without problems every draft has become a link.
        for ((_, over), (pair, which)) in memo {
            let Some(pair) = pair else { continue };
            // If one entry changed exactly these links, use its name in the resolved text. Otherwise write each link
            // separately.
            let whole = over.iter().filter_map(|o| changes.get(*o)).find(|change| change.links == which);
            match whole {
                Some(change) => self.layout.changed.push((change.name.clone(), pair)),
                None => {
                    for i in which {
                        self.layout.changed.push((drafts.links[i].name.clone(), pair.clone()));
                    }
                }
            }
        }
    }

    fn name_links(&mut self, drafts: &Drafts, out: &mut Findings) {
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
        out: &mut Findings,
    ) {
        let Some(between) = &extra.between else { return };
        let [a, b] = between.value.as_slice() else {
            out.problem(&between.at, "a link has two ends", "write between = [\"a\", \"b\"]");
            return;
        };
        let mut read = |text: &Spanned<String>| Pattern::read_or_report(text, &text.at, out);
        let (Some(first), Some(second)) = (read(a), read(b)) else { return };
        if first.is_range() && second.is_range() && first.count() != second.count() {
            let what = format!("{} ends on one side, {} on the other", first.count(), second.count());
            out.problem(&between.at, what, "make the ranges equally long, or one side a single node");
            return;
        }
        // Refuse long ranges before they are expanded, because the names of a mistyped range could exhaust the memory.
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
            // If one side is a single node, link it to every node of the other side's range.
            let from = &froms[i.min(froms.len() - 1)];
            let to = &tos[i.min(tos.len() - 1)];
            let (Some(a), Some(b)) = (self.find(from, &a.at, out), self.find(to, &b.at, out)) else { return };
            let name = match &extra.name {
                None => format!("{from}-{to}"),
                Some(name) if !many => name.value.clone(),
                // Add the name of the end that differs between these links, so that their names are unique.
                Some(name) => format!("{}-{}", name.value, if second.is_range() { to } else { from }),
            };
            members.push(drafts.links.len());
            drafts.link(name, a.0, b.0, spec, at, out);
        }
        if let Some(name) = &extra.name
            && Pattern::read_or_report(name, &name.at, out).is_some_and(|read| read.is_range())
        {
            let what = format!("{} is a range", quoted(name));
            out.problem(&name.at, what, "leave it out: links are called NAME-END by themselves");
        }
        if many {
            // Other entries can refer to all these links at once. They use the entry's name, or the two ends as the
            // file writes them.
            let group = extra.name.as_ref().map_or_else(|| format!("{}-{}", a.value, b.value), |n| n.value.clone());
            self.groups.insert(group, members);
        }
        made.push((extra.name.as_ref().map(|n| n.value.clone()), [a.value.clone(), b.value.clone()], spec));
    }

    fn shape(
        &mut self,
        topology: &Spanned<Topology>,
        hosts: &[Host],
        drafts: &mut Drafts,
        shaped: &mut Vec<Part<usize>>,
        out: &mut Findings,
    ) {
        let Some(shape) = &topology.shape else {
            out.missing(&topology.at, "shape", "choose from: dumbbell, star, chain, parking-lot, tree");
            self.partial = true;
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
                let mut part = |key: &'static str, raw: &Option<Spanned<Deferred<LinkTable>>>, out: &mut Findings| {
                    let (extra, rest) =
                        raw.as_ref().map_or_else(|| (empty(at), empty(at)), |raw| raw.item.split(LinkExtra::KEYS));
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
                    // Data flows in the links' forward direction: from a sender to the left router, and from the right
                    // router to a receiver.
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

    /// Returns the legs of a star or the hops of a chain. The elements are: the name of the node at the end of the leg
    /// or hop, the index of its table in `drafts.specs`, and its place in the file.
    #[allow(clippy::too_many_arguments, reason = "legs and hops differ only in two words")]
    fn legs(
        &self,
        key: &'static str,
        legs: Option<&Spanned<Vec<Spanned<Deferred<LegTable>>>>>,
        at: &Place,
        stem: &str,
        drafts: &mut Drafts,
        shaped: &mut Vec<Part<usize>>,
        out: &mut Findings,
    ) -> Vec<(String, usize, Place)> {
        let legs = legs.map_or(&[][..], |l| &l.value);
        if legs.is_empty() {
            out.missing(at, key, "write for example [{ rate = \"2Mbps\", delay = \"10ms\", count = 4 }]");
        }
        let mut all: Vec<(String, usize, Place)> = Vec::new();
        for leg in legs {
            let (extra, rest) = leg.item.split(LegExtra::KEYS);
            // Copy the leg's own keys, such as `count`, because they are written to the resolved text.
            let mut kept = extra.table().cloned().unwrap_or_default();
            let Some(extra) = LegExtra::read(&extra, out) else { continue };
            let spec = drafts.spec(rest);
            // Number the default names across all entries, so that they are unique.
            let first = all.len() as u64 + 1;
            let count = extra.count.as_ref().map(|c| c.value);
            if let Some(count) = extra.count.as_ref().filter(|c| all.len() as u64 + c.value > MAX_COUNT) {
                out.problem(&count.at, "more than 200000 nodes", "make it smaller");
                continue;
            }
            let names = match &extra.name {
                None => (first..first + count.unwrap_or(1)).map(|n| format!("{stem}{n}")).collect(),
                Some(name) => {
                    let Some(read) = Pattern::read_or_report(name, &name.at, out) else { continue };
                    if count.is_some_and(|c| c != read.count()) {
                        let what = format!("{} names for {} of them", read.count(), count.unwrap_or(1));
                        out.problem(&name.at, what, "make the range as long as count");
                        continue;
                    }
                    read.names()
                }
            };
            shaped.push((key, kept.drain(..).map(|(k, item)| (k, item.value)).collect(), spec));
            all.extend(names.into_iter().map(|name| (name, spec, leg.at.clone())));
        }
        all
    }

    fn tree(
        &mut self,
        topology: &Spanned<Topology>,
        drafts: &mut Drafts,
        shaped: &mut Vec<Part<usize>>,
        out: &mut Findings,
    ) {
        let levels = topology.levels.as_ref().map_or(&[][..], |l| &l.value);
        if levels.is_empty() {
            let remedy = "write for example [{ fanout = 10, rate = \"10Mbps\" }, { fanout = 100, delay = \"5ms\" }]";
            out.missing(&topology.at, "levels", remedy);
        }
        let root = self.add("root".into(), &topology.at, out);
        self.source = Some(root);
        let mut above = vec![("root".to_owned(), root)];
        for (depth, level) in levels.iter().enumerate() {
            let (extra, rest) = level.item.split(LevelExtra::KEYS);
            let kept = extra.table().cloned().unwrap_or_default();
            let Some(extra) = LevelExtra::read(&extra, out) else { return };
            let Some(fanout) = &extra.fanout else {
                out.missing(&level.at, "fanout", "write for example fanout = 10");
                return;
            };
            // Use a saturating product, because the product of the fan-outs can overflow.
            if fanout.value == 0 || fanout.value.saturating_mul(above.len() as u64) > MAX_COUNT {
                let what =
                    format!("{} nodes on this level are out of range", fanout.value.saturating_mul(above.len() as u64));
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

fn refuse(extra: &Item, why: &str, out: &mut Findings) {
    for (_, item) in extra.table().map_or(&[][..], |t| t) {
        out.problem(&item.at, "not a key here", why);
    }
}

fn read_spec(item: &Item, files: &mut Files, out: &mut Findings) -> Option<Pair> {
    let before = out.problems.len();
    let (back, both) = item.split(&["back"]);
    let both = files.with_others(&both);
    let over = back.get("back");
    let parts = || [Some(&both), over].into_iter().flatten();
    if !parts().any(|part| TRACED.iter().any(|(_, key, _)| part.get(key).is_some())) {
        for looped in parts().filter_map(|part| part.get("loop")) {
            out.problem(&looped.at, "there is no trace to loop", "write trace = \"FILE\", or leave it out");
        }
    }
    let spec = Spec::read(&both, out)?;
    let toward = spec.loss.as_ref().and_then(|l| l.direction.as_ref()).map_or(Directions::Forward, |d| d.value);
    // Whether the rate is given but could not be read. That problem has already been reported.
    let unread = |spec: &Spec, item: &Item| spec.rate.is_none() && item.get("rate").is_some();
    let mut silent = unread(&spec, &both);
    let [ahead, behind] = match over {
        None => [LinkProperties::LINK; 2],
        Some(_) => ["the link's forward direction", "the link's back direction"],
    };
    let forward = direction(&spec, ahead, silent, toward.forward(), files, out);
    let (_, lossless) = both.split(&["loss", "loss_trace"]);
    // A loss applies to the back direction only if its `direction` says so.
    let base = if toward.back() { &both } else { &lossless };
    let back = match over {
        None => Spec::read(base, out)?,
        Some(over) => {
            if let Some(at) = over.get("loss").and_then(|l| l.get("direction")).map(|d| &d.at) {
                out.problem(at, "not a key here", "what stands in \"back\" has its direction");
            }
            let item = merge(base, &files.with_others(over));
            let spec = Spec::read(&item, out)?;
            silent = unread(&spec, &item);
            spec
        }
    };
    let back = direction(&back, behind, silent, true, files, out);
    let (Some(forward), Some(back)) = (forward, back) else { return None };
    if out.problems.len() > before {
        return None;
    }
    let forward = Arc::new(forward);
    let back = if *forward == back { forward.clone() } else { Arc::new(back) };
    Some((forward, back))
}

/// Returns the properties of a direction of a link. `called` is what messages call this direction.
fn direction(
    spec: &Spec,
    called: &'static str,
    unread: bool,
    lossy: bool,
    files: &mut Files,
    out: &mut Findings,
) -> Option<Direction> {
    let repeat = spec.r#loop.as_ref().map(|looped| looped.value);
    let rate = rate(spec.rate.as_ref(), spec.trace.as_ref(), repeat, files, out).filter(|_| !unread);
    let mut traced = |trace: &Option<Spanned<String>>, beside: bool, quantity, out: &mut Findings| match trace {
        Some(trace) if beside => out.refuse(&trace.at, "beside what it is instead of", "leave one of them out"),
        trace => files.series(trace.as_ref()?, repeat, quantity, out),
    };
    let delay_trace = traced(&spec.delay_trace, spec.delay.is_some(), Quantity::Delay, out);
    let loss_trace = traced(&spec.loss_trace, spec.loss.is_some(), Quantity::Loss, out).filter(|_| lossy);
    // Use the mean of a delay trace, because queue limits in bandwidth-delay products need a single delay.
    let mean = delay_trace.as_ref().map(|trace| Span::from_secs_f64(trace.rows.mean()));
    let delay = mean.or(spec.delay.as_ref().map(|delay| delay.value)).unwrap_or_default();
    // Drop a jitter with a mean of 0. It is a way to remove another jitter, in a `[[link]]` entry that changes a link
    // or in the table `back`.
    let jitter = spec.jitter.as_ref().map(|jitter| jitter.value).filter(|jitter| !jitter.mean.is_zero());
    let loss = spec.loss.as_ref().filter(|_| lossy).and_then(|loss| loss.what.clone()).unwrap_or(Loss::None);
    // If the rate could not be read, continue with 1 Mb/s, so that the remaining checks still run.
    let steady = rate.as_ref().map_or(Some(Rate::mbps(1)), RateSpec::mean).filter(|rate| *rate > Rate::ZERO);
    let policer = spec.policer.as_ref().and_then(|given| given.value.as_option().map(|policer| (given, *policer)));
    let shaper = spec.shaper.as_ref().and_then(|given| given.value.as_option().map(|shaper| (given, *shaper)));
    // A queue limit may be a time. Convert it with the long-term rate at which the queue drains. A shaper can reduce
    // this rate.
    let drains = steady.into_iter().chain(shaper.map(|(_, shaper)| shaper.rate)).min();
    let line = LinkProperties { rate: drains, delay, called };
    let queue = match &spec.queue {
        Some(given) => Queue::read(&given.item, &line, out),
        None => Some(Queue::drop_tail(Limit::Packets(50))),
    };
    let mtu = spec.mtu.as_ref().map_or(Bytes::new(1500), |m| m.value);
    // Refuse other sizes, because RFC 791 requires every link to carry 68 bytes, and no datagram has more than 65,535.
    if let Some(given) = spec.mtu.as_ref().filter(|m| !(68..=65_535).contains(&m.get())) {
        out.problem(&given.at, format!("{} is out of range", given.value), "write a size from \"68B\" to \"65535B\"");
    }
    let policed = policer.map(|(given, Policer { burst, .. })| (&given.at, burst));
    let shaped = shaper.map(|(given, Shaper { burst, .. })| (&given.at, burst));
    for (at, burst) in policed.into_iter().chain(shaped).filter(|(_, burst)| *burst < mtu) {
        let what = format!("a packet of {mtu} never fits into a burst of {burst}");
        out.problem(at, what, format!("write burst = \"{mtu}\" or more, or a smaller mtu"));
    }
    Some(Direction {
        rate: rate?,
        delay,
        delay_trace,
        jitter,
        arq: spec.arq.as_ref().map(|arq| arq.value),
        loss,
        loss_trace,
        reorder: spec.reorder.as_ref().map(|reorder| reorder.value).unwrap_or_default(),
        duplicate: spec.duplicate.as_ref().map_or(Some(0.0), |given| probability(given, out))?,
        policer: policer.map(|(_, policer)| policer),
        shaper: shaper.map(|(_, shaper)| shaper),
        bleach: spec.bleach.as_ref().is_some_and(|given| given.value),
        queue: queue?,
        mtu,
    })
}

pub(crate) fn probability(given: &Spanned<f64>, out: &mut Findings) -> Option<f64> {
    checked(given, &link::probability, out)
}

fn rate(
    rate: Option<&Spanned<OrNone<Rate>>>,
    trace: Option<&Spanned<String>>,
    repeat: Option<bool>,
    files: &mut Files,
    out: &mut Findings,
) -> Option<RateSpec> {
    match (rate, trace) {
        (Some(_), Some(trace)) => out.refuse(&trace.at, "both a rate and a trace", "leave one of them out"),
        (None, Some(trace)) => files.trace(trace, repeat, out),
        (rate, None) => Some(match rate.map(|rate| rate.value) {
            None | Some(OrNone::None) => RateSpec::Unlimited,
            Some(OrNone::Some(rate)) => RateSpec::Constant(rate),
        }),
    }
}
