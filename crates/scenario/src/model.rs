//! A scenario as the worlds take it: checked, with every default filled in and every shape and range written out.

use crate::encode::Encode;
use crate::recorded::Rows;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use steadycast_control::registry::{Chosen, Controller, Given, Outside, ParamError};
use steadycast_control::{FeedbackFormat, Mode};
use steadycast_link::{Arq, Jitter, Loss, Opportunities, Policer, Queue, Reorder, Shaper, Steps};
use steadycast_media::{Bounds, CodecSettings, Emit, Vbr};
use steadycast_settings::{Kind, Rule, Within, kinds, positive, settings, words};
use steadycast_units::{Bytes, Ecn, Offset, Rate, Seed, Span, Time};

/// A node: its place in [`Scenario::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIx(pub u32);

/// A link: its place in [`Scenario::links`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkIx(pub u32);

/// One direction of a link: all links' directions are counted in turn, forward (away from the link's first name) and
/// back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirIx(pub u32);

impl DirIx {
    /// Away from the link's first name.
    pub const fn forward(link: LinkIx) -> Self {
        Self(2 * link.0)
    }
    /// Towards the link's first name.
    pub const fn back(link: LinkIx) -> Self {
        Self(2 * link.0 + 1)
    }
    /// The link.
    pub const fn link(self) -> LinkIx {
        LinkIx(self.0 / 2)
    }
    /// Whether it is [`DirIx::back`].
    pub const fn is_back(self) -> bool {
        self.0 % 2 == 1
    }
    /// The other direction of the same link.
    pub const fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// A flow: its place in [`Scenario::flows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowIx(pub u32);

/// Everything that a run needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// How long it runs.
    pub duration: Span,
    /// What is left out of every mean at the start, never out of a series.
    pub warmup: Span,
    /// What every part's randomness derives from.
    pub seed: Seed,
    /// What a router adds to a join's way towards the source, per router, on top of the links' delays.
    pub join_latency: Span,
    /// The same for a leave: IGMP's last-member query takes up to some seconds.
    pub leave_latency: Span,
    /// Names of all nodes, hosts and routers; [`NodeIx`] counts them.
    pub nodes: Vec<String>,
    /// All links; [`LinkIx`] counts them.
    pub links: Vec<Link>,
    /// All flows; [`FlowIx`] counts them.
    pub flows: Vec<Flow>,
    /// Groups between which their receivers choose.
    pub simulcasts: Vec<Simulcast>,
    /// What changes during the run, by time, ties in the file's order.
    pub events: Vec<Event>,
    /// What is recorded beside the summary.
    pub record: Recording,
    /// What must hold at the end.
    pub expect: Vec<Expect>,
}

/// A link between two nodes, each direction on its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name, unique among links.
    pub name: String,
    /// The first end.
    pub a: NodeIx,
    /// The other end.
    pub b: NodeIx,
    /// From `a` to `b`. Shared between the links that were written as one.
    pub forward: Arc<Direction>,
    /// From `b` to `a`.
    pub back: Arc<Direction>,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// How fast bits leave.
    pub rate: RateSpec,
    /// Propagation delay; the mean of one that changes by a file.
    pub delay: Span,
    /// A file by which it changes.
    pub delay_trace: Option<Series>,
    /// What is added to the delay of each packet.
    pub jitter: Option<Jitter>,
    /// Link-layer retransmission.
    pub arq: Option<Arq>,
    /// Which packets don't arrive.
    pub loss: Loss,
    /// A file of the probabilities with which they don't.
    pub loss_trace: Option<Series>,
    /// Which packets come so late that others overtake them.
    pub reorder: Reorder,
    /// The probability that a packet comes twice.
    pub duplicate: f64,
    /// What drops packets beyond a rate, before the queue.
    pub policer: Option<Policer>,
    /// The token bucket by which packets leave the queue.
    pub shaper: Option<Shaper>,
    /// Whether it clears the ECN field of each packet.
    pub bleach: bool,
    /// What waits, and what is dropped.
    pub queue: Queue,
    /// The largest packet, as IP size.
    pub mtu: Bytes,
}

/// How fast bits leave a link's queue.
#[derive(Clone, Debug, PartialEq)]
pub enum RateSpec {
    /// At once: packets never wait.
    Unlimited,
    /// At a constant rate of at most 1 Tb/s. At 0 nothing leaves, and the queue holds what it has.
    Constant(Rate),
    /// At the opportunities of a Mahimahi trace, and its file.
    Trace(Opportunities, PathBuf),
    /// At the rates of a table in bit/s.
    Table(Series),
}

