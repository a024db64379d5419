//! The resolved text of a scenario: TOML in which every default is filled in and every `set` is applied.

use crate::file::{EcnValue, FlowTable, PlayoutTable, Shape};
use crate::loaded::Loaded;
use crate::model::{
    Cast, Direction, FirstNumbers, Flow, FlowKind, Media, OwnClock, Playout, RateSpec, Repair, Series, Start, Tcp,
    Video, Workload,
};
use crate::name::Pattern;
use crate::network::Pair;
use std::fmt::Display;
use std::path::Path;
use steadycast_control::FeedbackFormat;
use steadycast_control::registry::Given;
use steadycast_link::{Loss, Opportunities};
use steadycast_settings::tree::{Item, Table, Value, bare, string};
use steadycast_settings::{Settings, ToToml};
use steadycast_units::{Ecn, Offset};

impl Loaded {
    /// Returns the scenario as TOML. Every default is filled in, every `set` is applied, and all paths are absolute.
    /// Reading this text results in the same scenario.
    pub fn resolved_toml(&self) -> String {
        let s = &self.scenario;
        let mut text = Text::default();
        if let Some(network) = &self.tables.network {
            // Write the network's name only as a comment, because its topology and events follow in full.
            text.0.push_str(&format!("# Over the network {}.\n", quote(&network.value)));
        }
        text.key("format", crate::file::FORMAT);
        text.key("name", quote(&s.name));
        text.key("duration", quote(s.duration));
        text.key("warmup", quote(s.warmup));
        text.key("seed", s.seed.0);
        text.key("join_latency", quote(s.join_latency));
        text.key("leave_latency", quote(s.leave_latency));
        let layout = &self.layout;
        // Write the key `nodes` even if the list is empty, because a scenario without a shape needs it.
        if !layout.nodes.is_empty() || layout.shape.is_none() {
            text.key("nodes", list(layout.nodes.iter().map(quote)));
        }
        if let Some((shape, parts)) = &layout.shape {
            text.head("[topology]");
            text.key("shape", quote(shape.word()));
            let part = |extras: &[(String, Value)], pair: &Pair| {
                let mut keys: Vec<_> = extras.iter().map(|(k, v)| format!("{k} = {}", v.to_toml())).collect();
                keys.extend(behaviour(pair, false));
                format!("{{ {} }}", keys.join(", "))
            };
            // A dumbbell has two keys, each with one link. Every other shape has one key with a list of links.
            if *shape == Shape::Dumbbell {
                for (key, extras, pair) in parts {
                    text.key(key, part(extras, pair));
                }
            } else if let Some((key, ..)) = parts.first() {
                let all = parts.iter().map(|(_, extras, pair)| format!("\n    {}", part(extras, pair)));
                text.key(key, format!("[{},\n]", all.collect::<Vec<_>>().join(",")));
            }
        }
        for (name, between, pair) in &layout.links {
            text.head("[[link]]");
            if let Some(name) = name {
                text.key("name", quote(name));
            }
            text.key("between", list(between.iter().map(quote)));
            text.lines(behaviour(pair, false));
        }
        for (name, pair) in &layout.changed {
            text.head("[[link]]");
            text.key("name", quote(name));
            text.lines(behaviour(pair, true));
        }
        self.flows(&mut text);
        for simulcast in &s.simulcasts {
            text.head("[[simulcast]]");
            text.key("name", quote(&simulcast.name));
            text.key("flows", list(simulcast.flows.iter().map(|f| quote(&s.flows[f.0 as usize].name))));
            text.key("up", number(simulcast.up));
            text.key("hold", quote(simulcast.hold));
        }
        for table in items(self.root.get("event")) {
            text.head("[[event]]");
            // Write events as in the file, because ranges and `every` can expand them to a million.
            text.lines(self.as_written(table));
        }
        text.head("[record]");
        text.key("interval", quote(s.record.interval));
        let names = |all: Vec<&str>| list(all.into_iter().map(quote));
        text.key("packets", names(s.record.packets.iter().map(|f| s.flows[f.0 as usize].name.as_str()).collect()));
        text.key("pcap", names(s.record.pcap.iter().map(|l| s.links[l.0 as usize].name.as_str()).collect()));
        // Omit the default, so that the resolved text of older scenarios does not change.
        if s.record.audio {
            text.key("audio", s.record.audio);
        }
        for expect in &s.expect {
            text.head("[[expect]]");
            text.key("that", quote(&expect.that));
            for (key, bound) in [("min", expect.min), ("max", expect.max)] {
                if let Some(bound) = bound {
                    text.key(key, number(bound));
                }
            }
        }
        text.0
    }

