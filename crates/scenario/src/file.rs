//! The tables of a scenario file: every key once, with the description that the schema shows.

use crate::Directions;
use crate::encode::Encode;
use crate::model::{Buffer, Cbr, FirstNumbers, Map001, OnOff, Periods, Playout, Repair, Rtcp};
use serde_json::{Value as Json, json};
use steadycast_control::registry::{self, Given, Value as Of, Within};
use steadycast_control::{FeedbackFormat, Mode};
use steadycast_link::{Arq, Jitter, Loss, Policer, Queue, Reorder, Shaper};
use steadycast_media::{ADAPTIVE, Bounds, CodecSettings, Emit, Vbr};
use steadycast_settings::tree::{Item, Value, quoted, string};
use steadycast_settings::{
    Declared, Deferred, Findings, FromToml, OneOrMany, OrNone, Spanned, described, kinds, lengthened, tables, words,
};
use steadycast_units::{Bytes, Ecn, Rate, Span};

/// The newest format that this program reads.
pub(crate) const FORMAT: u64 = 1;

/// What a key is called here, and what others call it; of several that is meant which the table has.
pub(crate) const OTHER_WORDS: &[(&str, &[&str])] = &[
    ("rate", &["bandwidth", "bitrate", "bw", "capacity", "speed", "throughput"]),
    ("delay", &["latency", "propagation", "rtt"]),
    ("loss", &["packet_loss", "loss_rate", "plr"]),
    ("queue", &["aqm", "qdisc", "queue_size", "buffer_size"]),
    ("limit", &["size"]),
    ("cap", &["max_rate", "max_bitrate", "maximum"]),
    ("floor", &["min_rate", "min_bitrate"]),
    ("params", &["start_rate"]),
    ("encode.codec", &["codec"]),
    ("encode.fps", &["fps", "framerate", "frame_rate"]),
    ("encode.gop", &["gop"]),
    ("encode.size", &["resolution", "size"]),
    ("clip", &["file", "video", "input"]),
    ("repair = \"parity\"", &["fec"]),
    ("repair = \"rtx\"", &["nack"]),
    ("controller", &["algorithm", "cc"]),
    ("congestion", &["congestion_control", "cc"]),
    ("playout", &["dejitter", "jitter_buffer", "playout_delay"]),
    ("from", &["src", "source", "sender"]),
    ("to", &["dst", "destination", "receiver", "sink"]),
    ("kind", &["type"]),
    ("at", &["time"]),
    ("duration", &["time", "length", "runtime"]),
    ("stop", &["end"]),
    ("flow", &["flows"]),
    ("link", &["links"]),
    ("event", &["events"]),
    ("that", &["metric", "path"]),
    ("burst", &["burst_size"]),
];

