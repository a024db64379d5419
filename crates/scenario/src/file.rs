//! The tables of a scenario file. They declare each key once, with the description that the schema shows.

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

pub(crate) const FORMAT: u64 = 1;

/// Pairs of a scenario key and the words that other programs use for the same setting. If a file contains such a word,
/// the error message suggests the key. If several keys have the word, the message suggests the first key that is valid
/// in the table.
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
        /// The version of the file format, now 1. The program refuses files with a higher number.
        format: u64,
        /// The scenario's name in reports; default: the file's name.
        name: String,
        /// The duration of the run, for example "80s".
        duration: Span,
        /// The time at the start of the run that mean values exclude; time series include it. Default "0s".
        warmup: Span,
        /// The seed of all random numbers; runs with the same seed have the same result. Default 1.
        seed: u64,
        /// The delay that each router adds when it passes a multicast join on towards the source, in addition to the
        /// links' delays; default "0ms".
        join_latency: Span,
        /// The delay that each router adds when it passes a multicast leave on towards the source; default "0ms".
        leave_latency: Span,
        /// The names of the nodes that links connect, except those of "topology"; "r[1-3]" stands for r1, r2 and r3.
        nodes: Vec<Spanned<String>>,
        /// The name of a network (`steadycast networks` lists them), or the path of its file. The scenario takes its
        /// topology and events from the network; keys of "topology" in this file override them. +cubic, +2cubic,
        /// +newreno, +bbr or +web after the name adds TCP flows.
        network: String,
        /// A network of a standard shape, with its nodes and links.
        topology: Topology,
        /// The links. An entry with "between" adds a link. An entry without it changes the link of this name, which
        /// comes from the topology or from an entry above.
        link: Vec<Spanned<Deferred<LinkTable>>>,
        /// The flows: what is sent, from which node to which.
        flow: Vec<Spanned<FlowTable>>,
        /// Simulcasts: multicast groups that carry the same video at different rates, of which each receiver joins one.
        simulcast: Vec<Spanned<SimulcastTable>>,
        /// Events that change links, flows or the members of multicast groups during the run.
        event: Vec<Spanned<EventTable>>,
        /// The data that is recorded in addition to the summary.
        record: RecordTable,
        /// Conditions on the results. If one does not hold, the command's exit code is 1.
        expect: Vec<Spanned<ExpectTable>>,
    }
    /// A network of a standard shape. Links are named after their ends, for example "left-right"; the link between the
    /// dumbbell's routers is "bottleneck".
    Topology {
        /// The shape, with the names of its nodes. dumbbell: hosts FLOW.src and FLOW.dst[1-N] at the routers left and
        /// right. star: hub and leg[1-N]. chain and parking-lot: n0 to nN in a row. tree: root, t1.1 …, leaf[1-N].
        shape: Shape,
        /// dumbbell: the link between the routers left and right.
        bottleneck: Deferred<LinkTable>,
        /// dumbbell: the link between each host and its router.
        access: Deferred<LinkTable>,
        /// star: the links from the hub to leg1, leg2 and so on.
        legs: Vec<Spanned<Deferred<LegTable>>>,
        /// chain, parking-lot: the links n0-n1, n1-n2 and so on.
        hops: Vec<Spanned<Deferred<LegTable>>>,
        /// tree: the links of each level, from the root to the leaves.
        levels: Vec<Spanned<Deferred<LevelTable>>>,
    }
    /// Equal links of a star or chain.
    LegExtra {
        /// The number of equal links that this entry makes; default 1.
        count: u64,
        /// The name of the node at the link's far end. With several links it contains a range, such as "leg[1-3]".
        /// Default leg1, leg2 … in a star, n1, n2 … in a chain.
        name: String,
    }
    /// The links of one level of a tree.
    LevelExtra {
        /// The number of children of each node of the level above.
        fanout: u64,
    }
    /// A link's own keys.
    LinkExtra {
        /// The link's name; default: the names of its ends, such as "bs-r1". If the entry makes several links, each is
        /// named NAME-END, such as "air-r1".
        name: String,
        /// The names of the link's two ends. If an end is a range, each of its nodes gets a link to the node at the
        /// other end. If both ends are ranges of equal length, their nodes are linked in pairs.
        between: Vec<Spanned<String>>,
    }
    /// A link's properties, in both directions unless "back" differs.
    Spec {
        /// The link's rate in bits of IP packets per second, for example "4Mbps". With "none" the rate is unlimited and
        /// packets never wait. With "0bps" no packet leaves the queue. Default "none".
        rate: OrNone<Rate>,
        /// A file with the link's rate over time, instead of "rate"; its path is relative to this file. Formats: a
        /// Mahimahi trace (in each line a time in whole milliseconds at which 1500 bytes can leave); two columns of
        /// seconds and Mb/s, or of the units that a header names (t_s or t_ms, and mbps, kbps or bps); AlphaRTC's JSON,
        /// whose delay and loss apply as well unless the link has its own; Sabre's JSON; logs of throughput, in each
        /// line a time, latitude, longitude, bytes and milliseconds.
        trace: String,
        /// A file with the link's propagation delay over time, instead of "delay". Its two columns are the time in
        /// seconds and the delay in one direction in milliseconds. A header can name other units (t_s or t_ms, and ms
        /// or s).
        delay_trace: String,
        /// A file with the link's loss probability over time, in the direction from its first to its second end,
        /// instead of "loss". It has two columns: seconds and probability.
        loss_trace: String,
        /// Whether "trace", "delay_trace" and "loss_trace" start again after their end; default true, with a warning if
        /// they are shorter than the run. With false, the last value of a table stays valid after the end of the table.
        /// With false, nothing leaves the link after the end of a Mahimahi trace.
        r#loop: bool,
        /// The propagation delay in one direction; default "0ms".
        delay: Span,
        /// A random delay that is added to each packet's propagation delay; default: none.
        jitter: Jitter,
        /// Retransmission on the link layer, as in Wi-Fi and LTE, which turns loss into delay; default: none.
        arq: Arq,
        /// Random loss of packets on the link, in addition to the queue's drops; default: none.
        loss: Directed<Loss>,
        /// Reordering: a share of the packets is delayed, so that later packets overtake them; default: none.
        reorder: Reorder,
        /// The probability that a packet is duplicated; default 0.
        duplicate: f64,
        /// A policer before the queue, which drops packets that exceed a rate; default "none".
        policer: OrNone<Policer>,
        /// A token bucket after the queue, as in a cable modem: while the bucket has tokens, packets leave at the
        /// link's rate, otherwise at the shaper's. Default "none".
        shaper: OrNone<Shaper>,
        /// Whether the link clears the ECN field of each packet, as some routers and tunnels do; default false.
        bleach: bool,
        /// The queue at the link's entry; default: drop-tail with 50 packets.
        queue: Deferred<Queue>,
        /// The size of the largest packet that the link carries; default "1500B".
        mtu: Bytes,
        /// The keys that have other values in the direction from the second to the first end.
        back: Deferred<BackTable>,
    }
    /// A flow: its traffic, source and receivers.
    FlowTable {
        /// The flow's name, unique among flows. A dumbbell's hosts are named after it. A name with a range, such as
        /// "tcp[1-3]", makes one flow per number.
        name: String,
        /// The number of equal flows that this entry makes, named NAME1, NAME2 and so on; 0 makes none.
        count: u64,
        /// The kind of traffic: video, tcp, cbr (packets at a constant rate) or onoff (cbr with pauses).
        kind: FlowWord,
        /// The source's node. If it and the flow's name contain ranges, each flow has its own node.
        from: String,
        /// The node of the receiver, or a list of nodes.
        to: OneOrMany<String>,
        /// The number of receivers, instead of "to", if the network has a "topology"; default 1.
        receivers: u64,
        /// unicast: each receiver has its own session. multicast: all receivers share one session; the default with
        /// several receivers.
        cast: CastWord,
        /// The time at which the flow starts, or { uniform = [from, to] } for a random time. Default: the time of its
        /// start event, or "0s" if it has none.
        start: StartValue,
        /// The time at which the flow stops; default: the end of the run.
        stop: Span,
        /// The maximum random delay before a packet is sent, or before a burst as a whole. It keeps flows from
        /// synchronising. Default "0ms" (tcp with preset linux: "100us").
        send_jitter: Span,
        /// video, tcp: The packet size, including IP headers. Default of video: "1200B". Default of tcp: that of its
        /// preset, or the largest that fits through the flow's path.
        packet: Bytes,
        /// video: the rate controller: a name (`steadycast controllers` lists them), a Python class as "file.py:Class",
        /// or another program as "exec:PROGRAM ARGUMENTS". Every video needs one.
        controller: String,
        /// video: the mode of the controller. repaired: errors of its paper are corrected (default). paper: the
        /// paper's text, taken literally.
        mode: Mode,
        /// video: parameters of controllers, for example params.asmp = { gamma_congested = 0.2 }.
        params: Params,
        /// video: the source of the frames. clip: a video file. synthetic: a generated film. greedy: packets without
        /// frames, as many as the rate allows. table2: the rates of the Multi-Evalvid-RA paper. map001: the rates of
        /// the MPEG-TFRCP paper. trace: frame sizes from a file. rfc8593: a synthetic codec. Default: clip or trace if
        /// the key of that name is given, else synthetic.
        media: MediaValue,
        /// video: a video file, or a list of files that are played one after the other. The sequence repeats until the
        /// end of the run. Paths are relative to this file.
        clip: OneOrMany<String>,
        /// video: a file of frame sizes, as CSV or as a multi-rate trace of Evalvid-RA; its path is relative to this
        /// file.
        trace: String,
        /// video with media = "table2": frames with the rates of table 2 of the Multi-Evalvid-RA paper.
        table2: Table2Table,
        /// video with media = "map001": how the rates of the MPEG-TFRCP paper are turned into frames.
        map001: Map001,
        /// video with media = "rfc8593": RFC 8593's synthetic codec. Its frame rate is encode.fps, which is 30 by
        /// default with this codec.
        rfc8593: CodecSettings,
        /// video: how pictures are encoded.
        encode: Deferred<Encode>,
        /// video: how packets are sent. paced: spread over time at the pacing rate (default). burst: all packets of a
        /// frame back to back.
        emit: Emit,
        /// video: the repair of lost packets. none: no repair (default). rtx: the receiver requests retransmissions
        /// that can still arrive in time. It needs one receiver per session and rtcp.profile = "avpf". parity:
        /// receivers recover packets from parity packets, whose share follows the losses. auto: rtx with one receiver
        /// per session, plus parity if losses remain; parity with a group.
        repair: Repair,
        /// video: whether the newest packet is retransmitted as padding when a probe of the controller (gcc) needs more
        /// data than the pacer holds. It needs repair = "rtx", or "auto" with one receiver. Default false.
        padding: bool,
        /// video: the codec rate of an audio stream in the same session, for example "48kbps". It consists of Opus
        /// packets of 20 ms, which are sent before all other packets and count in the controlled rate. Default: no
        /// audio.
        audio: Rate,
        /// video: the play-out delay, from a frame's readiness at the sender to its display. A frame that arrives later
        /// misses its display. With "none" the receiver waits for each frame without limit. With "adaptive", or
        /// { kind = "adaptive", most = "800ms" }, the delay follows the time that frames and repair take. Default
        /// "none".
        playout: PlayoutValue,
        /// video: the receiver's play-out buffer, whose fill level the rbuf controllers use.
        buffer: Buffer,
        /// video: the timing of RTCP's reports.
        rtcp: Deferred<Rtcp>,
        /// video: the lower limit of the sending rate.
        floor: Rate,
        /// video: the upper limit of the sending rate.
        cap: Rate,
        /// tcp, and video with media = "greedy": the amount of data to send, after which the flow ends; default:
        /// unlimited. With the key "off", the flow sends this amount in each on period.
        bytes: Bytes,
        /// video: the difference between the receivers' clocks and the sender's; default: none.
        clock: ClockTable,
        /// video: the first RTP sequence number and timestamp; default: random, from the seed.
        rtp: FirstNumbers,
        /// video: whether the sender discards implausible feedback, as a live sender does; default false.
        defences: bool,
        /// The use of explicit congestion notification. tcp: true or false. video: the ECN codepoint of its packets:
        /// off, ect0 (also true) or ect1 (L4S). Default: off.
        ecn: EcnValue,
        /// video with unicast sessions: the format of the receivers' feedback. own: the controller's choice, which is
        /// rfc8888 for scream, gcc and steady (default). rfc8888, twcc: per-packet feedback by RFC 8888, or by
        /// transport-wide congestion control. stats: counters once a second, as in a browser's statistics. rr: standard
        /// report blocks only. Live sessions support the first three.
        feedback: FeedbackFormat,
        /// tcp: The application's rate during on periods; default: unlimited.
        rate: Rate,
        /// tcp: The length of the periods in which the application sends data.
        on: Deferred<Periods>,
        /// tcp: The length of the pauses between the "on" periods.
        off: Deferred<Periods>,
        ..vbr("video"): Vbr,
        ..onoff("onoff"): OnOff,
        ..cbr("cbr"): Cbr,
        ..tcp("tcp"): steadycast_tcp::Config,
    }
    /// Frames with the rates of table 2 of the Multi-Evalvid-RA paper.
    Table2Table {
        /// The relative sizes of I, P and B frames; default [6, 2, 1].
        weights: Vec<Spanned<f64>>,
        /// The share by which frame sizes vary randomly, up or down; default 0.1.
        vary: f64,
    }
    /// Receivers' clocks.
    ClockTable {
        /// The time by which the receivers' clocks are ahead of the sender's clock.
        ahead: Span,
        /// The time by which the receivers' clocks are behind the sender's clock.
        behind: Span,
        /// The drift of the receivers' clocks in parts per million; default 0. With a positive value the clocks run
        /// fast, with a negative value slow.
        drift: f64,
    }
    /// Groups that carry the same video at different rates. Each receiver is a member of one at a time and starts in
    /// the lowest.
    SimulcastTable {
        /// The simulcast's name.
        name: String,
        /// The names of the flows that are its groups, the lowest rate first: multicast videos from one source to the
        /// same receivers. Each flow except the first needs a "floor".
        flows: OneOrMany<String>,
        /// A receiver moves to the next higher group when its rate is at least this multiple of that group's floor;
        /// default 1.2.
        up: f64,
        /// The time for which a receiver's rate must be high enough before it moves up; default "10s". A receiver moves
        /// down immediately if its rate is below half of its group's floor, and after a fifth of this time if it is
        /// below the floor.
        hold: Span,
    }
    /// An event: exactly one of join, leave, start, stop, set.
    EventTable {
        /// The time of the event, from the start of the run.
        at: Span,
        /// The time after which the event happens again, until the end of the run; default: it happens once.
        every: Span,
        /// The receivers that join their group, for example "video.dst5". A receiver with a join event is not a member
        /// at the start.
        join: OneOrMany<String>,
        /// The receivers that leave their group.
        leave: OneOrMany<String>,
        /// The flows that start.
        start: OneOrMany<String>,
        /// The flows that stop.
        stop: OneOrMany<String>,
        /// A change of links. Properties that are not given stay as they are.
        set: SetTable,
    }
    /// A change of links.
    SetTable {
        /// The link that changes, or a list of links.
        link: OneOrMany<String>,
        /// The direction that changes: forward (from the link's first to its second end), back or both (default).
        direction: Directions,
        /// The new rate. "none" removes the limit. "0bps" is an outage, in which no packet leaves the queue.
        rate: OrNone<Rate>,
        /// The new propagation delay.
        delay: Span,
        /// The new jitter; "0ms" removes it.
        jitter: Jitter,
        /// The new random loss; { kind = "none" } removes it.
        loss: Loss,
        /// The new reordering; { p = 0 } removes it.
        reorder: Reorder,
        /// The new probability that a packet is duplicated.
        duplicate: f64,
    }
    /// The data that is recorded in addition to the summary.
    RecordTable {
        /// The time between two points of the time series; default "1s".
        interval: Span,
        /// The flows whose packets are all recorded, in the record's table "packets", or "all"; default: none.
        packets: OneOrMany<String>,
        /// The links whose packets are captured in pcapng files; default: none.
        pcap: OneOrMany<String>,
        /// Whether each audio packet is recorded in the table audio; default false. A saved video's sound is made
        /// from this table.
        audio: bool,
    }
    /// A condition on the results. If it does not hold, the exit code is 1 and a table shows it.
    ExpectTable {
        /// The path of the figure in summary.json, in which entries of lists are named: "flows.tcp.share_of_fair".
        that: String,
        /// The lowest value that meets the condition.
        min: f64,
        /// The highest value that meets the condition.
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
    LegTable = LegExtra, "Equal links of a star or chain.";
    /// Links of one level of a tree.
    LevelTable = LevelExtra, "Links of one level of a tree.";
}

