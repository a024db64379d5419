"""What editors know of the classes of scenarios. Made by `make python-schema`: change the schema instead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Value = str | int | float | bool | Sequence["Value"] | Mapping[str, "Value"]

@dataclass(kw_only=True)
class Part:
    """Anything that is written as a table of keys."""

    extra: Mapping[str, Value] = field(default_factory=dict)
    """Keys that have no field here, as they are written in a file."""

    def plain(self) -> dict[str, Any]:
        """Return the keys and values as a scenario file has them."""

@dataclass(kw_only=True)
class Uniform(Part):
    """A start time that is drawn from the seed."""

    uniform: tuple[str, str]
    """The earliest and the latest start."""

@dataclass(kw_only=True)
class Jitter(Part):
    """A random addition to each packet's delay."""

    mean: str
    """The mean of this addition."""
    dist: str | None = None
    """The distribution; uniform is from 0 to twice the mean, normal has a standard deviation of a third of
    it, half-normal is a normal distribution's absolute value (RFC 8868, 4.5). wifi is C4's: around a
    millisecond, and around 90 ms as often as a mean above 1 ms requires; default "exponential".
    """
    reorder: bool | None = None
    """Whether a packet may overtake another; otherwise a packet waits for the one before it; default
    false.
    """

@dataclass(kw_only=True)
class Arq(Part):
    """Link-layer retransmission: loss becomes delay."""

    tries: int
    """The most transmissions of a packet, the first included."""
    per_try: str
    """The delay that each retransmission adds, in addition to the time of the transmission itself."""

@dataclass(kw_only=True)
class Loss(Part):
    """Random loss of packets, in addition to the queue's drops."""

    kind: str
    """bernoulli: Each packet with the same probability, independently. run: Runs of packets that arrive,
    of exponentially distributed length, one loss between two runs: ns-2's "exponential error model".
    gilbert: Gilbert–Elliott: two states, each with its own loss. list: Exactly the packets with these
    numbers. none: No loss.
    """
    direction: str | None = None
    """forward (away from the first name; default), back or both."""
    loss_bad: float | None = None
    """gilbert: Loss probability in the bad state; default 1.0."""
    loss_good: float | None = None
    """gilbert: Loss probability in the good state; default 0.0."""
    mean: str | None = None
    """run: The mean length of a run, for example "50p"; at least 1."""
    p: float | None = None
    """bernoulli: The probability."""
    p_bad: float | None = None
    """gilbert: Probability of going from the good to the bad state after a packet."""
    p_good: float | None = None
    """gilbert: Probability of going back to the good state after a packet."""
    packets: Sequence[int] = ()
    """list: The packets' numbers, counted from 1 in each direction."""

@dataclass(kw_only=True)
class Reorder(Part):
    """Reordering: a share of the packets is delayed, so that later packets overtake them."""

    p: float
    """The probability that a packet is late."""
    by: str | None = None
    """The extra delay of a late packet; needed where `p` is above 0; default "0ns"."""

@dataclass(kw_only=True)
class Policer(Part):
    """A token bucket before the queue, which drops excess packets (RFC 2697, with one bucket)."""

    rate: str
    """The rate at which the bucket fills."""
    burst: str
    """The capacity of the bucket, which is full at the start."""

@dataclass(kw_only=True)
class Shaper(Part):
    """A token bucket behind the queue, by whose tokens packets leave (DOCSIS 3.1 MULPI, annex C.2.2.7)."""

    rate: str
    """The sustained rate, at which the bucket fills."""
    burst: str
    """The capacity of the bucket, which is full at the start."""

