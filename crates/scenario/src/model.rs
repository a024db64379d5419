//! A checked scenario, which is the input of simulations, emulations and live sessions. All defaults are filled in, and
//! all shapes and ranges are expanded.

use crate::encode::Encode;
use crate::recorded::Rows;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use steadycast_control::registry::{Chosen, Controller, Given, Outside, ParamError};
use steadycast_control::{FeedbackFormat, Mode};
use steadycast_link::{Arq, Jitter, Loss, Opportunities, Policer, Queue, Reorder, Shaper, Steps};
use steadycast_media::{BUILT_IN_SWITCHING, Bounds, CodecSettings, Emit, Rungs, Vbr};
use steadycast_settings::{Kind, OrNone, Rule, Within, kinds, positive, settings, words};
use steadycast_units::{Bytes, Ecn, Offset, Rate, Seed, Span, Time};

/// A node: its index in [`Scenario::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIx(pub u32);

/// A link: its index in [`Scenario::links`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkIx(pub u32);

/// A direction of a link. The link with index `i` has two: `2i` is the direction from [`Link::a`] to [`Link::b`], and
/// `2i + 1` is the direction back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirIx(pub u32);

impl DirIx {
    /// Returns the direction from [`Link::a`] to [`Link::b`].
    pub const fn forward(link: LinkIx) -> Self {
        Self(2 * link.0)
    }
    /// Returns the direction from [`Link::b`] to [`Link::a`].
    pub const fn back(link: LinkIx) -> Self {
        Self(2 * link.0 + 1)
    }
    /// Returns the link that has this direction.
    pub const fn link(self) -> LinkIx {
        LinkIx(self.0 / 2)
    }
    /// Whether this is the back direction.
    pub const fn is_back(self) -> bool {
        self.0 % 2 == 1
    }
    /// Returns the other direction of the same link.
    pub const fn reverse(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// A flow: its index in [`Scenario::flows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowIx(pub u32);

/// A checked scenario: the whole input of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The scenario's name.
    pub name: String,
    /// The duration of the run.
    pub duration: Span,
    /// Length of the initial phase of the run that mean values exclude.
    pub warmup: Span,
    /// The seed of all random numbers.
    pub seed: Seed,
    /// The delay that each router adds when it passes a multicast join on towards the source. The links' delays come in
    /// addition.
    pub join_latency: Span,
    /// The delay that each router adds when it passes a multicast leave on. A router that sends IGMP's last-member
    /// query needs up to some seconds for it.
    pub leave_latency: Span,
    /// Names of all nodes (hosts and routers), indexed by [`NodeIx`].
    pub nodes: Vec<String>,
    /// All links, indexed by [`LinkIx`].
    pub links: Vec<Link>,
    /// All flows, indexed by [`FlowIx`].
    pub flows: Vec<Flow>,
    /// The simulcasts. In each of them, a receiver is a member of only one group at a time.
    pub simulcasts: Vec<Simulcast>,
    /// Changes during the run, sorted by time. Changes at the same time are in the order of the file.
    pub events: Vec<Event>,
    /// What is recorded in addition to the summary.
    pub record: Recording,
    /// Conditions on the results.
    pub expect: Vec<Expect>,
}

/// A link between two nodes. It has a behaviour for each direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The link's name, unique among links.
    pub name: String,
    /// The node at the link's first end.
    pub a: NodeIx,
    /// The node at the link's other end.
    pub b: NodeIx,
    /// The behaviour in the direction from `a` to `b`. All links of a `[[link]]` entry share it.
    pub forward: Arc<Direction>,
    /// The behaviour in the direction from `b` to `a`.
    pub back: Arc<Direction>,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Direction {
    /// The rate at which packets leave the queue.
    pub rate: RateSpec,
    /// The propagation delay. If `delay_trace` is set, this is the mean of that trace.
    pub delay: Span,
    /// The propagation delay over time, from a file.
    pub delay_trace: Option<Series>,
    /// A random delay that is added to the propagation delay of each packet.
    pub jitter: Option<Jitter>,
    /// Link-layer retransmission.
    pub arq: Option<Arq>,
    /// Random loss of packets, in addition to the packets that the queue drops.
    pub loss: Loss,
    /// The loss probability over time, from a file.
    pub loss_trace: Option<Series>,
    /// Reordering: a share of the packets is delayed, so that later packets overtake them.
    pub reorder: Reorder,
    /// The probability that a packet is duplicated.
    pub duplicate: f64,
    /// The policer before the queue.
    pub policer: Option<Policer>,
    /// The token bucket after the queue.
    pub shaper: Option<Shaper>,
    /// Whether the link clears the ECN field of each packet.
    pub bleach: bool,
    /// The queue discipline.
    pub queue: Queue,
    /// The size of the largest packet that the link carries, including IP headers.
    pub mtu: Bytes,
}

/// The rate at which packets leave a link's queue.
#[derive(Clone, Debug, PartialEq)]
pub enum RateSpec {
    /// No limit: packets never wait.
    Unlimited,
    /// A constant rate of at most 1 Tb/s. At a rate of 0, no packet leaves the queue.
    Constant(Rate),
    /// The transmission opportunities that a Mahimahi trace contains, and the path of the trace.
    Trace(Opportunities, PathBuf),
    /// Rates over time, in bit/s.
    Table(Series),
}

impl RateSpec {
    /// Returns the mean rate, or `None` if the rate is unlimited.
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
    /// Whether the values start again after the last one. If not, the last value holds from then on.
    pub looped: bool,
    /// The file that contains the values.
    pub path: PathBuf,
}

impl Series {
    /// Returns the values as steps, up to the time `until`. `of` converts each value.
    pub fn steps<T>(&self, until: Span, of: impl Fn(f64) -> T) -> Steps<T> {
        let mut steps = Steps::constant(of(self.rows.values.first().map_or(0.0, |(_, value)| *value)));
        let mut start = Span::ZERO;
        while start <= until {
            for (at, value) in self.rows.values.iter().take_while(|(at, _)| start + *at <= until) {
                steps.then(Time::ZERO + start + *at, of(*value));
            }
            // Without repetition, one pass is enough, so end the loop.
            start = if self.looped { start + self.rows.period } else { Span::MAX };
        }
        steps
    }
}

/// A flow: its traffic, source and receivers, and the times at which it starts and stops.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The flow's name, unique among flows.
    pub name: String,
    /// The kind of traffic, with its settings.
    pub kind: FlowKind,
    /// The source's node.
    pub from: NodeIx,
    /// The receivers' nodes: at least one, without duplicates.
    pub to: Vec<NodeIx>,
    /// How packets are addressed to the receivers.
    pub cast: Cast,
    /// The start time, or the start event.
    pub start: Start,
    /// The stop time. If it is `None`, the flow stops at the end of the run.
    pub stop: Option<Time>,
    /// Upper limit of a random delay before each packet or burst. The delay is uniformly distributed and prevents flows
    /// from synchronising.
    pub send_jitter: Span,
}