/// The keys of the table `back`. The schema of a link contains this schema, so this schema leaves out the key `back`.
/// Otherwise it would be recursive.
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
        /// The direction of the loss: forward (from the link's first to its second end; default), back or both.
        direction: Directions,
    }
}

/// A setting whose table can limit it to one direction of a link.
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
        /// The earliest and the latest start time.
        uniform: Vec<Spanned<Span>>,
    }
}

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
        /// the delay follows the time that frames and the repair of lost packets take.
        "adaptive" => Adaptive(Bounds), "an adaptive play-out";
    }
}

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

/// The value of a flow's key `ecn`: an ECN codepoint or a boolean. It is read only when the flow's kind is known,
/// because `ecn` is also a key of TCP flows, with other values.
#[derive(Clone, Debug)]
pub(crate) struct EcnValue(Item);

impl EcnValue {
    const WORDS: [(&str, Ecn); 3] = [("off", Ecn::NotEct), ("ect0", Ecn::Ect0), ("ect1", Ecn::Ect1)];

    pub(crate) fn word(ecn: Ecn) -> &'static str {
        Self::WORDS.iter().find(|(_, one)| *one == ecn).map_or("off", |(word, _)| word)
    }

    /// Returns the ECN codepoint of a video flow. Adds a problem if the value is not valid.
    pub(crate) fn codepoint(&self, out: &mut Findings) -> Option<Ecn> {
        let Self(item) = self;
        if let Value::Bool(on) = item.value {
            return Some(if on { Ecn::Ect0 } else { Ecn::NotEct });
        }
        let word = item.text().unwrap_or_default();
        let found = Self::WORDS.iter().find(|(one, _)| *one == word).map(|(_, ecn)| *ecn);
        if found.is_none() {
            let what = format!("{} is no ECN codepoint", item.shown());
            out.problem(&item.at, what, "write \"off\", \"ect0\" (true) or \"ect1\"");
        }
        found
    }
}

