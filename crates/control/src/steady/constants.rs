//! The laws' numbers that no parameter sets, each with what it is and where it is from; without a source it is this
//! project's own. Times are in seconds, rates in bit/s.

/// A while: from so long after a cut on growth doubles, and a loss without a queue, as a policer's, puts that off; a
/// loss in a queue leaves a doubt of whose it is for so long; and by it a source's use and a rate that falls are seen.
pub(super) const A_WHILE: f64 = 2.0;
/// A moment: the longest drain beside a round trip, the time between trains, and how long a queue is empty before it
/// tells of more. Somebody's start may make an experiment two of them longer.
pub(super) const A_MOMENT: f64 = 0.3;
/// What trains tell is of so many seconds, and the half-life of the highest rate while packets wait. The scalable rule
/// holds for so long after a mark.
pub(super) const LATELY: f64 = 10.0;
/// What TCP's cut leaves (RFC 9438, 4.6). The same is left after a start that found a queue; below it of the highest
/// rate lately two losses tell of others; below it of its peak a queue is going, and of its highest delay lately it has
/// room for a train.
pub(super) const BETA: f64 = 0.7;

/// What is known of single packets is of so many seconds; so is the mean jitter, and so far apart are trains.
pub(super) const SEEN: f64 = 3.0;
/// Losses are known for so long: when they came, the mean share of them that TCP's equation takes, and whether they met
/// a queue that stood. So is a base delay, and as long as the least round-trip time while competing, when the queue may
/// never be empty.
pub(super) const KEPT: f64 = 20.0;
pub(super) const PATH_KEPT: u64 = 600;
/// The least queueing delay of this while is the queue, since a burst passes sooner.
pub(super) const LOW_SPAN: f64 = 0.060;
/// Jitter is what so many packets show. Where it is as long as the target, the least delay is that of so many times as
/// many packets, of this while at most; this part of it is noise. From draws 9303 and 9304.
pub(super) const JITTER_PACKETS: f64 = 5.0;
pub(super) const JITTER_LONGER: f64 = 6.0;
pub(super) const JITTER_MOST: f64 = 1.0;
pub(super) const JITTER_NOISE: f64 = 0.7;
/// The received rate is that of this while, or of a round trip, also before a train.
pub(super) const RECEIVED_SPAN: f64 = 0.150;
/// A source that sends less than this share of its rate says nothing of the path.
pub(super) const IDLE: f64 = 0.8;
/// No law goes below this rate, above the session's floor.
pub(super) const LEAST: f64 = 10_000.0;

/// The start grows by this per round trip, or 50 ms, up to so many times what arrives.
pub(super) const START_UP: f64 = 1.35;
pub(super) const START_MOST: f64 = 2.0;
/// When the queue of a start is gone this share of what the path carried is sent.
pub(super) const REFILL: f64 = 0.9;

/// The target comes near this at low rates.
pub(super) const TARGET_MOST: f64 = 0.050;
/// The target is at least the time of a packet of one's own less this, from which on CoDel drops (RFC 8289, 3.2).
pub(super) const CODEL_TARGET: f64 = 0.005;
/// The target's scale grows by this per second after an AQM dropped at the target.
pub(super) const SCALE_UP: f64 = 0.005;
/// The target of a source of frames is at least this share of what it is before it is bent.
pub(super) const FRAMES_UNBENT: f64 = 0.9;
/// A source of frames that sends less than it may keeps so many times what it sends (draft-ietf-rmcat-gcc-02, 5.5).
pub(super) const FRAMES_LIMITED: f64 = 1.5;