@dataclass(kw_only=True)
class Queue(Part):
    """The queue discipline; default drop-tail with 50 packets."""

    kind: str | None = None
    """droptail: First come, first served; a packet that does not fit is dropped. red: Random early
    detection (Floyd and Jacobson 1993). codel: Controlled delay (RFC 8289). fq-codel: CoDel for each of
    many queues, which take turns (RFC 8290). pie: Proportional integral controller enhanced (RFC 8033).
    dualpi2: Dual-queue coupled AQM for L4S (RFC 9332); default "droptail".
    """
    alpha: float | None = None
    """pie: The change of the drop probability in one update for each second by which the delay is off
    `target`. dualpi2: The change of p' in one update for each second by which the delay is off
    `target`. Default 0.125; dualpi2: 0.15.
    """
    beta: float | None = None
    """pie: The change of the drop probability for each second by which the delay has grown since the last
    update. dualpi2: The change of p' for each second by which the delay has grown since the last
    update. Default 1.25; dualpi2: 3.0.
    """
    ce_threshold: str | None = None
    """codel, fq-codel: Mark each ECT(1) packet that has waited longer than this, independent of `ecn` (as
    Linux's `ce_threshold` does); L4S senders want "1ms"; default "none".
    """
    classic_share: float | None = None
    """dualpi2: The share of the link for the Classic queue while both queues have packets (weighted round
    robin); default 0.0625.
    """
    ecn: bool | None = None
    """red, codel, fq-codel, pie: Mark packets that can be marked, instead of dropping them; default false."""
    flows: int | None = None
    """fq-codel: Queues that flows are hashed into; default 1024."""
    gentle: bool | None = None
    """red: Between `max` and twice `max` the probability rises to 1 linearly, instead of in one step;
    default true.
    """
    interval: str | None = None
    """codel, fq-codel: How long the delay may exceed the target before the first packet is dropped;
    default "100ms".
    """
    k: float | None = None
    """dualpi2: The coupling factor: L4S packets are marked with at least `k` p', Classic ones marked or
    dropped with p'²; default 2.0.
    """
    limit: str | None = None
    """droptail, red, codel, fq-codel, pie, dualpi2: How much the queue holds. Default "50p"; codel:
    "1000p"; fq-codel: "10240p"; pie: "1000p"; dualpi2: "250ms".
    """
    mark_ecnth: float | None = None
    """pie: The drop probability above which packets are dropped even where they could be marked; default
    0.1.
    """
    max: str | None = None
    """red: Average queue at which the drop probability is `max_p`."""
    max_burst: str | None = None
    """pie: How long the delay of a queue that was empty may exceed the target before the first packet is
    dropped; default "150ms".
    """
    max_p: float | None = None
    """red: Drop probability at `max`; default 0.1."""
    mean_packet: str | None = None
    """red: Mean packet size, for idle times and for thresholds in bytes: 500B with ns2, 1000B with
    classic. pie: The mean packet size: a queue of two such packets is never too long. Default pie:
    "1kB".
    """
    min: str | None = None
    """red: Average queue above which packets are dropped with a probability that rises from 0."""
    min_th: str | None = None
    """dualpi2: The sojourn time above which the L4S queue marks by itself; default "800us"."""
    preset: str | None = None
    """red: Where unset parameters come from: ns2 derives them from rate and delay; classic is 5p, 15p, 0.1
    and 0.002; default "ns2".
    """
    quantum: str | None = None
    """fq-codel: The bytes that a queue may send per round; default "1514B"."""
    range: str | None = None
    """dualpi2: The probability of this mark rises from 0 at `min_th` to 1 over this further time; "0s"
    means a step; default "400us".
    """
    t_update: str | None = None
    """pie: How often the drop probability is computed. dualpi2: How often the base probability p' is
    computed; default "15ms".
    """
    target: str | None = None
    """codel, fq-codel: The queueing delay that is always accepted. pie: The queueing delay at which the
    AQM aims. dualpi2: The queueing delay at which the AQM aims. Default "5ms"; pie: "15ms"; dualpi2:
    "15ms".
    """
    th_len: int | None = None
    """dualpi2: A packet that finds fewer packets than this in the L4S queue on arrival is not marked for
    its sojourn time; default 1.
    """
    weight: float | None = None
    """red: Weight of a new sample in the average queue."""

