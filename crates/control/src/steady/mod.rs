//! `steady`: fair beside TCP, and an empty queue where nobody else fills it.
//!
//! ```text
//!            queue                      experiment failed, or losses that tell of somebody
//!  START ───────────▶ DELAY ────────────────────────────────────────────────────▶ COMPETE
//!    │                  ▲                                                            │
//!    │ loss             └──── the queue empties, or tests show nobody else ──────────┘
//!    └──────────────────────────────────────────────────────────────────────────────▶
//! ```
//!
//! A sender can't see whether somebody elastic shares its queue. It can make an experiment: yield a third, and see
//! whether the queue goes. Alone, among its kind or in a queue of its own it does; beside a TCP that fills the queue it
//! does not. Until then [`delay`] keeps a packet or two in the queue; from then on [`compete`] is a paced CUBIC window
//! (RFC 9438), which tests after its losses, and now and then, whether it is alone again. [`scalable`] rules where
//! packets are L4S and marked. `docs/controllers/steady.md` has the rules.

mod compete;
mod delay;
mod follower;
mod law;
mod listener;
mod message;
mod receiver;
mod scalable;
mod sender;
mod signals;
#[cfg(test)]
mod tests;
mod trains;
mod verdict;

use crate::entry::{Controller, FeedbackTiming, Param, Receivers, Setup, Values};
use crate::{Need, Promise};
use steadycast_units::{Ecn, Span};

/// The registry's entry.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "steady",
    about: "an empty queue where nobody else fills it, and CUBIC's share where somebody does",
    when: "for one receiver, unless you know of a reason for another; it is the default",
    source: "own; RFC 9438 beside TCP",
    receivers: Receivers::OneOrMany,
    feedback: FeedbackTiming::Clocked,
    needs: |values| if values.choice("at") == "sender" { &[Need::PacketReports] } else { &[] },
    standard_reports: false,
    extension: message::NOTICE_ID,
    answers_marks: true,
    app: *b"STDY",
    colour: "#00798c",
    params: PARAMS,
    promises: &[&DELAY, &TWICE, &HEEDED],
    sender: |setup, values| {
        let config = Config::new(setup, values);
        if decides_at_receivers(setup, values) {
            Box::new(follower::Follower::new(setup, config))
        } else {
            Box::new(sender::Sender::new(setup, config))
        }
    },
    receiver: |setup, values| {
        let config = Config::new(setup, values);
        if decides_at_receivers(setup, values) {
            Box::new(listener::Listener::new(setup, config))
        } else {
            Box::new(receiver::Receiver::new(config))
        }
    },
    ..crate::fixed::CONTROLLER
};

const DELAY: Promise = Promise {
    id: "steady.delay-never-rises",
    about: "in DELAY the rate does not rise while the delay of the queue is above twice its target",
};
const TWICE: Promise = Promise {
    id: "steady.at-most-twice",
    about: "in COMPETE the rate is at most twice what arrives, or what a test gave away",
};
const HEEDED: Promise = Promise {
    id: "steady.heeds-every-receiver",
    about: "after a receiver of a group has asked for less, no more is sent",
};

/// Whether receivers run the law: many can't each report every packet.
fn decides_at_receivers(setup: &Setup, values: &Values) -> bool {
    setup.group || values.choice("at") == "receiver"
}

/// Where the law runs; in groups always at the receivers.
const AT: Param = Param::choice(
    "at",
    "where the law runs: at the sender, on reports of single packets, or at the receiver; in groups always there",
    "own",
    ["sender", "sender"],
    &["sender", "receiver"],
);

