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
    """The earliest and the latest start time."""

@dataclass(kw_only=True)
class Jitter(Part):
    """A random delay that is added to each packet's propagation delay; default: none."""

    mean: str
    """The mean of the random delay."""
    dist: str | None = None
    """The distribution of the random delay. uniform: from 0 to twice the mean. normal: with a standard
    deviation of a third of the mean. half-normal: the absolute value of a normal distribution (RFC
    8868, 4.5). wifi: about 1 ms for most packets and about 90 ms for some, in the proportion that gives
    a mean of 1 to 85 ms (from the C4 draft). With another mean, wifi has the nearest that it can have.
    Default: "exponential".
    """
    reorder: bool | None = None
    """Whether a packet may overtake earlier packets. With false, a packet waits for the one before it.
    Default: false.
    """

@dataclass(kw_only=True)
class Arq(Part):
    """Retransmission on the link layer, as in Wi-Fi and LTE, which turns loss into delay; default: none."""

    tries: int
    """The maximum number of transmissions of a packet, including the first one; after these the packet is
    lost.
    """
    per_try: str
    """The delay of each retransmission, in addition to the packet's transmission time."""

@dataclass(kw_only=True)
class Loss(Part):
    """Random loss of packets on the link, in addition to the queue's drops; default: none."""

    kind: str
    """bernoulli: each packet is lost with the probability "p", independently. run: one packet is lost
    after each run of packets that arrive; the run's length is exponentially distributed (ns-2's
    "exponential error model"). gilbert: the Gilbert–Elliott model, with a good and a bad state that
    have different loss probabilities. list: the packets with the numbers in "packets" are lost. none:
    no packet is lost.
    """
    direction: str | None = None
    """The direction of the loss: forward (from the link's first to its second end; default), back or both."""
    loss_bad: float | None = None
    """gilbert: The loss probability in the bad state. Default: 1.0."""
    loss_good: float | None = None
    """gilbert: The loss probability in the good state. Default: 0.0."""
    mean: str | None = None
    """run: The mean number of packets in a run, for example "50p"; at least "1p"."""
    p: float | None = None
    """bernoulli: The loss probability, from 0 to 1."""
    p_bad: float | None = None
    """gilbert: The probability of a change from the good to the bad state after a packet."""
    p_good: float | None = None
    """gilbert: The probability of a change from the bad to the good state after a packet."""
    packets: Sequence[int] = ()
    """list: The numbers of the packets that are lost, counted from 1 in each direction of the link."""

@dataclass(kw_only=True)
class Reorder(Part):
    """Reordering: a share of the packets is delayed, so that later packets overtake them; default: none."""

    p: float
    """The probability that a packet is delayed, from 0 to 1."""
    by: str | None = None
    """The additional delay of a delayed packet; required if `p` is above 0. Default: "0ns"."""

@dataclass(kw_only=True)
class Policer(Part):
    """A token bucket before the queue, which drops excess packets (RFC 2697, with one bucket)."""

    rate: str
    """The rate at which the token bucket fills: the highest mean rate that passes."""
    burst: str
    """The size of the token bucket, which is full at the start: the largest burst that passes."""

@dataclass(kw_only=True)
class Shaper(Part):
    """A token bucket behind the queue."""

    rate: str
    """The rate at which the token bucket fills: the sustained rate of the link."""
    burst: str
    """The size of the token bucket: the largest burst at the link's own rate. The bucket is full at the
    start.
    """