tables! {
    /// A Steadycast scenario: a network, the flows on it, and what happens on the way.
    File {
        /// The format's number, now 1; a newer one is refused.
        format: u64,
        /// The scenario's name, by default the file's.
        name: String,
        /// How long it runs, for example "80s".
        duration: Span,
        /// The time at the start that counts in no mean; series have it; default "0s".
        warmup: Span,
        /// What all randomness derives from; default 1.
        seed: u64,
        /// What each router adds to a multicast join's way towards the source, on top of the links' delays; default
        /// "0ms".
        join_latency: Span,
        /// The same for a leave; default "0ms".
        leave_latency: Span,
        /// Nodes that links join; "r[1-3]" is r1, r2, r3.
        nodes: Vec<Spanned<String>>,
        /// A network by its name (`steadycast networks` lists them), or a path to its file: its topology, on which the
        /// keys of this file's own stand, and its events. +cubic, +2cubic, +newreno, +bbr and +web behind it add TCP
        /// flows.
        network: String,
        /// A ready-made network.
        topology: Topology,
        /// Links. With "between": a new one. Without: changes the link of the shape, or of above, that has this name.
        link: Vec<Spanned<Deferred<LinkTable>>>,
        /// What is sent, from where to where.
        flow: Vec<Spanned<FlowTable>>,
        /// Groups that carry the same video at different rates, between which their receivers choose.
        simulcast: Vec<Spanned<SimulcastTable>>,
        /// What changes during the run: links, flows, and the members of groups.
        event: Vec<Spanned<EventTable>>,
        /// What is recorded beside the summary.
        record: RecordTable,
        /// What must hold at the end.
        expect: Vec<Spanned<ExpectTable>>,
    }
    /// A ready-made network. Links are named after their ends, for example "left-right"; the dumbbell's middle one is
    /// "bottleneck".
    Topology {
        /// dumbbell: hosts FLOW.src and FLOW.dst[1-N], routers left and right. star: hub and leg[1-N]. chain and
        /// parking-lot: n0 … nN. tree: root, t1.1 …, leaf[1-N].
        shape: Shape,
        /// dumbbell: the link between left and right.
        bottleneck: Deferred<LinkTable>,
        /// dumbbell: the link of each host.
        access: Deferred<LinkTable>,
        /// star: links from the hub to leg1, leg2 …
        legs: Vec<Spanned<Deferred<LegTable>>>,
        /// chain, parking-lot: links n0-n1, n1-n2 …
        hops: Vec<Spanned<Deferred<LegTable>>>,
        /// tree: from the root to the leaves.
        levels: Vec<Spanned<Deferred<LevelTable>>>,
    }
    /// Legs of a star, or hops of a chain, that are alike: a link with
    LegExtra {
        /// how many times it stands there; default 1.
        count: u64,
        /// the name of the node at its end, with a range if there are several; default leg1, leg2 … or n1, n2 …
        name: String,
    }
    /// One level of a tree: a link with
    LevelExtra {
        /// how many children each node of the level above has.
        fanout: u64,
    }
    /// A link's own keys.
    LinkExtra {
        /// Its name, by default made of its ends: "bs-r1". With several links, that of each is NAME-END: "air-r1".
        name: String,
        /// Its two ends. One range: one end to many. Two ranges of equal length: one by one.
        between: Vec<Spanned<String>>,
    }
    /// A link's behaviour, in both directions unless "back" says otherwise.
    Spec {
        /// For example "4Mbps"; "none": packets never wait; "0bps": none leaves, and the queue holds what it has.
        /// Default "none".
        rate: OrNone<Rate>,
        /// Instead of a rate, a file relative to this one. Whole milliseconds alone: a Mahimahi trace, in which 1500
        /// bytes may leave at each. Two columns: seconds and Mb/s, or by a header of t_s or t_ms and mbps, kbps or
        /// bps. AlphaRTC's JSON: its delay and loss hold too where none stands beside it.
        trace: String,
        /// Instead of a delay: a file of seconds and milliseconds one way (or by a header of t_s or t_ms and ms or s).
        delay_trace: String,
        /// Instead of a loss, in its direction: a file of seconds and probabilities.
        loss_trace: String,
        /// Whether these files start again at their end; default true.
        r#loop: bool,
        /// Propagation delay; default "0ms".
        delay: Span,
        /// A random addition to each packet's delay.
        jitter: Jitter,
        /// Link-layer retransmission: loss becomes delay.
        arq: Arq,
        /// Which packets get lost, apart from the queue.
        loss: Directed<Loss>,
        /// Which packets come so late that others overtake them.
        reorder: Reorder,
        /// The probability that a packet comes twice; default 0.
        duplicate: f64,
        /// What drops packets beyond a rate, before the queue; default "none".
        policer: OrNone<Policer>,
        /// A token bucket behind the queue, as a cable modem has one: a burst leaves at the link's rate, then packets
        /// wait and leave at the shaper's; default "none".
        shaper: OrNone<Shaper>,
        /// Whether the link clears the ECN field of each packet, as some routers and tunnels do; default false.
        bleach: bool,
        /// What waits; default drop-tail with 50 packets.
        queue: Deferred<Queue>,
        /// The largest packet; default "1500B".
        mtu: Bytes,
        /// What differs in the other direction.
        back: Deferred<BackTable>,
    }
    /// What is sent, from where, to whom.
    FlowTable {
        /// Unique among flows; hosts of a dumbbell are called after it. A range makes as many flows.
        name: String,
        /// Makes NAME1 … NAMEcount of it; 0 leaves it out.
        count: u64,
        /// video, tcp, cbr or onoff.
        kind: FlowWord,
        /// The source's node. With a range in both this and the name: one by one.
        from: String,
        /// The receivers' nodes.
        to: OneOrMany<String>,
        /// In a shape, instead of "to": how many receivers; default 1.
        receivers: u64,
        /// unicast: a session for each receiver. multicast: one for all; the default for more than one.
        cast: CastWord,
        /// When it starts: a time, or { uniform = [from, to] }; default "0s", or with its start event.
        start: StartSaid,
        /// When it stops; default: at the end.
        stop: Span,
        /// Holds packets back for up to this, a burst as one, so that flows don't lock phases; default "0ms" (tcp of
        /// preset linux: "100us").
        send_jitter: Span,
        /// video, tcp: Packet size, as IP size. Default video: "1200B"; tcp: from its preset, or what fits
        /// through its way.
        packet: Bytes,
        /// video: a registry name, "file.py:Class", or "exec:PROGRAM ARGUMENTS".
        controller: String,
        /// video: repaired (default) or paper.
        mode: Mode,
        /// video: parameters per controller, for example params.asmp = { gamma_congested = 0.2 }.
        params: Params,
        /// video: clip, synthetic, greedy, table2, map001, trace or rfc8593; by default what "clip" or "trace" say,
        /// else synthetic.
        media: MediaSaid,
        /// video: files, played one after the other and looped; relative to this file.
        clip: OneOrMany<String>,
        /// video: frame sizes, as CSV or a multi-rate trace of Evalvid-RA; relative to this file.
        trace: String,
        /// video: how paper 000's Table 2 becomes frames.
        table2: Table2Table,
        /// video: how paper 001's rates become frames.
        map001: Map001,
        /// video: RFC 8593's synthetic codec; its frame rate is encode.fps, here 30 by default.
        rfc8593: CodecSettings,
        /// video: how pictures are encoded.
        encode: Deferred<Encode>,
        /// video: paced (default), or each frame as a burst.
        emit: Emit,
        /// video: what becomes of lost packets. none (default). rtx: its one receiver asks for them again, as long as
        /// they come in time; rtcp.profile has to be avpf. parity: receivers compute them from parity, which follows
        /// their losses. auto: towards one receiver rtx, and parity where that leaves too much; groups parity.
        repair: Repair,
        /// video with repair = "rtx", or with "auto" towards one receiver: whether the newest packet is sent again
        /// where a controller's probe finds too little that waits (gcc); default false.
        padding: bool,
        /// video: a frame later than this is not shown at its slot; default "none". "adaptive", or { kind = "adaptive",
        /// most = "800ms" }: as long as frames and the repair of lost packets take.
        playout: PlayoutSaid,
        /// video: the receiver's buffer, for controllers that look at it.
        buffer: Buffer,
        /// video: RTCP's timing.
        rtcp: Deferred<Rtcp>,
        /// video: the rate never goes below this.
        floor: Rate,
        /// video: the rate never goes above this.
        cap: Rate,
        /// tcp, and video with media greedy: the amount to send, after which the flow ends. With "off": the amount of
        /// each period.
        bytes: Bytes,
        /// video: its receivers' clocks; default: the sender's.
        clock: ClockTable,
        /// video: where its packets' numbers begin; default: from the seed.
        rtp: FirstNumbers,
        /// video: whether the sender defends itself against false reports, as a live one does; default false.
        defences: bool,
        /// tcp: explicit congestion notification, true or false. video: off, ect0 or ect1 (L4S), as which its packets
        /// leave; true: ect0. Off by default.
        ecn: EcnSaid,
        /// video with one receiver, or a session for each: what receivers report. own: what the controller asks for,
        /// which is rfc8888 for scream, gcc and steady (default). rfc8888 or twcc: single packets,
        /// as RFC 8888 or transport-wide congestion control has it. stats: counts once a second, as in a browser's
        /// statistics. rr: standard report blocks alone. Live: the first three.
        feedback: FeedbackFormat,
        /// tcp: The rate while on.
        rate: Rate,
        /// tcp: Length of the periods with data.
        on: Deferred<Periods>,
        /// tcp: Length of the periods without data.
        off: Deferred<Periods>,
        ..vbr("video"): Vbr,
        ..onoff("onoff"): OnOff,
        ..cbr("cbr"): Cbr,
        ..tcp("tcp"): steadycast_tcp::Config,
    }
    /// Paper 000's Table 2 as frames.
    Table2Table {
        /// Relative sizes of I, P and B frames; default [6, 2, 1].
        weights: Vec<Spanned<f64>>,
        /// Sizes vary by up to this share; default 0.1.
        vary: f64,
    }
    /// Receivers' clocks.
    ClockTable {
        /// By how much they show more than the sender's.
        ahead: Span,
        /// By how much they show less than the sender's.
        behind: Span,
        /// Parts per million that they are too fast; negative: too slow. Default 0.
        drift: f64,
    }
    /// Groups that carry the same video at different rates. Each receiver is in one of them at a time, first in the
    /// lowest.
    SimulcastTable {
        /// Its name.
        name: String,
        /// Its groups, multicast video from one source to the same receivers, the lowest rate first; each above it has
        /// a floor.
        flows: OneOrMany<String>,
        /// How many times what the next group asks a receiver has to have to go up to it; default 1.2.
        up: f64,
        /// For how long; default "10s". Down goes at once who can't take half of its group's floor, after a fifth of
        /// this who can't take all of it.
        hold: Span,
    }
    /// Something that happens: exactly one of join, leave, start, stop, set.
    EventTable {
        /// When it happens.
        at: Span,
        /// After which time it happens again, and again, until the end; default: once.
        every: Span,
        /// Receivers that join their group, for example "video.dst5"; one that has a join starts outside.
        join: OneOrMany<String>,
        /// Receivers that leave their group.
        leave: OneOrMany<String>,
        /// Flows that start.
        start: OneOrMany<String>,
        /// Flows that stop.
        stop: OneOrMany<String>,
        /// A change of links.
        set: SetTable,
    }
    /// A change of links.
    SetTable {
        /// The link that changes.
        link: OneOrMany<String>,
        /// forward, back or both (default).
        direction: Directions,
        /// A new rate; "none": from then on no limit; "0bps": an outage, in which nothing leaves.
        rate: OrNone<Rate>,
        /// A trace in its place.
        trace: String,
        /// Whether that trace starts again at its end; default true.
        r#loop: bool,
        /// A new delay.
        delay: Span,
        /// A new jitter; "0ms" ends one.
        jitter: Jitter,
        /// A new loss; { kind = "none" } ends one.
        loss: Loss,
        /// A new reordering; { p = 0 } ends one.
        reorder: Reorder,
        /// A new probability that a packet comes twice.
        duplicate: f64,
    }
    /// What is recorded beside the summary.
    RecordTable {
        /// Length of one step of the series; default "1s".
        interval: Span,
        /// Flows whose packets are recorded, or "all".
        packets: OneOrMany<String>,
        /// Links to capture.
        pcap: OneOrMany<String>,
    }
    /// What must hold at the end: exit code 1 and a table when it does not.
    ExpectTable {
        /// A path into summary.json, lists by name: "flows.tcp.share_of_fair".
        that: String,
        /// The smallest value that holds.
        min: f64,
        /// The largest value that holds.
        max: f64,
    }
}