impl Flow {
    /// Returns the name of a receiver's session, which is the flow's name. If each receiver has its own session, the
    /// receiver's index follows.
    pub fn session(&self, receiver: usize) -> String {
        match self.cast {
            Cast::UnicastEach => format!("{}.{receiver}", self.name),
            Cast::Unicast | Cast::Multicast => self.name.clone(),
        }
    }
}

/// The time in which a kernel acknowledges nearly all segments. docs/emulation.md has the measurement.
pub const KERNEL_JITTER: Span = Span::micros(100);

/// How packets of a flow are addressed to its receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// One receiver.
    Unicast,
    /// One multicast session for a group of receivers.
    Multicast,
    /// A separate unicast session for each of several receivers.
    UnicastEach,
}

/// When a flow starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the given time.
    At(Time),
    /// At a random time, which is uniformly distributed between the two given times. It is drawn from the scenario's
    /// seed.
    Uniform(Time, Time),
    /// At the time of the event that starts the flow.
    Event,
}

/// The kind of a flow's traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowKind {
    /// Video over RTP with a rate controller.
    Video(Box<Video>),
    /// TCP.
    Tcp(Box<Tcp>),
    /// Packets at a constant rate.
    Cbr(Cbr),
    /// Packets at a constant rate during on periods, and no packets during off periods.
    OnOff(OnOff),
}

