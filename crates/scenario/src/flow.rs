//! Flows: names and hosts written out, every kind with its defaults, every value checked.

use crate::clock::{clock, first_numbers};
use crate::file::VbrWord;
use crate::file::{
    CastWord, EncodeTable, FlowTable, FlowWord, FpsSaid, MediaWord, PeriodWord, PeriodsTable, QSaid, RepairWord,
    StartSaid,
};
use crate::model::{
    Buffer, Cast, Cbr, Codec, Emit, Encode, FeedbackFormat, Flow, FlowKind, Map001, Media, OnOff, PeriodDist, Periods,
    Playout, Repair, Rtcp, RtcpProfile, Size, Start, Tcp, Video, Workload,
};
use crate::name::{MAX_COUNT, Pattern};
use crate::network::{Files, Host, Network};
use std::collections::BTreeSet;
use steadycast_control::registry;
use steadycast_control::{Mode, Values};
use steadycast_media::{CodecModel, CodecSettings, Vbr};
use steadycast_tcp::Config;
use steadycast_units::{Bytes, Ecn, Rate, Span, Time};
use steadycast_words::tree::{Place, quoted};
use steadycast_words::{Findings, Settings, Spanned, Word, nearest, remedy};

/// The most flows of one scenario.
const MAX_FLOWS: usize = 10_000;

const COMMON: &[&str] =
    &["name", "count", "kind", "from", "to", "receivers", "cast", "start", "stop", "send_jitter", "packet"];
const VIDEO: &[&str] = &[
    "controller",
    "mode",
    "params",
    "media",
    "clip",
    "trace",
    "table2",
    "map001",
    "rfc8593",
    "encode",
    "vbr",
    "bucket",
    "wait",
    "room",
    "emit",
    "playout",
    "repair",
    "padding",
    "buffer",
    "rtcp",
    "floor",
    "cap",
    "bytes",
    "clock",
    "rtp",
    "defences",
    "ecn",
    "feedback",
];
/// What a TCP flow has beside its settings.
const TCP: &[&str] = &["bytes", "rate", "on", "off"];
const CBR: &[&str] = &["rate"];
const ONOFF: &[&str] = &["rate", "on", "off"];

/// One entry of the file: one flow, or as many as its range or count says.
pub(crate) struct Group<'a> {
    pub(crate) table: &'a Spanned<FlowTable>,
    pub(crate) names: Vec<String>,
    ranged: bool,
}

/// The names of all flows.
pub(crate) fn groups<'a>(tables: &'a [Spanned<FlowTable>], out: &mut Findings) -> Vec<Group<'a>> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    let mut total = 0usize;
    for table in tables {
        let Some(name) = &table.name else {
            out.missing(&table.at, "name", "every flow has a name, for example name = \"video\"");
            continue;
        };
        let mut pattern = match Pattern::read(name) {
            Ok(pattern) => pattern,
            Err((what, remedy)) => {
                out.problem(&name.at, what, remedy);
                continue;
            }
        };
        if let Some(count) = &table.count {
            if pattern.is_range() {
                out.problem(&count.at, "the name is a range already", "write one of them");
                continue;
            }
            if count.value > MAX_FLOWS as u64 {
                out.problem(&count.at, format!("{} flows", count.value), format!("at most {MAX_FLOWS}"));
                continue;
            }
            pattern = Pattern::counted(name, count.value);
        }
        if pattern.count() > (MAX_FLOWS - total) as u64 {
            out.problem(&name.at, "too many flows", format!("at most {MAX_FLOWS} in one scenario"));
            continue;
        }
        let names = pattern.names();
        total += names.len();
        for name_of_one in &names {
            if !seen.insert(name_of_one.clone()) {
                let what = format!("two flows are called {}", quoted(name_of_one));
                out.problem(&name.at, what, "call one of them something else");
            }
        }
        all.push(Group { table, names, ranged: pattern.is_range() });
    }
    all
}