    fn flows(&self, text: &mut Text) {
        let mut flows = self.scenario.flows.iter();
        let tables = self.tables.flow.as_ref().map_or(&[][..], |f| &f.value);
        for (table, item) in tables.iter().zip(items(self.root.get("flow"))) {
            text.head("[[flow]]");
            let range = || table.name.as_ref().and_then(|n| Pattern::read(n).ok()).map_or(1, |p| p.count());
            let count = table.count.as_ref().map_or_else(range, |c| c.value);
            // Write a single entry for all flows of the table, with the values of the first flow.
            let first = (0..count).filter_map(|_| flows.next()).reduce(|first, _| first);
            match first {
                Some(flow) => flow_text(flow, table, text),
                // Write an entry with `count = 0` as well, because events can refer to it.
                None => text.lines(self.as_written(item)),
            }
        }
    }

    /// Returns the keys as the file contains them, except that paths are absolute.
    fn as_written(&self, item: &Item) -> Vec<String> {
        let keys = item.table().map_or(&[][..], |t| t);
        keys.iter().map(|(key, item)| format!("{} = {}", bare(key), absolute(key, &item.value, &self.folder))).collect()
    }
}

pub(crate) fn items(item: Option<&Item>) -> &[Item] {
    match item.map(|i| &i.value) {
        Some(Value::List(list)) => list,
        _ => &[],
    }
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, head: &str) {
        self.0.push('\n');
        self.0.push_str(head);
        self.0.push('\n');
    }
    fn key(&mut self, key: &str, value: impl Display) {
        self.0.push_str(&format!("{key} = {value}\n"));
    }
    fn setting(&mut self, key: &str, value: &impl ToToml) {
        self.lines(entry(key, value).into_iter().collect());
    }
    fn table(&mut self, table: Table) {
        for (key, item) in table {
            self.key(&key, item.value.to_toml());
        }
    }
    fn lines(&mut self, lines: Vec<String>) {
        for line in lines {
            self.0.push_str(&line);
            self.0.push('\n');
        }
    }
}

fn quote(text: impl Display) -> String {
    string(&text.to_string())
}