impl FlowKind {
    /// Returns true if the source has periods without data, or if it has a finite amount of data.
    pub fn pauses(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.source != Workload::Bulk,
            Self::OnOff(_) => true,
            Self::Video(_) | Self::Cbr(_) => false,
        }
    }

    /// Returns the rate of the source while it is active, or `None` if the source adapts its rate to the network.
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

    pub(crate) fn host_jitter(&self) -> Span {
        match self {
            Self::Tcp(tcp) if tcp.config.preset == steadycast_tcp::Preset::Linux => KERNEL_JITTER,
            _ => Span::ZERO,
        }
    }
}

/// The controller of a flow, after its name has been looked up.
#[derive(Clone)]
pub enum ControllerRef {
    /// A controller of the registry.
    Entry(&'static Controller),
    /// A user's own controller. The caller supplies the factory that creates it. The string is the name in the
    /// scenario.
    Outside(Outside, String),
}

impl ControllerRef {
    /// Returns the controller's name as the scenario contains it.
    pub fn name(&self) -> &str {
        match self {
            Self::Entry(controller) => controller.name,
            Self::Outside(_, name) => name,
        }
    }

    /// Returns the registry's entry, or `None` for a user's own controller.
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
    /// The rate controller.
    pub controller: ControllerRef,
    /// Whether the controller follows its paper literally, or with corrections of the paper's errors.
    pub mode: Mode,
    /// The parameters that the scenario sets. For each controller, there are pairs of a parameter's name and its value.
    /// All have been checked.
    pub params: Vec<(String, Vec<(String, Given)>)>,
    /// The source of the video's frames.
    pub media: Media,
    /// The encoder's settings. Frame rate and GOP also apply to media that contain no pixels.
    pub encode: Encode,
    /// The rate control, which chooses the quantizer for a target rate.
    pub vbr: Vbr,
    /// Whether the packets of a frame are paced, or sent back to back as a burst.
    pub emit: Emit,
    /// How lost packets are repaired.
    pub repair: Repair,
    /// Whether the sender sends padding when a probe needs more data than the pacer contains.
    pub padding: bool,
    /// The codec rate of the audio stream, or `None` if the flow has no audio.
    pub audio: Option<Rate>,
    /// The packet size, including IP headers and RTP header extensions.
    pub packet: Bytes,
    /// The play-out delay.
    pub playout: Playout,
    /// The receiver's play-out buffer, for controllers that use its fill level.
    pub buffer: Option<Buffer>,
    /// RTCP's timing.
    pub rtcp: Rtcp,
    /// The lower limit of the rate.
    pub floor: Option<Rate>,
    /// The upper limit of the rate.
    pub cap: Option<Rate>,
    /// The ECN codepoint of the flow's packets. Unless it is `NotEct`, a queue can mark packets instead of dropping
    /// them.
    pub ecn: Ecn,
    /// The receivers' format of feedback.
    pub feedback: FeedbackFormat,
    /// The receivers' clocks.
    pub clock: OwnClock,
    /// The first RTP sequence number and timestamp.
    pub first: FirstNumbers,
    /// Whether the sender filters implausible feedback, as a live sender does.
    pub defences: bool,
}

/// The play-out delay: the time from a frame's readiness at the sender to the display of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Playout {
    /// No limit: a frame is displayed as soon as it is complete.
    #[default]
    None,
    /// A constant delay. A frame that arrives later than this misses its display time.
    Fixed(Span),
    /// A delay that adapts to the time from the sending of a frame to its completion, including retransmissions.
    Adaptive(Bounds),
}