@dataclass(kw_only=True)
class Queue(Part):
    """The queue at the link's entry; default: drop-tail with 50 packets."""

    kind: str | None = None
    """droptail: first in, first out; a packet that does not fit is dropped. red: random early detection
    (Floyd and Jacobson 1993). codel: controlled delay (RFC 8289). fq-codel: fair queueing between
    flows, with CoDel in each flow's queue (RFC 8290). pie: proportional integral controller enhanced
    (RFC 8033). dualpi2: dual-queue coupled AQM for L4S (RFC 9332). Default: "droptail".
    """
    alpha: float | None = None
    """pie: The gain of the queueing delay: in each update, the drop probability changes by this for each
    second above or below `target`. dualpi2: The gain of the queueing delay: in each update, p' changes
    by this for each second above or below `target`. Default 0.125; dualpi2: 0.15.
    """
    beta: float | None = None
    """pie: The gain of the delay's change: in each update, the drop probability changes by this for each
    second by which the queueing delay has grown since the last update. dualpi2: The gain of the delay's
    change: in each update, p' changes by this for each second by which the queueing delay has grown
    since the last update. Default 1.25; dualpi2: 3.0.
    """
    ce_threshold: str | None = None
    """codel, fq-codel: The time in the queue after which each ECT(1) packet is marked, whatever `ecn` is
    (Linux's `ce_threshold`). L4S senders need about "1ms". Default: "none".
    """
    classic_share: float | None = None
    """dualpi2: The share of the link's rate for the Classic queue while both queues hold packets (weighted
    round robin). Default: 0.0625.
    """
    ecn: bool | None = None
    """red, codel, fq-codel, pie: Whether ECN-capable packets are marked instead of dropped. Default:
    false.
    """
    flows: int | None = None
    """fq-codel: The number of queues into which flows are hashed. Default: 1024."""
    gentle: bool | None = None
    """red: Whether the drop probability rises linearly from `max_p` to 1 between `max` and twice `max`.
    With false, it is 1 above `max`. Default: true.
    """
    interval: str | None = None
    """codel, fq-codel: The time for which the queueing delay must exceed the target before the first
    packet is dropped. Default: "100ms".
    """
    k: float | None = None
    """dualpi2: The coupling factor: the probability of a mark is at least `k` p' for L4S packets, and the
    probability of a mark or drop is p'² for Classic packets. Default: 2.0.
    """
    limit: str | None = None
    """droptail, red, codel, fq-codel, pie, dualpi2: The maximum length of the queue, in packets, bytes or
    time. Default "50p"; codel: "1000p"; fq-codel: "10240p"; pie: "1000p"; dualpi2: "250ms".
    """
    mark_ecnth: float | None = None
    """pie: The drop probability above which even ECN-capable packets are dropped. Default: 0.1."""
    max: str | None = None
    """red: The average queue length at which the drop probability is `max_p`; default: that of `preset`."""
    max_burst: str | None = None
    """pie: The time for which the delay of a queue that was empty may exceed the target before packets are
    dropped. Default: "150ms".
    """
    max_p: float | None = None
    """red: The drop probability at an average queue length of `max`. Default: 0.1."""
    mean_packet: str | None = None
    """red: The mean packet size, with which idle times and limits in bytes are converted to packets;
    default with preset ns2 "500B", with classic "1000B". pie: The mean packet size. While the queue
    holds at most two packets of this size, none is dropped. Default pie: "1kB".
    """
    min: str | None = None
    """red: The average queue length above which packets are dropped, with a probability that rises from 0;
    default: that of `preset`.
    """
    min_th: str | None = None
    """dualpi2: The sojourn time above which packets in the L4S queue are marked, whatever p' is. Default:
    "800us".
    """
    preset: str | None = None
    """red: The defaults of `min`, `max` and `weight`. ns2: derived from the link's rate and delay, as in
    ns-2. classic: "5p", "15p" and 0.002. Default: "ns2".
    """
    quantum: str | None = None
    """fq-codel: The number of bytes that each queue may send per round. Default: "1514B"."""
    range: str | None = None
    """dualpi2: The time over which the probability of this mark rises, from 0 at `min_th` to 1 at `min_th`
    + `range`; with "0s" it rises in one step. Default: "400us".
    """
    t_update: str | None = None
    """pie: The interval between two updates of the drop probability. dualpi2: The interval between two
    updates of the base probability p'. Default: "15ms".
    """
    target: str | None = None
    """codel, fq-codel: The queueing delay up to which no packet is dropped. pie: The target of the
    queueing delay. dualpi2: The target of the queueing delay. Default "5ms"; pie: "15ms"; dualpi2:
    "15ms".
    """
    th_len: int | None = None
    """dualpi2: The minimum number of packets that an arriving packet must find in the L4S queue to be
    marked by `min_th`. Default: 1.
    """
    weight: float | None = None
    """red: The weight of a new sample in the average queue length; default: that of `preset`."""