@dataclass(kw_only=True)
class Pipe(Part):
    """A link's behaviour, in both directions unless `back` says otherwise."""

    arq: Arq | None = None
    """Link-layer retransmission: loss becomes delay."""
    back: Pipe | None = None
    """Keys that differ in the other direction."""
    bleach: bool | None = None
    """Whether the link clears the ECN field of each packet, as some routers and tunnels do; default false."""
    delay: str | None = None
    """Propagation delay; default "0ms"."""
    delay_trace: str | Path | None = None
    """A file with the delay over time; excludes "delay". Columns: seconds and milliseconds one way, or by
    a header of t_s or t_ms and ms or s.
    """
    duplicate: float | None = None
    """The probability that a packet is duplicated; default 0."""
    jitter: Jitter | str | None = None
    """A random addition to each packet's delay."""
    loop: bool | None = None
    """Whether these files repeat after their end; default true."""
    loss: Loss | str | float | None = None
    """Random loss of packets, in addition to the queue's drops."""
    loss_trace: str | Path | None = None
    """A file with the loss probability over time in the link's direction; excludes "loss". Columns:
    seconds and probability.
    """
    mtu: str | None = None
    """The largest packet; default "1500B"."""
    policer: str | Policer | None = None
    """A policer before the queue: drops packets that exceed a rate; default "none"."""
    queue: Queue | str | None = None
    """The queue discipline; default drop-tail with 50 packets."""
    rate: str | None = None
    """The link's rate, for example "4Mbps". "none": packets never wait. "0bps": no packet leaves the
    queue. Default "none".
    """
    reorder: Reorder | None = None
    """Reordering: a share of the packets is delayed, so that later packets overtake them."""
    shaper: str | Shaper | None = None
    """A token bucket after the queue, as in a cable modem: a burst leaves at the link's rate, further
    packets at the shaper's; default "none".
    """
    trace: str | Path | None = None
    """A file with the rate over time, relative to this one; excludes "rate". Lines of whole milliseconds:
    a Mahimahi trace, in which 1500 bytes can leave at each. Two columns: seconds and Mb/s, or by a
    header of t_s or t_ms and mbps, kbps or bps. AlphaRTC's JSON: its delay and loss also apply if the
    link has none.
    """

@dataclass(kw_only=True)
class Link(Pipe):
    """A link."""

    between: tuple[str, str]
    """Its two ends. One range: one end to many. Two ranges of equal length: pairwise."""
    name: str | None = None
    """The link's name, by default made of its ends: "bs-r1". With several links, each is called NAME-END:
    "air-r1".
    """

@dataclass(kw_only=True)
class Leg(Pipe):
    """Links of a star or chain that are alike."""

    name: str | None = None
    """the name of the node at its far end, with a range if there are several; default leg1, leg2 … or n1,
    n2 …
    """
    count: int | None = None
    """the number of such links; default 1."""

@dataclass(kw_only=True)
class Level(Pipe):
    """Links of one level of a tree."""

    fanout: int
    """the number of children of each node of the level above."""

@dataclass(kw_only=True)
class Topology(Part):
    """A ready-made network."""

    access: Pipe | None = None
    """dumbbell: the link of each host."""
    bottleneck: Pipe | None = None
    """dumbbell: the link between left and right."""
    hops: Sequence[Pipe] = ()
    """chain, parking-lot: links n0-n1, n1-n2 …"""
    legs: Sequence[Pipe] = ()
    """star: links from the hub to leg1, leg2 …"""
    levels: Sequence[Level | Mapping[str, Value]] = ()
    """tree: from the root to the leaves."""
    shape: str | None = None
    """dumbbell: hosts FLOW.src and FLOW.dst[1-N], routers left and right. star: hub and leg[1-N]. chain
    and parking-lot: n0 … nN. tree: root, t1.1 …, leaf[1-N].
    """

@dataclass(kw_only=True)
class Encode(Part):
    """How pictures are encoded."""

    bframes: int | None = None
    """B frames between two reference frames, with mpeg2, mpeg4 and h264; default 2."""
    codec: str | None = None
    """mpeg2, mpeg4, h263, h264, h265, vp8, vp9 or av1; default "mpeg4"."""
    fps: str | float | None = None
    """Pictures per second, "clip" or "auto". "clip" is the clip's own rate. "auto", the default of clips,
    is the clip's rate, or 25 if the clip states none; default 25.0.
    """
    gop: int | None = None
    """Frames per group of pictures; default 12."""
    q: str | int | None = None
    """Quantizers from best to worst, or a single one: "12". Default: "18-47" for h264 and h265, "10-63"
    for vp8, vp9 and av1; default "2-31".
    """
    size: str | None = None
    """sqcif, qcif, cif, 4cif, qvga, vga, 720p, 1080p, "640x480", "clip" or "auto". "clip" is the clip's
    own size. "auto" is the default of clips: the clip's size, scaled down to the number of samples of
    1280x720 if the clip has more. The default of the drawn film is 1280x720 if its flow's share of the
    network exceeds what the film can use in CIF (2 Mb/s in mpeg4, 1.45 Mb/s in h264), else CIF; default
    "352x288".
    """