impl Playout {
    /// Returns the longest possible delay, or `None` if the delay is unlimited.
    pub const fn most(&self) -> Option<Span> {
        match self {
            Self::None => None,
            Self::Fixed(delay) => Some(*delay),
            Self::Adaptive(Bounds { most, .. }) => Some(*most),
        }
    }
}

/// The difference between a receiver's clock and the sender's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OwnClock {
    /// Offset from the sender's clock. It is negative if the receiver's clock is behind.
    pub ahead: Offset,
    /// Drift in parts per million. It is positive if the receiver's clock runs fast.
    pub drift: f64,
}

settings! {
    /// The first numbers of an RTP session. Missing ones are drawn from the seed.
    #[derive(Copy, Default, Eq)]
    FirstNumbers {
        /// The first RTP sequence number, from 0 to 65535.
        seq: Option<u16> = None,
        /// The RTP timestamp at the start of the run, from 0 to 4294967295.
        timestamp: Option<u32> = None,
    }
}

impl Video {
    /// Returns the Python class or program with which a user replaces the built-in switching of rungs. Returns `None`
    /// if the built-in switching is used.
    pub fn outside_switching(&self) -> Option<&str> {
        let Vbr::Rungs(Rungs { switching, .. }) = &self.vbr else { return None };
        (switching != BUILT_IN_SWITCHING).then_some(switching.as_str())
    }

    /// Returns the parameters that the scenario sets for the flow's controller.
    pub fn given(&self) -> &[(String, Given)] {
        self.params.iter().find(|(name, _)| name == self.controller.name()).map_or(&[], |(_, given)| given)
    }

    /// Returns the registry entry of the flow's controller, with the controller's parameters.
    ///
    /// # Errors
    /// The controller is a user's own and has no registry entry, or a parameter is not valid.
    pub fn chosen(&self) -> Result<Chosen, ParamError> {
        match self.controller.entry() {
            Some(controller) => Chosen::of(controller, self.mode, self.given()),
            // This call returns an error, because the registry has no such controller.
            None => Chosen::new(self.controller.name(), self.mode, self.given()),
        }
    }
}

/// The source of a video's frames.
#[derive(Clone, Debug, PartialEq)]
pub enum Media {
    /// Files that are played one after the other. After the last file, the first one starts again, until the flow ends.
    Clip {
        /// The absolute paths of the files.
        paths: Vec<PathBuf>,
    },
    /// A generated clip.
    Synthetic,
    /// A source that always has data to send, until it has sent the amount `bytes`.
    Greedy {
        /// The amount of data, or `None` if it is unlimited.
        bytes: Option<Bytes>,
    },
    /// Frames with the mean rates in table 2 of the Multi-Evalvid-RA paper, without pixels.
    Table2 {
        /// Relative sizes of I, P and B frames.
        weights: [f64; 3],
        /// Maximum share by which frame sizes vary randomly, up or down.
        vary: f64,
    },
    /// Frames with the rates of the MPEG-TFRCP paper, without pixels, for the quantizers 2, 4 … 62. The paper states
    /// only the rate at quantizer 12, which is 5.25 Mb/s. The other rates are computed from it.
    Map001(Map001),
    /// Frame sizes from a file: CSV or a multi-rate trace of Evalvid-RA.
    Trace {
        /// The absolute path of the file.
        path: PathBuf,
    },
    /// RFC 8593's synthetic codec, without pixels.
    Rfc8593 {
        /// The codec's parameters.
        codec: CodecSettings,
        /// The media whose frame sizes the codec uses. With the statistical model this is `None`.
        frames: Option<Box<Media>>,
    },
}

