//! Resolves the tables of a scenario file into a [`Scenario`].

use crate::encode::{Codec, Size};
use crate::expect::{self, Scene};
use crate::file::{EventTable, ExpectTable, FORMAT, File, SetTable, Shape, SimulcastTable};
use crate::flow::{Group, MIN_PACKET, flows, groups, hosts};
use crate::model::{
    Change, Direction, Directions, Event, EventKind, Expect, Flow, FlowIx, FlowKind, Link, LinkIx, Media, NodeIx,
    RateSpec, Recording, Scenario, Start, Workload,
};
use crate::name::Pattern;
use crate::network::{Files, Layout, Network, probability};
use crate::simulcast::simulcasts;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use steadycast_link::Limit;
use steadycast_settings::tree::{Place, quoted};
use steadycast_settings::{Findings, OneOrMany, Spanned};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

/// Maximum number of events, after ranges and repetitions have been expanded.
const MAX_EVENTS: usize = 1_000_000;

/// Maximum number of receivers of all flows together.
const MAX_RECEIVERS: usize = 2_000_000;

/// Returns the scenario and the network's layout. If this adds problems to `out`, the scenario is incomplete.
pub(crate) fn resolve(file: &File, title: &str, files: &mut Files, out: &mut Findings) -> (Scenario, Layout) {
    if let Some(format) = file.format.as_ref().filter(|f| f.value != FORMAT) {
        let remedy = if format.value > FORMAT { "install a newer version of steadycast" } else { "write format = 1" };
        out.problem(&format.at, format!("format {} is not known", format.value), remedy);
    }
    let name = title_of(file, title, out);
    let (duration, warmup) = times(file, out);
    // Set the duration first, because it limits the number of changes that a trace may cause.
    files.duration = duration;
    let groups = groups(file.flow.as_ref().map_or(&[][..], |f| &f.value), out);
    // Accept a scenario that has `nodes` but no flow, because other programs can use its network.
    if file.nodes.is_none() && file.flow.as_ref().is_none_or(|f| f.value.is_empty()) {
        out.missing(&file.here, "flow", "write at least one [[flow]]");
    }
    let dumbbell = file.topology.as_ref().and_then(|t| t.shape.as_ref()).is_some_and(|s| s.value == Shape::Dumbbell);
    if file.topology.is_none() && file.nodes.is_none() {
        out.missing(&file.here, "topology", "write network = \"NAME\", or [topology], or nodes and [[link]]");
    }
    // Collect the dumbbell's hosts before building the network, because they are named after the flows.
    let hosts = if dumbbell { hosts(&groups, out) } else { Vec::new() };
    let links = file.link.as_ref().map_or(&[][..], |l| &l.value);
    let network = Network::build(file.topology.as_ref(), file.nodes.as_ref(), links, &hosts, files, out);
    let events = file.event.as_ref().map_or(&[][..], |e| &e.value);
    let started: BTreeSet<String> = events
        .iter()
        .filter_map(|e| e.start.as_ref())
        .flat_map(|start| start.all.iter().flat_map(|name| matching_flows(name, &groups)))
        .collect();
    // Only flows without a start event start at 0 s by default, so the flows are made after `started` is known.
    let before = out.problems.len();
    let (mut all, index, ranges) =
        make_flows(&groups, |group, out| flows(group, &network, dumbbell, &started, files, out), out);
    let whole = out.problems.len() == before && out.problems.is_empty();
    for (group, range) in groups.iter().zip(ranges.iter().cloned()) {
        check_times(group, &all[range.clone()], duration, out);
        // Check paths only if there was no problem before. Otherwise a missing path may only be a consequence.
        if whole {
            fit_packets(group, &mut all[range.clone()], &network);
            check_ways(group, &all[range.clone()], &network, out);
            fit_session(group, &mut all[range.clone()], &network);
        }
    }
    if whole {
        fit_film(&groups, &ranges, &mut all, &network);
    }
    let mut scenario = Scenario {
        name,
        duration,
        warmup,
        seed: Seed(file.seed.as_ref().map_or(1, |s| s.value)),
        join_latency: file.join_latency.as_ref().map_or(Span::ZERO, |l| l.value),
        leave_latency: file.leave_latency.as_ref().map_or(Span::ZERO, |l| l.value),
        nodes: Vec::new(),
        links: Vec::new(),
        flows: all,
        simulcasts: Vec::new(),
        events: Vec::new(),
        record: Recording { interval: Span::secs(1), packets: Vec::new(), pcap: Vec::new(), audio: false },
        expect: Vec::new(),
    };
    let whole = whole && out.problems.is_empty();
    // Build this index only for join and leave events, because a group can have millions of receivers.
    let asked = events.iter().any(|e| e.join.is_some() || e.leave.is_some());
    let at_node = if asked { at_nodes(&scenario.flows) } else { BTreeMap::new() };
    let names = Names { groups: &groups, index, network: &network, at_node, whole };
    names.fill(&mut scenario, file, files, out);
    scenario.nodes = network.nodes;
    scenario.links = network.links;
    (scenario, network.layout)
}