@dataclass(kw_only=True)
class Pipe(Part):
    """A link's properties, in both directions unless `back` differs."""

    arq: Arq | None = None
    """Retransmission on the link layer, as in Wi-Fi and LTE, which turns loss into delay; default: none."""
    back: Pipe | None = None
    """The keys that have other values in the direction from the second to the first end."""
    bleach: bool | None = None
    """Whether the link clears the ECN field of each packet, as some routers and tunnels do; default false."""
    delay: str | None = None
    """The propagation delay in one direction; default "0ms"."""
    delay_trace: str | Path | None = None
    """A file with the link's propagation delay over time, instead of "delay". Its two columns are the time
    in seconds and the delay in one direction in milliseconds. A header can name other units (t_s or
    t_ms, and ms or s).
    """
    duplicate: float | None = None
    """The probability that a packet is duplicated; default 0."""
    jitter: Jitter | str | None = None
    """A random delay that is added to each packet's propagation delay; default: none."""
    loop: bool | None = None
    """Whether "trace", "delay_trace" and "loss_trace" start again after their end; default true, with a
    warning if they are shorter than the run. With false, the last value of a table stays valid after
    the end of the table. With false, nothing leaves the link after the end of a Mahimahi trace.
    """
    loss: Loss | str | float | None = None
    """Random loss of packets on the link, in addition to the queue's drops; default: none."""
    loss_trace: str | Path | None = None
    """A file with the link's loss probability over time, in the direction from its first to its second
    end, instead of "loss". It has two columns: seconds and probability.
    """
    mtu: str | None = None
    """The size of the largest packet that the link carries; default "1500B"."""
    policer: str | Policer | None = None
    """A policer before the queue, which drops packets that exceed a rate; default "none"."""
    queue: Queue | str | None = None
    """The queue at the link's entry; default: drop-tail with 50 packets."""
    rate: str | None = None
    """The link's rate in bits of IP packets per second, for example "4Mbps". With "none" the rate is
    unlimited and packets never wait. With "0bps" no packet leaves the queue. Default "none".
    """
    reorder: Reorder | None = None
    """Reordering: a share of the packets is delayed, so that later packets overtake them; default: none."""
    shaper: str | Shaper | None = None
    """A token bucket after the queue, as in a cable modem: while the bucket has tokens, packets leave at
    the link's rate, otherwise at the shaper's. Default "none".
    """
    trace: str | Path | None = None
    """A file with the link's rate over time, instead of "rate"; its path is relative to this file.
    Formats: a Mahimahi trace (in each line a time in whole milliseconds at which 1500 bytes can leave);
    two columns of seconds and Mb/s, or of the units that a header names (t_s or t_ms, and mbps, kbps or
    bps); AlphaRTC's JSON, whose delay and loss apply as well unless the link has its own; Sabre's JSON;
    logs of throughput, in each line a time, latitude, longitude, bytes and milliseconds.
    """

@dataclass(kw_only=True)
class Link(Pipe):
    """A link."""

    between: tuple[str, str]
    """The names of the link's two ends. If an end is a range, each of its nodes gets a link to the node at
    the other end. If both ends are ranges of equal length, their nodes are linked in pairs.
    """
    name: str | None = None
    """The link's name; default: the names of its ends, such as "bs-r1". If the entry makes several links,
    each is named NAME-END, such as "air-r1".
    """

@dataclass(kw_only=True)
class Leg(Pipe):
    """Equal links of a star or chain."""

    name: str | None = None
    """The name of the node at the link's far end. With several links it contains a range, such as
    "leg[1-3]". Default leg1, leg2 … in a star, n1, n2 … in a chain.
    """
    count: int | None = None
    """The number of equal links that this entry makes; default 1."""

@dataclass(kw_only=True)
class Level(Pipe):
    """Links of one level of a tree."""

    fanout: int
    """The number of children of each node of the level above."""

@dataclass(kw_only=True)
class Topology(Part):
    """A network of a standard shape, with its nodes and links."""

    access: Pipe | None = None
    """dumbbell: the link between each host and its router."""
    bottleneck: Pipe | None = None
    """dumbbell: the link between the routers left and right."""
    hops: Sequence[Pipe] = ()
    """chain, parking-lot: the links n0-n1, n1-n2 and so on."""
    legs: Sequence[Pipe] = ()
    """star: the links from the hub to leg1, leg2 and so on."""
    levels: Sequence[Level | Mapping[str, Value]] = ()
    """tree: the links of each level, from the root to the leaves."""
    shape: str | None = None
    """The shape, with the names of its nodes. dumbbell: hosts FLOW.src and FLOW.dst[1-N] at the routers
    left and right. star: hub and leg[1-N]. chain and parking-lot: n0 to nN in a row. tree: root, t1.1
    …, leaf[1-N].
    """