settings! {
    /// Frames with the rates of the MPEG-TFRCP paper, for the quantizers 2, 4 … 62. `encode` sets the frame rate and
    /// the GOP.
    #[derive(Copy)]
    Map001 {
        /// The exponent e in the rate of quantizer Q, which is 5.25 Mb/s · (12/Q)^e. The rate includes the headers of
        /// packets of 1000 bytes.
        exponent: f64 where (EXPONENT) = MAP001.exponent,
        /// The size of an I frame as a multiple of the size of a P frame.
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
        /// No repair.
        #[default]
        None = "none",
        /// The receiver requests lost packets, and the sender retransmits them (RFC 4588).
        Rtx = "rtx",
        /// With one receiver [`Repair::Rtx`] if RTCP's profile allows it, plus [`Repair::Parity`] if losses remain;
        /// with a group [`Repair::Parity`].
        Auto = "auto",
        /// Receivers recover lost packets from parity packets.
        Parity = "parity",
    }
}

settings! {
    /// A receiver's buffer.
    #[derive(Copy)]
    Buffer {
        /// The size of the buffer.
        size: Bytes where (something) => "write for example size = \"16KiB\"",
        /// The constant rate at which the player drains the buffer; default: frame by frame at the clip's frame rate.
        consume: Option<Rate> where (positive_if_any) = None,
    }
    /// RTCP's timing.
    #[derive(Copy)]
    Rtcp {
        /// The minimum interval between a member's reports: 5 s (rfc3550), 1 s (asmp), or none, with early feedback
        /// (avpf, RFC 4585).
        profile: RtcpProfile = RtcpProfile::Avpf,
        /// The session bandwidth, of which RTCP uses 5 %. The default is lowered to the rate of the slowest link on the
        /// path.
        session_bw: Rate where (positive) = Rate::mbps(2),
        /// The minimum interval between a member's reports; default: that of the profile.
        t_min: Option<Span> = None,
        /// The destination of the receivers' reports in a group. group: all members. source: the sender only, which
        /// announces the group's size (RFC 5760).
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
    /// The destination of a group's receiver reports.
    #[derive(Default)]
    pub enum Reports {
        /// The whole group, as in any-source multicast (RFC 3550).
        #[default]
        Group = "group",
        /// The sender only, which announces the group's size, as in source-specific multicast (RFC 5760).
        Source = "source",
    }
    /// A profile of RTCP's timing.
    pub enum RtcpProfile {
        /// A minimum report interval of 5 s (RFC 3550).
        Rfc3550 = "rfc3550",
        /// A minimum report interval of 1 s, as in the papers that define ASMP.
        Asmp = "asmp",
        /// Early feedback (RFC 4585).
        Avpf = "avpf",
    }
}

/// A TCP flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcp {
    /// TCP's configuration. It does not contain the application's data, which [`Tcp::source`] describes.
    pub config: steadycast_tcp::Config,
    /// The application's data.
    pub source: Workload,
}

/// The data that an application sends over TCP.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// Unlimited data.
    Bulk,
    /// One transfer of this size.
    File(Bytes),
    /// Transfers of the same size, with a pause after each.
    Transfers {
        /// The size of a transfer.
        bytes: Bytes,
        /// The lengths of the pauses between transfers.
        off: Periods,
    },
    /// Data during on periods only.
    OnOff {
        /// The application's rate during on periods. If it is `None`, the application sends as fast as the network
        /// allows.
        rate: Option<Rate>,
        /// Lengths of the on periods.
        on: Periods,
        /// Lengths of the off periods.
        off: Periods,
    },
}

