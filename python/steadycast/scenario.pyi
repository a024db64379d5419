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
    """A start drawn from the seed."""

    uniform: tuple[str, str]
    """From when to when."""

@dataclass(kw_only=True)
class Jitter(Part):
    """A random addition to each packet's delay."""

    mean: str
    """Its mean."""
    dist: str | None = None
    """The distribution; uniform is from 0 to twice the mean, normal has a standard deviation of a third of
    it, half-normal is a normal distribution's absolute value (RFC 8868, 4.5). wifi is C4's: around a
    millisecond, and around 90 ms as often as a mean above 1 ms requires; default "exponential".
    """
    reorder: bool | None = None
    """Whether a packet may overtake another; otherwise it waits for the one before; default false."""

@dataclass(kw_only=True)
class Arq(Part):
    """Link-layer retransmission: loss becomes delay."""

    tries: int
    """The most transmissions of a packet, the first included."""
    per_try: str
    """The delay that each retransmission adds, beside the transmission itself."""

@dataclass(kw_only=True)
class Loss(Part):
    """Which packets get lost, apart from the queue."""

    kind: str
    """bernoulli: Each packet with the same probability, independently. run: Runs of packets that arrive,
    of exponentially distributed length, one loss between two runs: ns-2's "exponential error model".
    gilbert: Gilbert–Elliott: two states, each with its own loss. list: Just these packets. none: None.
    """
    direction: str | None = None
    """forward (away from the first name; default), back or both."""
    loss_bad: float | None = None
    """gilbert: Loss in the bad state; default 1.0."""
    loss_good: float | None = None
    """gilbert: Loss in the good state; default 0.0."""
    mean: str | None = None
    """run: The mean length of a run, for example "50p"; at least 1."""
    p: float | None = None
    """bernoulli: The probability."""
    p_bad: float | None = None
    """gilbert: Probability of going from good to bad."""
    p_good: float | None = None
    """gilbert: Probability of going back to good."""
    packets: Sequence[int] = ()
    """list: The packets' numbers, counted from 1 in each direction."""

@dataclass(kw_only=True)
class Reorder(Part):
    """Which packets come so late that others overtake them."""

    p: float
    """The probability that a packet is late."""
    by: str | None = None
    """The extra delay of a late packet; needed where `p` is above 0; default "0ns"."""

@dataclass(kw_only=True)
class Policer(Part):
    """A token bucket before the queue, which drops what does not conform (RFC 2697, with one bucket)."""

    rate: str
    """The rate at which the bucket fills."""
    burst: str
    """What the bucket holds; it is full at the start."""

@dataclass(kw_only=True)
class Shaper(Part):
    """A token bucket behind the queue, by whose tokens packets leave (DOCSIS 3.1 MULPI, annex C.2.2.7)."""

    rate: str
    """The sustained rate, at which the bucket fills."""
    burst: str
    """What the bucket holds; it is full at the start."""

@dataclass(kw_only=True)
class Queue(Part):
    """What waits; default drop-tail with 50 packets."""

    kind: str | None = None
    """droptail: First come, first served; what does not fit is dropped. red: Random early detection (Floyd
    and Jacobson 1993). codel: Controlled delay (RFC 8289). fq-codel: CoDel for each of many queues,
    which take turns (RFC 8290). pie: Proportional integral controller enhanced (RFC 8033). dualpi2:
    Dual-queue coupled AQM for L4S (RFC 9332); default "droptail".
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
    """codel, fq-codel: Mark each ECT(1) packet that has waited longer, independent of `ecn` (as Linux's
    `ce_threshold` does); L4S senders want "1ms"; default "none".
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
    """red: Average queue at which `max_p` is reached."""
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
    """red: Average queue from which packets are dropped."""
    min_th: str | None = None
    """dualpi2: The sojourn time above which the L4S queue marks by itself; default "800us"."""
    preset: str | None = None
    """red: Where unset parameters come from: ns2 derives them from rate and delay; classic is 5p, 15p, 0.1
    and 0.002; default "ns2".
    """
    quantum: str | None = None
    """fq-codel: The bytes that a queue may send per round; default "1514B"."""
    range: str | None = None
    """dualpi2: From `min_th` on the probability of that mark rises to 1 over this further time; "0s": a
    step; default "400us".
    """
    t_update: str | None = None
    """pie: How often the drop probability is computed. dualpi2: How often the base probability p' is
    computed; default "15ms".
    """
    target: str | None = None
    """codel, fq-codel: The queueing delay that is always accepted. pie: The queueing delay that it steers
    to. dualpi2: The queueing delay that it steers to. Default "5ms"; pie: "15ms"; dualpi2: "15ms".
    """
    th_len: int | None = None
    """dualpi2: A packet that arrives at fewer packets in the L4S queue is not marked for its sojourn time;
    default 1.
    """
    weight: float | None = None
    """red: Weight of a sample in the average."""