@dataclass(kw_only=True)
class Encode(Part):
    """How pictures are encoded."""

    bframes: int | None = None
    """The number of B frames between two reference frames, with mpeg2, mpeg4 and h264. Other codecs have
    none. Default: 2.
    """
    codec: str | None = None
    """The video codec. Default: "mpeg4"."""
    fps: str | float | None = None
    """The frame rate in pictures per second: a number, "clip" for the clip's own rate, or "auto". "auto",
    the default of clips, is the clip's rate, or 25 if the clip's file has none. Default: 25.0.
    """
    gop: int | None = None
    """The number of frames in a group of pictures, which begins with an I frame. Default: 12."""
    q: str | int | None = None
    """The quantizers that the rate control can choose from, from best to worst, such as "2-31"; "12" is a
    single one. For h264 and h265 the default is "18-47"; for vp8, vp9 and av1 it is "10-63". Default:
    "2-31".
    """
    size: str | None = None
    """The size of the encoded pictures: WIDTHxHEIGHT such as "640x480", a name (sqcif, qcif, cif, 4cif,
    qvga, vga, 720p or 1080p), "clip" for the clip's own size, or "auto". "auto" is the default of
    clips. It is the clip's size, but has at most as many samples as 1280x720. The default of the
    synthetic film is CIF, in which the film can use 2 Mb/s in mpeg4 and 1.45 Mb/s in h264. If the
    flow's share of the network is higher, the default is 1280x720. Default: "352x288".
    """

@dataclass(kw_only=True)
class Buffer(Part):
    """The receiver's play-out buffer, whose fill level the rbuf controllers use."""

    size: str
    """The size of the buffer."""
    consume: str | None = None
    """The constant rate at which the player drains the buffer; default: frame by frame at the clip's frame
    rate.
    """

@dataclass(kw_only=True)
class Playout(Part):
    """A play-out delay that is not a constant time."""

    kind: str
    """adaptive: the delay follows the time that frames and the repair of lost packets take."""
    least: str | None = None
    """adaptive: The shortest play-out delay. Default: "80ms"."""
    most: str | None = None
    """adaptive: The longest play-out delay. Default: "800ms"."""

@dataclass(kw_only=True)
class Rtcp(Part):
    """The timing of RTCP's reports."""

    profile: str | None = None
    """The minimum interval between a member's reports: 5 s (rfc3550), 1 s (asmp), or none, with early
    feedback (avpf, RFC 4585). Default: "avpf".
    """
    reports: str | None = None
    """The destination of the receivers' reports in a group. group: all members. source: the sender only,
    which announces the group's size (RFC 5760). Default: "group".
    """
    session_bw: str | None = None
    """The session bandwidth, of which RTCP uses 5 %. The default is lowered to the rate of the slowest
    link on the path. Default: "2Mbps".
    """
    t_min: str | None = None
    """The minimum interval between a member's reports; default: that of the profile."""

@dataclass(kw_only=True)
class Period(Part):
    """The length of the periods in which the application sends data."""

    dist: str
    """constant: all of the same length. exponential: exponentially distributed, with many short periods
    and few long ones. pareto: Pareto distributed, with a few very long periods. Default: "exponential".
    """
    mean: str
    """The mean length."""
    shape: float | None = None
    """dist = pareto: The exponent of the Pareto distribution, above 1. With a smaller exponent, very long
    periods are more frequent. Default: 1.5.
    """

@dataclass(kw_only=True)
class Clock(Part):
    """The difference between the receivers' clocks and the sender's; default: none."""

    ahead: str | None = None
    """The time by which the receivers' clocks are ahead of the sender's clock."""
    behind: str | None = None
    """The time by which the receivers' clocks are behind the sender's clock."""
    drift: float | None = None
    """The drift of the receivers' clocks in parts per million; default 0. With a positive value the clocks
    run fast, with a negative value slow.
    """

@dataclass(kw_only=True)
class Numbers(Part):
    """The first RTP sequence number and timestamp; default: random, from the seed."""

    seq: int | None = None
    """The first RTP sequence number, from 0 to 65535."""
    timestamp: int | None = None
    """The RTP timestamp at the start of the run, from 0 to 4294967295."""

@dataclass(kw_only=True)
class Table2(Part):
    """Video with media = "table2": frames with the rates of table 2 of the Multi-Evalvid-RA paper."""

    vary: float | None = None
    """The share by which frame sizes vary randomly, up or down; default 0.1."""
    weights: Sequence[float] = ()
    """The relative sizes of I, P and B frames; default [6, 2, 1]."""

@dataclass(kw_only=True)
class Map001(Part):
    """Video with media = "map001": how the rates of the MPEG-TFRCP paper are turned into frames."""

    exponent: float | None = None
    """The exponent e in the rate of quantizer Q, which is 5.25 Mb/s · (12/Q)^e. The rate includes the
    headers of packets of 1000 bytes. Default: 0.9.
    """
    intra: float | None = None
    """The size of an I frame as a multiple of the size of a P frame. Default: 3.0."""

