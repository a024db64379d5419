//! All numbers of the laws that no parameter sets, each with what it is and where it is from; without a source it is
//! this project's own. Times are in seconds, rates in bit/s. The other files have 0, 1, 2, a half, and units.

use steadycast_units::Rate;

/// A while: from so long after a cut on growth doubles, and a loss without a queue, as a policer's, puts that off; a
/// loss in a queue leaves a doubt of whose it is for so long; and by it a source's use is seen. The round trip before
/// the first report (RFC 5348, 4.2). In two of them the power fades, and a rate of which little is used falls. Half of
/// it is a second: a burst, and what many packets show of a queue, last no longer, and a competition no shorter.
pub(super) const A_WHILE: f64 = 2.0;
/// A moment: the longest drain beside a round trip, the time between trains, how long a queue is empty before it tells
/// of more, and the highest queue of which an experiment knows. Somebody's start may make that two of them longer.
pub(super) const A_MOMENT: f64 = 0.3;
/// What trains tell is of so many seconds; the half-life of the highest rate while packets wait, and of the highest
/// delay. The scalable rule holds for so long after a mark. A clock that jumps so far is another one.
pub(super) const LATELY: f64 = 10.0;
/// Without feedback for this, or several round trips, the rate is halved (RFC 8083). A law grows for no longer at one
/// report, losses this far apart are told from each other, and what arrives in it is what passes of a source's pauses.
/// Half of it is the longest burst of a source whose own queue is not counted, the time in which growth doubles in an
/// empty queue, and that for a group's first report.
pub(super) const SILENCE: f64 = 0.5;
/// What is known of single packets is of so many seconds; so is the mean jitter, and so far apart are trains.
pub(super) const SEEN: f64 = 3.0;
/// Losses are known for so long: when they came, the mean share of them that TCP's equation takes, and whether they met
/// a queue that stood. So is a base delay, and as long as the least round-trip time while competing, when the queue may
/// never be empty.
pub(super) const KEPT: f64 = 20.0;
pub(super) const PATH_KEPT: u64 = 600;
/// The half-life of the highest rate lately, and of how late packets come. A queue that was the flow's own, and losses
/// that were a policer's, are taken to be that for two of them.
pub(super) const MEMORY: f64 = 60.0;

/// Several: round trips of silence, and for which an experiment waits; packets beside a train; halvings after which a
/// receiver that limits the rate is gone. So many times [`MORE`] of what is used is the highest window.
pub(super) const SEVERAL: u32 = 4;
/// Enough: packets after one that is lost (RFC 9002, 6.1.1), and of a train; halvings after which the start begins
/// again. So many times the target, and the time of an experiment, leave no doubt; so many round trips is a start over.
pub(super) const ENOUGH: u32 = 3;
/// A few packets show jitter, and how what arrives follows what is sent; of more losses their mean rank is known.
pub(super) const FEW: f64 = 5.0;
/// Many: rows of packets that tell the power; packets that leave so many times as fast as the rate are a train, which
/// has twice as many at most; packets that come so many times as close as they left come from no queue.
pub(super) const MANY: f64 = 8.0;

/// A tenth. Below this share of a queue in which a flow has less than a packet nobody of its kind pushes it down: that
/// takes more than ten of them; beside BBR (version 3) it is 0.02 to 0.05 (validation/dossier-cases.toml, 5.2.1). More
/// lost packets than that are no window's that TCP has, and more than two of them none by chance. A queue of a tenth of
/// its highest delay is empty. So much do the logarithms of sent rates deviate that tell the power.
pub(super) const LITTLE: f64 = 0.1;
/// What TCP's cut leaves (RFC 9438, 4.6). The same is left after a start that found a queue; below it of the highest
/// rate lately two losses tell of others; below it of its peak a queue is going, and of its highest delay lately it has
/// room for a train; and so much of the jitter is noise.
pub(super) const BETA: f64 = 0.7;
/// A source that sends less than this share of its rate says nothing of the path; windows of a group that differ by
/// less are of one queue; so much of the highest rate lately is the first one where losses tell of others.
pub(super) const NOT_ALL: f64 = 0.8;
/// Nearly all: from this share of a train's rate on what arrives beside it shows a queue of its own, where two do so in
/// a row. So much of what arrives leaves a queue in peace. A mark leaves it of the window (RFC 8511).
pub(super) const NEARLY: f64 = 0.85;
/// Almost all: when the queue of a start is gone this share of what the path carried is sent; the target of a source of
/// frames is at least this share of what it is before it is bent.
pub(super) const ALMOST: f64 = 0.9;
/// From this share of what the path carried to a bit more than it growth is slow.
pub(super) const NEAR: f64 = 0.92;
/// As good as all: a receiver that asks for this share of what is sent asks for no less; a mark leaves it of the rate.
pub(super) const SIMILAR: f64 = 0.95;
/// A bit more than all: a frame's packets leave at so many times the rate in DELAY, towards one receiver.
pub(super) const A_BIT_MORE: f64 = 1.1;
/// No more than so many times what arrives is sent while competing, nor is a source of frames granted more of its rate.
pub(super) const AHEAD: f64 = 1.2;
/// Half as much again: a window, and a rate of frames, is at most [`SEVERAL`] times so much of what is sent (RFC 7661,
/// 4.3); a window grows by no more in a round trip (RFC 9438, 4.2).
pub(super) const MORE: f64 = 1.5;