/// Declares a parameter and the field of [`Config`] that has its value: numbers as they are, times in seconds.
macro_rules! params {
    ($($kind:ident $name:ident: $about:literal, $source:literal, $default:expr, $range:expr;)*) => {
        const PARAMS: &[Param] = &[AT, $(params!(@param $kind $name, $about, $source, $default, $range)),*];

        /// What the parameters say, looked up once.
        #[derive(Clone, Copy, Debug)]
        struct Config {
            $($name: f64,)*
            /// Bits of the session's packets.
            bits: f64,
            /// The session's highest rate, in bit/s.
            cap: f64,
            /// Packets are sent as L4S ones.
            l4s: bool,
            /// The source has frames.
            frames: bool,
            /// Receivers decide.
            receivers: bool,
        }

        impl Config {
            fn new(setup: &Setup, values: &Values) -> Self {
                $(let $name = params!(@value $kind $name, values);)*
                let bits = 8.0 * setup.packet.as_f64().max(1.0);
                let cap = setup.cap.as_bps_f64();
                let receivers = decides_at_receivers(setup, values);
                Self { bits, cap, l4s: setup.ecn == Ecn::Ect1, frames: false, receivers, $($name,)* }
            }
        }
    };
    (@param number $name:ident, $about:literal, $source:literal, $default:expr, $range:expr) => {
        Param::number(stringify!($name), $about, $source, [$default, $default], $range)
    };
    (@param span $name:ident, $about:literal, $source:literal, $default:expr, $range:expr) => {
        Param::span(
            stringify!($name),
            $about,
            $source,
            [Span::micros($default), Span::micros($default)],
            [Span::micros($range[0]), Span::micros($range[1])],
        )
    };
    (@value number $name:ident, $values:ident) => { $values.number(stringify!($name)) };
    (@value span $name:ident, $values:ident) => { $values.span(stringify!($name)).as_secs_f64() };
}

impl Config {
    /// The same for a source of frames.
    fn for_frames(self) -> Self {
        Self { low_span: self.frames_low_span, frames: true, ..self }
    }

    /// Bits of the segments of which the competing window consists.
    fn segment(&self) -> f64 {
        8.0 * self.segment_bytes
    }
}

/// Microseconds in a millisecond and in a second.
const MS: u64 = 1_000;
const S: u64 = 1_000_000;

