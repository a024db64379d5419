//! Flows: expands names and hosts, fills in the defaults of each kind of flow, and checks every value.

use crate::clock::clock;
use crate::encode::{Codec, Encode};
use crate::file::{CastWord, FlowTable, FlowWord, MediaWord, StartValue};
use crate::model::{
    Cast, Cbr, ControllerRef, Flow, FlowKind, MAP001, Media, OnOff, PacketSize, Periods, Playout, Repair, Rtcp,
    RtcpProfile, Start, Tcp, Video, Workload,
};
use crate::name::{MAX_COUNT, Pattern};
use crate::network::{Files, Host, Network};
use std::collections::BTreeSet;
use steadycast_control::registry::{FeedbackTiming, Given, Outside, Receivers, Registry, Setup, Values};
use steadycast_control::{FeedbackFormat, Mode};
use steadycast_media::{BUILT_IN_SWITCHING, CodecModel, Emit, RFC8593, Rungs, Vbr};
use steadycast_settings::tree::{Item, Place, Value, quoted};
use steadycast_settings::{Declared, Findings, FromToml, Rule, Settings, Spanned, nearest, positive, remedy};
use steadycast_tcp::Config;
use steadycast_units::{Bytes, Ecn, Rate, Span, Time, counted};

const MAX_FLOWS: usize = 10_000;

const COMMON: &[&str] =
    &["name", "count", "kind", "from", "to", "receivers", "cast", "start", "stop", "send_jitter", "packet"];
/// The keys of a TCP flow that are not part of TCP's configuration ([`Config`]).
const TCP: &[&str] = &["bytes", "rate", "on", "off"];

/// An entry `[[flow]]` of the file. It defines several flows if its name is a range or if it has a count.
pub(crate) struct Group<'a> {
    pub(crate) table: &'a Spanned<FlowTable>,
    pub(crate) names: Vec<String>,
    ranged: bool,
}

pub(crate) fn groups<'a>(tables: &'a [Spanned<FlowTable>], out: &mut Findings) -> Vec<Group<'a>> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    let mut total = 0usize;
    for table in tables {
        let Some(name) = &table.name else {
            out.missing(&table.at, "name", "every flow has a name, for example name = \"video\"");
            continue;
        };
        let Some(mut pattern) = Pattern::read_or_report(name, &name.at, out) else { continue };
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
        // Refuse long ranges before they are expanded, because the names of a mistyped range could exhaust the memory.
        if pattern.count() > (MAX_FLOWS - total) as u64 {
            out.problem(&name.at, "too many flows", format!("at most {MAX_FLOWS} in one scenario"));
            continue;
        }
        let names = pattern.names();
        total += names.len();
        // Skip an entry with a duplicate name. Otherwise its hosts, which would have the same names, would cause
        // another problem.
        if let Some(twice) = names.iter().find(|one| seen.contains(*one)) {
            out.problem(&name.at, format!("two flows are called {}", quoted(twice)), "call one of them something else");
            continue;
        }
        seen.extend(names.iter().cloned());
        all.push(Group { table, names, ranged: pattern.is_range() });
    }
    all
}