macro_rules! joined {
    ($($(#[doc = $doc:literal])+ $name:ident = $extra:ty, $what:literal;)*) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Debug)]
        pub(crate) struct $name;
        impl Declared for $name {
            fn keys() -> Vec<&'static str> {
                [<$extra>::KEYS, Spec::KEYS].concat()
            }
            fn schema() -> Json {
                let mut all = Spec::schema();
                let extra = <$extra>::schema()["properties"].take();
                if let (Json::Object(all), Json::Object(extra)) = (&mut all["properties"], extra) {
                    all.extend(extra);
                }
                described(all, &[$what])
            }
        }
    )*};
}
joined! {
    /// A link.
    LinkTable = LinkExtra, "A link.";
    /// Links of a star or chain.
    LegTable = LegExtra, "Links of a star or chain that are alike.";
    /// Links of one level of a tree.
    LevelTable = LevelExtra, "Links of one level of a tree.";
}

/// What differs in a link's other direction: its schema has no `back` again, or it would never end.
#[derive(Clone, Debug)]
pub(crate) struct BackTable;
impl Declared for BackTable {
    fn keys() -> Vec<&'static str> {
        Spec::KEYS.iter().copied().filter(|key| *key != "back").collect()
    }
    fn schema() -> Json {
        json!({ "$ref": "#/$defs/back" })
    }
}