/// So many seconds of queueing delay above half of the target cut the whole rate; the greatest cut, by which, as a
/// share of the link's rate, a lone flow's queue falls in an experiment.
pub(super) const CUT_SCALE: f64 = 0.2;
pub(super) const CUT_MOST: f64 = 0.25;
/// The rate grows by this per second near what the path carries, and by that below 0.92 of it.
pub(super) const GAIN: f64 = 0.06;
pub(super) const GAIN_BELOW: f64 = 0.4;
/// Where the queue is empty, and the rate below this share of the highest one lately, who pushed it down is gone.
pub(super) const GONE: f64 = 0.6;
/// Growth doubles more quickly where the rate is not near what the path carried, from when the queue has been empty,
/// below this share of the target: in each so many seconds.
pub(super) const EMPTY: f64 = 0.3;
pub(super) const EMPTY_DOUBLE: f64 = 0.25;
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
/// More lost packets than this share are not by chance, until a trial tells of more; in COMPETE, whose window answers
/// to fewer, more than the second.
pub(super) const BY_CHANCE: f64 = 0.03;
pub(super) const POLICER: f64 = 0.1;
/// A trial whether losses end has seen enough packets where chance would have taken so many of them.
pub(super) const TRIAL_LOST: f64 = 20.0;
/// Above this share of lost packets no TCP fills a queue: it has two segments under way (RFC 5348, 3.1).
pub(super) const UNBEARABLE: f64 = 0.3;
/// The half-life of the highest rate lately, and of how late packets come. A queue that was the flow's own, and losses
/// that were a policer's, are taken to be that for two of them.
pub(super) const MEMORY: f64 = 60.0;
/// Two losses at a queue above this that stood tell of others.
pub(super) const STANDING: f64 = 0.008;
/// A rate that falls by a quarter in a while and five round trips, twice in a row, below this share of the highest one,
/// starves where a queue is over the target for as much of the time. So does a source of frames below this share of
/// what arrived when it left a competition.
pub(super) const STARVED: f64 = 0.5;

/// What arrives follows what is sent by at most this power in a queue of the flow's own.
pub(super) const FOLLOWS: f64 = 0.3;
/// The power is that of two whiles, of so many rows of packets, whose sent rates' logarithms deviate by so much.
pub(super) const FOLLOWS_ROWS: f64 = 8.0;
pub(super) const FOLLOWS_SPREAD: f64 = 0.1;

/// The window's segments, in bits, and the least window.
pub(super) const SEGMENT: f64 = 8.0 * 1_500.0;
pub(super) const WINDOW_LEAST: f64 = 2.0;
/// No more than so many times what arrives is sent while competing, nor by a source of frames than its rate in a queue
/// of its own.
pub(super) const AHEAD: f64 = 1.2;
/// A drain after a loss is made from this queueing delay on.
pub(super) const DRAIN_ABOVE: f64 = 0.020;
/// Where a drain empties a queue that was a greater share of the round trip no TCP was there (RFC 9438, 4.6).
pub(super) const TELL: f64 = 0.55;

/// A train takes as long at the rate: feedback tells arrivals to a millisecond.
pub(super) const TRAIN_TIME: f64 = 0.005;
/// From this share of a train's rate on what arrives beside it shows a queue of its own, where so many do in a row.
pub(super) const SHARE_OWN: f64 = 0.85;
pub(super) const OWN_TRAINS: u32 = 2;
/// Below this share of a queue in which a flow has less than a packet nobody of its kind pushes it down: that takes
/// more than ten of them. Beside BBR (version 3) it is 0.02 to 0.05 (validation/dossier-cases.toml, 5.2.1).
pub(super) const SHARE_LITTLE: f64 = 0.1;

/// A frame's packets leave at so many times the rate in DELAY, towards one receiver, and the longest burst of a source
/// whose own queue is not counted.
pub(super) const PACING_DELAY: f64 = 1.1;
pub(super) const BURST_MOST: f64 = 0.25;
/// Without feedback for this, or four round trips, the rate is halved (RFC 8083).
pub(super) const SILENCE: f64 = 0.5;

/// The scalable rule grows by so many segments per round trip without a mark.
pub(super) const L4S_UP: f64 = 0.37;
/// The gain of the mean share of marks, and the round trip down to which flows share equally
/// (draft-briscoe-iccrg-prague-congestion-control).
pub(super) const L4S_GAIN: f64 = 0.0625;
pub(super) const L4S_RTT: f64 = 0.025;