impl Declared for EcnValue {
    fn schema() -> Json {
        json!({ "anyOf": [{ "enum": Self::WORDS.map(|(word, _)| word) }, { "type": "boolean" }] })
    }
}

impl FromToml for EcnValue {
    fn read(item: &Item, _: &mut Findings) -> Option<Self> {
        Some(Self(item.clone()))
    }
}

/// The parameters that a file sets for each controller. Each value has its place in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params(pub(crate) Vec<Chosen>);

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
                        // Leave out infinite limits, because JSON has no infinity.
                        if let Within::Range(Of::Number(least), Of::Number(most)) = within {
                            let finite =
                                [("minimum", least), ("maximum", most)].into_iter().filter(|(_, n)| n.is_finite());
                            finite.for_each(|(key, n)| schema[key] = json!(n));
                        }
                        schema
                    }
                    (Of::Span(span), _) => with_default(Span::schema(), span.to_string()),
                    // Write no default if it is below the valid range, because such a default means "not set".
                    (Of::Rate(rate), Within::Range(least, _)) if Of::Rate(rate) < least => Rate::schema(),
                    (Of::Rate(rate), _) => with_default(Rate::schema(), rate.to_string()),
                    (Of::Choice(word), Within::Among(words)) => json!({ "enum": words, "default": word }),
                    (Of::Switch(on), _) => json!({ "type": "boolean", "default": on }),
                    _ => continue,
                };
                let range = match param.within {
                    Within::Range(least @ (Of::Span(_) | Of::Rate(_)), most) => format!(" Range: {least} to {most}."),
                    _ => String::new(),
                };
                let paper = match param.default(Mode::Paper) {
                    paper if paper == param.default(Mode::Repaired) => String::new(),
                    paper => format!(" In paper mode the default is {paper}."),
                };
                let about = format!("{}{range}{paper} Source: {}.", sentence(param.about), param.source);
                params.insert(param.name.to_owned(), described(schema, &[&about]));
            }
            let schema = json!({ "type": "object", "properties": params, "additionalProperties": false });
            controllers.insert(controller.name.to_owned(), described(schema, &[&sentence(controller.about)]));
        }
        // Allow any name and any parameter, because users can supply their own controllers.
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

/// Turns a phrase into a sentence. A first word before a colon, as in `clip: a video file`, is a value that users type,
/// so it is not capitalised.
fn sentence(phrase: &str) -> String {
    let word = phrase.split([' ', ':']).next().unwrap_or_default();
    let typed = phrase[word.len()..].starts_with(':');
    let mut letters = phrase.chars();
    match letters.next() {
        Some(first) if !typed => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        _ => format!("{phrase}."),
    }
}

fn with_default(mut schema: Json, default: String) -> Json {
    schema["default"] = Json::String(default);
    schema
}

/// Returns the JSON Schema of a scenario file.
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