tables! {
    /// Which directions of a link something is for.
    DirectionKey {
        /// forward (away from the first name; default), back or both.
        direction: Directions,
    }
}

/// Something that may be for one direction of a link alone.
#[derive(Clone, Debug)]
pub(crate) struct Directed<T> {
    pub(crate) what: Option<T>,
    pub(crate) direction: Option<Spanned<Directions>>,
}
impl<T: Declared> Declared for Directed<T> {
    fn keys() -> Vec<&'static str> {
        [T::keys(), DirectionKey::keys()].concat()
    }
    fn schema() -> Json {
        let mut schema = T::schema();
        schema["properties"]["direction"] = DirectionKey::schema()["properties"]["direction"].take();
        schema
    }
}
impl<T: FromToml> FromToml for Directed<T> {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        let item = lengthened::<T>(item);
        let (key, rest) = item.split(DirectionKey::KEYS);
        if item.table().is_none() {
            T::read(&item, out);
            return None;
        }
        Some(Self { what: T::read(&rest, out), direction: DirectionKey::read(&key, out)?.direction })
    }
}

words! {
    /// A shape's name.
    pub(crate) enum Shape {
        Dumbbell = "dumbbell",
        Star = "star",
        Chain = "chain",
        ParkingLot = "parking-lot",
        Tree = "tree",
    }
    /// What a flow carries.
    pub(crate) enum FlowWord {
        Video = "video",
        Tcp = "tcp",
        Cbr = "cbr",
        OnOff = "onoff",
    }
    /// How a flow reaches its receivers.
    pub(crate) enum CastWord {
        Unicast = "unicast",
        Multicast = "multicast",
    }
    /// Where a video's data comes from.
    pub(crate) enum MediaWord {
        Clip = "clip",
        Synthetic = "synthetic",
        Greedy = "greedy",
        Table2 = "table2",
        Map001 = "map001",
        Trace = "trace",
        Rfc8593 = "rfc8593",
    }
}