@dataclass(kw_only=True)
class Pipe(Part):
    """A link's behaviour, in both directions unless `back` says otherwise."""

    arq: Arq | None = None
    """Link-layer retransmission: loss becomes delay."""
    back: Pipe | None = None
    """What differs in the other direction."""
    bleach: bool | None = None
    """Whether the link clears the ECN field of each packet, as some routers and tunnels do; default false."""
    delay: str | None = None
    """Propagation delay; default "0ms"."""
    delay_trace: str | Path | None = None
    """Instead of a delay: a file of seconds and milliseconds one way (or by a header of t_s or t_ms and ms
    or s).
    """
    duplicate: float | None = None
    """The probability that a packet comes twice; default 0."""
    jitter: Jitter | str | None = None
    """A random addition to each packet's delay."""
    loop: bool | None = None
    """Whether these files start again at their end; default true."""
    loss: Loss | str | float | None = None
    """Which packets get lost, apart from the queue."""
    loss_trace: str | Path | None = None
    """Instead of a loss, in its direction: a file of seconds and probabilities."""
    mtu: str | None = None
    """The largest packet; default "1500B"."""
    policer: str | Policer | None = None
    """What drops packets beyond a rate, before the queue; default "none"."""
    queue: Queue | str | None = None
    """What waits; default drop-tail with 50 packets."""
    rate: str | None = None
    """For example "4Mbps"; "none": packets never wait; "0bps": none leaves, and the queue holds what it
    has. Default "none".
    """
    reorder: Reorder | None = None
    """Which packets come so late that others overtake them."""
    shaper: str | Shaper | None = None
    """A token bucket behind the queue, as a cable modem has one: a burst leaves at the link's rate, then
    packets wait and leave at the shaper's; default "none".
    """
    trace: str | Path | None = None
    """Instead of a rate, a file relative to this one. Whole milliseconds alone: a Mahimahi trace, in which
    1500 bytes may leave at each. Two columns: seconds and Mb/s, or by a header of t_s or t_ms and mbps,
    kbps or bps. AlphaRTC's JSON: its delay and loss hold too where none stands beside it.
    """

@dataclass(kw_only=True)
class Link(Pipe):
    """A link."""

    between: tuple[str, str]
    """Its two ends. One range: one end to many. Two ranges of equal length: one by one."""
    name: str | None = None
    """Its name, by default made of its ends: "bs-r1". With several links, that of each is NAME-END:
    "air-r1".
    """

@dataclass(kw_only=True)
class Leg(Pipe):
    """Links of a star or chain that are alike."""

    name: str | None = None
    """the name of the node at its end, with a range if there are several; default leg1, leg2 … or n1, n2 …"""
    count: int | None = None
    """how many times it stands there; default 1."""

@dataclass(kw_only=True)
class Level(Pipe):
    """Links of one level of a tree."""

    fanout: int
    """how many children each node of the level above has."""

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
    """B frames between two others, with mpeg2, mpeg4 and h264; default 2."""
    codec: str | None = None
    """mpeg2, mpeg4, h263, h264, h265, vp8, vp9 or av1; default "mpeg4"."""
    fps: str | float | None = None
    """Pictures per second, "clip" or "auto". "clip" is the clip's own rate. "auto", the default of clips,
    is the same, or 25 where the clip names none; default 25.0.
    """
    gop: int | None = None
    """Frames per group of pictures; default 12."""
    q: str | int | None = None
    """Quantizers from best to worst (by default h264, h265: "18-47"; vp8, vp9, av1: "10-63"), or one:
    "12"; default "2-31".
    """
    size: str | None = None
    """sqcif, qcif, cif, 4cif, qvga, vga, 720p, 1080p, "640x480", "clip" or "auto". "clip" is the clip's
    own size. "auto", the default of clips, is the same, scaled down to the number of samples of
    1280x720 where the clip has more. Where nothing names it, the drawn film is 1280x720 if its flow's
    share of the network is more than it can use in CIF (2 Mb/s in mpeg4, 1.45 Mb/s in h264); default
    "352x288".
    """

@dataclass(kw_only=True)
class Buffer(Part):
    """The receiver's buffer, for controllers that look at it."""

    size: str
    """The size of the buffer."""
    consume: str | None = None
    """Consumption at a constant rate; default: frame by frame, as the clip plays."""