impl RateSpec {
    /// Its rate, a trace's mean rate; `None`: unlimited.
    pub fn mean(&self) -> Option<Rate> {
        match self {
            Self::Unlimited => None,
            Self::Constant(rate) => Some(*rate),
            Self::Trace(trace, _) => trace.mean_rate(),
            Self::Table(series) => Some(Rate::bps(series.rows.mean().round() as u64)),
        }
    }
}

/// Values over time, from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The values.
    pub rows: Rows,
    /// Whether they start again at their end; otherwise the last one holds on.
    pub looped: bool,
    /// The file they came from.
    pub path: PathBuf,
}

impl Series {
    /// The values as steps, as far as `until`.
    pub fn steps<T>(&self, until: Span, of: impl Fn(f64) -> T) -> Steps<T> {
        let mut steps = Steps::constant(of(self.rows.values.first().map_or(0.0, |(_, value)| *value)));
        let mut start = Span::ZERO;
        while start <= until {
            for (at, value) in self.rows.values.iter().take_while(|(at, _)| start + *at <= until) {
                steps.then(Time::ZERO + start + *at, of(*value));
            }
            start = if self.looped { start + self.rows.period } else { Span::MAX };
        }
        steps
    }
}

/// One flow: a source, its receivers and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its name, unique among flows.
    pub name: String,
    /// What it carries.
    pub kind: FlowKind,
    /// Its source.
    pub from: NodeIx,
    /// Its receivers; at least one, each once.
    pub to: Vec<NodeIx>,
    /// How it reaches them.
    pub cast: Cast,
    /// When it starts.
    pub start: Start,
    /// When it stops, if before the end.
    pub stop: Option<Time>,
    /// Packets are held back for a time uniform in 0 … this, a burst as one: keeps flows from locking phases.
    pub send_jitter: Span,
}

impl Flow {
    /// The name of a receiver's session: the flow's own, or with the receiver's place where each has a session of its
    /// own.
    pub fn session(&self, receiver: usize) -> String {
        match self.cast {
            Cast::UnicastEach => format!("{}.{receiver}", self.name),
            Cast::Unicast | Cast::Multicast => self.name.clone(),
        }
    }
}

/// A kernel answers an acknowledgment within this time, mostly (measured: docs/emulation.md).
pub const KERNEL_JITTER: Span = Span::micros(100);

/// How a flow reaches its receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// One receiver.
    Unicast,
    /// One session to a group.
    Multicast,
    /// A session of its own for each of several receivers.
    UnicastEach,
}

/// When a flow starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At a time.
    At(Time),
    /// At a time drawn uniformly from the seed.
    Uniform(Time, Time),
    /// Not by itself: an event starts it.
    Event,
}

/// What a flow carries.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowKind {
    /// Video over RTP with a rate controller.
    Video(Box<Video>),
    /// TCP.
    Tcp(Box<Tcp>),
    /// Packets at a constant rate.
    Cbr(Cbr),
    /// Packets at a constant rate in some periods, none in others.
    OnOff(OnOff),
}

impl FlowKind {
    /// Whether its source has nothing to send at times, or in the end.
    pub fn pauses(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.source != Workload::Bulk,
            Self::OnOff(_) => true,
            Self::Video(_) | Self::Cbr(_) => false,
        }
    }

    /// The rate of a source while it has something to send; `None` where it takes what it gets.
    pub fn rate_while_active(&self) -> Option<Rate> {
        match self {
            Self::Tcp(tcp) => {
                if let Workload::OnOff { rate, .. } = tcp.source {
                    rate
                } else {
                    None
                }
            }
            Self::OnOff(onoff) => Some(onoff.rate),
            Self::Cbr(cbr) => Some(cbr.rate),
            Self::Video(_) => None,
        }
    }

    /// A flow's `send_jitter`, unless the scenario says one: the time that a kernel's hosts take to answer, where a
    /// kernel's TCP is meant.
    pub(crate) fn host_jitter(&self) -> Span {
        match self {
            Self::Tcp(tcp) if tcp.config.preset == steadycast_tcp::Preset::Linux => KERNEL_JITTER,
            _ => Span::ZERO,
        }
    }
}

