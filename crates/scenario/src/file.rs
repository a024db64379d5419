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

/// Names of keys here, and the names of the same settings in other programs. If a key is unknown, the message suggests
/// the first of these keys that the table has.
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
        /// The format's number, now 1; files of a newer format are refused.
        format: u64,
        /// The scenario's name, by default the file's.
        name: String,
        /// The duration of the run, for example "80s".
        duration: Span,
        /// The time at the start that means exclude and series include; default "0s".
        warmup: Span,
        /// The seed of all randomness; default 1.
        seed: u64,
        /// The delay that each router adds to a multicast join on its way towards the source, on top of the links'
        /// delays; default "0ms".
        join_latency: Span,
        /// The delay that each router adds to a multicast leave; default "0ms".
        leave_latency: Span,
        /// Nodes that links connect; "r[1-3]" is r1, r2, r3.
        nodes: Vec<Spanned<String>>,
        /// A network by its name (`steadycast networks` lists them), or a path to its file. The network gives its
        /// topology and its events; the topology's keys in this file override the network's. +cubic, +2cubic, +newreno,
        /// +bbr and +web after the name add TCP flows.
        network: String,
        /// A ready-made network.
        topology: Topology,
        /// Links. With "between": a new link. Without: changes the link of this name, from the shape or from an entry
        /// above.
        link: Vec<Spanned<Deferred<LinkTable>>>,
        /// What is sent, from where to where.
        flow: Vec<Spanned<FlowTable>>,
        /// Simulcasts: groups that carry the same video at different rates; each receiver chooses one.
        simulcast: Vec<Spanned<SimulcastTable>>,
        /// Changes during the run: of links, flows, and the members of groups.
        event: Vec<Spanned<EventTable>>,
        /// What is recorded in addition to the summary.
        record: RecordTable,
        /// Conditions that the results have to meet.
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
    /// Equal legs of a star, or equal hops of a chain: a link with
    LegExtra {
        /// the number of such links; default 1.
        count: u64,
        /// the name of the node at its far end, with a range if there are several; default leg1, leg2 … or n1, n2 …
        name: String,
    }
    /// One level of a tree: a link with
    LevelExtra {
        /// the number of children of each node of the level above.
        fanout: u64,
    }
    /// A link's own keys.
    LinkExtra {
        /// The link's name, by default made of its ends: "bs-r1". With several links, each is called NAME-END:
        /// "air-r1".
        name: String,
        /// Its two ends. One range: one end to many. Two ranges of equal length: pairwise.
        between: Vec<Spanned<String>>,
    }
    /// A link's behaviour, in both directions unless "back" differs.
    Spec {
        /// The link's rate, for example "4Mbps". "none": packets never wait. "0bps": no packet leaves the queue.
        /// Default "none".
        rate: OrNone<Rate>,
        /// A file with the rate over time, relative to this one; excludes "rate". Lines of whole milliseconds: a
        /// Mahimahi trace, in which 1500 bytes can leave at each. Two columns: seconds and Mb/s, or by a header of t_s
        /// or t_ms and mbps, kbps or bps. AlphaRTC's JSON: its delay and loss also apply if the link has none.
        trace: String,
        /// A file with the delay over time; excludes "delay". Columns: seconds and milliseconds one way, or by a header
        /// of t_s or t_ms and ms or s.
        delay_trace: String,
        /// A file with the loss probability over time in the link's direction; excludes "loss". Columns: seconds and
        /// probability.
        loss_trace: String,
        /// Whether these files repeat after their end; default true.
        r#loop: bool,
        /// Propagation delay; default "0ms".
        delay: Span,
        /// A random addition to each packet's delay.
        jitter: Jitter,
        /// Link-layer retransmission: loss becomes delay.
        arq: Arq,
        /// Random loss of packets, in addition to the queue's drops.
        loss: Directed<Loss>,
        /// Reordering: a share of the packets is delayed, so that later packets overtake them.
        reorder: Reorder,
        /// The probability that a packet is duplicated; default 0.
        duplicate: f64,
        /// A policer before the queue: drops packets that exceed a rate; default "none".
        policer: OrNone<Policer>,
        /// A token bucket after the queue, as in a cable modem: a burst leaves at the link's rate, further packets at
        /// the shaper's; default "none".
        shaper: OrNone<Shaper>,
        /// Whether the link clears the ECN field of each packet, as some routers and tunnels do; default false.
        bleach: bool,
        /// The queue discipline; default drop-tail with 50 packets.
        queue: Deferred<Queue>,
        /// The largest packet; default "1500B".
        mtu: Bytes,
        /// Keys that differ in the other direction.
        back: Deferred<BackTable>,
    }
    /// A flow: its traffic, source and receivers.
    FlowTable {
        /// The flow's name, unique among flows. The hosts of a dumbbell are called after it. A range makes one flow per
        /// number.
        name: String,
        /// Makes flows NAME1 … NAMEcount from this entry; 0 makes none.
        count: u64,
        /// video, tcp, cbr or onoff.
        kind: FlowWord,
        /// The source's node. With a range in both this and the name: pairwise.
        from: String,
        /// The receivers' nodes.
        to: OneOrMany<String>,
        /// In a shape, instead of "to": the number of receivers; default 1.
        receivers: u64,
        /// unicast: a separate session for each receiver. multicast: one session for all, the default with several
        /// receivers.
        cast: CastWord,
        /// When it starts: a time, or { uniform = [from, to] }. Default: at its start event if it has one, else "0s".
        start: StartValue,
        /// When it stops; default: at the end.
        stop: Span,
        /// Delays packets by a random time up to this, a burst as a whole, so that flows don't synchronise; default
        /// "0ms" (tcp of preset linux: "100us").
        send_jitter: Span,
        /// video, tcp: Packet size, as IP size. Default of video: "1200B". Default of tcp: its preset's, or the largest
        /// that fits through its path.
        packet: Bytes,
        /// video: a registry name, "file.py:Class", or "exec:PROGRAM ARGUMENTS".
        controller: String,
        /// video: repaired (default) or paper.
        mode: Mode,
        /// video: parameters per controller, for example params.asmp = { gamma_congested = 0.2 }.
        params: Params,
        /// video: clip, synthetic, greedy, table2, map001, trace or rfc8593. Default: clip or trace if the key of that
        /// name is given, else synthetic.
        media: MediaValue,
        /// video: files that are played one after the other and looped; relative to this file.
        clip: OneOrMany<String>,
        /// video: frame sizes, as CSV or a multi-rate trace of Evalvid-RA; relative to this file.
        trace: String,
        /// video: how the rates of table 2 of the Multi-Evalvid-RA paper are turned into frames.
        table2: Table2Table,
        /// video: how the MPEG-TFRCP paper's rates are turned into frames.
        map001: Map001,
        /// video: RFC 8593's synthetic codec; its frame rate is encode.fps, here 30 by default.
        rfc8593: CodecSettings,
        /// video: how pictures are encoded.
        encode: Deferred<Encode>,
        /// video: paced (default), or each frame as a burst.
        emit: Emit,
        /// video: the repair of lost packets. none (default). rtx: the receiver requests retransmissions while they can
        /// arrive in time; one receiver only, and rtcp.profile has to be avpf. parity: receivers recover packets from
        /// parity, whose share follows their losses. auto: with one receiver rtx, plus parity if losses remain; with a
        /// group parity.
        repair: Repair,
        /// video with repair = "rtx", or with "auto" towards one receiver: whether the newest packet is retransmitted
        /// as padding when a controller's probe (gcc) finds too little data in the pacer; default false.
        padding: bool,
        /// video: the codec rate of an audio stream beside the video, for example "48kbps": Opus packets of 20 ms,
        /// which are sent before all others. Their rate is part of the controlled one. Default: no audio.
        audio: Rate,
        /// video: the play-out delay; a frame that arrives later misses its display time; default "none". "adaptive",
        /// or { kind = "adaptive", most = "800ms" }: follows the time that frames and the repair of lost packets take.
        playout: PlayoutValue,
        /// video: the receiver's buffer, for controllers that use its level.
        buffer: Buffer,
        /// video: RTCP's timing.
        rtcp: Deferred<Rtcp>,
        /// video: the lower limit of the rate.
        floor: Rate,
        /// video: the upper limit of the rate.
        cap: Rate,
        /// tcp, and video with media greedy: the amount to send, after which the flow ends. With "off": the amount of
        /// each period.
        bytes: Bytes,
        /// video: the receivers' clocks; default: the sender's clock.
        clock: ClockTable,
        /// video: the first RTP sequence number and timestamp; default: from the seed.
        rtp: FirstNumbers,
        /// video: whether the sender filters implausible feedback, as a live sender does; default false.
        defences: bool,
        /// tcp: explicit congestion notification, true or false. video: the ECN codepoint of its packets: off, ect0 or
        /// ect1 (L4S); true: ect0. Default: off.
        ecn: EcnValue,
        /// video with unicast sessions: the receivers' feedback format. own: the controller's choice, rfc8888 for
        /// scream, gcc and steady (default). rfc8888 or twcc: per-packet feedback as in RFC 8888 or transport-wide
        /// congestion control. stats: counters once a second, as in a browser's statistics. rr: only standard report
        /// blocks. Live sessions have the first three.
        feedback: FeedbackFormat,
        /// tcp: The application's rate during on periods.
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
    /// Table 2 of the Multi-Evalvid-RA paper as frames.
    Table2Table {
        /// Relative sizes of I, P and B frames; default [6, 2, 1].
        weights: Vec<Spanned<f64>>,
        /// Sizes vary randomly by up to this share; default 0.1.
        vary: f64,
    }
    /// Receivers' clocks.
    ClockTable {
        /// The time by which they are ahead of the sender's clock.
        ahead: Span,
        /// The time by which they are behind the sender's clock.
        behind: Span,
        /// The drift in parts per million; positive: fast, negative: slow. Default 0.
        drift: f64,
    }
    /// Groups that carry the same video at different rates. Each receiver is a member of one at a time and starts in
    /// the lowest.
    SimulcastTable {
        /// Its name.
        name: String,
        /// Its groups, in ascending order of rate: multicast video from one source to the same receivers. Each but the
        /// lowest has a floor.
        flows: OneOrMany<String>,
        /// A receiver moves up when its rate is this multiple of the next group's floor; default 1.2.
        up: f64,
        /// The time for which its rate has to be that high; default "10s". A receiver moves down immediately below half
        /// of its group's floor, and after a fifth of this time below the floor.
        hold: Span,
    }
    /// An event: exactly one of join, leave, start, stop, set.
    EventTable {
        /// The time of the event.
        at: Span,
        /// The period with which it repeats until the end; default: it happens once.
        every: Span,
        /// Receivers that join their group, for example "video.dst5". A receiver with a join event is no member at the
        /// start.
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
        /// A new rate. "none": no limit from then on. "0bps": an outage, in which no packet leaves.
        rate: OrNone<Rate>,
        /// A trace file instead of a rate.
        trace: String,
        /// Whether that trace repeats after its end; default true.
        r#loop: bool,
        /// A new delay.
        delay: Span,
        /// A new jitter; "0ms" removes it.
        jitter: Jitter,
        /// A new loss; { kind = "none" } removes it.
        loss: Loss,
        /// A new reordering; { p = 0 } removes it.
        reorder: Reorder,
        /// A new probability that a packet is duplicated.
        duplicate: f64,
    }
    /// What is recorded in addition to the summary.
    RecordTable {
        /// The step of the series; default "1s".
        interval: Span,
        /// Flows whose packets are recorded individually, or "all".
        packets: OneOrMany<String>,
        /// Links whose packets are captured as pcap files.
        pcap: OneOrMany<String>,
        /// Whether each audio packet is recorded at each receiver, in the table audio; default false. The sound of a
        /// saved video is made from it.
        audio: bool,
    }
    /// A condition on the results. If it does not hold, the exit code is 1 and a table shows it.
    ExpectTable {
        /// A path into summary.json, with list entries by name: "flows.tcp.share_of_fair".
        that: String,
        /// The smallest valid value.
        min: f64,
        /// The largest valid value.
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

/// The keys of a link that differ in its other direction. Its schema omits `back`, which would make the schema
/// recursive.
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
    /// The directions of a link that a setting applies to.
    DirectionKey {
        /// forward (away from the first name; default), back or both.
        direction: Directions,
    }
}

/// A setting that can apply to one direction of a link only.
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
    /// The kind of a flow.
    pub(crate) enum FlowWord {
        Video = "video",
        Tcp = "tcp",
        Cbr = "cbr",
        OnOff = "onoff",
    }
    /// The word for how a flow reaches its receivers.
    pub(crate) enum CastWord {
        Unicast = "unicast",
        Multicast = "multicast",
    }
    /// The kind of a video's source.
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

/// The value of the key `media`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MediaValue(pub(crate) MediaWord);

impl Declared for MediaValue {
    fn schema() -> Json {
        MediaWord::schema()
    }
}

impl FromToml for MediaValue {
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
    /// A start time that is drawn from the seed.
    StartTable {
        /// The earliest and the latest start.
        uniform: Vec<Spanned<Span>>,
    }
}

/// The value of the key `start`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StartValue {
    At(Span),
    Uniform(Span, Span),
}