/// The hosts that flows bring along to a dumbbell.
pub(crate) fn hosts(groups: &[Group<'_>], out: &mut Findings) -> Vec<Host> {
    let mut all = Vec::new();
    for group in groups {
        let table = group.table;
        let receivers = table.receivers.as_ref().map_or(1, |r| r.value);
        let per_flow = receivers.saturating_add(1);
        if per_flow.saturating_mul(group.names.len() as u64).saturating_add(all.len() as u64) > MAX_COUNT {
            let at = table.receivers.as_ref().map_or(&table.at, |r| &r.at);
            out.problem(at, "more than 200000 hosts", "make it smaller");
            continue;
        }
        for name in &group.names {
            if table.from.is_none() {
                all.push(Host { name: format!("{name}.src"), left: true });
            }
            if table.to.is_none() {
                all.extend((1..=receivers).map(|n| Host { name: format!("{name}.dst{n}"), left: false }));
            }
        }
    }
    all
}

/// One entry's flows.
pub(crate) fn flows(
    group: &Group<'_>,
    net: &Network,
    dumbbell: bool,
    started: &BTreeSet<String>,
    files: &Files,
    out: &mut Findings,
) -> Vec<Flow> {
    let table = group.table;
    let Some(kind) = kind(table, files, out) else { return Vec::new() };
    let mut all = Vec::new();
    for (i, name) in group.names.iter().enumerate() {
        let Some(from) = source(group, i, net, dumbbell, out) else { return all };
        let Some(to) = receivers(group, i, net, dumbbell, out) else { return all };
        let Some(cast) = cast(table, &kind, to.len(), out) else { return all };
        let mut kind = kind.clone();
        if let FlowKind::Video(video) = &mut kind {
            let Some(repair) = repair(table, video, cast, out) else { return all };
            video.repair = repair;
            video.padding = padding(table, video, cast, out);
        }
        let start = match table.start.as_ref().map(|s| s.value) {
            None if started.contains(name) => Start::Event,
            None => Start::At(Time::ZERO),
            Some(StartSaid::At(at)) => Start::At(Time::ZERO + at),
            Some(StartSaid::Uniform(from, to)) => Start::Uniform(Time::ZERO + from, Time::ZERO + to),
        };
        let latest = match start {
            Start::At(at) | Start::Uniform(_, at) => at,
            Start::Event => Time::ZERO,
        };
        let jitter = kind.host_jitter();
        let stop = table.stop.as_ref().map(|s| Time::ZERO + s.value);
        if let Some((said, stop)) = table.stop.as_ref().zip(stop)
            && stop <= latest
        {
            out.problem(
                &said.at,
                format!("stops at {}, before it has started", said.value),
                "let it stop after its start",
            );
        }
        all.push(Flow {
            name: name.clone(),
            kind,
            from,
            to,
            cast,
            start,
            stop,
            send_jitter: table.send_jitter.as_ref().map_or(jitter, |j| j.value),
        });
    }
    all
}

/// The node that the `i`th of a group comes from.
fn source(group: &Group<'_>, i: usize, net: &Network, dumbbell: bool, out: &mut Findings) -> Option<crate::NodeIx> {
    let table = group.table;
    match &table.from {
        Some(from) => pick(group, i, from, out).and_then(|name| net.find(&name, &from.at, out)),
        None if dumbbell => net.node(&format!("{}.src", group.names[i])),
        None => {
            if net.source.is_none() {
                out.missing(&table.at, "from", "write the source's node, for example from = \"s\"");
            }
            net.source.map(crate::NodeIx)
        }
    }
}

/// A node's name, or the `i`th of a range as long as the flow's own.
fn pick(group: &Group<'_>, i: usize, text: &Spanned<String>, out: &mut Findings) -> Option<String> {
    let pattern = Pattern::read(text).map_err(|(what, remedy)| out.problem(&text.at, what, remedy)).ok()?;
    if !pattern.is_range() {
        return Some(text.value.clone());
    }
    if group.ranged && pattern.count() == group.names.len() as u64 {
        return pattern.names().into_iter().nth(i);
    }
    let what = format!("{} is {} nodes for {} flows", quoted(text), pattern.count(), group.names.len());
    out.problem(&text.at, what, "a source is one node; or make both ranges equally long");
    None
}

fn receivers(
    group: &Group<'_>,
    i: usize,
    net: &Network,
    dumbbell: bool,
    out: &mut Findings,
) -> Option<Vec<crate::NodeIx>> {
    let table = group.table;
    if let Some(count) = table.receivers.as_ref().filter(|r| r.value == 0) {
        out.problem(&count.at, "nobody receives it", "write receivers = 1 or more, or leave the flow out");
        return None;
    }
    let Some(to) = &table.to else {
        let count = table.receivers.as_ref().map_or(1, |r| r.value);
        if dumbbell {
            return (1..=count).map(|n| net.node(&format!("{}.dst{n}", group.names[i]))).collect();
        }
        if net.ends.is_empty() {
            out.missing(&table.at, "to", "write the receivers' nodes, for example to = [\"r[1-3]\"]");
            return None;
        }
        if count > net.ends.len() as u64 {
            let at = table.receivers.as_ref().map_or(&table.at, |r| &r.at);
            out.problem(at, format!("{count} receivers, but the shape has {} ends", net.ends.len()), "make it larger");
            return None;
        }
        return Some(net.ends[..count as usize].iter().map(|n| crate::NodeIx(*n)).collect());
    };
    if let Some(count) = &table.receivers {
        out.problem(&count.at, "both \"to\" and a number of receivers", "leave one of them out");
    }
    let mut all = Vec::new();
    let mut seen = BTreeSet::new();
    for text in &to.all {
        let pattern = Pattern::read(text).map_err(|(what, remedy)| out.problem(&text.at, what, remedy)).ok()?;
        let one_by_one = to.bare && group.ranged && pattern.is_range() && pattern.count() == group.names.len() as u64;
        let names = if one_by_one { vec![pick(group, i, text, out)?] } else { pattern.names() };
        for name in names {
            let node = net.find(&name, &text.at, out)?;
            if !seen.insert(node) {
                out.problem(&text.at, format!("{} receives it twice", quoted(&name)), "name each receiver once");
                return None;
            }
            all.push(node);
        }
    }
    if all.is_empty() {
        out.problem(&to.at, "nobody receives it", "name at least one node");
        return None;
    }
    Some(all)
}

fn cast(table: &Spanned<FlowTable>, kind: &FlowKind, receivers: usize, out: &mut Findings) -> Option<Cast> {
    let said = table.cast.as_ref();
    let at = said
        .map(|c| &c.at)
        .or(table.receivers.as_ref().map(|r| &r.at))
        .or(table.to.as_ref().map(|t| &t.at))
        .unwrap_or(&table.at);
    let cast = match (said.map(|c| c.value), receivers) {
        (None | Some(CastWord::Unicast), 1) => Cast::Unicast,
        (Some(CastWord::Unicast), _) => Cast::UnicastEach,
        (Some(CastWord::Multicast), _) | (None, _) => Cast::Multicast,
    };
    if matches!(kind, FlowKind::Tcp(_)) && cast != Cast::Unicast {
        out.problem(at, "a TCP flow has one receiver", "make several flows with count = N");
        return None;
    }
    if let FlowKind::Video(video) = kind
        && cast == Cast::Multicast
        && let Ok(controller) = registry::find(&video.controller)
        && controller.cast == registry::Cast::Unicast
    {
        let able: Vec<_> = registry::ALL.iter().filter(|c| c.cast == registry::Cast::Any).map(|c| c.name).collect();
        out.problem(
            at,
            format!("{} serves one receiver, not a group", quoted(&video.controller)),
            format!("write cast = \"unicast\" for a session each, or take one of: {}", able.join(", ")),
        );
        return None;
    }
    if let (FlowKind::Video(video), Cast::Multicast, Some(said)) = (kind, cast, &table.feedback)
        && video.feedback != FeedbackFormat::Own
    {
        let what =
            format!("a group's receivers report as the controller asks, not as {}", quoted(video.feedback.word()));
        out.problem(&said.at, what, "write cast = \"unicast\" for a session each, or feedback = \"own\"");
        return None;
    }
    Some(cast)
}

/// How a video flow's losses are repaired.
fn repair(table: &Spanned<FlowTable>, video: &Video, cast: Cast, out: &mut Findings) -> Option<Repair> {
    let Some(said) = &table.repair else { return Some(Repair::None) };
    let (group, early) = (cast == Cast::Multicast, video.rtcp.profile == RtcpProfile::Avpf);
    let (what, remedy) = match said.value {
        RepairWord::None => return Some(Repair::None),
        RepairWord::Auto => return Some(Repair::Auto),
        RepairWord::Parity => return Some(Repair::Parity),
        RepairWord::Rtx if group => (
            "what one receiver lost is not sent again to a group",
            "write cast = \"unicast\" for a session each, or repair = \"auto\"",
        ),
        RepairWord::Rtx if !early => (
            "receivers may ask for packets under the profile avpf alone",
            "write rtcp = { profile = \"avpf\" }, or repair = \"auto\"",
        ),
        RepairWord::Rtx => return Some(Repair::Rtx),
    };
    out.problem(&said.at, what, remedy);
    None
}

/// Whether a video flow's probes are filled up: in its stream of retransmissions.
fn padding(table: &Spanned<FlowTable>, video: &Video, cast: Cast, out: &mut Findings) -> bool {
    let Some(said) = table.padding.as_ref().filter(|said| said.value) else { return false };
    let asks = cast == Cast::Unicast && video.rtcp.profile == RtcpProfile::Avpf;
    let repairs = video.repair == Repair::Rtx || video.repair == Repair::Auto && asks;
    if !repairs {
        let what = "padding travels in the stream of retransmissions, and there is none";
        out.problem(&said.at, what, "write repair = \"rtx\" for one receiver, or leave padding out");
    }
    repairs
}

fn kind(table: &Spanned<FlowTable>, files: &Files, out: &mut Findings) -> Option<FlowKind> {
    let Some(kind) = &table.kind else {
        out.missing(&table.at, "kind", "choose from: video, tcp, cbr, onoff");
        return None;
    };
    let (word, keys) = match kind.value {
        FlowWord::Video => ("a video", VIDEO.to_vec()),
        FlowWord::Tcp => ("a tcp", [Config::names(), TCP.to_vec()].concat()),
        FlowWord::Cbr => ("a cbr", CBR.to_vec()),
        FlowWord::OnOff => ("an onoff", ONOFF.to_vec()),
    };
    for (key, at) in table.present() {
        if !COMMON.contains(&key) && !keys.contains(&key) {
            let known: Vec<_> = COMMON.iter().chain(&keys).copied().collect();
            out.problem(at, format!("not a key of {word} flow"), remedy(nearest(key, &known), &keys));
        }
    }
    Some(match kind.value {
        FlowWord::Video => FlowKind::Video(Box::new(video(table, files, out)?)),
        FlowWord::Tcp => FlowKind::Tcp(Box::new(tcp(table, out)?)),
        FlowWord::Cbr => {
            let packet = packet(table, 1000, 29, out);
            FlowKind::Cbr(Cbr { rate: needed_rate(table, out)?, packet })
        }
        FlowWord::OnOff => {
            let packet = packet(table, 1000, 29, out);
            let rate = needed_rate(table, out);
            let mut ends = |said: &Option<Spanned<PeriodsTable>>, key: &str| match said {
                Some(said) => periods(said, out),
                None => {
                    out.missing(&table.at, key, "write for example { dist = \"exponential\", mean = \"5s\" }");
                    None
                }
            };
            let (on, off) = (ends(&table.on, "on"), ends(&table.off, "off"));
            FlowKind::OnOff(OnOff { rate: rate?, packet, on: on?, off: off? })
        }
    })
}

fn needed_rate(table: &Spanned<FlowTable>, out: &mut Findings) -> Option<Rate> {
    let Some(rate) = &table.rate else {
        out.missing(&table.at, "rate", "write for example rate = \"400kbps\"");
        return None;
    };
    positive(rate, out)
}

fn positive(rate: &Spanned<Rate>, out: &mut Findings) -> Option<Rate> {
    if rate.value == Rate::ZERO {
        out.problem(&rate.at, "a rate of 0", "write a rate above 0");
        return None;
    }
    Some(rate.value)
}

fn not_zero(span: &Spanned<Span>, out: &mut Findings) -> Option<Span> {
    if span.is_zero() {
        out.problem(&span.at, "a time of 0", "write a time above 0");
        return None;
    }
    Some(span.value)
}

fn packet(table: &Spanned<FlowTable>, default: u64, least: u64, out: &mut Findings) -> Bytes {
    let Some(said) = &table.packet else { return Bytes::new(default) };
    if !(least..=65_535).contains(&said.get()) {
        let what = format!("{} is no packet size", said.value);
        out.problem(&said.at, what, format!("from \"{least}B\" (headers of IP included) to \"65535B\""));
    }
    said.value
}

fn periods(said: &Spanned<PeriodsTable>, out: &mut Findings) -> Option<Periods> {
    let dist = match said.dist.as_ref().map_or(PeriodWord::Exponential, |d| d.value) {
        PeriodWord::Constant => PeriodDist::Constant,
        PeriodWord::Exponential => PeriodDist::Exponential,
        PeriodWord::Pareto => PeriodDist::Pareto { shape: said.shape.as_ref().map_or(1.5, |s| s.value) },
    };
    if let Some(shape) = &said.shape {
        if !matches!(dist, PeriodDist::Pareto { .. }) {
            out.problem(&shape.at, "only pareto has a shape", "write dist = \"pareto\", or leave it out");
        } else if !(shape.value > 1.0 && shape.value <= 100.0) {
            out.problem(
                &shape.at,
                format!("{} is out of range", shape.value),
                "above 1 (or there is no mean), at most 100",
            );
        }
    }
    let Some(mean) = &said.mean else {
        out.missing(&said.at, "mean", "write for example mean = \"5s\"");
        return None;
    };
    Some(Periods { mean: not_zero(mean, out)?, dist })
}

/// A class of the user's own, which only the Python side can look into: "file.py:Class".
fn is_class(name: &str) -> bool {
    name.split_once(".py:").is_some_and(|(file, class)| {
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        !file.is_empty() && !class.is_empty() && class.bytes().all(word) && !class.as_bytes()[0].is_ascii_digit()
    })
}

fn video(table: &Spanned<FlowTable>, files: &Files, out: &mut Findings) -> Option<Video> {
    let mode = table.mode.as_ref().map_or(Mode::Repaired, |m| m.value);
    let controller = match &table.controller {
        None => {
            let names: Vec<_> = registry::ALL.iter().map(|c| c.name).collect();
            out.missing(&table.at, "controller", &format!("choose from: {}, or \"file.py:Class\"", names.join(", ")));
            None
        }
        Some(name) if is_class(name) => Some(name.value.clone()),
        Some(name) => match registry::find(name) {
            Ok(_) => Some(name.value.clone()),
            Err(error) => {
                out.problem(&name.at, error.problem, error.remedy);
                None
            }
        },
    };
    let mut params = Vec::new();
    for (name, given) in table.params.as_ref().map_or(&[][..], |p| &p.0) {
        if !is_class(name) {
            match registry::find(name) {
                Err(error) => out.problem(&name.at, error.problem, error.remedy),
                Ok(controller) => {
                    for one in given {
                        if let Err(error) = Values::resolve(controller.params, mode, std::slice::from_ref(&one.value)) {
                            out.problem(&one.at, error.problem, error.remedy);
                        }
                    }
                }
            }
        }
        params.push((name.value.clone(), given.iter().map(|g| g.value.clone()).collect()));
    }
    let media = media(table, files, out);
    let encode = encode(table.encode.as_ref(), media.as_ref(), out);
    let vbr = match table.vbr.as_ref().map_or(VbrWord::Bucket, |v| v.value) {
        VbrWord::Bucket => {
            if let Some(said) = table.bucket.as_ref().filter(|b| !(0.1..=100.0).contains(&b.value)) {
                out.problem(&said.at, format!("{} is out of range", said.value), "from 0.1 to 100 GoPs");
            }
            Vbr::Bucket { factor: table.bucket.as_ref().map_or(1.5, |b| b.value) }
        }
        VbrWord::Ladder => {
            no_bucket(table, out);
            Vbr::Ladder
        }
        VbrWord::Frame => {
            no_bucket(table, out);
            if let (Some(said), Some(Codec::Av1)) = (&table.vbr, encode.as_ref().map(|e| e.codec)) {
                let what = "a frame of av1 can't follow one of another quantizer inside a group of pictures";
                out.problem(&said.at, what, "write vbr = \"bucket\", or take another codec");
            }
            if let Some(said) = table.wait.as_ref().filter(|w| !(Span::millis(10)..=Span::secs(10)).contains(&w.value))
            {
                out.problem(&said.at, format!("{} is out of range", said.value), "from \"10ms\" to \"10s\"");
            }
            if let Some(said) = table.room.as_ref().filter(|r| !(1.0..=10.0).contains(&r.value)) {
                out.problem(&said.at, format!("{} is out of range", said.value), "from 1 to 10");
            }
            Vbr::Frame {
                wait: table.wait.as_ref().map_or(Span::millis(100), |w| w.value),
                room: table.room.as_ref().map_or(2.5, |r| r.value),
            }
        }
    };
    if !matches!(vbr, Vbr::Frame { .. }) {
        for at in table.wait.iter().map(|said| &said.at).chain(table.room.iter().map(|said| &said.at)) {
            out.problem(at, "of no use without vbr = \"frame\"", "write vbr = \"frame\", or leave it out");
        }
    }
    let playout = table.playout.as_ref().map_or(Playout::None, |said| said.value.0);
    if let (Playout::Fixed(Span::ZERO), Some(said)) = (playout, &table.playout) {
        out.problem(&said.at, "no frame is that early", "write a time above 0, or \"none\"");
    }
    let buffer = table.buffer.as_ref().and_then(|buffer| {
        let Some(size) = &buffer.size else {
            out.missing(&buffer.at, "size", "write for example size = \"16KiB\"");
            return None;
        };
        if size.value == Bytes::ZERO {
            out.problem(&size.at, "nothing fits into it", "write for example \"16KiB\"");
        }
        if buffer.consume.is_none() && table.media.as_ref().is_some_and(|m| m.value == MediaWord::Greedy) {
            out.problem(&buffer.at, "greedy media has no frames to play", "write for example consume = \"64kbps\"");
        }
        Some(Buffer { size: size.value, consume: buffer.consume.as_ref().and_then(|c| positive(c, out)) })
    });
    let said = table.rtcp.as_ref();
    let rtcp = Rtcp {
        profile: said.and_then(|r| r.profile.as_ref()).map_or(RtcpProfile::Avpf, |p| p.value),
        session_bw: said.and_then(|r| r.session_bw.as_ref()).and_then(|r| positive(r, out)).unwrap_or(Rate::mbps(2)),
        t_min: said.and_then(|r| r.t_min.as_ref()).map(|t| t.value),
        reports: said.and_then(|r| r.reports.as_ref()).map(|r| r.value).unwrap_or_default(),
    };
    let floor = table.floor.as_ref().and_then(|r| positive(r, out));
    let cap = table.cap.as_ref().and_then(|r| positive(r, out));
    if let (Some(floor), Some(cap), Some(said)) = (floor, cap, &table.cap)
        && cap < floor
    {
        out.problem(&said.at, format!("the cap {cap} is below the floor {floor}"), "make the cap larger");
    }
    Some(Video {
        controller: controller?,
        mode,
        params,
        media: media?,
        encode: encode?,
        vbr,
        emit: table.emit.as_ref().map_or(Emit::Paced, |e| e.value),
        // What it can be depends on the receivers.
        repair: Repair::None,
        padding: false,
        packet: packet(table, 1200, 100, out),
        playout,
        buffer,
        rtcp,
        floor,
        cap,
        ecn: table.ecn.as_ref().map_or(Ecn::NotEct, |said| said.0),
        feedback: table.feedback.as_ref().map(|said| said.value).unwrap_or_default(),
        clock: table.clock.as_ref().map(|said| clock(said, out)).unwrap_or_default(),
        first: table.rtp.as_ref().map(|said| first_numbers(said, out)).unwrap_or_default(),
        defences: table.defences.as_ref().is_some_and(|said| said.value),
    })
}

fn no_bucket(table: &FlowTable, out: &mut Findings) {
    if let Some(said) = &table.bucket {
        let what = "only vbr = \"bucket\" has a bucket";
        out.problem(&said.at, what, "write vbr = \"bucket\", or leave it out");
    }
}

fn media(table: &Spanned<FlowTable>, files: &Files, out: &mut Findings) -> Option<Media> {
    let word = table.media.as_ref().map(|m| m.value).unwrap_or(match (&table.clip, &table.trace) {
        (Some(_), _) => MediaWord::Clip,
        (None, Some(_)) => MediaWord::Trace,
        (None, None) => MediaWord::Synthetic,
    });
    if let (Some(bytes), true) = (&table.bytes, word != MediaWord::Greedy) {
        out.problem(&bytes.at, "only greedy media has a size", "write media = \"greedy\", or leave it out");
    }
    media_of(word, table, files, out)
}

fn media_of(word: MediaWord, table: &Spanned<FlowTable>, files: &Files, out: &mut Findings) -> Option<Media> {
    Some(match word {
        MediaWord::Synthetic => Media::Synthetic,
        MediaWord::Greedy => {
            let bytes = table.bytes.as_ref();
            if let Some(said) = bytes.filter(|b| b.value == Bytes::ZERO) {
                out.problem(&said.at, "there is nothing to send", "write for example \"1MB\"");
            }
            Media::Greedy { bytes: bytes.map(|b| b.value) }
        }
        MediaWord::Clip => {
            let Some(clip) = &table.clip else {
                out.missing(&table.at, "clip", "write for example clip = [\"a.mkv\"], or media = \"synthetic\"");
                return None;
            };
            if clip.all.is_empty() {
                out.problem(&clip.at, "an empty list", "name at least one file, or write media = \"synthetic\"");
                return None;
            }
            let paths: Vec<_> = clip.all.iter().map(|name| files.found(name, "the clip", out)).collect();
            Media::Clip { paths: paths.into_iter().collect::<Option<_>>()? }
        }
        MediaWord::Table2 => {
            let said = table.table2.as_ref();
            let weights = match said.and_then(|t| t.weights.as_ref()) {
                None => [6.0, 2.0, 1.0],
                Some(list) => match list.iter().map(|w| w.value).collect::<Vec<_>>().as_slice() {
                    [i, p, b] if [i, p, b].iter().all(|w| **w > 0.0 && **w <= 1000.0) => [*i, *p, *b],
                    _ => {
                        out.problem(&list.at, "not three weights above 0", "write for example [6, 2, 1]");
                        return None;
                    }
                },
            };
            let vary = said.and_then(|t| t.vary.as_ref());
            if let Some(said) = vary.filter(|v| !(0.0..1.0).contains(&v.value)) {
                out.problem(&said.at, format!("{} is out of range", said.value), "a share from 0 to below 1");
            }
            Media::Table2 { weights, vary: vary.map_or(0.1, |v| v.value) }
        }
        MediaWord::Map001 => Media::Map001(table.map001.as_ref().map_or_else(Map001::default, |said| said.value)),
        MediaWord::Trace => {
            let Some(name) = &table.trace else {
                out.missing(&table.at, "trace", "write for example trace = \"frames.csv\"");
                return None;
            };
            Media::Trace { path: files.found(name, "the trace", out)? }
        }
        MediaWord::Rfc8593 => {
            let codec = table.rfc8593.as_ref().map_or_else(CodecSettings::default, |said| said.value.clone());
            let frames = match (&table.clip, &table.trace) {
                (clip, trace) if codec.model == CodecModel::Statistical => {
                    if let Some(at) = clip.as_ref().map(|c| &c.at).or(trace.as_ref().map(|t| &t.at)) {
                        let remedy = "write rfc8593.model = \"trace\" or \"hybrid\", or leave it out";
                        out.problem(at, "a statistical model takes no sequence", remedy);
                    }
                    None
                }
                (Some(_), _) => Some(Box::new(media_of(MediaWord::Clip, table, files, out)?)),
                (None, Some(_)) => Some(Box::new(media_of(MediaWord::Trace, table, files, out)?)),
                (None, None) => Some(Box::new(Media::Synthetic)),
            };
            Media::Rfc8593 { codec, frames }
        }
    })
}

fn encode(said: Option<&Spanned<EncodeTable>>, media: Option<&Media>, out: &mut Findings) -> Option<Encode> {
    let codec = said.and_then(|e| e.codec.as_ref()).map_or(Codec::Mpeg4, |c| c.value);
    let sequence = match media {
        Some(Media::Rfc8593 { frames, .. }) => frames.as_deref(),
        other => other,
    };
    let codec_model = matches!(media, Some(Media::Rfc8593 { .. }));
    let has_clip = matches!(sequence, Some(Media::Clip { .. })) || media.is_none();
    let size = said.and_then(|e| e.size.as_ref());
    let fps = said.and_then(|e| e.fps.as_ref());
    let own = [
        size.filter(|s| matches!(s.0, Size::Clip)).map(|s| &s.at),
        fps.filter(|f| matches!(f.value, FpsSaid(None))).map(|f| &f.at),
    ];
    for at in own.into_iter().flatten().filter(|_| !has_clip) {
        out.problem(at, "there is no clip", "write what it is to be, or media = \"clip\"");
    }
    let gop = said.and_then(|e| e.gop.as_ref());
    if let Some(said) = gop.filter(|g| !(1..=1000).contains(&g.value)) {
        out.problem(&said.at, format!("{} is out of range", said.value), "from 1 to 1000 frames");
    }
    let frames = gop.map_or(12, |g| g.value);
    let bframes = said.and_then(|e| e.bframes.as_ref());
    if let Some(said) = bframes {
        if !codec.has_b_frames() && said.value > 0 {
            out.problem(&said.at, "this codec has no B frames here", "write bframes = 0, or another codec");
        } else if said.value > 16 || said.value >= frames {
            let what = format!("{} B frames in a row", said.value);
            out.problem(&said.at, what, "fewer than the GoP has frames, and at most 16");
        }
    }
    if let Some(said) = bframes.filter(|b| codec_model && b.value > 0) {
        out.problem(&said.at, "RFC 8593's codec has no B frames", "write bframes = 0, or leave it out");
    }
    let default_b = if !codec.has_b_frames() || codec_model { 0 } else { 2.min(frames.saturating_sub(1)) };
    let (least, QSaid(low, high), most) = match codec {
        Codec::Mpeg2 | Codec::Mpeg4 | Codec::H263 => (1, QSaid(2, 31), 31),
        Codec::H264 | Codec::H265 => (0, QSaid(18, 47), 51),
        Codec::Vp8 | Codec::Vp9 | Codec::Av1 => (0, QSaid(10, 63), 63),
    };
    let q = said.and_then(|e| e.q.as_ref());
    if let Some(said) = q.filter(|q| q.0 < least || q.1 > most) {
        out.problem(&said.at, "quantizers that the codec does not have", format!("from {least} to {most}"));
    }
    let QSaid(q_min, q_max) = q.map_or(QSaid(low, high), |q| q.value);
    Some(Encode {
        codec,
        size: size.map_or(Size::Pixels { width: 352, height: 288 }, |s| s.0),
        fps: fps.map_or(Some(if codec_model { 30.0 } else { 25.0 }), |f| f.0),
        gop: u32::try_from(frames).unwrap_or(u32::MAX),
        bframes: u32::try_from(bframes.map_or(default_b, |b| b.value)).unwrap_or(u32::MAX),
        q_min,
        q_max,
    })
}

fn tcp(table: &Spanned<FlowTable>, out: &mut Findings) -> Option<Tcp> {
    let (config, source) = (Config::read(&table.tcp.item, out), tcp_source(table, out));
    let mut config = config?;
    config.packet = packet(table, config.packet.get(), 100, out);
    Some(Tcp { config, source: source? })
}

fn tcp_source(table: &Spanned<FlowTable>, out: &mut Findings) -> Option<Workload> {
    if let Some(said) = table.bytes.as_ref().filter(|b| b.value == Bytes::ZERO) {
        out.problem(&said.at, "there is nothing to send", "write for example \"1MB\", or leave it out for no end");
        return None;
    }
    let wrong = |at: &Place, what: &str, out: &mut Findings| {
        let remedy = "write nothing (no end), bytes (once), bytes and off (again and again), or on and off, with or without rate";
        out.problem(at, what, remedy);
        None
    };
    match (&table.bytes, &table.on, &table.off, &table.rate) {
        (None, None, None, None) => Some(Workload::Bulk),
        (Some(bytes), None, None, None) => Some(Workload::File(bytes.value)),
        (Some(bytes), None, Some(off), None) => {
            Some(Workload::Transfers { bytes: bytes.value, off: periods(off, out)? })
        }
        (None, Some(on), Some(off), rate) => {
            let (on, off) = (periods(on, out), periods(off, out));
            let rate = match rate {
                Some(rate) => Some(positive(rate, out)?),
                None => None,
            };
            Some(Workload::OnOff { rate, on: on?, off: off? })
        }
        (Some(_), Some(on), _, _) => wrong(&on.at, "both bytes and on", out),
        (_, None, _, Some(rate)) => wrong(&rate.at, "a rate without on and off", out),
        (None, Some(on), None, _) => wrong(&on.at, "on without off", out),
        (None, None, Some(off), _) => wrong(&off.at, "off without bytes or on", out),
    }
}