/// A flow's controller, as the check of its scenario has found it.
#[derive(Clone)]
pub enum ControllerRef {
    /// An entry of the registry.
    Entry(&'static Controller),
    /// One of the user's own: whoever runs the scenario gives its factory.
    Outside(Outside, String),
}

impl ControllerRef {
    /// Its name in the scenario.
    pub fn name(&self) -> &str {
        match self {
            Self::Entry(controller) => controller.name,
            Self::Outside(_, name) => name,
        }
    }

    /// Its entry, if the registry has it.
    pub fn entry(&self) -> Option<&'static Controller> {
        if let Self::Entry(controller) = self { Some(controller) } else { None }
    }
}

impl PartialEq for ControllerRef {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl fmt::Debug for ControllerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name())
    }
}

/// A video flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Video {
    /// What decides its rate.
    pub controller: ControllerRef,
    /// What the paper means, or what it prints.
    pub mode: Mode,
    /// Parameters as given, per controller; all are checked, those of the chosen one count.
    pub params: Vec<(String, Vec<(String, Given)>)>,
    /// Where its data comes from.
    pub media: Media,
    /// How pictures are encoded; frame rate and GoP hold for media without pixels as well.
    pub encode: Encode,
    /// How a rate becomes a quantizer.
    pub vbr: Vbr,
    /// Paced, or each frame as a burst.
    pub emit: Emit,
    /// How lost packets are repaired.
    pub repair: Repair,
    /// Whether probes are filled up.
    pub padding: bool,
    /// Packet size, as IP size with header extensions.
    pub packet: Bytes,
    /// How long a frame is waited for.
    pub playout: Playout,
    /// The receiver's buffer, for controllers that need its level.
    pub buffer: Option<Buffer>,
    /// RTCP's timing.
    pub rtcp: Rtcp,
    /// The rate never goes below this.
    pub floor: Option<Rate>,
    /// The rate never goes above this.
    pub cap: Option<Rate>,
    /// The codepoint as which its packets leave; with any but `NotEct` they may be marked instead of dropped.
    pub ecn: Ecn,
    /// What its receivers report.
    pub feedback: FeedbackFormat,
    /// Its receivers' clocks.
    pub clock: OwnClock,
    /// Where its packets' numbers begin.
    pub first: FirstNumbers,
    /// Whether the sender trusts feedback no more than a live one does.
    pub defences: bool,
}

/// How long a frame is waited for, from its being ready to its being shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Playout {
    /// As long as it takes.
    #[default]
    None,
    /// For this time; a later frame is not shown at its slot.
    Fixed(Span),
    /// For a time that follows what frames and the repair of lost packets take.
    Adaptive(Bounds),
}

impl Playout {
    /// The longest time; `None`: without end.
    pub const fn most(&self) -> Option<Span> {
        match self {
            Self::None => None,
            Self::Fixed(delay) => Some(*delay),
            Self::Adaptive(Bounds { most, .. }) => Some(*most),
        }
    }
}

/// A receiver's clock, beside the sender's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OwnClock {
    /// How much more it shows; negative: less.
    pub ahead: Offset,
    /// Parts per million that it is too fast.
    pub drift: f64,
}

settings! {
    /// Where a session's numbers begin; what is not given comes from the seed.
    #[derive(Copy, Default, Eq)]
    FirstNumbers {
        /// The first sequence number, from 0 to 65535.
        seq: Option<u16> = None,
        /// The timestamp of time zero, from 0 to 4294967295.
        timestamp: Option<u32> = None,
    }
}

impl Video {
    /// What was given for the chosen controller.
    pub fn given(&self) -> &[(String, Given)] {
        self.params.iter().find(|(name, _)| name == self.controller.name()).map_or(&[], |(_, given)| given)
    }

    /// Its controller's entry with these values.
    ///
    /// # Errors
    /// The registry has no such entry: it is a class.
    pub fn chosen(&self) -> Result<Chosen, ParamError> {
        match self.controller.entry() {
            Some(controller) => Chosen::of(controller, self.mode, self.given()),
            None => Chosen::new(self.controller.name(), self.mode, self.given()),
        }
    }
}