@dataclass(kw_only=True)
class Rfc8593(Part):
    """Video with media = "rfc8593": RFC 8593's synthetic codec."""

    abrupt: float | None = None
    """The relative change between two successive rate requests from which the codec answers with a burst
    of large frames; 0.1 is a change of 10 %. Default: 0.1.
    """
    k_b: str | None = None
    """The size of a burst's first frame. Default: "13500B"."""
    k_d: int | None = None
    """The number of frames in a burst. Default: 8."""
    model: str | None = None
    """The model of frame sizes: statistical (RFC 8593, section 5), trace (section 6) or hybrid (section
    7). The last two use the frame sizes of "trace", of "clip", or of the synthetic film. Default:
    "statistical".
    """
    r_max: str | None = None
    """The codec's highest rate. Default: "1500kbps"."""
    r_min: str | None = None
    """The codec's lowest rate. Default: "150kbps"."""
    scale_b: float | None = None
    """The scale of the Laplace distribution of frame sizes, as a share of the mean size. Default: 0.15."""
    scale_t: float | None = None
    """The scale of the Laplace distribution of the intervals between frames, as a share of the mean
    interval. Default: 0.15.
    """
    skip_frames: int | None = None
    """The number of frames at the beginning of the sequence that are skipped each time the sequence
    repeats. Default: 20.
    """
    tau_v: str | None = None
    """The time after a rate request during which the codec ignores further requests. Default: "200ms"."""