@dataclass(kw_only=True)
class Playout(Part):
    """A play-out delay that is more than a time."""

    kind: str
    """adaptive: It follows what frames and the repair of lost packets take."""
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
    """Where a group's receivers report to: group, or source, which tells them how many they are (RFC
    5760); default "group".
    """
    session_bw: str | None = None
    """The session bandwidth, of which RTCP takes 5 %; where nobody gives one, no more than the narrowest
    link on the way carries; default "2Mbps".
    """
    t_min: str | None = None
    """Overrides the profile's least interval."""

@dataclass(kw_only=True)
class Period(Part):
    """Length of the periods with data."""

    dist: str
    """constant: all the same. exponential: many short ones and few long ones. pareto: heavy tailed;
    default "exponential".
    """
    mean: str
    """Their mean."""
    shape: float | None = None
    """dist = pareto: Above 1: the smaller, the heavier the tail; default 1.5."""

@dataclass(kw_only=True)
class Clock(Part):
    """Its receivers' clocks; default: the sender's."""

    ahead: str | None = None
    """By how much they show more than the sender's."""
    behind: str | None = None
    """By how much they show less than the sender's."""
    drift: float | None = None
    """Parts per million that they are too fast; negative: too slow. Default 0."""

@dataclass(kw_only=True)
class Numbers(Part):
    """Where its packets' numbers begin; default: from the seed."""

    seq: int | None = None
    """The first sequence number, from 0 to 65535."""
    timestamp: int | None = None
    """The timestamp of time zero, from 0 to 4294967295."""

@dataclass(kw_only=True)
class Table2(Part):
    """How paper 000's Table 2 becomes frames."""

    vary: float | None = None
    """Sizes vary by up to this share; default 0.1."""
    weights: Sequence[float] = ()
    """Relative sizes of I, P and B frames; default [6, 2, 1]."""

@dataclass(kw_only=True)
class Map001(Part):
    """How paper 001's rates become frames."""

    exponent: float | None = None
    """Rates are 5.25 Mb/s · (12/Q) to this power, in packets of 1000 B; default 0.9."""
    intra: float | None = None
    """Size of an I frame, in P frames; default 3.0."""

@dataclass(kw_only=True)
class Rfc8593(Part):
    """RFC 8593's synthetic codec; its frame rate is encode.fps, here 30 by default."""

    abrupt: float | None = None
    """By which share a request has to differ from the one before to be abrupt, so that a burst follows;
    default 0.1.
    """
    k_b: str | None = None
    """Size of a burst's first frame; default "13500B"."""
    k_d: int | None = None
    """Frames of a burst; default 8."""
    model: str | None = None
    """statistical (section 5), trace (section 6) or hybrid (section 7). The last two take the frame sizes
    of "trace", "clip", or the synthetic clip; default "statistical".
    """
    r_max: str | None = None
    """Its highest rate; default "1500kbps"."""
    r_min: str | None = None
    """Its lowest rate; default "150kbps"."""
    scale_b: float | None = None
    """Scale of the Laplace distribution of frame sizes; default 0.15."""
    scale_t: float | None = None
    """Scale of the Laplace distribution of the intervals between frames; default 0.15."""
    skip_frames: int | None = None
    """Frames of the sequence that are left out when it starts over; default 20."""
    tau_v: str | None = None
    """For how long it takes no further request after one; default "200ms"."""