/// Where a video's data comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Media {
    /// Files, played one after the other and looped to the flow's end.
    Clip {
        /// Absolute paths.
        paths: Vec<PathBuf>,
    },
    /// A generated clip.
    Synthetic,
    /// Always has data.
    Greedy {
        /// How much it has to send; `None`: without end.
        bytes: Option<Bytes>,
    },
    /// Paper 000's Table 2: a ladder of mean rates, without pixels.
    Table2 {
        /// Relative sizes of I, P and B frames.
        weights: [f64; 3],
        /// Sizes vary by up to this share.
        vary: f64,
    },
    /// Paper 001's source: quantizers 2, 4 … 62 around its one published rate, 5.25 Mb/s at 12, without pixels.
    Map001(Map001),
    /// Frame sizes from a file: CSV or a multi-rate trace of Evalvid-RA.
    Trace {
        /// Absolute path.
        path: PathBuf,
    },
    /// RFC 8593's synthetic codec, without pixels.
    Rfc8593 {
        /// Its parameters.
        codec: CodecSettings,
        /// The sequence whose frame sizes it takes; `None`: a statistical model's are drawn.
        frames: Option<Box<Media>>,
    },
}

settings! {
    /// Paper 001's rates as frames of quantizers 2, 4 … 62; encode says their number per second and group.
    #[derive(Copy)]
    Map001 {
        /// Rates are 5.25 Mb/s · (12/Q) to this power, in packets of 1000 B.
        exponent: f64 where (EXPONENT) = MAP001.exponent,
        /// Size of an I frame, in P frames.
        intra: f64 where (INTRA) = MAP001.intra,
    }
}

pub(crate) const MAP001: Map001 = Map001 { exponent: 0.9, intra: 3.0 };
const EXPONENT: Within<f64> = Within { least: 0.1, most: 3.0, remedy: "from 0.1 to 3" };
const INTRA: Within<f64> = Within { least: 1.0, most: 100.0, remedy: "from 1 to 100" };

words! {
    /// How a session repairs lost packets.
    #[derive(Default)]
    pub enum Repair {
        /// Not at all.
        #[default]
        None = "none",
        /// Its receiver asks for them and gets them again (RFC 4588).
        Rtx = "rtx",
        /// Towards one receiver as [`Repair::Rtx`] where RTCP's profile allows it, and as [`Repair::Parity`] where that
        /// leaves too much.
        Auto = "auto",
        /// Receivers compute them from parity.
        Parity = "parity",
    }
}

settings! {
    /// A receiver's buffer.
    #[derive(Copy)]
    Buffer {
        /// The size of the buffer.
        size: Bytes where (something) => "write for example size = \"16KiB\"",
        /// Consumption at a constant rate; default: frame by frame, as the clip plays.
        consume: Option<Rate> where (positive_if_any) = None,
    }
    /// RTCP's timing.
    #[derive(Copy)]
    Rtcp {
        /// rfc3550 (at least 5 s), asmp (1 s) or avpf (early feedback).
        profile: RtcpProfile = RtcpProfile::Avpf,
        /// The session bandwidth, of which RTCP takes 5 %; where nobody gives one, no more than the narrowest link on
        /// the way carries.
        session_bw: Rate where (positive) = Rate::mbps(2),
        /// Overrides the profile's least interval.
        t_min: Option<Span> = None,
        /// Where a group's receivers report to: group, or source, which tells them how many they are (RFC 5760).
        reports: Reports = Reports::Group,
    }
}

fn something(size: &Bytes) -> Option<(String, String)> {
    (*size == Bytes::ZERO).then(|| ("nothing fits into it".into(), "write for example \"16KiB\"".into()))
}

fn positive_if_any(rate: &Option<Rate>) -> Option<(String, String)> {
    rate.as_ref().and_then(positive)
}

words! {
    /// Where a group's receivers report to.
    #[derive(Default)]
    pub enum Reports {
        /// To the whole group, as in any-source multicast (RFC 3550).
        #[default]
        Group = "group",
        /// To the sender alone, which tells the group how large it is, as in source-specific multicast (RFC 5760).
        Source = "source",
    }
    /// A profile of RTCP's timing.
    pub enum RtcpProfile {
        /// Five seconds at least (RFC 3550).
        Rfc3550 = "rfc3550",
        /// One second at least (papers 000 and 004).
        Asmp = "asmp",
        /// Early feedback (RFC 4585).
        Avpf = "avpf",
    }
}

/// A TCP flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcp {
    /// How it behaves; [`Workload`] says what it carries.
    pub config: steadycast_tcp::Config,
    /// What it has to send.
    pub source: Workload,
}