@dataclass(kw_only=True)
class Flow(Part):
    """A flow: its traffic, source and receivers."""

    name: str
    """The flow's name, unique among flows. A dumbbell's hosts are named after it. A name with a range,
    such as "tcp[1-3]", makes one flow per number.
    """
    kind: str
    """The kind of traffic: video, tcp, cbr (packets at a constant rate) or onoff (cbr with pauses)."""
    audio: str | None = None
    """video: the codec rate of an audio stream in the same session, for example "48kbps". It consists of
    Opus packets of 20 ms, which are sent before all other packets and count in the controlled rate.
    Default: no audio.
    """
    bucket: float | None = None
    """video: vbr = bucket, vbr = evalvid: The bucket's size, in groups of pictures at the target rate.
    Default: 1.5.
    """
    buffer: Buffer | None = None
    """video: the receiver's play-out buffer, whose fill level the rbuf controllers use."""
    bytes: str | None = None
    """tcp, and video with media = "greedy": the amount of data to send, after which the flow ends;
    default: unlimited. With the key "off", the flow sends this amount in each on period.
    """
    cap: str | None = None
    """video: the upper limit of the sending rate."""
    cast: str | None = None
    """unicast: each receiver has its own session. multicast: all receivers share one session; the default
    with several receivers.
    """
    clip: str | Path | Sequence[str | Path] | None = None
    """video: a video file, or a list of files that are played one after the other. The sequence repeats
    until the end of the run. Paths are relative to this file.
    """
    clock: Clock | None = None
    """video: the difference between the receivers' clocks and the sender's; default: none."""
    congestion: str | None = None
    """tcp: The congestion control: reno, newreno, sack, cubic, bbr (version 3), bbr1, dctcp or prague.
    Emulated runs also accept the kernel's other congestion controls. Default with preset linux: cubic,
    otherwise reno.
    """
    controller: str | None = None
    """video: the rate controller: a name (`steadycast controllers` lists them), a Python class as
    "file.py:Class", or another program as "exec:PROGRAM ARGUMENTS". Every video needs one.
    """
    count: int | None = None
    """The number of equal flows that this entry makes, named NAME1, NAME2 and so on; 0 makes none."""
    defences: bool | None = None
    """video: whether the sender discards implausible feedback, as a live sender does; default false."""
    delayed_ack: bool | None = None
    """tcp: Whether the receiver acknowledges only every second segment (RFC 5681, section 4.2); default
    with preset linux true, otherwise false.
    """
    ecn: str | bool | None = None
    """The use of explicit congestion notification. tcp: true or false. video: the ECN codepoint of its
    packets: off, ect0 (also true) or ect1 (L4S). Default: off. tcp: Whether segments are ECN-capable
    (RFC 3168). A mark then reduces the window once per round trip, with dctcp and prague in proportion
    to the share of marked segments. With these two it is true by default. On bbr and bbr1 it has no
    effect.
    """
    emit: str | None = None
    """video: how packets are sent. paced: spread over time at the pacing rate (default). burst: all
    packets of a frame back to back.
    """
    encode: Encode | None = None
    """video: how pictures are encoded."""
    feedback: str | None = None
    """video with unicast sessions: the format of the receivers' feedback. own: the controller's choice,
    which is rfc8888 for scream, gcc and steady (default). rfc8888, twcc: per-packet feedback by RFC
    8888, or by transport-wide congestion control. stats: counters once a second, as in a browser's
    statistics. rr: standard report blocks only. Live sessions support the first three.
    """
    floor: str | None = None
    """video: the lower limit of the sending rate."""
    from_: str | None = None
    """The source's node. If it and the flow's name contain ranges, each flow has its own node."""
    hystart: bool | str | None = None
    """tcp: How slow start may end before a loss, with congestion cubic: true for HyStart as in Linux
    (default with preset linux), "rfc9406" for HyStart++, or false for neither (default with other
    presets).
    """
    init_rto: str | None = None
    """tcp: The retransmission time-out before the first round-trip sample; default with preset linux "1s",
    otherwise "3s".
    """
    initial_window: str | None = None
    """tcp: The congestion window after the handshake, in packets; default with preset linux 10p, otherwise
    2p.
    """
    map001: Map001 | None = None
    """video with media = "map001": how the rates of the MPEG-TFRCP paper are turned into frames."""
    max_rto: str | None = None
    """tcp: The maximum retransmission time-out, including back-off; default with preset linux "120s",
    otherwise "60s".
    """
    media: str | None = None
    """video: the source of the frames. clip: a video file. synthetic: a generated film. greedy: packets
    without frames, as many as the rate allows. table2: the rates of the Multi-Evalvid-RA paper. map001:
    the rates of the MPEG-TFRCP paper. trace: frame sizes from a file. rfc8593: a synthetic codec.
    Default: clip or trace if the key of that name is given, else synthetic.
    """
    min_rto: str | None = None
    """tcp: The minimum retransmission time-out; default "200ms", with preset ns2old "1s"."""
    mode: str | None = None
    """video: the mode of the controller. repaired: errors of its paper are corrected (default). paper: the
    paper's text, taken literally.
    """
    nominal: float | None = None
    """video: vbr = evalvid: The nominal quantizer. The next GOP's quantizer is computed from the size that
    the GOP has at the nominal quantizer. The first GOP is encoded with twice the nominal quantizer.
    Default: 2.0.
    """
    off: Period | str | None = None
    """tcp, onoff: The length of the pauses between the "on" periods."""
    on: Period | str | None = None
    """tcp, onoff: The length of the periods in which the application sends data."""
    packet: str | None = None
    """video, tcp, onoff, cbr: The packet size, including IP headers. Default of video: "1200B". Default of
    tcp: that of its preset, or the largest that fits through the flow's path; onoff: "1kB"; cbr: "1kB".
    """
    padding: bool | None = None
    """video: whether the newest packet is retransmitted as padding when a probe of the controller (gcc)
    needs more data than the pacer holds. It needs repair = "rtx", or "auto" with one receiver. Default
    false.
    """
    params: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """video: parameters of controllers, for example params.asmp = { gamma_congested = 0.2 }."""
    playout: str | Playout | None = None
    """video: the play-out delay, from a frame's readiness at the sender to its display. A frame that
    arrives later misses its display. With "none" the receiver waits for each frame without limit. With
    "adaptive", or { kind = "adaptive", most = "800ms" }, the delay follows the time that frames and
    repair take. Default "none".
    """
    preset: str | None = None
    """tcp: The TCP implementation that is modelled: linux (a current kernel; default), ns2 (ns-2.35) or
    ns2old (ns-2 before 2002). It sets the defaults of the other keys, and details that have no key,
    such as when recovery ends, what a partial acknowledgment sends, and how an idle window restarts.
    """
    rate: str | None = None
    """tcp: The application's rate during on periods; default: unlimited. onoff: The rate during on
    periods, in bits of IP packets per second. cbr: The constant rate, in bits of IP packets per second.
    """
    receivers: int | None = None
    """The number of receivers, instead of "to", if the network has a "topology"; default 1."""
    repair: str | None = None
    """video: the repair of lost packets. none: no repair (default). rtx: the receiver requests
    retransmissions that can still arrive in time. It needs one receiver per session and rtcp.profile =
    "avpf". parity: receivers recover packets from parity packets, whose share follows the losses. auto:
    rtx with one receiver per session, plus parity if losses remain; parity with a group.
    """
    rfc8593: Rfc8593 | None = None
    """video with media = "rfc8593": RFC 8593's synthetic codec. Its frame rate is encode.fps, which is 30
    by default with this codec.
    """
    room: float | None = None
    """video: vbr = frame: The highest rate at which a large frame is sent, as a multiple of the target
    rate. The mean rate stays at the target. Default: 2.5.
    """
    rtcp: Rtcp | None = None
    """video: the timing of RTCP's reports."""
    rtp: Numbers | None = None
    """video: the first RTP sequence number and timestamp; default: random, from the seed."""
    rungs: int | None = None
    """video: vbr = rungs: The number of quantizers to choose from. The logarithms of their rates are
    evenly spaced. Default: 4.
    """
    sack: bool | None = None
    """tcp: Whether TCP uses selective acknowledgments (RFC 2018); default with preset linux true,
    otherwise only with congestion sack, bbr and bbr1.
    """
    send_jitter: str | None = None
    """The maximum random delay before a packet is sent, or before a burst as a whole. It keeps flows from
    synchronising. Default "0ms" (tcp with preset linux: "100us").
    """
    start: str | Uniform | None = None
    """The time at which the flow starts, or { uniform = [from, to] } for a random time. Default: the time
    of its start event, or "0s" if it has none.
    """
    stop: str | None = None
    """The time at which the flow stops; default: the end of the run."""
    switching: str | None = None
    """video: vbr = rungs: The rule that chooses one of them at each key frame: "hysteresis", a Python
    class as "file.py:Class", or another program as "exec:PROGRAM ARGUMENTS". Default: "hysteresis".
    """
    table2: Table2 | None = None
    """video with media = "table2": frames with the rates of table 2 of the Multi-Evalvid-RA paper."""
    tick: str | None = None
    """tcp: The granularity of the sender's clock, with which round-trip times are measured; "0s" is exact.
    Default with preset linux "0s", with ns2 "10ms", with ns2old "100ms".
    """
    timestamps: bool | None = None
    """tcp: Whether each acknowledgment gives a round-trip sample, by timestamps (RFC 7323). With false,
    one segment per round trip is measured, by Karn's rule. Default with preset linux true, otherwise
    false.
    """
    to: str | Sequence[str] | None = None
    """The node of the receiver, or a list of nodes."""
    trace: str | Path | None = None
    """video: a file of frame sizes, as CSV or as a multi-rate trace of Evalvid-RA; its path is relative to
    this file.
    """
    vbr: str | None = None
    """video: bucket: for each group of pictures (GOP), by the leaky bucket of Evalvid-RA (SVBR, Hamdi and
    Roberts). evalvid: for each GOP, by the rule of Evalvid-RA's published program. A leaky bucket in
    bytes gives the GOP's target size, and the quantizer follows from the GOP's size at the quantizer
    "nominal". ladder: for each GOP, the best quantizer with which the next GOP fits the rate. frame:
    for each frame, the best quantizer that meets two conditions: the rest of the GOP fits the rate, and
    each of its frames is sent within "wait". Within a GOP the quantizer never becomes finer. rungs: for
    each GOP, one of a few quantizers, which changes rarely; this models a source that is encoded once
    for all viewers. Default: "bucket".
    """
    wait: str | None = None
    """video: vbr = frame: The maximum time from a frame's readiness until its last byte is sent. Default:
    "100ms".
    """
    window: str | None = None
    """tcp: The receiver's advertised window, in packets; default with preset linux 4194p, otherwise 20p."""