@dataclass(kw_only=True)
class Buffer(Part):
    """The receiver's buffer, for controllers that use its level."""

    size: str
    """The size of the buffer."""
    consume: str | None = None
    """A constant rate at which it drains; default: frame by frame at the clip's frame rate."""

@dataclass(kw_only=True)
class Playout(Part):
    """A play-out delay that is not a constant time."""

    kind: str
    """adaptive: It follows the time that frames and the repair of lost packets take."""
    least: str | None = None
    """adaptive: The shortest delay; default "80ms"."""
    most: str | None = None
    """adaptive: The longest delay; default "800ms"."""

@dataclass(kw_only=True)
class Rtcp(Part):
    """RTCP's timing."""

    profile: str | None = None
    """rfc3550 (at least 5 s), asmp (1 s) or avpf (early feedback); default "avpf"."""
    reports: str | None = None
    """The destination of a group's reports: group, or source, which then announces the group's size (RFC
    5760); default "group".
    """
    session_bw: str | None = None
    """The session bandwidth, of which RTCP takes 5 %. The default is at most the rate of the narrowest
    link on the path; default "2Mbps".
    """
    t_min: str | None = None
    """Overrides the profile's minimum report interval."""

@dataclass(kw_only=True)
class Period(Part):
    """Length of the periods with data."""

    dist: str
    """constant: all of the same length. exponential: exponentially distributed: many short ones and few
    long ones. pareto: Pareto distributed, with a heavy tail; default "exponential".
    """
    mean: str
    """Their mean."""
    shape: float | None = None
    """dist = pareto: The exponent, above 1: the smaller, the heavier the tail; default 1.5."""

@dataclass(kw_only=True)
class Clock(Part):
    """The receivers' clocks; default: the sender's clock."""

    ahead: str | None = None
    """The time by which they are ahead of the sender's clock."""
    behind: str | None = None
    """The time by which they are behind the sender's clock."""
    drift: float | None = None
    """The drift in parts per million; positive: fast, negative: slow. Default 0."""

@dataclass(kw_only=True)
class Numbers(Part):
    """The first RTP sequence number and timestamp; default: from the seed."""

    seq: int | None = None
    """The first sequence number, from 0 to 65535."""
    timestamp: int | None = None
    """The timestamp of time zero, from 0 to 4294967295."""

@dataclass(kw_only=True)
class Table2(Part):
    """How the rates of table 2 of the Multi-Evalvid-RA paper are turned into frames."""

    vary: float | None = None
    """Sizes vary randomly by up to this share; default 0.1."""
    weights: Sequence[float] = ()
    """Relative sizes of I, P and B frames; default [6, 2, 1]."""

@dataclass(kw_only=True)
class Map001(Part):
    """How the MPEG-TFRCP paper's rates are turned into frames."""

    exponent: float | None = None
    """Rates are 5.25 Mb/s · (12/Q) to this power, in packets of 1000 B; default 0.9."""
    intra: float | None = None
    """Size of an I frame relative to a P frame; default 3.0."""

@dataclass(kw_only=True)
class Rfc8593(Part):
    """RFC 8593's synthetic codec; its frame rate is encode.fps, here 30 by default."""

    abrupt: float | None = None
    """The relative difference between two successive rate requests from which on the change is abrupt, so
    that a burst follows; default 0.1.
    """
    k_b: str | None = None
    """Size of a burst's first frame; default "13500B"."""
    k_d: int | None = None
    """The number of frames in a burst; default 8."""
    model: str | None = None
    """statistical (section 5), trace (section 6) or hybrid (section 7). The last two take the frame sizes
    of "trace", "clip", or the synthetic clip; default "statistical".
    """
    r_max: str | None = None
    """The codec's highest rate; default "1500kbps"."""
    r_min: str | None = None
    """The codec's lowest rate; default "150kbps"."""
    scale_b: float | None = None
    """Scale of the Laplace distribution of frame sizes; default 0.15."""
    scale_t: float | None = None
    """Scale of the Laplace distribution of the intervals between frames; default 0.15."""
    skip_frames: int | None = None
    """The number of frames that are left out at the beginning of the sequence when it starts over; default
    20.
    """
    tau_v: str | None = None
    """The time after a rate request during which the codec takes no further request; default "200ms"."""