settings! {
    /// Packets at a constant rate.
    Cbr {
        /// The constant rate, in bits of IP packets per second.
        rate: Rate where (positive) => "write for example rate = \"400kbps\"",
        /// The packet size, including IP headers.
        packet: Bytes where (PLAIN) = Bytes::new(1000),
    }
    /// Packets at a constant rate during on periods; the flow begins with an on period.
    OnOff {
        /// The rate during on periods, in bits of IP packets per second.
        rate: Rate where (positive) => "write for example rate = \"400kbps\"",
        /// The packet size, including IP headers.
        packet: Bytes where (PLAIN) = Bytes::new(1000),
        /// The length of the periods in which the application sends data.
        on: Periods => "write for example { dist = \"exponential\", mean = \"5s\" }",
        /// The length of the pauses between the "on" periods.
        off: Periods => "write for example { dist = \"exponential\", mean = \"5s\" }",
    }
    /// Lengths of periods.
    #[derive(Copy)]
    Periods, short "mean" "\"5s\"" {
        /// The distribution of the lengths.
        [kind] dist: PeriodDist,
        /// The mean length.
        mean: Span where (lasting) => "write for example mean = \"5s\"",
    }
    /// A Pareto distribution.
    #[derive(Copy)]
    Pareto {
        /// The exponent of the Pareto distribution, above 1. With a smaller exponent, very long periods are more
        /// frequent.
        shape: f64 where (has_mean) = 1.5,
    }
}

kinds! {
    /// The distribution of periods.
    #[derive(Copy)]
    PeriodDist for (), by "dist", default "exponential" {
        /// all of the same length.
        "constant" => Constant, "constant periods";
        /// exponentially distributed, with many short periods and few long ones.
        "exponential" => Exponential, "exponential periods";
        /// Pareto distributed, with a few very long periods.
        "pareto" => Pareto(Pareto), "Pareto's periods";
    }
}

impl Kind<()> for Pareto {}

fn lasting(span: &Span) -> Option<(String, String)> {
    span.is_zero().then(|| ("a time of 0".into(), "write a time above 0".into()))
}

fn has_mean(shape: &f64) -> Option<(String, String)> {
    let fine = *shape > 1.0 && *shape <= 100.0;
    (!fine).then(|| {
        (format!("{shape} is out of range"), "write a number above 1 and at most 100; up to 1 there is no mean".into())
    })
}

/// The smallest packet of flows that have no protocol above UDP. It consists of the IP and UDP headers and one byte.
const PLAIN: PacketSize = PacketSize { least: 29 };

pub(crate) struct PacketSize {
    /// The smallest size in bytes.
    pub(crate) least: u64,
}

impl Rule<Bytes> for PacketSize {
    fn broken(&self, size: &Bytes) -> Option<(String, String)> {
        let least = self.least;
        let remedy = || format!("write a size from \"{least}B\" to \"65535B\", including IP headers");
        (!(least..=65_535).contains(&size.get())).then(|| (format!("{size} is not a packet size"), remedy()))
    }
}

/// Multicast groups that carry the same video at different rates. Each receiver is a member of one group at a time, and
/// starts in the group with the lowest rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulcast {
    /// The simulcast's name.
    pub name: String,
    /// The groups, with the lowest rate first. Each is a multicast video flow, and all have the same source and
    /// receivers.
    pub flows: Vec<FlowIx>,
    /// A receiver moves up when its rate is at least this multiple of the next higher group's floor.
    pub up: f64,
    /// The time for which the receiver's rate has to be high enough before the receiver moves up.
    pub hold: Span,
}

/// A scheduled change during the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The time of the change.
    pub at: Time,
    /// The change.
    pub kind: EventKind,
}

/// The change that an event makes.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// A receiver joins its group. It is not a member at the start ([`Scenario::starts_outside`]).
    Join {
        /// The flow.
        flow: FlowIx,
        /// The receiver's index in [`Flow::to`].
        receiver: usize,
    },
    /// A receiver leaves its group.
    Leave {
        /// The flow.
        flow: FlowIx,
        /// The receiver's index in [`Flow::to`].
        receiver: usize,
    },
    /// A flow starts.
    StartFlow(FlowIx),
    /// A flow stops.
    StopFlow(FlowIx),
    /// A link changes. Properties that are `None` keep their values.
    Set(Change),
}