@dataclass(kw_only=True)
class Change(Part):
    """A change of links."""

    link: str | Sequence[str]
    """The link that changes, or a list of links."""
    delay: str | None = None
    """The new propagation delay."""
    direction: str | None = None
    """The direction that changes: forward (from the link's first to its second end), back or both
    (default).
    """
    duplicate: float | None = None
    """The new probability that a packet is duplicated."""
    jitter: Jitter | str | None = None
    """The new jitter; "0ms" removes it."""
    loss: Loss | str | float | None = None
    """The new random loss; { kind = "none" } removes it."""
    rate: str | None = None
    """The new rate. "none" removes the limit. "0bps" is an outage, in which no packet leaves the queue."""
    reorder: Reorder | None = None
    """The new reordering; { p = 0 } removes it."""

@dataclass(kw_only=True)
class Event(Part):
    """An event: exactly one of join, leave, start, stop, set."""

    at: str
    """The time of the event, from the start of the run."""
    every: str | None = None
    """The time after which the event happens again, until the end of the run; default: it happens once."""
    join: str | Sequence[str] | None = None
    """The receivers that join their group, for example "video.dst5". A receiver with a join event is not a
    member at the start.
    """
    leave: str | Sequence[str] | None = None
    """The receivers that leave their group."""
    set: Change | Mapping[str, Value] | None = None
    """A change of links. Properties that are not given stay as they are."""
    start: str | Sequence[str] | None = None
    """The flows that start."""
    stop: str | Sequence[str] | None = None
    """The flows that stop."""