@dataclass(kw_only=True)
class Flow(Part):
    """What is sent, from where, to whom."""

    name: str
    """Unique among flows; hosts of a dumbbell are called after it. A range makes as many flows."""
    kind: str
    """video, tcp, cbr or onoff."""
    bucket: float | None = None
    """video: vbr = bucket, vbr = evalvid: The bucket's size, in groups of pictures at the target rate;
    default 1.5.
    """
    buffer: Buffer | None = None
    """video: the receiver's buffer, for controllers that look at it."""
    bytes: str | None = None
    """tcp, and video with media greedy: the amount to send, after which the flow ends. With "off": the
    amount of each period.
    """
    cap: str | None = None
    """video: the rate never goes above this."""
    cast: str | None = None
    """unicast: a session for each receiver. multicast: one for all; the default for more than one."""
    clip: str | Path | Sequence[str | Path] | None = None
    """video: files, played one after the other and looped; relative to this file."""
    clock: Clock | None = None
    """video: its receivers' clocks; default: the sender's."""
    congestion: str | None = None
    """tcp: Congestion control: reno, newreno, sack, cubic, bbr (version 3), bbr1, dctcp, prague, or one
    that only a kernel has; default from the preset: reno or cubic.
    """
    controller: str | None = None
    """video: a registry name, "file.py:Class", or "exec:PROGRAM ARGUMENTS"."""
    count: int | None = None
    """Makes NAME1 … NAMEcount of it; 0 leaves it out."""
    defences: bool | None = None
    """video: whether the sender defends itself against false reports, as a live one does; default false."""
    delayed_ack: bool | None = None
    """tcp: Acknowledge every second segment only (RFC 5681, section 4.2)."""
    ecn: str | bool | None = None
    """tcp: explicit congestion notification, true or false. video: off, ect0 or ect1 (L4S), as which its
    packets leave; true: ect0. Off by default. tcp: Explicit congestion notification (RFC 3168):
    segments are ECN-capable, and marks are answered once per round trip; by dctcp and prague in
    proportion to how many there are. On with these two, and nothing to bbr and bbr1.
    """
    emit: str | None = None
    """video: paced (default), or each frame as a burst."""
    encode: Encode | None = None
    """video: how pictures are encoded."""
    feedback: str | None = None
    """video with one receiver, or a session for each: what receivers report. own: what the controller asks
    for, which is rfc8888 for scream, gcc and steady (default). rfc8888 or twcc: single packets, as RFC
    8888 or transport-wide congestion control has it. stats: counts once a second, as in a browser's
    statistics. rr: standard report blocks alone. Live: the first three.
    """
    floor: str | None = None
    """video: the rate never goes below this."""
    from_: str | None = None
    """The source's node. With a range in both this and the name: one by one."""
    hystart: bool | str | None = None
    """tcp: How slow start may end without a loss, with cubic: HyStart as in Linux, or not."""
    init_rto: str | None = None
    """tcp: Retransmission time-out before the first measurement."""
    initial_window: str | None = None
    """tcp: Congestion window after the handshake."""
    map001: Map001 | None = None
    """video: how paper 001's rates become frames."""
    max_rto: str | None = None
    """tcp: Largest retransmission time-out, back-off included."""
    media: str | None = None
    """video: clip, synthetic, greedy, table2, map001, trace or rfc8593; by default what "clip" or "trace"
    say, else synthetic.
    """
    min_rto: str | None = None
    """tcp: Least retransmission time-out."""
    mode: str | None = None
    """video: repaired (default) or paper."""
    nominal: float | None = None
    """video: vbr = evalvid: The quantizer that the stream would have were it not controlled; the first
    group has twice this; default 2.0.
    """
    off: Period | str | None = None
    """tcp, onoff: Length of the periods without data."""
    on: Period | str | None = None
    """tcp, onoff: Length of the periods with data."""
    packet: str | None = None
    """video, tcp, onoff, cbr: Packet size, as IP size. Default video: "1200B"; tcp: from its preset, or
    what fits through its way; onoff: "1kB"; cbr: "1kB".
    """
    padding: bool | None = None
    """video with repair = "rtx", or with "auto" towards one receiver: whether the newest packet is sent
    again where a controller's probe finds too little that waits (gcc); default false.
    """
    params: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """video: parameters per controller, for example params.asmp = { gamma_congested = 0.2 }."""
    playout: str | Playout | None = None
    """video: a frame later than this is not shown at its slot; default "none". "adaptive", or { kind =
    "adaptive", most = "800ms" }: as long as frames and the repair of lost packets take.
    """
    preset: str | None = None
    """tcp: Where unset keys come from, and what no key says: when recovery ends, what a partial
    acknowledgment sends, how an idle window restarts, and more.
    """
    rate: str | None = None
    """tcp, onoff: The rate while on. cbr: Its rate."""
    receivers: int | None = None
    """In a shape, instead of "to": how many receivers; default 1."""
    repair: str | None = None
    """video: what becomes of lost packets. none (default). rtx: its one receiver asks for them again, as
    long as they come in time; rtcp.profile has to be avpf. parity: receivers compute them from parity,
    which follows their losses. auto: towards one receiver rtx, and parity where that leaves too much;
    groups parity.
    """
    rfc8593: Rfc8593 | None = None
    """video: RFC 8593's synthetic codec; its frame rate is encode.fps, here 30 by default."""
    room: float | None = None
    """video: vbr = frame: How many times as fast as the target packets may leave, for a frame that is
    larger than others; the mean stays the target's; default 2.5.
    """
    rtcp: Rtcp | None = None
    """video: RTCP's timing."""
    rtp: Numbers | None = None
    """video: where its packets' numbers begin; default: from the seed."""
    sack: bool | None = None
    """tcp: Selective acknowledgments (RFC 2018): the receiver reports blocks, the sender keeps a
    scoreboard.
    """
    send_jitter: str | None = None
    """Holds packets back for up to this, a burst as one, so that flows don't lock phases; default "0ms"
    (tcp of preset linux: "100us").
    """
    start: str | Uniform | None = None
    """When it starts: a time, or { uniform = [from, to] }; default "0s", or with its start event."""
    stop: str | None = None
    """When it stops; default: at the end."""
    table2: Table2 | None = None
    """video: how paper 000's Table 2 becomes frames."""
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
    each frame of it leaves within "wait"; within a group it only becomes coarser; default "bucket".
    """
    wait: str | None = None
    """video: vbr = frame: The time from a frame's being ready to the sending of its last byte; default
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
    """A new probability that a packet comes twice."""
    jitter: Jitter | str | None = None
    """A new jitter; "0ms" ends one."""
    loop: bool | None = None
    """Whether that trace starts again at its end; default true."""
    loss: Loss | str | float | None = None
    """A new loss; { kind = "none" } ends one."""
    rate: str | None = None
    """A new rate; "none": from then on no limit; "0bps": an outage, in which nothing leaves."""
    reorder: Reorder | None = None
    """A new reordering; { p = 0 } ends one."""
    trace: str | None = None
    """A trace in its place."""