/// The least queueing delay of this while is the queue, since a burst passes sooner.
pub(super) const LOW_SPAN: f64 = 0.060;
/// Where jitter is as long as the target, the least delay is that of so many times as many packets. From draws 9303 and
/// 9304.
pub(super) const JITTER_LONGER: f64 = 6.0;
/// The received rate is that of this while, or of a round trip, also before a train.
pub(super) const RECEIVED_SPAN: f64 = 0.150;
/// No law goes below this rate, above the session's floor.
pub(super) const LEAST: f64 = 10_000.0;
/// The start grows by this per round trip, or two reports, up to twice what arrives.
pub(super) const START_UP: f64 = 1.35;

/// The target comes near this at low rates.
pub(super) const TARGET_MOST: f64 = 0.050;
/// The target is at least the time of a packet of one's own less this, from which on CoDel drops (RFC 8289, 3.2).
pub(super) const CODEL_TARGET: f64 = 0.005;
/// The target's scale grows by this per second after an AQM dropped at the target.
pub(super) const SCALE_UP: f64 = 0.005;

/// So many seconds of queueing delay above half of the target cut the whole rate. No round trip counts as longer for
/// the time between two cuts, no report of a group for growth; what a source sends is that of as long. TCP's least
/// time-out (Linux).
pub(super) const CUT_SCALE: f64 = 0.2;
/// A quarter: the greatest cut, by which, as a share of the link's rate, a lone flow's queue falls in an experiment.
/// The least scale of the target. The next late packet is waited for so much longer than the last one was late.
pub(super) const A_QUARTER: f64 = 0.25;
/// Increase of the one-way delay from a packet to the next, in seconds, that shows a silence of the path. Radios serve
/// in bursts of 20 ms, which are none.
pub(super) const PATH_SILENCE: f64 = 0.040;
/// Time after a silence of the path, in seconds, in which the first packets do not tell yet what it carries.
pub(super) const PATH_RESUME_TIME: f64 = 0.060;
/// Spans for which a delay, measured as the least of each span, must stay within noise to be the path's, beside a round
/// trip. Without jitter they take half a second. A CUBIC's queue changes in that time by more than the noise of 1 ms:
/// by 3 ms/s at 40 Mb/s and 44 ms (RFC 9438, equation 1).
pub(super) const PATH_CONSTANT_SPANS: f64 = 8.0;
/// Least share of the rate that is counted as yielded where the delay may be the path's. The rate before the yield is
/// known to a tenth: what arrives is divided by 0.9.
pub(super) const PATH_YIELD_LEAST: f64 = 0.15;
/// The rate grows by this per second near what the path carries, and by that below it.
pub(super) const GAIN: f64 = 0.06;
pub(super) const GAIN_BELOW: f64 = 0.4;
/// Where the queue is empty, and the rate below this share of the highest one lately, who pushed it down is gone.
/// Losses of a lower mean rank are those of a radio.
pub(super) const GONE: f64 = 0.6;
/// Growth doubles more quickly where the rate is not near what the path carried, from when the queue has been empty,
/// below this share of the target: in each half of [`SILENCE`]. What covers less of a time says nothing of it; growth
/// passes what arrives by no more than so much.
pub(super) const EMPTY: f64 = 0.3;
/// The rate grows by so much per second, and per round trip, at most. As long as it takes to double so, growth takes.
/// It grows so at once where who pushed it down is gone.
pub(super) const GAIN_MOST: f64 = 1.0;
pub(super) const GAIN_ROUND: f64 = 0.1;

/// The gain of the mean rank of the queue at losses, and the mean above which they are a queue's.
pub(super) const RANK_GAIN: f64 = 0.125;
pub(super) const RANK_CONGESTED: f64 = 0.68;
/// A packet that took less longer than the least has not waited; with less than this and a packet's, losses are by
/// chance.
pub(super) const WAITS: f64 = 0.003;
/// Two losses at a queue above this that stood tell of others. A start ends at half of it.
pub(super) const STANDING: f64 = 0.008;
/// A drain after a loss is made from this queueing delay on; a loss in it is a queue's. Packets that leave so much
/// before their time are a burst's, and twice as long is a row of them that tells the power.
pub(super) const DRAIN_ABOVE: f64 = 0.020;
/// More lost packets than this share are not by chance, until a trial tells of more.
pub(super) const BY_CHANCE: f64 = 0.03;
/// The natural logarithm of a thousand: chance is wrong once in so many times.
pub(super) const SURE: f64 = 6.907_755;
/// A trial whether losses end has seen enough packets where chance would have taken so many of them.
pub(super) const TRIAL_LOST: f64 = 20.0;
/// What arrives follows what is sent by at most this power in a queue of the flow's own.
pub(super) const FOLLOWS: f64 = 0.3;

/// CUBIC's constant (RFC 9438, 5), and Reno's growth that loses as often (4.3).
pub(super) const C: f64 = 0.4;
pub(super) const RENO_UP: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The window's segments, in bits, and the least window.
pub(super) const WINDOW_LEAST: f64 = 2.0;
/// A train takes as long at the rate: feedback tells arrivals to a millisecond. No packet that left so much earlier
/// comes with another from a queue.
pub(super) const TRAIN_TIME: f64 = 0.005;
/// The rate at which the packets of a train leave: at once.
pub(super) const AT_ONCE: Rate = Rate::mbps(1_000);
/// Until the number of a group's members is known it is taken to be this. A report of one of them costs so many times
/// the one of single packets by which `report_bytes` goes.
pub(super) const CROWD: u32 = 10_000;
pub(super) const REPORT_COSTS: f64 = 1.4;

/// The scalable rule grows by so many segments per round trip without a mark.
pub(super) const L4S_UP: f64 = 0.37;
/// The gain of the mean share of marks, and the round trip down to which flows share equally
/// (draft-briscoe-iccrg-prague-congestion-control).
pub(super) const L4S_GAIN: f64 = 0.0625;
pub(super) const L4S_RTT: f64 = 0.025;