fn title_of(file: &File, title: &str, out: &mut Findings) -> String {
    let Some(name) = &file.name else { return title.to_owned() };
    if Pattern::read_or_report(name, &name.at, out).is_some_and(|read| read.is_range()) {
        out.problem(&name.at, "a scenario has one name", "leave the range out");
    }
    name.value.clone()
}

fn times(file: &File, out: &mut Findings) -> (Span, Span) {
    let duration = match &file.duration {
        Some(given) if given.is_zero() => {
            out.problem(&given.at, "a run of 0s has no time", "write a time above 0, for example \"80s\"");
            Span::MAX
        }
        Some(given) => given.value,
        None => {
            out.missing(&file.here, "duration", "write for example duration = \"80s\"");
            // Continue with `Span::MAX`: no time is later, so no other time causes a consequential problem.
            Span::MAX
        }
    };
    let warmup = file.warmup.as_ref().map_or(Span::ZERO, |w| w.value);
    if let Some(given) = file.warmup.as_ref().filter(|w| w.value >= duration) {
        out.problem(
            &given.at,
            format!("a warm-up of {} leaves no time of {duration}", given.value),
            "make it shorter than duration",
        );
    }
    (duration, warmup)
}

/// Returns the flows, the index of each flow by name, and for each group the range of its flows' indexes.
#[allow(clippy::type_complexity, reason = "three results of one loop")]
fn make_flows(
    groups: &[Group<'_>],
    mut flows: impl FnMut(&Group<'_>, &mut Findings) -> Vec<Flow>,
    out: &mut Findings,
) -> (Vec<Flow>, BTreeMap<String, FlowIx>, Vec<Range<usize>>) {
    let mut all = Vec::new();
    let mut index = BTreeMap::new();
    let mut ranges = Vec::new();
    let mut receivers = 0;
    for group in groups {
        // Stop if there are too many receivers, because a mistyped number could exhaust the memory.
        if receivers > MAX_RECEIVERS {
            out.problem(&group.table.at, "more than two million receivers", "make it smaller");
            break;
        }
        let first = all.len();
        for flow in flows(group, out) {
            receivers += flow.to.len();
            index.entry(flow.name.clone()).or_insert(FlowIx(all.len() as u32));
            all.push(flow);
        }
        ranges.push(first..all.len());
    }
    (all, index, ranges)
}

/// Returns the names of the flows to which `text` refers. It can be a flow's name, the name of an entry with several
/// flows, or a range.
fn matching_flows(text: &str, groups: &[Group<'_>]) -> Vec<String> {
    if let Some(group) = groups.iter().find(|g| g.table.name.as_ref().is_some_and(|n| n.value == text)) {
        return group.names.clone();
    }
    Pattern::read(text).map(|p| p.names()).unwrap_or_default()
}

fn check_times(group: &Group<'_>, flows: &[Flow], duration: Span, out: &mut Findings) {
    // Check only the first flow, because all flows of an entry have the same times.
    let Some(flow) = flows.first() else { return };
    let end = Time::ZERO + duration;
    let starts = match flow.start {
        Start::At(at) | Start::Uniform(at, _) => at,
        // Use 0 here, because the times of start events are checked with the events.
        Start::Event => Time::ZERO,
    };
    if let Some(given) = group.table.start.as_ref().filter(|_| starts >= end) {
        out.warn(&given.at, format!("starts after the end at {duration}"), "it will never run");
    }
    if let Some(given) = group.table.stop.as_ref().filter(|s| s.value > duration) {
        out.warn(&given.at, format!("stops after the end at {duration}"), "it runs to the end");
    }
}

/// Checks that there is a path from each source to its receivers, and that packets fit through it.
fn check_ways(group: &Group<'_>, flows: &[Flow], network: &Network, out: &mut Findings) {
    let table = group.table;
    let at = table.to.as_ref().map(|t| &t.at).or(table.from.as_ref().map(|f| &f.at)).unwrap_or(&table.at);
    let parts = parts(network);
    // A packet must fit into the queue as well as through the link.
    let room = |direction: &crate::Direction| queue_room(direction).unwrap_or(direction.mtu).min(direction.mtu);
    // Find the smallest `room` of all links. Paths are searched only for packets that are larger.
    let least = network.links.iter().map(|l| room(&l.forward).min(room(&l.back))).min();
    let mut around = None;
    for flow in flows {
        let (packet, given) = match &flow.kind {
            FlowKind::Video(v) => (v.packet, table.packet.as_ref()),
            FlowKind::Tcp(t) => (t.config.packet, table.packet.as_ref()),
            FlowKind::Cbr(c) => (c.packet, table.packet.as_ref()),
            FlowKind::OnOff(o) => (o.packet, table.packet.as_ref()),
        };
        let part = |node: NodeIx| parts.get(node.0 as usize).copied();
        for to in &flow.to {
            // Stop at the first problem, because all flows of this `[[flow]]` entry can have the same problem.
            if *to == flow.from {
                let node = quoted(&network.nodes[to.0 as usize]);
                out.problem(
                    at,
                    format!("{} would send to itself, at {node}", quoted(&flow.name)),
                    "name another receiver",
                );
                return;
            }
            if part(*to) != part(flow.from) {
                let (a, b) = (&network.nodes[flow.from.0 as usize], &network.nodes[to.0 as usize]);
                let what = format!("no path leads from {} to {}", quoted(a), quoted(b));
                out.problem(at, what, "connect them by links");
                return;
            }
        }
        if least.is_some_and(|mtu| mtu < packet)
            && let Some(where_not) = narrow_link(
                flow,
                packet,
                &network.links,
                around.get_or_insert_with(|| neighbours(network.nodes.len(), &network.links)),
            )
        {
            let what = format!("a packet of {packet} does not fit {where_not}");
            let at = given.map_or_else(|| table.at.below("packet"), |s| s.at.clone());
            let larger = if where_not.starts_with("into") { "limit" } else { "mtu" };
            out.problem(&at, what, format!("make the packet smaller or the {larger} larger"));
            return;
        }
    }
}

fn neighbours(nodes: usize, links: &[Link]) -> Vec<Vec<(u32, usize)>> {
    let mut all = vec![Vec::new(); nodes];
    for (i, link) in links.iter().enumerate() {
        all[link.a.0 as usize].push((link.b.0, i));
        all[link.b.0 as usize].push((link.a.0, i));
    }
    all
}

/// Returns for each node the smallest node of its connected component, as an identifier of the component.
fn parts(network: &Network) -> Vec<u32> {
    let mut up: Vec<u32> = (0..network.nodes.len() as u32).collect();
    fn top(up: &mut [u32], mut node: u32) -> u32 {
        while up[node as usize] != node {
            // Halve the path, so that the trees of this union-find stay flat.
            up[node as usize] = up[up[node as usize] as usize];
            node = up[node as usize];
        }
        node
    }
    for link in &network.links {
        let (a, b) = (top(&mut up, link.a.0), top(&mut up, link.b.0));
        up[a.max(b) as usize] = a.min(b);
    }
    (0..up.len() as u32).map(|node| top(&mut up, node)).collect()
}

/// Reduces the default packet size of TCP flows to the smallest MTU on the path, like path MTU discovery.
fn fit_packets(group: &Group<'_>, flows: &mut [Flow], network: &Network) {
    let least =
        // Keep the packet size if the scenario sets it, or if the MTU is below TCP's smallest packet. `check_ways`
        // reports such an MTU.
        network.links.iter().map(mtu).min().filter(|least| group.table.packet.is_none() && *least >= MIN_PACKET);
    let mut around = None;
    for flow in flows {
        let FlowKind::Tcp(tcp) = &flow.kind else { continue };
        let Some(packet) = Some(tcp.config.packet).filter(|packet| least.is_some_and(|least| least < *packet)) else {
            continue;
        };
        let around = around.get_or_insert_with(|| neighbours(network.nodes.len(), &network.links));
        let room = ways(flow, &network.links, around).map(|(link, _)| mtu(link)).min();
        if let (FlowKind::Tcp(tcp), Some(room)) = (&mut flow.kind, room) {
            tcp.config.packet = packet.min(room);
        }
    }
}

/// Returns the largest packet that fits through a link in both directions.
fn mtu(link: &Link) -> Bytes {
    link.forward.mtu.min(link.back.mtu)
}

/// Reduces the default session bandwidth of video flows to the rate of the slowest link on the path of their media.
/// Ignores links whose rate is not constant.
fn fit_session(group: &Group<'_>, flows: &mut [Flow], network: &Network) {
    let given = group.table.rtcp.as_ref().is_some_and(|r| r.item.get("session_bw").is_some());
    let constant = |direction: &crate::Direction| match direction.rate {
        RateSpec::Constant(rate) => Some(rate).filter(|rate| *rate > Rate::ZERO),
        _ => None,
    };
    // Compare with the slowest link first, so that paths are searched only if some link is slower than the session
    // bandwidth.
    let least = network.links.iter().flat_map(|l| [constant(&l.forward), constant(&l.back)]).flatten().min();
    let mut around = None;
    for flow in flows {
        let FlowKind::Video(video) = &flow.kind else { continue };
        if given || least.is_none_or(|least| least >= video.rtcp.session_bw) {
            continue;
        }
        let links = around.get_or_insert_with(|| neighbours(network.nodes.len(), &network.links));
        let narrowest = ways(flow, &network.links, links).filter_map(|(_, direction)| constant(direction)).min();
        if let (Some(rate), FlowKind::Video(video)) = (narrowest, &mut flow.kind) {
            video.rtcp.session_bw = video.rtcp.session_bw.min(rate);
        }
    }
}

/// Returns the rate of the synthetic film in CIF at its best quality, including IP, UDP and RTP headers.
///
/// Returns `None` for codecs whose frame sizes in 720p are not shipped with the program. With these codecs the film
/// stays in CIF, because encoding it in 720p takes minutes.
const fn most_in_cif(codec: Codec) -> Option<Rate> {
    match codec {
        Codec::Mpeg4 => Some(Rate::mbps(2)),
        Codec::H264 => Some(Rate::kbps(1_450)),
        _ => None,
    }
}

/// Sets the size of a synthetic film to 1280x720 if the flow's share of each link on its path exceeds [`most_in_cif`].
/// Does not change a size that the scenario sets.
///
/// A flow's share of a link is the link's mean rate divided by the number of flows on it that always have data.
fn fit_film(groups: &[Group<'_>], ranges: &[std::ops::Range<usize>], all: &mut [Flow], network: &Network) {
    let open = |group: &Group<'_>, flow: &Flow| {
        let FlowKind::Video(video) = &flow.kind else { return false };
        let given = group.table.encode.as_ref().is_some_and(|encode| encode.item.get("size").is_some());
        matches!(video.media, Media::Synthetic) && !given && most_in_cif(video.encode.codec).is_some()
    };
    let film = |group, range: &std::ops::Range<usize>| all[range.clone()].first().is_some_and(|flow| open(group, flow));
    let films: Vec<_> = groups.iter().zip(ranges).filter(|(group, range)| film(*group, range)).collect();
    if films.is_empty() {
        return;
    }
    let links = neighbours(network.nodes.len(), &network.links);
    let always = |flow: &Flow| match &flow.kind {
        FlowKind::Video(_) => true,
        FlowKind::Tcp(tcp) => matches!(tcp.source, Workload::Bulk),
        FlowKind::Cbr(_) | FlowKind::OnOff(_) => false,
    };
    // Use the link's address as the key, because links with equal values share their `Direction`s.
    let place = |(link, forward): (&Link, bool)| (std::ptr::from_ref(link), forward);
    let mut users = BTreeMap::new();
    for way in all.iter().filter(|flow| always(flow)).flat_map(|flow| directed_ways(flow, &network.links, &links)) {
        *users.entry(place(way)).or_insert(0.0) += 1.0;
    }
    for flow in films.into_iter().flat_map(|(_, range)| range.clone()) {
        let share = |(link, forward): (&Link, bool)| {
            let direction = if forward { &link.forward } else { &link.back };
            Some(direction.rate.mean()?.scale(1.0 / users.get(&place((link, forward)))?))
        };
        let least = directed_ways(&all[flow], &network.links, &links).filter_map(share).min();
        if let (Some(share), FlowKind::Video(video)) = (least, &mut all[flow].kind)
            && most_in_cif(video.encode.codec).is_some_and(|most| share > most)
        {
            video.encode.size = Size::HD;
        }
    }
}

/// Returns a text with the first link that is too small for a flow's packets, and the property that is too small.
fn narrow_link(flow: &Flow, packet: Bytes, links: &[Link], around: &[Vec<(u32, usize)>]) -> Option<String> {
    let too_small = |(link, direction): (&Link, &crate::Direction)| {
        let name = quoted(&link.name);
        if direction.mtu < packet {
            return Some(format!("through link {name}, whose mtu is {}", direction.mtu));
        }
        let room = queue_room(direction).filter(|room| *room < packet)?;
        Some(format!("into the queue of link {name}, whose limit is {room}"))
    };
    ways(flow, links, around).find_map(too_small)
}

/// Returns the size of the direction's queue, or `None` if the queue is not limited in bytes.
fn queue_room(direction: &crate::Direction) -> Option<Bytes> {
    match direction.queue.limit() {
        Limit::Bytes(most) => Some(most),
        _ => None,
    }
}

/// Returns the links on a flow's paths, each link once, with the direction in which data flows. The paths are those
/// with the fewest hops.
fn ways<'a>(
    flow: &Flow,
    links: &'a [Link],
    around: &[Vec<(u32, usize)>],
) -> impl Iterator<Item = (&'a Link, &'a crate::Direction)> {
    directed_ways(flow, links, around).map(|(link, forward)| (link, if forward { &*link.forward } else { &*link.back }))
}

/// Returns the same links as [`ways`]. The flag is true if data flows in the link's forward direction.
fn directed_ways<'a>(
    flow: &Flow,
    links: &'a [Link],
    around: &[Vec<(u32, usize)>],
) -> impl Iterator<Item = (&'a Link, bool)> {
    let mut predecessor: Vec<Option<(u32, usize)>> = vec![None; around.len()];
    let mut queue = std::collections::VecDeque::from([flow.from.0]);
    let mut seen = vec![false; around.len()];
    seen[flow.from.0 as usize] = true;
    while let Some(node) = queue.pop_front() {
        for (next, link) in &around[node as usize] {
            if !std::mem::replace(&mut seen[*next as usize], true) {
                predecessor[*next as usize] = Some((node, *link));
                queue.push_back(*next);
            }
        }
    }
    let mut found = Vec::new();
    for to in &flow.to {
        let mut node = to.0;
        // Follow the path from the receiver back to the source. Stop at a link that is already in `found`, because
        // paths to several receivers share their first links. `take` has removed this link from `predecessor`.
        while let Some((before, i)) = predecessor[node as usize].take() {
            let link = &links[i];
            found.push((link, link.a.0 == before));
            node = before;
        }
    }
    found.into_iter()
}

impl Scenario {
    /// Returns the largest packet that fits in both directions through all links on a flow's paths. Returns 1500 bytes
    /// if there are no links.
    pub fn mtu(&self, flow: &Flow) -> Bytes {
        let all = self.links.iter().map(mtu);
        let (Some(least), Some(most)) = (all.clone().min(), all.max()) else { return Bytes::new(1500) };
        // Do not search the path if all links have the same MTU.
        if least == most {
            return least;
        }
        let around = neighbours(self.nodes.len(), &self.links);
        ways(flow, &self.links, &around).map(|(link, _)| mtu(link)).min().unwrap_or(most)
    }
}

struct Names<'a> {
    groups: &'a [Group<'a>],
    index: BTreeMap<String, FlowIx>,
    network: &'a Network,
    /// The receivers at each node, as flow and index. It is empty if no event needs it.
    at_node: BTreeMap<NodeIx, Vec<(FlowIx, usize)>>,
    /// Whether there has been no problem so far. If there has been one, an unknown name may be a consequence and is not
    /// reported.
    whole: bool,
}