/// A change of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The link.
    pub link: LinkIx,
    /// The directions that change. By default, `loss` changes only in the forward direction.
    pub direction: Directions,
    /// A new rate.
    pub rate: Option<OrNone<Rate>>,
    /// A new delay.
    pub delay: Option<Span>,
    /// A new jitter. A mean of 0 removes the jitter.
    pub jitter: Option<Jitter>,
    /// A new loss. [`Loss::None`] removes the loss.
    pub loss: Option<Loss>,
    /// A new reordering.
    pub reorder: Option<Reorder>,
    /// A new probability that a packet is duplicated.
    pub duplicate: Option<f64>,
}

words! {
    /// The directions of a link that a setting applies to.
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
    /// Returns true if these directions include the forward direction.
    pub fn forward(self) -> bool {
        self != Self::Back
    }
    /// Returns true if these directions include the back direction.
    pub fn back(self) -> bool {
        self != Self::Forward
    }
}

/// What is recorded in addition to the summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The requested time between two points of the time series. [`Recording::step`] returns the time that is used.
    pub interval: Span,
    /// Flows whose packets are recorded individually.
    pub packets: Vec<FlowIx>,
    /// Links whose packets are captured.
    pub pcap: Vec<LinkIx>,
    /// Whether each receiver's arrivals of audio packets are recorded.
    pub audio: bool,
}

impl Recording {
    /// Returns the time between two points of all time series. It is the greatest common divisor of the interval and
    /// one second.
    pub fn step(&self) -> Span {
        let (mut a, mut b) = (self.interval.as_nanos().max(1), 1_000_000_000);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        // Replace a divisor below 1 ms, because the time series would be too long.
        if a < 1_000_000 { Span::millis(100) } else { Span::nanos(a) }
    }
}

/// A condition on the results.
#[derive(Clone, Debug, PartialEq)]
pub struct Expect {
    /// The path of a value in `summary.json`, such as `flows.tcp.share_of_fair`.
    pub that: String,
    /// The smallest valid value.
    pub min: Option<f64>,
    /// The largest valid value.
    pub max: Option<f64>,
}

impl Scenario {
    /// Returns the node called `name`.
    pub fn node(&self, name: &str) -> Option<NodeIx> {
        self.nodes.iter().position(|n| n == name).map(|i| NodeIx(i as u32))
    }
    /// Returns the link called `name`.
    pub fn link(&self, name: &str) -> Option<LinkIx> {
        self.links.iter().position(|l| l.name == name).map(|i| LinkIx(i as u32))
    }
    /// Returns the flow called `name`.
    pub fn flow(&self, name: &str) -> Option<FlowIx> {
        self.flows.iter().position(|f| f.name == name).map(|i| FlowIx(i as u32))
    }
    /// Returns the name of a node, or an empty string if the node does not exist.
    pub fn node_name(&self, node: NodeIx) -> &str {
        self.nodes.get(node.0 as usize).map_or("", String::as_str)
    }
    /// Returns two indexes: which simulcast of [`Scenario::simulcasts`] contains this flow as a group, and which group
    /// of that simulcast it is.
    pub fn group_of(&self, flow: FlowIx) -> Option<(usize, usize)> {
        let place = |s: &Simulcast| s.flows.iter().position(|f| *f == flow);
        self.simulcasts.iter().enumerate().find_map(|(n, s)| Some((n, place(s)?)))
    }
    /// Returns the receivers that are not members of the flow's group at the start, as indexes into [`Flow::to`]. In a
    /// simulcast, every receiver starts in the lowest group, so these are all receivers of every other group. Otherwise
    /// they are the receivers that have a join event.
    pub fn starts_outside(&self, flow: FlowIx) -> Vec<usize> {
        if self.group_of(flow).is_some_and(|(_, place)| place > 0) {
            return (0..self.flows[flow.0 as usize].to.len()).collect();
        }
        let mut outside: Vec<_> = self
            .events
            .iter()
            .filter_map(|e| match e.kind {
                EventKind::Join { flow: f, receiver } if f == flow => Some(receiver),
                _ => None,
            })
            .collect();
        outside.sort_unstable();
        outside.dedup();
        outside
    }
}