@dataclass(kw_only=True)
class Flow(Part):
    """A flow: its traffic, source and receivers."""

    name: str
    """The flow's name, unique among flows. The hosts of a dumbbell are called after it. A range makes one
    flow per number.
    """
    kind: str
    """video, tcp, cbr or onoff."""
    audio: str | None = None
    """video: the codec rate of an audio stream beside the video, for example "48kbps": Opus packets of 20
    ms, which are sent before all others. Their rate is part of the controlled one. Default: no audio.
    """
    bucket: float | None = None
    """video: vbr = bucket, vbr = evalvid: The bucket's size, in groups of pictures at the target rate;
    default 1.5.
    """
    buffer: Buffer | None = None
    """video: the receiver's buffer, for controllers that use its level."""
    bytes: str | None = None
    """tcp, and video with media greedy: the amount to send, after which the flow ends. With "off": the
    amount of each period.
    """
    cap: str | None = None
    """video: the upper limit of the rate."""
    cast: str | None = None
    """unicast: a separate session for each receiver. multicast: one session for all, the default with
    several receivers.
    """
    clip: str | Path | Sequence[str | Path] | None = None
    """video: files that are played one after the other and looped; relative to this file."""
    clock: Clock | None = None
    """video: the receivers' clocks; default: the sender's clock."""
    congestion: str | None = None
    """tcp: Congestion control: reno, newreno, sack, cubic, bbr (version 3), bbr1, dctcp, prague, or one
    that only a kernel has; default from the preset: reno or cubic.
    """
    controller: str | None = None
    """video: a registry name, "file.py:Class", or "exec:PROGRAM ARGUMENTS"."""
    count: int | None = None
    """Makes flows NAME1 … NAMEcount from this entry; 0 makes none."""
    defences: bool | None = None
    """video: whether the sender filters implausible feedback, as a live sender does; default false."""
    delayed_ack: bool | None = None
    """tcp: Acknowledge every second segment only (RFC 5681, section 4.2)."""
    ecn: str | bool | None = None
    """tcp: explicit congestion notification, true or false. video: the ECN codepoint of its packets: off,
    ect0 or ect1 (L4S); true: ect0. Default: off. tcp: Explicit congestion notification (RFC 3168):
    segments are ECN-capable, and marks reduce the window once per round trip, with dctcp and prague in
    proportion to the share of marks. On by default with these two; without effect on bbr and bbr1.
    """
    emit: str | None = None
    """video: paced (default), or each frame as a burst."""
    encode: Encode | None = None
    """video: how pictures are encoded."""
    feedback: str | None = None
    """video with unicast sessions: the receivers' feedback format. own: the controller's choice, rfc8888
    for scream, gcc and steady (default). rfc8888 or twcc: per-packet feedback as in RFC 8888 or
    transport-wide congestion control. stats: counters once a second, as in a browser's statistics. rr:
    only standard report blocks. Live sessions have the first three.
    """
    floor: str | None = None
    """video: the lower limit of the rate."""
    from_: str | None = None
    """The source's node. With a range in both this and the name: pairwise."""
    hystart: bool | str | None = None
    """tcp: How slow start may end without a loss, with cubic: HyStart as in Linux, or not."""
    init_rto: str | None = None
    """tcp: Retransmission time-out before the first measurement."""
    initial_window: str | None = None
    """tcp: Congestion window after the handshake."""
    map001: Map001 | None = None
    """video: how the MPEG-TFRCP paper's rates are turned into frames."""
    max_rto: str | None = None
    """tcp: Largest retransmission time-out, back-off included."""
    media: str | None = None
    """video: clip, synthetic, greedy, table2, map001, trace or rfc8593. Default: clip or trace if the key
    of that name is given, else synthetic.
    """
    min_rto: str | None = None
    """tcp: Least retransmission time-out."""
    mode: str | None = None
    """video: repaired (default) or paper."""
    nominal: float | None = None
    """video: vbr = evalvid: The quantizer of the stream without rate control; the first group has twice
    this quantizer; default 2.0.
    """
    off: Period | str | None = None
    """tcp, onoff: Length of the periods without data."""
    on: Period | str | None = None
    """tcp, onoff: Length of the periods with data."""
    packet: str | None = None
    """video, tcp, onoff, cbr: Packet size, as IP size. Default of video: "1200B". Default of tcp: its
    preset's, or the largest that fits through its path; onoff: "1kB"; cbr: "1kB".
    """
    padding: bool | None = None
    """video with repair = "rtx", or with "auto" towards one receiver: whether the newest packet is
    retransmitted as padding when a controller's probe (gcc) finds too little data in the pacer; default
    false.
    """
    params: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """video: parameters per controller, for example params.asmp = { gamma_congested = 0.2 }."""
    playout: str | Playout | None = None
    """video: the play-out delay; a frame that arrives later misses its display time; default "none".
    "adaptive", or { kind = "adaptive", most = "800ms" }: follows the time that frames and the repair of
    lost packets take.
    """
    preset: str | None = None
    """tcp: The set of defaults for unset keys. It also determines what no key sets: when recovery ends,
    what a partial acknowledgment sends, how an idle window restarts, and more.
    """
    rate: str | None = None
    """tcp: The application's rate during on periods. onoff: The rate during on periods. cbr: Its rate."""
    receivers: int | None = None
    """In a shape, instead of "to": the number of receivers; default 1."""
    repair: str | None = None
    """video: the repair of lost packets. none (default). rtx: the receiver requests retransmissions while
    they can arrive in time; one receiver only, and rtcp.profile has to be avpf. parity: receivers
    recover packets from parity, whose share follows their losses. auto: with one receiver rtx, plus
    parity if losses remain; with a group parity.
    """
    rfc8593: Rfc8593 | None = None
    """video: RFC 8593's synthetic codec; its frame rate is encode.fps, here 30 by default."""
    room: float | None = None
    """video: vbr = frame: The highest rate of a frame that is larger than others, as a multiple of the
    target; the mean rate stays at the target; default 2.5.
    """
    rtcp: Rtcp | None = None
    """video: RTCP's timing."""
    rtp: Numbers | None = None
    """video: the first RTP sequence number and timestamp; default: from the seed."""
    rungs: int | None = None
    """video: vbr = rungs: The number of quantizers, evenly spaced by the logarithm of their rates; default
    4.
    """
    sack: bool | None = None
    """tcp: Selective acknowledgments (RFC 2018): the receiver reports blocks, the sender keeps a
    scoreboard.
    """
    send_jitter: str | None = None
    """Delays packets by a random time up to this, a burst as a whole, so that flows don't synchronise;
    default "0ms" (tcp of preset linux: "100us").
    """
    start: str | Uniform | None = None
    """When it starts: a time, or { uniform = [from, to] }. Default: at its start event if it has one, else
    "0s".
    """
    stop: str | None = None
    """When it stops; default: at the end."""
    table2: Table2 | None = None
    """video: how the rates of table 2 of the Multi-Evalvid-RA paper are turned into frames."""
    tick: str | None = None
    """tcp: Granularity of the sender's clock, by which round trips are measured; "0s": exact."""
    timestamps: bool | None = None
    """tcp: Measure every acknowledgment by the timestamp that it echoes (RFC 7323); otherwise one segment
    per round trip, by Karn's rule.
    """
    to: str | Sequence[str] | None = None
    """The receivers' nodes."""
    trace: str | Path | None = None
    """video: frame sizes, as CSV or a multi-rate trace of Evalvid-RA; relative to this file."""
    vbr: str | None = None
    """video: bucket: a quantizer once per group of pictures, by the leaky bucket of Evalvid-RA (SVBR,
    Hamdi and Roberts). evalvid: a quantizer once per group of pictures, by the rule of Evalvid-RA's
    published program: a leaky bucket kept in bytes, and a nominal quantizer at which the next group's
    size is read. ladder: a quantizer once per group of pictures, the best one whose next group fits the
    rate. frame: a quantizer per frame, the best one with which the rest of the group fits the rate and
    each frame of it leaves within "wait"; within a group it only becomes coarser. rungs: one of a few
    quantizers once per group of pictures, which changes seldom, as for a viewer of a source that is
    encoded once for all viewers; default "bucket".
    """
    wait: str | None = None
    """video: vbr = frame: The maximum time from when a frame is ready until its last byte is sent; default
    "100ms".
    """
    window: str | None = None
    """tcp: The receiver's advertised window."""