@dataclass(kw_only=True)
class Event(Part):
    """Something that happens: exactly one of join, leave, start, stop, set."""

    at: str
    """When it happens."""
    every: str | None = None
    """After which time it happens again, and again, until the end; default: once."""
    join: str | Sequence[str] | None = None
    """Receivers that join their group, for example "video.dst5"; one that has a join starts outside."""
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
    """What is recorded beside the summary."""

    interval: str | None = None
    """Length of one step of the series; default "1s"."""
    packets: str | Sequence[str] | None = None
    """Flows whose packets are recorded, or "all"."""
    pcap: str | Sequence[str] | None = None
    """Links to capture."""

@dataclass(kw_only=True)
class Simulcast(Part):
    """Groups that carry the same video at different rates."""

    name: str
    """Its name."""
    flows: str | Sequence[str]
    """Its groups, multicast video from one source to the same receivers, the lowest rate first; each above
    it has a floor.
    """
    hold: str | None = None
    """For how long; default "10s". Down goes at once who can't take half of its group's floor, after a
    fifth of this who can't take all of it.
    """
    up: float | None = None
    """How many times what the next group asks a receiver has to have to go up to it; default 1.2."""

@dataclass(kw_only=True)
class Expect(Part):
    """What must hold at the end: exit code 1 and a table when it does not."""

    that: str
    """A path into summary.json, lists by name: "flows.tcp.share_of_fair"."""
    max: float | None = None
    """The largest value that holds."""
    min: float | None = None
    """The smallest value that holds."""

@dataclass(kw_only=True)
class Scenario(Part):
    """A Steadycast scenario: a network, the flows on it, and what happens on the way."""

    name: str
    """The scenario's name, by default the file's."""
    duration: str
    """How long it runs, for example "80s"."""
    events: Sequence[Event] = ()
    """What changes during the run: links, flows, and the members of groups."""
    expect: Sequence[Expect] = ()
    """What must hold at the end."""
    flows: Sequence[Flow] = ()
    """What is sent, from where to where."""
    format: int = 1
    """The format's number, now 1; a newer one is refused."""
    join_latency: str | None = None
    """What each router adds to a multicast join's way towards the source, on top of the links' delays;
    default "0ms".
    """
    leave_latency: str | None = None
    """The same for a leave; default "0ms"."""
    links: Sequence[Link] = ()
    """Links. With "between": a new one. Without: changes the link of the shape, or of above, that has this
    name.
    """
    network: str | Path | None = None
    """A network by its name (`steadycast networks` lists them), or a path to its file: its topology, on
    which the keys of this file's own stand, and its events. +cubic, +2cubic, +newreno, +bbr and +web
    behind it add TCP flows.
    """
    nodes: Sequence[str] = ()
    """Nodes that links join; "r[1-3]" is r1, r2, r3."""
    record: Record | None = None
    """What is recorded beside the summary."""
    seed: int | None = None
    """What all randomness derives from; default 1."""
    simulcasts: Sequence[Simulcast] = ()
    """Groups that carry the same video at different rates, between which their receivers choose."""
    topology: Topology | None = None
    """A ready-made network."""
    warmup: str | None = None
    """The time at the start that counts in no mean; series have it; default "0s"."""

    def to_toml(self) -> str:
        """Write it as a scenario file."""

    def to_json(self) -> str:
        """Write it as JSON, with the same keys."""

    def save(self, path: Path | str) -> Path:
        """Write it to a file, and return its path."""