pub(crate) fn hosts(groups: &[Group<'_>], out: &mut Findings) -> Vec<Host> {
    let mut all = Vec::new();
    for group in groups {
        let table = group.table;
        let receivers = table.receivers.as_ref().map_or(1, |r| r.value);
        // Each flow has one host for its source as well.
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
        // Stop at the first problem, because all flows of the entry would have the same problem.
        let Some(from) = source(group, i, net, dumbbell, out) else { return all };
        let Some(to) = receivers(group, i, net, dumbbell, out) else { return all };
        let Some(cast) = cast(table, &kind, to.len(), &files.registry, out) else { return all };
        let mut kind = kind.clone();
        if let FlowKind::Video(video) = &mut kind {
            let Some(repair) = repair(table, video, cast, out) else { return all };
            video.repair = repair;
            video.padding = padding(table, video, cast, out);
        }
        let start = match table.start.as_ref().map(|s| s.value) {
            None if started.contains(name) => Start::Event,
            None => Start::At(Time::ZERO),
            Some(StartValue::At(at)) => Start::At(Time::ZERO + at),
            Some(StartValue::Uniform(from, to)) => Start::Uniform(Time::ZERO + from, Time::ZERO + to),
        };
        let latest = match start {
            // Use the latest possible start.
            Start::At(at) | Start::Uniform(_, at) => at,
            Start::Event => Time::ZERO,
        };
        let jitter = kind.host_jitter();
        let stop = table.stop.as_ref().map(|s| Time::ZERO + s.value);
        if let Some((given, stop)) = table.stop.as_ref().zip(stop)
            && stop <= latest
        {
            out.problem(
                &given.at,
                format!("stops at {}, before it has started", given.value),
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

fn source(group: &Group<'_>, i: usize, net: &Network, dumbbell: bool, out: &mut Findings) -> Option<crate::NodeIx> {
    let table = group.table;
    match &table.from {
        Some(from) => pick(group, i, from, out).and_then(|name| net.find(&name, &from.at, out)),
        // `hosts` has added the source's node.
        None if dumbbell => net.node(&format!("{}.src", group.names[i])),
        None => {
            // Do not report the missing node if the network could not be read, because that problem has already been
            // reported.
            if net.source.is_none() && !net.partial {
                out.missing(&table.at, "from", "write the source's node, for example from = \"s\"");
            }
            net.source.map(crate::NodeIx)
        }
    }
}

/// Returns `text`. If `text` is a range, returns its `i`th name instead. Refuses a range unless the flow's name has a
/// range of the same length.
fn pick(group: &Group<'_>, i: usize, text: &Spanned<String>, out: &mut Findings) -> Option<String> {
    let pattern = Pattern::read_or_report(text, &text.at, out)?;
    if !pattern.is_range() {
        return Some(text.value.clone());
    }
    if group.ranged && pattern.count() == group.names.len() as u64 {
        return pattern.names().into_iter().nth(i);
    }
    let what = format!(
        "{} is {} for {}",
        quoted(text),
        counted(pattern.count(), "node"),
        counted(group.names.len() as u64, "flow")
    );
    out.refuse(&text.at, what, "a source is one node; or make both ranges equally long")
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
        return out.refuse(&count.at, "the flow has no receiver", "write receivers = 1 or more, or leave the flow out");
    }
    let Some(to) = &table.to else {
        let count = table.receivers.as_ref().map_or(1, |r| r.value);
        if dumbbell {
            return (1..=count).map(|n| net.node(&format!("{}.dst{n}", group.names[i]))).collect();
        }
        if net.ends.is_empty() {
            if !net.partial {
                out.missing(&table.at, "to", "write the receivers' nodes, for example to = [\"r[1-3]\"]");
            }
            return None;
        }
        if count > net.ends.len() as u64 {
            let at = table.receivers.as_ref().map_or(&table.at, |r| &r.at);
            let (wanted, ends) = (counted(count, "receiver"), counted(net.ends.len() as u64, "end"));
            return out.refuse(at, format!("{wanted}, but the shape has {ends}"), "make it larger");
        }
        return Some(net.ends[..count as usize].iter().map(|n| crate::NodeIx(*n)).collect());
    };
    if let Some(count) = &table.receivers {
        out.problem(&count.at, "both \"to\" and a number of receivers", "leave one of them out");
    }
    let mut all = Vec::new();
    let mut seen = BTreeSet::new();
    for text in &to.all {
        let pattern = Pattern::read_or_report(text, &text.at, out)?;
        // If a range is not inside a list and is as long as the range in the flow's name, each flow gets one node of
        // the range. Otherwise, every flow gets all nodes.
        let one_by_one = to.bare && group.ranged && pattern.is_range() && pattern.count() == group.names.len() as u64;
        let names = if one_by_one { vec![pick(group, i, text, out)?] } else { pattern.names() };
        for name in names {
            let node = net.find(&name, &text.at, out)?;
            if !seen.insert(node) {
                return out.refuse(&text.at, format!("{} receives it twice", quoted(&name)), "name each receiver once");
            }
            all.push(node);
        }
    }
    if all.is_empty() {
        return out.refuse(&to.at, "the flow has no receiver", "name at least one node");
    }
    Some(all)
}

fn cast(
    table: &Spanned<FlowTable>,
    kind: &FlowKind,
    receivers: usize,
    registry: &Registry,
    out: &mut Findings,
) -> Option<Cast> {
    let given = table.cast.as_ref();
    // Report problems at the key that determines the number of receivers.
    let at = given
        .map(|c| &c.at)
        .or(table.receivers.as_ref().map(|r| &r.at))
        .or(table.to.as_ref().map(|t| &t.at))
        .unwrap_or(&table.at);
    let cast = match (given.map(|c| c.value), receivers) {
        (None | Some(CastWord::Unicast), 1) => Cast::Unicast,
        (Some(CastWord::Unicast), _) => Cast::UnicastEach,
        (Some(CastWord::Multicast), _) | (None, _) => Cast::Multicast,
    };
    if matches!(kind, FlowKind::Tcp(_)) && cast != Cast::Unicast {
        return out.refuse(at, "a TCP flow has one receiver", "make several flows with count = N");
    }
    if let FlowKind::Video(video) = kind
        && cast == Cast::Multicast
        // A user's own controller has no registry entry and may have any number of receivers.
        && let Some(controller) = video.controller.entry()
        && controller.receivers == Receivers::One
    {
        let able = registry.names(|c| c.receivers == Receivers::OneOrMany);
        return out.refuse(
            at,
            format!("{} serves one receiver, not a group", quoted(controller.name)),
            format!("write cast = \"unicast\" for a session per receiver, or choose from: {}", able.join(", ")),
        );
    }
    if let (FlowKind::Video(video), Cast::Multicast, Some(given)) = (kind, cast, &table.feedback)
        && video.feedback != FeedbackFormat::Own
    {
        let what =
            format!("a group's receivers report as the controller asks, not as {}", quoted(video.feedback.word()));
        return out.refuse(
            &given.at,
            what,
            "write cast = \"unicast\" for a session per receiver, or feedback = \"own\"",
        );
    }
    Some(cast)
}

fn repair(table: &Spanned<FlowTable>, video: &Video, cast: Cast, out: &mut Findings) -> Option<Repair> {
    let Some(given) = &table.repair else { return Some(Repair::None) };
    let (group, early) = (cast == Cast::Multicast, video.rtcp.profile == RtcpProfile::Avpf);
    let (what, remedy) = match given.value {
        Repair::Rtx if group => (
            "lost packets are not retransmitted to a group",
            "write cast = \"unicast\" for a session per receiver, or repair = \"auto\"",
        ),
        Repair::Rtx if !early => (
            "receivers can request retransmissions only with the RTCP profile avpf",
            "write rtcp = { profile = \"avpf\" }, or repair = \"auto\"",
        ),
        as_said => return Some(as_said),
    };
    out.refuse(&given.at, what, remedy)
}

/// Returns whether probes are filled with padding. Adds a problem if the flow has no retransmission stream, because
/// padding is sent in that stream.
fn padding(table: &Spanned<FlowTable>, video: &Video, cast: Cast, out: &mut Findings) -> bool {
    let Some(given) = table.padding.as_ref().filter(|given| given.value) else { return false };
    // `auto` uses retransmissions only in a session with one receiver and the AVPF profile.
    let asks = cast != Cast::Multicast && video.rtcp.profile == RtcpProfile::Avpf;
    let repairs = video.repair == Repair::Rtx || video.repair == Repair::Auto && asks;
    if !repairs {
        let what = "padding travels in the stream of retransmissions, and there is none";
        out.problem(&given.at, what, "write repair = \"rtx\" for one receiver, or leave padding out");
    }
    repairs
}

fn kind(table: &Spanned<FlowTable>, files: &Files, out: &mut Findings) -> Option<FlowKind> {
    let Some(kind) = &table.kind else {
        return out.lack(&table.at, "kind", "choose from: video, tcp, cbr, onoff");
    };
    let (word, keys) = match kind.value {
        FlowWord::Video => {
            // Of the keys in `TCP`, a video accepts only `bytes`, which greedy media uses.
            let own = |key: &&str| !COMMON.contains(key) && (*key == "bytes" || !TCP.contains(key));
            ("a video", FlowTable::KEYS.iter().copied().filter(own).chain(Vbr::keys()).collect())
        }
        FlowWord::Tcp => ("a tcp", [Config::names(), TCP.to_vec()].concat()),
        FlowWord::Cbr => ("a cbr", Cbr::names()),
        FlowWord::OnOff => ("an onoff", OnOff::names()),
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
        FlowWord::Cbr => FlowKind::Cbr(Cbr::fill(&table.cbr.item, None, out)?),
        FlowWord::OnOff => FlowKind::OnOff(OnOff::fill(&table.onoff.item, None, out)?),
    })
}

fn above_zero(given: &Spanned<Rate>, out: &mut Findings) -> Option<Rate> {
    checked(given, &positive, out)
}

pub(crate) fn checked<T: Copy>(given: &Spanned<T>, rule: &dyn Rule<T>, out: &mut Findings) -> Option<T> {
    match rule.broken(&given.value) {
        None => Some(given.value),
        Some((what, remedy)) => out.refuse(&given.at, what, remedy),
    }
}

/// Checks an audio rate. Opus supports rates from 6 to 510 kb/s (RFC 6716, section 2.1.1).
fn audio_rate(rate: &Rate) -> Option<(String, String)> {
    let fits = (Rate::kbps(6)..=Rate::kbps(510)).contains(rate);
    (!fits).then(|| (format!("Opus has no rate of {rate}"), "take 6kbps to 510kbps".to_owned()))
}

/// The smallest packet of a video or TCP flow.
pub(crate) const MIN_PACKET: Bytes = Bytes::new(100);

fn packet(table: &FlowTable, default: Bytes, out: &mut Findings) -> Bytes {
    table
        .packet
        .as_ref()
        .and_then(|given| checked(given, &PacketSize { least: MIN_PACKET.get() }, out))
        // If the size is not valid, continue with the default, so that the other checks still run.
        .unwrap_or(default)
}

fn video(table: &Spanned<FlowTable>, files: &Files, out: &mut Findings) -> Option<Video> {
    let mode = table.mode.as_ref().map_or(Mode::Repaired, |m| m.value);
    let controller = match &table.controller {
        None => {
            let names = files.registry.names(|_| true);
            out.lack(&table.at, "controller", &format!("choose from: {}, or {}", names.join(", "), Outside::FORMS))
        }
        Some(name) => match (Outside::of(name), files.registry.find(name)) {
            (Some(outside), _) => Some(ControllerRef::Outside(outside, name.value.clone())),
            (None, Ok(controller)) => Some(ControllerRef::Entry(controller)),
            (None, Err(error)) => {
                // If the remedy lists the controllers, add the forms of external ones. A guess needs none.
                let is_guess = error.remedy.ends_with('?');
                let own = if is_guess { String::new() } else { format!(", or {}", Outside::FORMS) };
                let remedy = format!("{}{own}", error.remedy);
                out.refuse(&name.at, error.problem, remedy)
            }
        },
    };
    let mut params = Vec::new();
    for (name, given) in table.params.as_ref().map_or(&[][..], |p| &p.0) {
        // Do not check the parameters of a user's own controller, because only that controller knows which ones are
        // valid.
        if Outside::of(name).is_none() {
            match files.registry.find(name) {
                Err(error) => out.problem(&name.at, error.problem, error.remedy),
                Ok(controller) => {
                    for one in given {
                        // Resolve each parameter separately, so that an error contains the line of this parameter.
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
    // Read an absent table like an empty one, so that both result in the same defaults.
    let absent = Item { value: Value::Table(Vec::new()), at: table.at.clone() };
    let encode = table.encode.as_ref().map_or(&absent, |given| &given.item);
    let encode = Encode::read_for(encode, media.as_ref(), out);
    let vbr = Vbr::read_for(&table.vbr.item, &(), out);
    if let (Some(Vbr::Frame(_)), Some(Codec::Av1), Some(given)) =
        (&vbr, encode.map(|e| e.codec), table.vbr.item.get(Vbr::KEY))
    {
        let what = "a frame of av1 can't follow one of another quantizer inside a group of pictures";
        out.problem(&given.at, what, "write vbr = \"bucket\", or take another codec");
    }
    if let Some(Vbr::Rungs(Rungs { switching, .. })) = &vbr
        && switching != BUILT_IN_SWITCHING
        && Outside::of(switching).is_none()
    {
        let at = table.vbr.item.get("switching").map_or(&table.at, |given| &given.at);
        let what = format!("there is no switching rule {}", quoted(switching));
        out.problem(at, what, format!("write {}, or {}", quoted(BUILT_IN_SWITCHING), Outside::FORMS));
    }
    let playout = table.playout.as_ref().map_or(Playout::None, |given| given.value.0);
    if let (Playout::Fixed(Span::ZERO), Some(given)) = (playout, &table.playout) {
        out.problem(&given.at, "a play-out delay of 0 is not possible", "write a time above 0, or \"none\"");
    }
    if let (Some(buffer), Some(MediaWord::Greedy)) = (&table.buffer, table.media.as_ref().map(|m| m.value.0))
        && buffer.consume.is_none()
    {
        out.problem(
            &buffer.at,
            "with greedy media, which has no frames, the buffer needs a drain rate",
            "write for example consume = \"64kbps\"",
        );
    }
    let rtcp = Rtcp::read(table.rtcp.as_ref().map_or(&absent, |given| &given.item), out);
    let floor = table.floor.as_ref().and_then(|r| above_zero(r, out));
    let cap = table.cap.as_ref().and_then(|r| above_zero(r, out));
    if let (Some(floor), Some(cap), Some(given)) = (floor, cap, &table.cap)
        && cap < floor
    {
        out.problem(&given.at, format!("the cap {cap} is below the floor {floor}"), "make the cap larger");
    }
    warn_of_no_limit(table, controller.as_ref(), media.as_ref(), &params, out);
    let ecn = table.ecn.as_ref().and_then(|given| given.codepoint(out)).unwrap_or(Ecn::NotEct);
    if let (Some(controller), Some(given)) = (controller.as_ref().and_then(ControllerRef::entry), &table.ecn)
        && ecn.is_capable()
        && !controller.answers_marks
    {
        let what = format!(
            "{} answers no congestion marks, as senders of ECN-capable packets have to (RFC 3168)",
            quoted(controller.name)
        );
        let able = files.registry.names(|c| c.answers_marks);
        out.warn(&given.at, what, format!("write ecn = \"off\", or take one that does: {}", able.join(", ")));
    }
    Some(Video {
        controller: controller?,
        mode,
        params,
        media: media?,
        encode: encode?,
        vbr: vbr?,
        emit: table.emit.as_ref().map_or(Emit::Paced, |e| e.value),
        // This value is replaced later, because the valid kinds of repair depend on the receivers, which are not read
        // yet.
        repair: Repair::None,
        padding: false,
        audio: table.audio.as_ref().and_then(|given| checked(given, &audio_rate, out)),
        packet: packet(table, Bytes::new(1200), out),
        playout,
        buffer: table.buffer.as_ref().map(|given| given.value),
        rtcp: rtcp?,
        floor,
        cap,
        ecn,
        feedback: table.feedback.as_ref().map(|given| given.value).unwrap_or_default(),
        clock: table.clock.as_ref().map(|given| clock(given, out)).unwrap_or_default(),
        first: table.rtp.as_ref().map(|given| given.value).unwrap_or_default(),
        defences: table.defences.as_ref().is_some_and(|given| given.value),
    })
}

/// Warns of a flow whose rate has no limit. Such a flow has no cap, its controller ignores the network, and its source
/// always has data.
fn warn_of_no_limit(
    table: &Spanned<FlowTable>,
    controller: Option<&ControllerRef>,
    media: Option<&Media>,
    params: &[(String, Vec<(String, Given)>)],
    out: &mut Findings,
) {
    let (Some(ControllerRef::Entry(entry)), Some(Media::Greedy { .. }), None) = (controller, media, &table.cap) else {
        return;
    };
    // A controller without feedback ignores the network. Do not warn if the scenario sets a parameter of this
    // controller, because the parameter can set its rate.
    if entry.feedback == FeedbackTiming::None && params.iter().all(|(name, _)| name != entry.name) {
        let at = table.controller.as_ref().map_or(&table.at, |given| &given.at);
        let what = format!("{} of greedy media sends at {}, whatever arrives", quoted(entry.name), Setup::NO_CAP);
        out.warn(at, what, "write for example cap = \"2Mbps\"");
    }
}

fn media(table: &Spanned<FlowTable>, files: &Files, out: &mut Findings) -> Option<Media> {
    let files_say = match (&table.clip, &table.trace) {
        (Some(clip), _) => Some((MediaWord::Clip, &clip.at)),
        (None, Some(trace)) => Some((MediaWord::Trace, &trace.at)),
        (None, None) => None,
    };
    let word = match (&table.media, files_say) {
        (None, _) => files_say.map_or(MediaWord::Synthetic, |(word, _)| word),
        // If the command line sets `clip` or `trace`, this key overrides a contradicting `media` of the file.
        (Some(given), Some((word, at))) if at.set && !given.at.set && given.value.0 != MediaWord::Rfc8593 => word,
        // Allow a clip or trace with RFC 8593's codec, because its trace-driven and hybrid models replay the frames of
        // that file.
        (Some(given), Some((word, at))) if ![word, MediaWord::Rfc8593].contains(&given.value.0) => {
            let (file, media) = (word.word(), given.value.0.word());
            let what = format!("a {file} beside media = \"{media}\", which plays none");
            return out.refuse(at, what, format!("write media = \"{file}\", or leave one of them out"));
        }
        (Some(given), _) => given.value.0,
    };
    if let (Some(bytes), true) = (&table.bytes, word != MediaWord::Greedy) {
        out.problem(
            &bytes.at,
            "only a video with greedy media has an amount of data",
            "write media = \"greedy\", or leave it out",
        );
    }
    media_of(word, table, files, out)
}

fn media_of(word: MediaWord, table: &Spanned<FlowTable>, files: &Files, out: &mut Findings) -> Option<Media> {
    Some(match word {
        MediaWord::Synthetic => Media::Synthetic,
        MediaWord::Greedy => {
            let bytes = table.bytes.as_ref();
            if let Some(given) = bytes.filter(|b| b.value == Bytes::ZERO) {
                out.problem(&given.at, "there is nothing to send", "write for example \"1MB\"");
            }
            Media::Greedy { bytes: bytes.map(|b| b.value) }
        }
        MediaWord::Clip => {
            let Some(clip) = &table.clip else {
                return out.lack(&table.at, "clip", "write for example clip = [\"a.mkv\"], or media = \"synthetic\"");
            };
            if clip.all.is_empty() {
                return out.refuse(&clip.at, "an empty list", "name at least one file, or write media = \"synthetic\"");
            }
            // Look up every file before returning, so that all missing files are reported.
            let paths: Vec<_> = clip.all.iter().map(|name| files.found(name, "the clip", out)).collect();
            Media::Clip { paths: paths.into_iter().collect::<Option<_>>()? }
        }
        MediaWord::Table2 => {
            let given = table.table2.as_ref();
            let weights = match given.and_then(|t| t.weights.as_ref()) {
                None => [6.0, 2.0, 1.0],
                Some(list) => match list.iter().map(|w| w.value).collect::<Vec<_>>().as_slice() {
                    [i, p, b] if [i, p, b].iter().all(|w| **w > 0.0 && **w <= 1000.0) => [*i, *p, *b],
                    _ => {
                        return out.refuse(&list.at, "not three weights above 0", "write for example [6, 2, 1]");
                    }
                },
            };
            let vary = given.and_then(|t| t.vary.as_ref());
            if let Some(given) = vary.filter(|v| !(0.0..1.0).contains(&v.value)) {
                out.problem(&given.at, format!("{} is out of range", given.value), "write a share from 0 to below 1");
            }
            Media::Table2 { weights, vary: vary.map_or(0.1, |v| v.value) }
        }
        MediaWord::Map001 => Media::Map001(table.map001.as_ref().map_or(MAP001, |given| given.value)),
        MediaWord::Trace => {
            let Some(name) = &table.trace else {
                return out.lack(&table.at, "trace", "write for example trace = \"frames.csv\"");
            };
            Media::Trace { path: files.found(name, "the trace", out)? }
        }
        MediaWord::Rfc8593 => {
            let codec = table.rfc8593.as_ref().map_or(RFC8593, |given| given.value.clone());
            let frames = match (&table.clip, &table.trace) {
                (clip, trace) if codec.model == CodecModel::Statistical => {
                    if let Some(at) = clip.as_ref().map(|c| &c.at).or(trace.as_ref().map(|t| &t.at)) {
                        let remedy = "write rfc8593.model = \"trace\" or \"hybrid\", or leave it out";
                        out.problem(at, "the statistical model uses no frame sizes", remedy);
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

fn tcp(table: &Spanned<FlowTable>, out: &mut Findings) -> Option<Tcp> {
    // Read both tables before returning, so that the problems of both are reported.
    let (config, source) = (Config::read(&table.tcp.item, out), tcp_source(table, out));
    let mut config = config?;
    config.packet = packet(table, config.packet, out);
    Some(Tcp { config, source: source? })
}

fn tcp_source(table: &Spanned<FlowTable>, out: &mut Findings) -> Option<Workload> {
    if let Some(given) = table.bytes.as_ref().filter(|b| b.value == Bytes::ZERO) {
        return out.refuse(
            &given.at,
            "there is nothing to send",
            "write for example \"1MB\", or leave it out for no end",
        );
    }
    let wrong = |at: &Place, what: &str, out: &mut Findings| {
        let remedy = "write nothing (no end), bytes (once), bytes and off (again and again), or on and off, with or \
            without rate";
        out.refuse(at, what, remedy)
    };
    match (&table.bytes, &table.on, &table.off, &table.rate) {
        (None, None, None, None) => Some(Workload::Bulk),
        (Some(bytes), None, None, None) => Some(Workload::File(bytes.value)),
        (Some(bytes), None, Some(off), None) => {
            Some(Workload::Transfers { bytes: bytes.value, off: Periods::read(&off.item, out)? })
        }
        (None, Some(on), Some(off), rate) => {
            let (on, off) = (Periods::read(&on.item, out), Periods::read(&off.item, out));
            let rate = match rate {
                Some(rate) => Some(above_zero(rate, out)?),
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