fn at_nodes(flows: &[Flow]) -> BTreeMap<NodeIx, Vec<(FlowIx, usize)>> {
    let mut all: BTreeMap<NodeIx, Vec<(FlowIx, usize)>> = BTreeMap::new();
    for (f, flow) in flows.iter().enumerate() {
        // Leave out TCP flows, because they have no group that a receiver could join.
        if !matches!(flow.kind, FlowKind::Tcp(_)) {
            for (r, node) in flow.to.iter().enumerate() {
                all.entry(*node).or_default().push((FlowIx(f as u32), r));
            }
        }
    }
    all
}

impl Names<'_> {
    /// Fills in the parts of a scenario that refer to flows, links and nodes by name.
    fn fill(&self, scenario: &mut Scenario, file: &File, files: &Files, out: &mut Findings) {
        let events = file.event.as_ref().map_or(&[][..], |e| &e.value);
        scenario.events = self.events(events, scenario, out);
        let tables = file.simulcast.as_ref().map_or(&[][..], |s| &s.value);
        let find = |table: &SimulcastTable, out: &mut Findings| self.groups_of(table, out);
        scenario.simulcasts = simulcasts(tables, &scenario.flows, &scenario.events, find, &files.registry, out);
        scenario.record = self.record(file, &scenario.flows, out);
        for table in file.expect.as_ref().map_or(&[][..], |e| &e.value) {
            let Scenario { flows, simulcasts, .. } = &*scenario;
            let scene = Scene {
                flows,
                links: &self.network.links,
                simulcasts,
                nodes: &self.network.nodes,
                registry: &files.registry,
                whole: self.whole,
            };
            let expect = self.expect(table, &scene, out);
            scenario.expect.extend(expect);
        }
    }

    fn flows(&self, names: &OneOrMany<String>, out: &mut Findings) -> Vec<FlowIx> {
        let mut all = Vec::new();
        for given in &names.all {
            if Pattern::read_or_report(given, &given.at, out).is_none() {
                continue;
            }
            for name in matching_flows(given, self.groups) {
                match self.index.get(&name) {
                    Some(flow) => all.push(*flow),
                    // Skip a flow that could not be created, because that problem has been reported.
                    None if self.groups.iter().any(|g| g.names.contains(&name)) => {}
                    None => {
                        let known: Vec<_> =
                            self.groups.iter().filter_map(|g| Some(g.table.name.as_ref()?.as_str())).collect();
                        out.unknown_name(&given.at, "flow", &name, &known);
                        break;
                    }
                }
            }
        }
        all
    }

    /// Returns the flows of a simulcast. Returns `None` if its list is not valid, or if an earlier problem may have
    /// removed flows.
    fn groups_of(&self, table: &SimulcastTable, out: &mut Findings) -> Option<Vec<FlowIx>> {
        let Some(names) = &table.flows else {
            return out.lack(&table.here, "flows", "write for example flows = [\"low\", \"high\"]");
        };
        let before = out.problems.len();
        let all = self.flows(names, out);
        (self.whole && out.problems.len() == before).then_some(all)
    }

    fn links(&self, names: &OneOrMany<String>, out: &mut Findings) -> Vec<LinkIx> {
        let find = |given: &Spanned<String>| self.network.find_links(given, &given.at, out);
        names.all.iter().flat_map(find).map(|i| LinkIx(i as u32)).collect()
    }

    /// Adds a problem for a change of a link's property that comes from a trace. A trace applies to the whole run, so
    /// an event can't replace it.
    fn refuse_traced(&self, set: &SetTable, links: &[LinkIx], out: &mut Findings) {
        let direction = set.direction.as_ref().map_or(Directions::Both, |d| d.value);
        for link in links.iter().filter_map(|link| self.network.links.get(link.0 as usize)) {
            let ways = [(&link.forward, direction.forward()), (&link.back, direction.back())];
            let has = |has: fn(&Direction) -> bool| ways.iter().any(|(way, applies)| *applies && has(way));
            let is_traced = |way: &Direction| matches!(way.rate, RateSpec::Trace(..) | RateSpec::Table(_));
            for (given, is_traced, key) in [
                (set.rate.as_ref().map(|rate| &rate.at), has(is_traced), "trace"),
                (set.delay.as_ref().map(|delay| &delay.at), has(|way| way.delay_trace.is_some()), "delay_trace"),
                (set.loss.as_ref().map(|loss| &loss.at), has(|way| way.loss_trace.is_some()), "loss_trace"),
            ] {
                if let Some(at) = given.filter(|_| is_traced) {
                    let what = format!("the link's {key} holds for the whole run, and an event can't replace it");
                    out.problem(at, what, format!("write the change into the file of the {key}, or leave it out"));
                }
            }
        }
    }

    /// Returns the receivers that `names` refers to, either by their node or as FLOW.NODE.
    fn receivers(&self, names: &OneOrMany<String>, flows: &[Flow], out: &mut Findings) -> Vec<(FlowIx, usize)> {
        let mut all = Vec::new();
        if !self.whole {
            return all;
        }
        let at_node = &self.at_node;
        for given in &names.all {
            let Some(pattern) = Pattern::read_or_report(given, &given.at, out) else { continue };
            for name in pattern.names() {
                let here = self.network.node(&name).and_then(|n| at_node.get(&n)).map_or(&[][..], |v| v);
                let found = match here {
                    [one] => Some(*one),
                    [] => self.of_flow(&name),
                    // Stop at the first ambiguous name, because a range can expand to thousands of them.
                    [_, _, ..] => {
                        let what = format!("several flows have a receiver at {}", quoted(&name));
                        out.problem(&given.at, what, format!("write FLOW.{name}"));
                        break;
                    }
                };
                let Some((flow, receiver)) = found else {
                    let known: Vec<_> =
                        at_node.keys().take(2000).map(|n| self.network.nodes[n.0 as usize].as_str()).collect();
                    out.unknown_name(&given.at, "receiver", &name, &known);
                    break;
                };
                if flows[flow.0 as usize].cast != crate::Cast::Multicast {
                    let what = format!("{} is no group", quoted(&flows[flow.0 as usize].name));
                    out.problem(&given.at, what, "write cast = \"multicast\" in its [[flow]]");
                    break;
                }
                all.push((flow, receiver));
            }
        }
        all
    }

    fn of_flow(&self, name: &str) -> Option<(FlowIx, usize)> {
        // Try each dot as the end of the flow's name, because names can contain dots.
        name.match_indices('.').find_map(|(dot, _)| {
            let flow = self.index.get(&name[..dot])?;
            let node = self.network.node(&name[dot + 1..])?;
            self.at_node.get(&node)?.iter().find(|(f, _)| f == flow).copied()
        })
    }

    fn events(&self, tables: &[Spanned<EventTable>], scenario: &Scenario, out: &mut Findings) -> Vec<Event> {
        let (mut all, mut stops) = (Vec::new(), Vec::new());
        for table in tables {
            let at = match &table.value.at {
                Some(given) => {
                    if given.value > scenario.duration {
                        let what = format!("after the end at {}", scenario.duration);
                        out.warn(&given.at, what, "it will never happen");
                    }
                    Time::ZERO + given.value
                }
                None => {
                    out.missing(&table.here, "at", "write for example at = \"50s\"");
                    Time::ZERO
                }
            };
            let given = [
                table.join.is_some(),
                table.leave.is_some(),
                table.start.is_some(),
                table.stop.is_some(),
                table.set.is_some(),
            ];
            if given.iter().filter(|s| **s).count() != 1 {
                // Skip the event if one of its keys could not be read, because that problem has been reported.
                if out.spoken_below(&table.here) {
                    continue;
                }
                let what =
                    if given.contains(&true) { "the event has several changes" } else { "the event has no change" };
                out.problem(&table.here, what, "write exactly one of: join, leave, start, stop, set");
                continue;
            }
            let first = all.len();
            let mut add = |kind: EventKind| all.push(Event { at, kind });
            if let Some(names) = &table.join {
                for (flow, receiver) in self.receivers(names, &scenario.flows, out) {
                    add(EventKind::Join { flow, receiver });
                }
            }
            if let Some(names) = &table.leave {
                for (flow, receiver) in self.receivers(names, &scenario.flows, out) {
                    add(EventKind::Leave { flow, receiver });
                }
            }
            if let Some(names) = &table.start {
                self.flows(names, out).into_iter().map(EventKind::StartFlow).for_each(&mut add);
            }
            if let Some(names) = &table.stop {
                let flows = self.flows(names, out);
                stops.extend(flows.iter().map(|flow| (*flow, at, &table.here)));
                flows.into_iter().map(EventKind::StopFlow).for_each(&mut add);
            }
            if let Some(set) = &table.set {
                let Some(names) = &set.link else {
                    out.missing(&set.at, "link", "write for example link = \"bottleneck\"");
                    continue;
                };
                if !set.present().iter().any(|(key, _)| !matches!(*key, "link" | "direction")) {
                    // Report nothing if one of its keys could not be read, because that problem has been reported.
                    if !out.spoken_below(&set.at) {
                        let remedy = "write at least one of: rate, delay, jitter, loss, reorder, duplicate";
                        out.problem(&set.at, "it changes nothing", remedy);
                    }
                    continue;
                }
                let links = self.links(names, out);
                self.refuse_traced(set, &links, out);
                // Pass on only the keys that the event contains, because absent keys mean no change.
                let rate = set.rate.as_ref().map(|rate| rate.value);
                let jitter = set.jitter.as_ref().map(|jitter| jitter.value);
                let loss = set.loss.as_ref().map(|loss| loss.value.clone());
                let reorder = set.reorder.as_ref().map(|r| r.value);
                let duplicate = set.duplicate.as_ref().and_then(|d| probability(d, out));
                let direction = set.direction.as_ref().map_or(Directions::Both, |d| d.value);
                for link in links {
                    let delay = set.delay.as_ref().map(|d| d.value);
                    let loss = loss.clone();
                    add(EventKind::Set(Change { link, direction, rate, delay, jitter, loss, reorder, duplicate }));
                }
            }
            if let Some(every) = &table.every {
                repeat_events(&mut all, first, every, scenario.duration, out);
            }
            if all.len() > MAX_EVENTS {
                out.problem(&table.here, "more than a million events", "make it smaller");
                return Vec::new();
            }
        }
        // Use a stable sort, so that events at the same time stay in the order of the file.
        all.sort_by_key(|e: &Event| e.at);
        warn_of_early_stops(&all, &stops, &scenario.flows, out);
        all
    }

    fn record(&self, file: &File, flows: &[Flow], out: &mut Findings) -> Recording {
        let table = file.record.as_ref();
        let interval = table.and_then(|r| r.interval.as_ref());
        if let Some(given) = interval.filter(|i| i.value < Span::millis(1)) {
            out.problem(&given.at, format!("a step of {} is too short", given.value), "write at least \"1ms\"");
        }
        let packets = match table.and_then(|r| r.packets.as_ref()) {
            Some(names) if names.all.iter().any(|n| n.value == "all") => (0..flows.len() as u32).map(FlowIx).collect(),
            Some(names) => self.flows(names, out),
            None => Vec::new(),
        };
        let pcap = table.and_then(|r| r.pcap.as_ref()).map_or_else(Vec::new, |names| self.links(names, out));
        // Remove duplicates, because names and ranges in the list can overlap.
        let unique = |mut all: Vec<u32>| {
            all.sort_unstable();
            all.dedup();
            all
        };
        Recording {
            interval: interval.map_or(Span::secs(1), |i| i.value),
            packets: unique(packets.into_iter().map(|f| f.0).collect()).into_iter().map(FlowIx).collect(),
            pcap: unique(pcap.into_iter().map(|l| l.0).collect()).into_iter().map(LinkIx).collect(),
            audio: table.and_then(|r| r.audio.as_ref()).is_some_and(|audio| audio.value),
        }
    }

    fn expect(&self, table: &Spanned<ExpectTable>, scene: &Scene<'_>, out: &mut Findings) -> Option<Expect> {
        let Some(that) = &table.that else {
            return out.lack(&table.at, "that", "write for example that = \"flows.tcp.share_of_fair\"");
        };
        expect::check(that, &that.at, scene, out);
        let (min, max) = (table.min.as_ref(), table.max.as_ref());
        // Do not report a missing bound if a bound could not be read, because that problem has been reported.
        if min.is_none() && max.is_none() && !out.spoken_below(&table.at) {
            out.problem(&table.at, "it has no bound", "write min, max or both");
        }
        expect::check_limits(min, max, out);
        Some(Expect { that: that.value.clone(), min: min.map(|m| m.value), max: max.map(|m| m.value) })
    }
}