@dataclass(kw_only=True)
class Record(Part):
    """The data that is recorded in addition to the summary."""

    audio: bool | None = None
    """Whether each audio packet is recorded in the table audio; default false. A saved video's sound is
    made from this table.
    """
    interval: str | None = None
    """The time between two points of the time series; default "1s"."""
    packets: str | Sequence[str] | None = None
    """The flows whose packets are all recorded, in the record's table "packets", or "all"; default: none."""
    pcap: str | Sequence[str] | None = None
    """The links whose packets are captured in pcapng files; default: none."""

@dataclass(kw_only=True)
class Simulcast(Part):
    """Groups that carry the same video at different rates."""

    name: str
    """The simulcast's name."""
    flows: str | Sequence[str]
    """The names of the flows that are its groups, the lowest rate first: multicast videos from one source
    to the same receivers. Each flow except the first needs a "floor".
    """
    hold: str | None = None
    """The time for which a receiver's rate must be high enough before it moves up; default "10s". A
    receiver moves down immediately if its rate is below half of its group's floor, and after a fifth of
    this time if it is below the floor.
    """
    up: float | None = None
    """A receiver moves to the next higher group when its rate is at least this multiple of that group's
    floor; default 1.2.
    """

@dataclass(kw_only=True)
class Expect(Part):
    """A condition on the results."""

    that: str
    """The path of the figure in summary.json, in which entries of lists are named:
    "flows.tcp.share_of_fair".
    """
    max: float | None = None
    """The highest value that meets the condition."""
    min: float | None = None
    """The lowest value that meets the condition."""

@dataclass(kw_only=True)
class Scenario(Part):
    """A Steadycast scenario: a network, the flows on it, and what happens on the way."""

    name: str
    """The scenario's name in reports; default: the file's name."""
    duration: str
    """The duration of the run, for example "80s"."""
    events: Sequence[Event] = ()
    """Events that change links, flows or the members of multicast groups during the run."""
    expect: Sequence[Expect] = ()
    """Conditions on the results. If one does not hold, the command's exit code is 1."""
    flows: Sequence[Flow] = ()
    """The flows: what is sent, from which node to which."""
    format: int = 1
    """The version of the file format, now 1. The program refuses files with a higher number."""
    join_latency: str | None = None
    """The delay that each router adds when it passes a multicast join on towards the source, in addition
    to the links' delays; default "0ms".
    """
    leave_latency: str | None = None
    """The delay that each router adds when it passes a multicast leave on towards the source; default
    "0ms".
    """
    links: Sequence[Link] = ()
    """The links. An entry with "between" adds a link. An entry without it changes the link of this name,
    which comes from the topology or from an entry above.
    """
    network: str | Path | None = None
    """The name of a network (`steadycast networks` lists them), or the path of its file. The scenario
    takes its topology and events from the network; keys of "topology" in this file override them.
    +cubic, +2cubic, +newreno, +bbr or +web after the name adds TCP flows.
    """
    nodes: Sequence[str] = ()
    """The names of the nodes that links connect, except those of "topology"; "r[1-3]" stands for r1, r2
    and r3.
    """
    record: Record | None = None
    """The data that is recorded in addition to the summary."""
    seed: int | None = None
    """The seed of all random numbers; runs with the same seed have the same result. Default 1."""
    simulcasts: Sequence[Simulcast] = ()
    """Simulcasts: multicast groups that carry the same video at different rates, of which each receiver
    joins one.
    """
    topology: Topology | None = None
    """A network of a standard shape, with its nodes and links."""
    warmup: str | None = None
    """The time at the start of the run that mean values exclude; time series include it. Default "0s"."""

    def to_toml(self) -> str:
        """Return the scenario in the format of a scenario file."""

    def to_json(self) -> str:
        """Return the scenario as JSON, with the same keys."""

    def save(self, path: Path | str) -> Path:
        """Write the scenario to a file, and return the file's path."""