params! {
    span report_every: "the receiver reports this often, where that is at most 5 % of what arrives",
        "own; RFC 3550, 6.2", 25 * MS, [5 * MS, S];
    span report_most: "and at least this often, with a packet at all", "own", 100 * MS, [5 * MS, S];
    number report_bytes: "bytes of which a report is 5 %", "own; RFC 3550, 6.2", 2_000.0, [0.0, 100_000.0];
    span base_kept: "how long a base delay is believed", "own", 20 * S, [S, 600 * S];
    span base_kept_competing: "and while competing, when the queue may never be empty",
        "own", 600 * S, [S, 3_600 * S];
    span low_span: "the least queueing delay of this while is the queue: a burst passes sooner",
        "own", 60 * MS, [5 * MS, S];
    span received_span: "the received rate is that of this while, or of a round trip", "own", 150 * MS, [20 * MS, 2 * S];
    number idle: "a source that sends less than this share of its rate says nothing of the path",
        "own", 0.8, [0.0, 1.0];
    number least: "bit/s that the laws never go below, above the session's floor", "own", 10_000.0, [1_000.0, 1e6];
    number start: "bit/s at first", "own", 300_000.0, [10_000.0, 1e7];
    number start_up: "growth per round trip, or 50 ms, in the start", "own", 1.35, [1.01, 4.0];
    number start_most: "the start grows up to so many times what arrives", "own", 2.0, [1.0, 10.0];
    number start_slope: "a queue that grows by this share of the time ends the start", "own", 0.15, [0.01, 10.0];
    number start_to: "share of the received rate that is sent after the start, until the queue is gone",
        "own", 0.7, [0.1, 1.0];
    number refill: "share of what the path carried that is sent once the queue of the start is gone",
        "own", 0.9, [0.1, 1.0];
    span target_floor: "queueing delay that is noise", "own", 2 * MS, [0, S];
    span noise_most: "and what delays vary by from packet to packet beyond one and a half packets, up to this",
        "own", 5 * MS, [0, 100 * MS];
    number target_packets: "packets that each flow keeps in the queue", "Copa", 1.75, [0.1, 20.0];
    span target_least: "least target", "own", 1_500, [0, S];
    span target_most: "what the target comes near at low rates", "own", 50 * MS, [MS, S];
    span frames_low_span: "low_span of a source of frames: its neighbours' frames make queues that pass",
        "own", 90 * MS, [5 * MS, S];
    number frames_unbent: "the target of a source of frames is at least this share of what it is before it is bent", "own", 0.9, [0.0, 1.0];
    number frames_limited: "a source of frames that sends less than it may keeps at most so many times what it sends",
        "draft-ietf-rmcat-gcc-02, 5.5", 1.5, [1.0, 1_000.0];
    number frames_start: "what arrives of a source of frames in the start is at least this share of the first rate",
        "own", 0.6, [0.0, 1.0];
    number frames_fill: "while competing a source of frames that leaves some of its window unused is granted at most so many times what it carries",
        "own; RFC 9438, 5.8", 1.3, [1.0, 10.0];
    number frames_fill_own: "the same in a queue of its own, of its rate", "own", 1.2, [1.0, 10.0];
    number frames_back: "a source of frames competes again where its rate falls below this share of what arrived when it left, within again",
        "own", 0.5, [0.0, 1.0];
    number scale_up: "growth per second of the target's scale after an AQM dropped at the target",
        "own", 0.005, [0.0, 1.0];
    number cut_scale: "seconds of queueing delay above half of the target that cut the whole rate",
        "own", 0.2, [0.01, 10.0];
    number cut_least: "least cut", "own", 0.02, [0.0, 1.0];
    number cut_most: "greatest cut", "own", 0.25, [0.0, 1.0];
    number yield_to: "share of the rate at the beginning that an experiment leaves", "own", 0.65, [0.1, 1.0];
    number yield_drain: "share of the link's rate by which a lone flow's queue falls during an experiment",
        "own", 0.25, [0.05, 1.0];
    span slack: "and this much longer, for somebody else's start", "own", 600 * MS, [0, 10 * S];
    number gone: "a queue below this share of its peak is going", "own", 0.6, [0.0, 1.0];
    number going: "a queue is going while it falls at this share of what the yield takes from it", "own", 0.5, [0.0, 1.0];
    number gain: "growth per second near what the path carries", "own", 0.06, [0.0, 1.0];
    number gain_below: "growth per second below 0.92 of what the path carried at the last cut", "own", 0.4, [0.0, 4.0];
    span fast_after: "without a cut for this long growth doubles", "own", 2 * S, [0, 60 * S];
    number fast_double: "seconds in which it doubles", "own", 1.0, [0.05, 60.0];
    number gain_most: "growth per second at most", "own", 1.0, [0.0, 10.0];
    number rank_gain: "gain of the mean rank of the queue at losses", "own", 0.125, [0.0, 1.0];
    number rank_congested: "mean rank above which losses are a queue's", "own", 0.68, [0.5, 1.0];
    span noise_loss: "queueing delay below which losses are by chance, beside that of a packet",
        "own", 3 * MS, [0, S];
    number policer: "share of lost packets above which, once that is no chance, no more is sent than arrives", "own", 0.1, [0.01, 1.0];
    number aqm_losses: "losses of a queue in 20 round trips, with the target at its least, that tell of others",
        "own", 3.0, [1.0, 100.0];
    number pushed: "share of the highest rate lately below which two losses tell of others", "own", 0.7, [0.0, 1.0];
    span memory: "half-life of the highest rate lately", "own", 60 * S, [S, 3_600 * S];
    span standing: "two losses at a queue above this that stood tell of others", "own", 8 * MS, [0, S];
    span burst_most: "longest burst of a source beyond its rate whose own queue is not counted", "own", 250 * MS, [MS, 2 * S];
    number follows: "what arrives follows what is sent by at most this power, where packets have a queue of their own", "own", 0.3, [0.0, 1.0];
    span follows_span: "over which that power is estimated", "own", 4 * S, [100 * MS, 60 * S];
    number follows_rows: "rows of packets that tell it", "own", 8.0, [3.0, 1_000.0];
    number follows_spread: "deviation of the sent rate's logarithm that tells it", "own", 0.1, [0.01, 2.0];
    span own_kept: "a queue that was its own is taken to be that for so long", "own", 120 * S, [0, 600 * S];
    span codel_target: "the target is at least the time of a packet of one's own less this, from which on CoDel drops",
        "RFC 8289, 3.2", 5 * MS, [0, S];
    span starved_span: "a rate that falls by a quarter in this and five round trips, twice in a row, may starve without losses",
        "own", 2 * S, [S, 600 * S];
    number starved: "share of the highest rate lately below which it may", "own", 0.5, [0.0, 1.0];
    number meager: "share of what TCP would have at the losses of a queue in 20 s below which they tell of others", "own", 0.5, [0.0, 4.0];
    number meager_fallen: "and below this share of the highest rate lately; alone at an AQM a flow stays near it", "own", 0.9, [0.0, 1.0];
    number meager_losses: "of that many losses at least", "own", 3.0, [1.0, 400.0];
    number gave: "a queue that goes by more than so many times what was yielded goes because others gave way", "own", 2.0, [0.0, 100.0];
    number gave_packets: "and by more than so many of one's own packets", "own", 0.7, [0.0, 100.0];
    span gave_least: "and by more than this", "own", 3 * MS, [0, S];
    number gave_jitter: "and by more than so many times what delays vary by from packet to packet", "own", 2.0, [0.0, 100.0];
    number gave_often: "one time more than not, so often, and somebody else fills it; not for a source of frames, whose queues pass",
        "own", 6.0, [1.0, 1_000_000.0];
    number starved_over: "share of that time with a queue over the target; a newcomer of its own kind keeps it there for less", "own", 0.6, [0.0, 1.0];
    span stood_span: "a queue stands when the least queueing delay of this while is above stood", "own", 200 * MS, [10 * MS, 5 * S];
    number stood: "share of the target above which a queue stands", "own", 0.5, [0.0, 2.0];
    span stands_span: "time over which the share of the time with a standing queue is taken", "own", 40 * S, [S, 600 * S];
    span stands_prior: "time without a standing queue that is counted before the first report", "own", 5 * S, [100 * MS, 600 * S];
    number stands: "share of the time with a standing queue above which somebody else fills it", "own", 0.3, [0.0, 1.0];
    number stands_own: "mean number of one's own packets in the queue from which on one fills it oneself",
        "own", 1.4, [0.0, 100.0];
    number served: "share of what arrived before that arrives at half of the rate, in a queue of one's own",
        "own", 0.93, [0.5, 1.0];
    number served_packets: "packets that tell it", "own", 5.0, [2.0, 1_000.0];
    number press: "mean excess of episodes over the target above which a loss tells of others", "own", 1.8, [1.0, 10.0];
    number press_gain: "gain of that mean", "own", 0.25, [0.0, 1.0];
    number segment_bytes: "the segments of the window that is emulated", "own", 1_500.0, [100.0, 65_535.0];
    number window_least: "least window in segments", "own", 2.0, [0.1, 10.0];
    number ahead: "while competing at most so many times what arrives", "own", 1.2, [1.0, 4.0];
    number drain_to: "share of what arrives that is sent after a loss, to see whether the queue empties; 1: never",
        "own", 0.6, [0.1, 1.0];
    span drain_above: "queueing delay from which on that is done", "own", 20 * MS, [0, S];
    span drain_most: "and for how long at most, beside a round trip", "own", 300 * MS, [0, 10 * S];
    number tell: "share of the round trip that was queue: where a drain empties more, no TCP was there",
        "own; RFC 9438, 4.6", 0.55, [0.0, 1.0];
    number tell_shared: "the same where less arrived during the drain than before", "own; RFC 5681", 0.7, [0.0, 1.0];
    number drain_rest: "where a drain has shown somebody else, so many times its length passes before the next one",
        "own", 2.0, [0.0, 1_000.0];
    number equation: "while Reno's growth rules, at most so many times what TCP's equation gives at the share of lost packets",
        "own; RFC 5348, 3.1", 1.25, [0.5, 100.0];
    span equation_span: "over which that share is a mean", "own", 20 * S, [S, 600 * S];
    number train_packets: "packets of a train, which leave at once; 1: none is sent", "own", 4.0, [1.0, 64.0];
    span train_time: "or as many as the rate has in this time: feedback tells arrivals to a millisecond", "own", 5 * MS, [0, S];
    span train_every: "time between two trains while competing", "own", 3 * S, [10 * MS, 60 * S];
    span train_again: "and after the beginning of a competition, after one that showed a queue of its own, and in doubt", "own", 300 * MS, [10 * MS, 60 * S];
    number train_room: "share of the highest queueing delay lately below which there is room for a train", "own", 0.85, [0.0, 1.0];
    span train_span: "what trains tell is remembered for this long", "own", 10 * S, [100 * MS, 600 * S];
    number share_own: "share of a train's rate from which on what arrives beside it shows a queue of its own", "own", 0.85, [0.0, 2.0];
    number own_trains: "trains in a row that show it", "own", 2.0, [1.0, 1_000.0];
    span doubt: "trains look so long after a loss in DELAY whether the queue that it met is the flow's own", "own", 2 * S, [0, 60 * S];
    number share_most: "share of the queue above which the window does not grow: beside anybody more than half is not fair", "own", 0.56, [0.0, 2.0];
    number share_few: "share of what the path carries below which a rate that does not grow tells of others", "own", 0.05, [0.0, 1.0];
    span stagnant: "a rate that has not grown by three tenths for this long does not grow", "own", 10 * S, [S, 600 * S];
    span look_every: "time between two trains in DELAY at a rate that does not grow", "own", 30 * S, [S, 600 * S];
    number test_to: "share of what arrives that is sent to test whether somebody else is there", "own", 0.75, [0.1, 1.0];
    number tests: "tests in a row that show nobody", "own", 2.0, [1.0, 10.0];
    span test_every: "time between two tests, beside ten round trips", "own", 3 * S, [0, 60 * S];
    number empty_above: "below this share of the highest rate lately an empty queue says nothing", "own", 0.5, [0.0, 1.0];
    span shallow: "a highest queueing delay below this is too short for tests", "own", 30 * MS, [0, S];
    span shallow_try: "leaving is then tried after this, and after twice as long each time that it was wrong",
        "own", 10 * S, [0, 600 * S];
    span again: "competing again so soon after leaving it, or ten round trips more, was one competition",
        "own", 12 * S, [0, 600 * S];
    span stay: "time to stay after leaving was wrong once; twice as long each time", "own", 4 * S, [0, 600 * S];
    number stays_most: "how often it doubles", "own", 4.0, [0.0, 16.0];
    number pacing: "video's packets leave at this many times the target", "own", 1.25, [1.0, 10.0];
    number pacing_delay: "and at this many times in DELAY, towards one receiver", "own", 1.1, [1.0, 10.0];
    span silence: "without feedback for this, or four round trips, the rate is halved", "RFC 8083", 500 * MS,
        [100 * MS, 10 * S];
    span l4s_kept: "how long after a mark the scalable rule holds", "own", 10 * S, [S, 600 * S];
    number l4s_up: "segments per round trip by which the window grows without a mark", "own", 0.37, [0.01, 10.0];
    number l4s_gain: "gain of the mean share of marks", "draft-briscoe-iccrg-prague-congestion-control", 0.0625, [0.0, 1.0];
    span l4s_rtt: "the round-trip time down to which flows share equally",
        "draft-briscoe-iccrg-prague-congestion-control", 25 * MS, [MS, S];
}