/// Repeats the events that start at the index `first`. The period is `every`, and the last repetition is before the end
/// of the run.
fn repeat_events(all: &mut Vec<Event>, first: usize, every: &Spanned<Span>, lasts: Span, out: &mut Findings) {
    if every.value < Span::millis(1) {
        out.problem(&every.at, format!("again after {}", every.value), "at least \"1ms\"");
        return;
    }
    let end = Time::ZERO + lasts;
    let mut last = first;
    // Do not repeat without a known duration (`Span::MAX`), because this loop would never end.
    while lasts < Span::MAX && all.len() <= MAX_EVENTS {
        let next: Vec<_> = all[last..].iter().map(|e| Event { at: e.at + every.value, kind: e.kind.clone() }).collect();
        if next.first().is_none_or(|e| e.at >= end) {
            break;
        }
        last = all.len();
        all.extend(next);
    }
}

/// Warns of a stop event before the first start event of a flow that only events start. Such a stop has no effect.
fn warn_of_early_stops(events: &[Event], stops: &[(FlowIx, Time, &Place)], flows: &[Flow], out: &mut Findings) {
    for (flow, at, place) in stops {
        let named = |event: &&Event| matches!(event.kind, EventKind::StartFlow(started) if started == *flow);
        let first = events.iter().find(named).filter(|first| *at < first.at);
        let Flow { name, start: Start::Event, .. } = &flows[flow.0 as usize] else { continue };
        if let Some(first) = first {
            let what = format!(
                "{} is stopped before it runs: its first start is at {}",
                quoted(name),
                first.at.since(Time::ZERO)
            );
            out.warn(place, what, "write start = \"0s\" in the flow, if it is to run, pause and go on");
        }
    }
}