/// What a TCP has to send.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// Always something.
    Bulk,
    /// This many bytes, once.
    File(Bytes),
    /// Transfers of one size, with a pause after each.
    Transfers {
        /// Size of one.
        bytes: Bytes,
        /// The pause.
        off: Periods,
    },
    /// In some periods, at `rate` or (`None`) as much as goes.
    OnOff {
        /// What the application writes while on.
        rate: Option<Rate>,
        /// Length of the periods in which it has something.
        on: Periods,
        /// Length of the others.
        off: Periods,
    },
}

settings! {
    /// Packets at a constant rate.
    Cbr {
        /// Its rate.
        rate: Rate where (positive) => "write for example rate = \"400kbps\"",
        /// Packet size, as IP size.
        packet: Bytes where (PLAIN) = Bytes::new(1000),
    }
    /// Packets at a constant rate in some periods; begins with one of them.
    OnOff {
        /// The rate while on.
        rate: Rate where (positive) => "write for example rate = \"400kbps\"",
        /// Packet size, as IP size.
        packet: Bytes where (PLAIN) = Bytes::new(1000),
        /// Length of the periods with data.
        on: Periods => "write for example { dist = \"exponential\", mean = \"5s\" }",
        /// Length of the periods without data.
        off: Periods => "write for example { dist = \"exponential\", mean = \"5s\" }",
    }
    /// Lengths of periods.
    #[derive(Copy)]
    Periods, short "mean" "\"5s\"" {
        /// How they are distributed.
        [kind] dist: PeriodDist,
        /// Their mean.
        mean: Span where (lasting) => "write for example mean = \"5s\"",
    }
    /// A heavy tail.
    #[derive(Copy)]
    Pareto {
        /// Above 1: the smaller, the heavier the tail.
        shape: f64 where (has_mean) = 1.5,
    }
}

kinds! {
    /// How periods are distributed.
    #[derive(Copy)]
    PeriodDist for (), by "dist", default "exponential" {
        /// all the same.
        "constant" => Constant, "constant periods";
        /// many short ones and few long ones.
        "exponential" => Exponential, "exponential periods";
        /// heavy tailed.
        "pareto" => Pareto(Pareto), "Pareto's periods";
    }
}

impl Kind<()> for Pareto {}

fn lasting(span: &Span) -> Option<(String, String)> {
    span.is_zero().then(|| ("a time of 0".into(), "write a time above 0".into()))
}

fn has_mean(shape: &f64) -> Option<(String, String)> {
    let fine = *shape > 1.0 && *shape <= 100.0;
    (!fine).then(|| (format!("{shape} is out of range"), "above 1 (or there is no mean), at most 100".into()))
}

/// The sizes of packets that nothing is read from.
const PLAIN: PacketSize = PacketSize { least: 29 };

/// What a packet's size keeps to.
pub(crate) struct PacketSize {
    /// The smallest one in bytes.
    pub(crate) least: u64,
}

impl Rule<Bytes> for PacketSize {
    fn broken(&self, size: &Bytes) -> Option<(String, String)> {
        let least = self.least;
        let remedy = || format!("from \"{least}B\" (headers of IP included) to \"65535B\"");
        (!(least..=65_535).contains(&size.get())).then(|| (format!("{size} is no packet size"), remedy()))
    }
}

/// Groups that carry the same video at different rates; each receiver is in one of them at a time, first in the lowest.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulcast {
    /// Its name.
    pub name: String,
    /// Its groups, the lowest rate first: multicast video from one source to the same receivers.
    pub flows: Vec<FlowIx>,
    /// How many times what the next group asks a receiver has to have to go up.
    pub up: f64,
    /// For how long.
    pub hold: Span,
}

/// Something that happens on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When.
    pub at: Time,
    /// What.
    pub what: What,
}

/// What an event does.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A receiver joins its group. One that has such an event starts outside: [`Scenario::starts_outside`].
    Join {
        /// The flow.
        flow: FlowIx,
        /// The receiver's place in [`Flow::to`].
        receiver: usize,
    },
    /// A receiver leaves its group.
    Leave {
        /// The flow.
        flow: FlowIx,
        /// The receiver's place in [`Flow::to`].
        receiver: usize,
    },
    /// A flow starts.
    StartFlow(FlowIx),
    /// A flow stops.
    StopFlow(FlowIx),
    /// A link changes; what is `None` stays.
    Set(Change),
}