@dataclass(kw_only=True)
class Change(Part):
    """A change of links."""

    link: str | Sequence[str]
    """The link that changes."""
    delay: str | None = None
    """A new delay."""
    direction: str | None = None
    """forward, back or both (default)."""
    duplicate: float | None = None
    """A new probability that a packet is duplicated."""
    jitter: Jitter | str | None = None
    """A new jitter; "0ms" removes it."""
    loop: bool | None = None
    """Whether that trace repeats after its end; default true."""
    loss: Loss | str | float | None = None
    """A new loss; { kind = "none" } removes it."""
    rate: str | None = None
    """A new rate. "none": no limit from then on. "0bps": an outage, in which no packet leaves."""
    reorder: Reorder | None = None
    """A new reordering; { p = 0 } removes it."""
    trace: str | None = None
    """A trace file instead of a rate."""

@dataclass(kw_only=True)
class Event(Part):
    """An event: exactly one of join, leave, start, stop, set."""

    at: str
    """The time of the event."""
    every: str | None = None
    """The period with which it repeats until the end; default: it happens once."""
    join: str | Sequence[str] | None = None
    """Receivers that join their group, for example "video.dst5". A receiver with a join event is no member
    at the start.
    """
    leave: str | Sequence[str] | None = None
    """Receivers that leave their group."""
    set: Change | Mapping[str, Value] | None = None
    """A change of links."""
    start: str | Sequence[str] | None = None
    """Flows that start."""
    stop: str | Sequence[str] | None = None
    """Flows that stop."""