/// What kind of media it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MediaSaid(pub(crate) MediaWord);

impl Declared for MediaSaid {
    fn schema() -> Json {
        MediaWord::schema()
    }
}

impl FromToml for MediaSaid {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        match item.text().filter(|text| MediaWord::of(text).is_none() && text.contains(['.', '/', '\\'])) {
            Some(file) => {
                let key = if file.ends_with(".csv") { "trace" } else { "clip" };
                out.refuse(&item.at, format!("{} is a file", quoted(file)), format!("write {key} = {}", string(file)))
            }
            None => MediaWord::read(item, out).map(Self),
        }
    }
}

tables! {
    /// A start drawn from the seed.
    StartTable {
        /// From when to when.
        uniform: Vec<Spanned<Span>>,
    }
}

/// When a flow starts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StartSaid {
    At(Span),
    Uniform(Span, Span),
}

impl Declared for StartSaid {
    fn schema() -> Json {
        json!({ "anyOf": [Span::schema(), StartTable::schema()] })
    }
}

impl FromToml for StartSaid {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        if item.table().is_none() {
            return Span::read(item, out).map(Self::At);
        }
        let table = StartTable::read(item, out)?;
        let Some(ends) = table.uniform else {
            return out.lack(&item.at, "uniform", "write { uniform = [\"0s\", \"1s\"] }");
        };
        match ends.value.as_slice() {
            [from, to] if from.value <= to.value => Some(Self::Uniform(from.value, to.value)),
            _ => out.refuse(&ends.at, "not two times, the earlier first", "write { uniform = [\"0s\", \"1s\"] }"),
        }
    }
}

kinds! {
    /// A play-out delay that is more than a time.
    PlayoutTable for () {
        /// It follows what frames and the repair of lost packets take.
        "adaptive" => Adaptive(Bounds), "an adaptive play-out";
    }
}

/// How long a frame is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlayoutSaid(pub(crate) Playout);

impl Declared for PlayoutSaid {
    fn schema() -> Json {
        json!({ "anyOf": [{ "enum": ["none", "adaptive"] }, Span::schema(), PlayoutTable::schema()] })
    }
}

impl FromToml for PlayoutSaid {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        Some(Self(match item.text() {
            Some("none") => Playout::None,
            Some("adaptive") => Playout::Adaptive(ADAPTIVE),
            Some(_) => Playout::Fixed(Span::read(item, out)?),
            None if item.table().is_none() => Playout::Fixed(Span::read(item, out)?),
            None => {
                let PlayoutTable::Adaptive(bounds) = PlayoutTable::read_for(item, &(), out)?;
                Playout::Adaptive(bounds)
            }
        }))
    }
}

/// An ECN codepoint, or whether there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EcnSaid(pub(crate) Ecn);

impl EcnSaid {
    const WORDS: [(&str, Ecn); 3] = [("off", Ecn::NotEct), ("ect0", Ecn::Ect0), ("ect1", Ecn::Ect1)];

    /// The word for a codepoint.
    pub(crate) fn word(ecn: Ecn) -> &'static str {
        Self::WORDS.iter().find(|(_, one)| *one == ecn).map_or("off", |(word, _)| word)
    }
}

impl Declared for EcnSaid {
    fn schema() -> Json {
        json!({ "anyOf": [{ "enum": Self::WORDS.map(|(word, _)| word) }, { "type": "boolean" }] })
    }
}