/// A change of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The link.
    pub link: LinkIx,
    /// Forward, back or both; both is the default here, unlike that of `loss`.
    pub direction: Directions,
    /// A new rate.
    pub rate: Option<RateSpec>,
    /// A new delay.
    pub delay: Option<Span>,
    /// A new jitter; a mean of 0 ends one.
    pub jitter: Option<Jitter>,
    /// A new loss; [`Loss::None`] ends one.
    pub loss: Option<Loss>,
    /// A new reordering.
    pub reorder: Option<Reorder>,
    /// A new probability that a packet comes twice.
    pub duplicate: Option<f64>,
}

words! {
    /// Which directions of a link are meant.
    pub enum Directions {
        /// From the first name to the second.
        Forward = "forward",
        /// From the second name to the first.
        Back = "back",
        /// Both.
        Both = "both",
    }
}

impl Directions {
    /// Whether the forward direction is among them.
    pub fn forward(self) -> bool {
        self != Self::Back
    }
    /// Whether the back direction is among them.
    pub fn back(self) -> bool {
        self != Self::Forward
    }
}

/// What is recorded beside the summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// Length of one step of the series.
    pub interval: Span,
    /// Flows whose packets are recorded one by one.
    pub packets: Vec<FlowIx>,
    /// Links whose packets are captured.
    pub pcap: Vec<LinkIx>,
}

impl Recording {
    /// One step of every series: the longest span of which both the interval and a second are multiples.
    pub fn step(&self) -> Span {
        let (mut a, mut b) = (self.interval.as_nanos().max(1), 1_000_000_000);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        // An interval that does not fit a second is recorded in tenths of a second.
        if a < 1_000_000 { Span::millis(100) } else { Span::nanos(a) }
    }
}

/// Something that must hold at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Expect {
    /// A path into `summary.json`, lists by name.
    pub that: String,
    /// The smallest value that holds.
    pub min: Option<f64>,
    /// The largest value that holds.
    pub max: Option<f64>,
}

impl Scenario {
    /// The node called `name`.
    pub fn node(&self, name: &str) -> Option<NodeIx> {
        self.nodes.iter().position(|n| n == name).map(|i| NodeIx(i as u32))
    }
    /// The link called `name`.
    pub fn link(&self, name: &str) -> Option<LinkIx> {
        self.links.iter().position(|l| l.name == name).map(|i| LinkIx(i as u32))
    }
    /// The flow called `name`.
    pub fn flow(&self, name: &str) -> Option<FlowIx> {
        self.flows.iter().position(|f| f.name == name).map(|i| FlowIx(i as u32))
    }
    /// The name of the node `node`; empty for one that is not there.
    pub fn node_name(&self, node: NodeIx) -> &str {
        self.nodes.get(node.0 as usize).map_or("", String::as_str)
    }
    /// The simulcast that `flow` is a group of, by its place in [`Scenario::simulcasts`], and the group's place in it.
    pub fn group_of(&self, flow: FlowIx) -> Option<(usize, usize)> {
        let place = |s: &Simulcast| s.flows.iter().position(|f| *f == flow);
        self.simulcasts.iter().enumerate().find_map(|(n, s)| Some((n, place(s)?)))
    }
    /// The receivers of `flow`, by their place in [`Flow::to`], that are not in the group at its start: a join event
    /// brings them in, or, in a simulcast's groups above the lowest, they come by themselves.
    pub fn starts_outside(&self, flow: FlowIx) -> Vec<usize> {
        if self.group_of(flow).is_some_and(|(_, place)| place > 0) {
            return (0..self.flows[flow.0 as usize].to.len()).collect();
        }
        let mut outside: Vec<_> = self
            .events
            .iter()
            .filter_map(|e| match e.what {
                What::Join { flow: f, receiver } if f == flow => Some(receiver),
                _ => None,
            })
            .collect();
        outside.sort_unstable();
        outside.dedup();
        outside
    }
}

#[cfg(test)]
mod tests {
    use super::{DirIx, LinkIx};

    #[test]
    fn directions_of_a_link_are_each_others_reverse() {
        let link = LinkIx(7);
        assert_eq!(DirIx::forward(link).reverse(), DirIx::back(link));
        assert_eq!(DirIx::back(link).reverse(), DirIx::forward(link));
        assert_eq!((DirIx::forward(link).link(), DirIx::back(link).link()), (link, link));
        assert!(DirIx::back(link).is_back() && !DirIx::forward(link).is_back());
    }
}