/// Returns the shortest text from which the same number can be read.
fn number(x: f64) -> String {
    Value::Real(x).to_toml()
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// Returns a line with a key and its value, or `None` if the value is the default that is not written.
fn entry(key: &str, value: &impl ToToml) -> Option<String> {
    Some(format!("{key} = {}", value.value()?.to_toml()))
}

/// Returns a value as TOML. If the key refers to files, paths in the value become absolute.
fn absolute(key: &str, value: &Value, folder: &Path) -> String {
    match (key, value) {
        // Do not change a controller's parameters: they are not files, even if one is called `trace`.
        ("params", _) => value.to_toml(),
        ("clip" | "trace" | "delay_trace" | "loss_trace", Value::Text(name)) => quote(folder.join(name).display()),
        (_, Value::List(all)) => list(all.iter().map(|i| absolute(key, &i.value, folder))),
        (_, Value::Table(table)) => {
            let keys: Vec<_> =
                table.iter().map(|(k, i)| format!("{} = {}", bare(k), absolute(k, &i.value, folder))).collect();
            format!("{{ {} }}", keys.join(", "))
        }
        _ => value.to_toml(),
    }
}

/// Returns the lines for a link's behaviour. With `change`, the lines belong to an entry that changes an existing link.
/// They then also say which properties the link does not have, for example `shaper = "none"`, because these lines
/// override the properties of the existing link.
fn behaviour((forward, back): &Pair, change: bool) -> Vec<String> {
    let mut keys = direction(forward, None, change);
    // Write `back` if there is loss, because without it loss applies to the forward direction only.
    if forward != back || change || forward.loss != Loss::None || forward.loss_trace.is_some() {
        keys.push(format!("back = {{ {} }}", direction(back, Some(forward), change).join(", ")));
    }
    keys
}

/// Returns the lines for one direction. If `over` is given, the lines belong to the table `back`, and `over` is the
/// forward direction. In this table, a key that has no line has the same value as in the forward direction.
fn direction(d: &Direction, over: Option<&Direction>, change: bool) -> Vec<String> {
    let is_written = |has: fn(&Direction) -> bool| change || has(d) || over.is_some_and(has);
    let mut looped = None;
    let mut file = |key: &str, path: &Path, is_looped: bool| {
        // Write `loop` only once, because it applies to all files of a direction.
        looped = Some(is_looped);
        format!("{key} = {}", quote(path.display()))
    };
    let rate = match &d.rate {
        RateSpec::Unlimited => "rate = \"none\"".into(),
        RateSpec::Constant(rate) => format!("rate = {}", quote(rate)),
        RateSpec::Trace(Opportunities { looped, .. }, path) | RateSpec::Table(Series { looped, path, .. }) => {
            file("trace", path, *looped)
        }
    };
    let delay = match &d.delay_trace {
        Some(Series { looped, path, .. }) => file("delay_trace", path, *looped),
        None => format!("delay = {}", quote(d.delay)),
    };
    let loss = d.loss_trace.as_ref().map(|series| file("loss_trace", &series.path, series.looped));
    let mut keys = vec![rate];
    keys.extend(looped.map(|looped| format!("loop = {looped}")));
    keys.push(delay);
    keys.extend(loss);
    if is_written(|d| d.jitter.is_some()) {
        // Write a mean of 0 to remove the jitter of the link or direction that is overridden.
        keys.push(entry("jitter", &d.jitter).unwrap_or_else(|| "jitter = { mean = \"0ms\" }".into()));
    }
    keys.extend(entry("arq", &d.arq));
    // Write that there is no loss if the rate comes from a table, because an AlphaRTC trace would add its own loss.
    if d.loss_trace.is_none() && (d.loss != Loss::None || change || matches!(d.rate, RateSpec::Table(_))) {
        keys.extend(entry("loss", &d.loss));
    }
    if is_written(|d| d.reorder.p > 0.0) {
        keys.extend(entry("reorder", &d.reorder));
    }
    if is_written(|d| d.duplicate > 0.0) {
        keys.extend(entry("duplicate", &d.duplicate));
    }
    if is_written(|d| d.policer.is_some()) {
        keys.push(entry("policer", &d.policer).unwrap_or_else(|| "policer = \"none\"".into()));
    }
    if is_written(|d| d.shaper.is_some()) {
        keys.push(entry("shaper", &d.shaper).unwrap_or_else(|| "shaper = \"none\"".into()));
    }
    if is_written(|d| d.bleach) {
        keys.push(format!("bleach = {}", d.bleach));
    }
    keys.extend(entry("queue", &d.queue));
    keys.extend(entry("mtu", &d.mtu));
    keys
}

fn span(time: steadycast_units::Time) -> String {
    quote(time.since(steadycast_units::Time::ZERO))
}

fn flow_text(flow: &Flow, table: &FlowTable, text: &mut Text) {
    if let Some(name) = &table.name {
        text.key("name", quote(&name.value));
    }
    if let Some(count) = &table.count {
        text.key("count", count.value);
    }
    if let Some(kind) = &table.kind {
        text.key("kind", quote(kind.value.word()));
    }
    if let Some(from) = &table.from {
        text.key("from", quote(&from.value));
    }
    match &table.to {
        // Keep the difference between a text and a list. With the flows `f[1-3]`, `to = "r[1-3]"` means one receiver
        // per flow, but `to = ["r[1-3]"]` means three.
        Some(to) if to.bare => text.key("to", to.all.first().map_or_else(String::new, |t| quote(&t.value))),
        Some(to) => text.key("to", list(to.all.iter().map(|t| quote(&t.value)))),
        None => text.key("receivers", flow.to.len()),
    }
    text.key("cast", quote(if flow.cast == Cast::Multicast { "multicast" } else { "unicast" }));
    match flow.start {
        Start::At(at) => text.key("start", span(at)),
        Start::Uniform(from, to) => text.key("start", format!("{{ uniform = [{}, {}] }}", span(from), span(to))),
        // Write nothing here, because the start event is written with the other events.
        Start::Event => {}
    }
    if let Some(stop) = flow.stop {
        text.key("stop", span(stop));
    }
    text.key("send_jitter", quote(flow.send_jitter));
    match &flow.kind {
        FlowKind::Video(video) => video_text(video, text),
        FlowKind::Tcp(tcp) => tcp_text(tcp, text),
        FlowKind::Cbr(cbr) => text.table(cbr.table()),
        FlowKind::OnOff(onoff) => text.table(onoff.table()),
    }
}

fn video_text(video: &Video, text: &mut Text) {
    text.key("controller", quote(video.controller.name()));
    text.key("mode", quote(video.mode.word()));
    for (controller, given) in &video.params {
        let keys = given.iter().map(|(key, value)| {
            let value = match value {
                Given::Number(x) => number(*x),
                Given::Text(t) => quote(t),
                Given::Switch(s) => s.to_string(),
            };
            format!("{} = {value}", bare(key))
        });
        let keys = keys.collect::<Vec<_>>().join(", ");
        text.key(&format!("params.{}", bare(controller)), format!("{{ {keys} }}"));
    }
    match &video.media {
        Media::Clip { paths } => {
            text.key("media", "\"clip\"");
            text.key("clip", list(paths.iter().map(|p| quote(p.display()))));
        }
        Media::Synthetic => text.key("media", "\"synthetic\""),
        Media::Greedy { bytes } => {
            text.key("media", "\"greedy\"");
            if let Some(bytes) = bytes {
                text.key("bytes", quote(bytes));
            }
        }
        Media::Table2 { weights, vary } => {
            text.key("media", "\"table2\"");
            let weights = list(weights.iter().map(|w| number(*w)));
            text.key("table2", format!("{{ weights = {weights}, vary = {} }}", number(*vary)));
        }
        Media::Map001(map) => {
            text.key("media", "\"map001\"");
            text.setting("map001", map);
        }
        Media::Trace { path } => {
            text.key("media", "\"trace\"");
            text.key("trace", quote(path.display()));
        }
        Media::Rfc8593 { codec, frames } => {
            text.key("media", "\"rfc8593\"");
            match frames.as_deref() {
                Some(Media::Clip { paths }) => text.key("clip", list(paths.iter().map(|p| quote(p.display())))),
                Some(Media::Trace { path }) => text.key("trace", quote(path.display())),
                _ => {}
            }
            text.setting("rfc8593", codec);
        }
    }
    text.setting("encode", &video.encode);
    // The VBR's keys are in the flow's own table, so write them without a table of their own.
    if let Some(Value::Table(vbr)) = video.vbr.value() {
        text.table(vbr);
    }
    text.key("emit", quote(video.emit.word()));
    if video.repair != Repair::None {
        text.setting("repair", &video.repair);
    }
    if video.padding {
        text.key("padding", "true");
    }
    text.setting("audio", &video.audio);
    text.key("packet", quote(video.packet));
    text.key(
        "playout",
        match &video.playout {
            Playout::None => quote("none"),
            Playout::Fixed(delay) => quote(delay),
            Playout::Adaptive(bounds) => {
                PlayoutTable::Adaptive(*bounds).value().map_or_else(String::new, |v| v.to_toml())
            }
        },
    );
    text.setting("buffer", &video.buffer);
    text.setting("rtcp", &video.rtcp);
    text.setting("floor", &video.floor);
    text.setting("cap", &video.cap);
    if video.defences {
        text.key("defences", true);
    }
    if video.ecn != Ecn::NotEct {
        text.key("ecn", quote(EcnValue::word(video.ecn)));
    }
    if video.feedback != FeedbackFormat::Own {
        text.key("feedback", quote(video.feedback.word()));
    }
    if video.clock != OwnClock::default() {
        // Choose the key by the sign, because neither key accepts a negative time.
        let word = if video.clock.ahead < Offset::ZERO { "behind" } else { "ahead" };
        let by = quote(video.clock.ahead.abs());
        text.key("clock", format!("{{ {word} = {by}, drift = {} }}", number(video.clock.drift)));
    }
    if video.first != FirstNumbers::default() {
        text.setting("rtp", &video.first);
    }
}

fn tcp_text(tcp: &Tcp, text: &mut Text) {
    text.table(tcp.config.table());
    text.key("packet", quote(tcp.config.packet));
    match &tcp.source {
        Workload::Bulk => {}
        Workload::File(bytes) => text.key("bytes", quote(bytes)),
        Workload::Transfers { bytes, off } => {
            text.key("bytes", quote(bytes));
            text.setting("off", off);
        }
        Workload::OnOff { rate, on, off } => {
            text.setting("rate", rate);
            text.setting("on", on);
            text.setting("off", off);
        }
    }
}