impl FromToml for EcnSaid {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        match &item.value {
            Value::Bool(on) => Some(Self(if *on { Ecn::Ect0 } else { Ecn::NotEct })),
            _ => {
                let word = item.text().unwrap_or_default();
                let found = Self::WORDS.iter().find(|(one, _)| *one == word).map(|(_, ecn)| Self(*ecn));
                if found.is_none() {
                    let what = format!("{} is no ECN codepoint", item.shown());
                    out.problem(&item.at, what, "write \"off\", \"ect0\" (true) or \"ect1\"");
                }
                found
            }
        }
    }
}

/// Parameters per controller, each with its place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params(pub(crate) Vec<Chosen>);

/// A controller's name, and what was given for it.
pub(crate) type Chosen = (Spanned<String>, Vec<Spanned<(String, Given)>>);

impl Declared for Params {
    fn schema() -> Json {
        let mut controllers = serde_json::Map::new();
        for controller in registry::ALL {
            let mut params = serde_json::Map::new();
            for param in controller.params {
                let default = param.default(Mode::Repaired);
                let schema = match (default, param.within) {
                    (Of::Number(default), within) => {
                        let mut schema = json!({ "type": "number", "default": default });
                        // JSON has no infinity.
                        if let Within::Range(Of::Number(least), Of::Number(most)) = within {
                            let finite =
                                [("minimum", least), ("maximum", most)].into_iter().filter(|(_, n)| n.is_finite());
                            finite.for_each(|(key, n)| schema[key] = json!(n));
                        }
                        schema
                    }
                    (Of::Span(span), _) => with_default(Span::schema(), span.to_string()),
                    (Of::Rate(rate), _) => with_default(Rate::schema(), rate.to_string()),
                    (Of::Choice(word), Within::Among(words)) => json!({ "enum": words, "default": word }),
                    (Of::Switch(on), _) => json!({ "type": "boolean", "default": on }),
                    _ => continue,
                };
                let range = match param.within {
                    Within::Range(least @ (Of::Span(_) | Of::Rate(_)), most) => format!("; {least} to {most}"),
                    _ => String::new(),
                };
                let paper = match param.default(Mode::Paper) {
                    paper if paper == param.default(Mode::Repaired) => String::new(),
                    paper => format!("; in paper mode {paper}"),
                };
                let about = format!("{} ({}{range}{paper})", param.about, param.source);
                params.insert(param.name.to_owned(), described(schema, &[&about]));
            }
            let schema = json!({ "type": "object", "properties": params, "additionalProperties": false });
            controllers.insert(controller.name.to_owned(), described(schema, &[controller.about]));
        }
        // A class of the user's own has parameters of its own.
        json!({ "type": "object", "properties": controllers, "additionalProperties": { "type": "object" } })
    }
}

impl FromToml for Params {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        let Some(table) = item.table() else {
            let what = format!("{} is not a table", item.shown());
            return out.refuse(&item.at, what, "write params.CONTROLLER = { KEY = VALUE }");
        };
        let mut all = Vec::new();
        for (controller, item) in table {
            let Some(values) = item.table() else {
                let what = format!("{} is not a table", item.shown());
                out.problem(&item.at, what, format!("write params.{controller} = {{ KEY = VALUE }}"));
                continue;
            };
            let mut given = Vec::new();
            for (key, item) in values {
                let value = match &item.value {
                    Value::Bool(b) => Given::Switch(*b),
                    Value::Whole(n) => Given::Number(*n as f64),
                    Value::Real(x) if x.is_finite() => Given::Number(*x),
                    Value::Text(text) => Given::Text(text.clone()),
                    _ => {
                        let what = format!("{} is no parameter", item.shown());
                        out.problem(&item.at, what, "write a finite number, a text, true or false");
                        continue;
                    }
                };
                given.push(Spanned { value: (key.clone(), value), at: item.at.clone() });
            }
            all.push((Spanned { value: controller.clone(), at: item.at.clone() }, given));
        }
        Some(Self(all))
    }
}

fn with_default(mut schema: Json, default: String) -> Json {
    schema["default"] = Json::String(default);
    schema
}

/// The JSON Schema of a scenario file: keys, descriptions, and the parameters of every controller.
pub fn schema() -> Json {
    let mut schema = File::schema();
    let mut back = Spec::schema();
    if let Json::Object(keys) = &mut back["properties"] {
        keys.remove("back");
    }
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Steadycast scenario");
    schema["$defs"] = json!({ "back": back });
    schema["required"] = json!(["duration", "flow"]);
    schema
}