@dataclass(kw_only=True)
class Record(Part):
    """What is recorded in addition to the summary."""

    audio: bool | None = None
    """Whether each audio packet is recorded at each receiver, in the table audio; default false. The sound
    of a saved video is made from it.
    """
    interval: str | None = None
    """The step of the series; default "1s"."""
    packets: str | Sequence[str] | None = None
    """Flows whose packets are recorded individually, or "all"."""
    pcap: str | Sequence[str] | None = None
    """Links whose packets are captured as pcap files."""

@dataclass(kw_only=True)
class Simulcast(Part):
    """Groups that carry the same video at different rates."""

    name: str
    """Its name."""
    flows: str | Sequence[str]
    """Its groups, in ascending order of rate: multicast video from one source to the same receivers. Each
    but the lowest has a floor.
    """
    hold: str | None = None
    """The time for which its rate has to be that high; default "10s". A receiver moves down immediately
    below half of its group's floor, and after a fifth of this time below the floor.
    """
    up: float | None = None
    """A receiver moves up when its rate is this multiple of the next group's floor; default 1.2."""

@dataclass(kw_only=True)
class Expect(Part):
    """A condition on the results."""

    that: str
    """A path into summary.json, with list entries by name: "flows.tcp.share_of_fair"."""
    max: float | None = None
    """The largest valid value."""
    min: float | None = None
    """The smallest valid value."""

@dataclass(kw_only=True)
class Scenario(Part):
    """A Steadycast scenario: a network, the flows on it, and what happens on the way."""

    name: str
    """The scenario's name, by default the file's."""
    duration: str
    """The duration of the run, for example "80s"."""
    events: Sequence[Event] = ()
    """Changes during the run: of links, flows, and the members of groups."""
    expect: Sequence[Expect] = ()
    """Conditions that the results have to meet."""
    flows: Sequence[Flow] = ()
    """What is sent, from where to where."""
    format: int = 1
    """The format's number, now 1; files of a newer format are refused."""
    join_latency: str | None = None
    """The delay that each router adds to a multicast join on its way towards the source, on top of the
    links' delays; default "0ms".
    """
    leave_latency: str | None = None
    """The delay that each router adds to a multicast leave; default "0ms"."""
    links: Sequence[Link] = ()
    """Links. With "between": a new link. Without: changes the link of this name, from the shape or from an
    entry above.
    """
    network: str | Path | None = None
    """A network by its name (`steadycast networks` lists them), or a path to its file. The network gives
    its topology and its events; the topology's keys in this file override the network's. +cubic,
    +2cubic, +newreno, +bbr and +web after the name add TCP flows.
    """
    nodes: Sequence[str] = ()
    """Nodes that links connect; "r[1-3]" is r1, r2, r3."""
    record: Record | None = None
    """What is recorded in addition to the summary."""
    seed: int | None = None
    """The seed of all randomness; default 1."""
    simulcasts: Sequence[Simulcast] = ()
    """Simulcasts: groups that carry the same video at different rates; each receiver chooses one."""
    topology: Topology | None = None
    """A ready-made network."""
    warmup: str | None = None
    """The time at the start that means exclude and series include; default "0s"."""

    def to_toml(self) -> str:
        """Write it as a scenario file."""

    def to_json(self) -> str:
        """Write it as JSON, with the same keys."""

    def save(self, path: Path | str) -> Path:
        """Write it to a file, and return its path."""