impl Declared for StartValue {
    fn schema() -> Json {
        json!({ "anyOf": [Span::schema(), StartTable::schema()] })
    }
}

impl FromToml for StartValue {
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
    /// A play-out delay that is not a constant time.
    PlayoutTable for () {
        /// It follows the time that frames and the repair of lost packets take.
        "adaptive" => Adaptive(Bounds), "an adaptive play-out";
    }
}

/// The value of the key `playout`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlayoutValue(pub(crate) Playout);

impl Declared for PlayoutValue {
    fn schema() -> Json {
        json!({ "anyOf": [{ "enum": ["none", "adaptive"] }, Span::schema(), PlayoutTable::schema()] })
    }
}

impl FromToml for PlayoutValue {
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

/// The value of the key `ecn`: a codepoint, or a boolean.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EcnValue(pub(crate) Ecn);

impl EcnValue {
    const WORDS: [(&str, Ecn); 3] = [("off", Ecn::NotEct), ("ect0", Ecn::Ect0), ("ect1", Ecn::Ect1)];

    /// Returns the word for a codepoint.
    pub(crate) fn word(ecn: Ecn) -> &'static str {
        Self::WORDS.iter().find(|(_, one)| *one == ecn).map_or("off", |(word, _)| word)
    }
}

impl Declared for EcnValue {
    fn schema() -> Json {
        json!({ "anyOf": [{ "enum": Self::WORDS.map(|(word, _)| word) }, { "type": "boolean" }] })
    }
}

impl FromToml for EcnValue {
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

/// Parameters per controller, each with its place in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params(pub(crate) Vec<Chosen>);

/// A controller's name and its given parameters.
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
                        // JSON has no infinity, so only finite limits are written.
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
        // The parameters of a user's own controller are not known here, so any parameters are allowed.
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

/// Returns the JSON Schema of a scenario file: its keys, their descriptions, and the parameters of every controller.
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
