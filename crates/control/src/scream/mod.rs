//! `scream`: SCReAM version 2 (draft-ietf-ccwg-rfc8298bis-screamv2).
//!
//! A window in bytes, the reference window, falls with losses, ECN marks and queueing delay, and rises by about a
//! packet per round trip and a small share of itself. The encoder's rate is what the window carries per round trip. The
//! receiver only tells which packets arrived, when and with which ECN field. `docs/controllers/scream.md` has the
//! equations and the deviations.

mod delay;
mod flight;
mod receiver;
mod sender;
mod window;

use crate::Need;
use crate::entry::{Controller, FeedbackTiming, Mode, Param, Receivers, Setup, Value, Values};
use steadycast_units::Span;

/// The registry's entry.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "scream",
    about: "a window in bytes, held by loss, marks and 60 ms of queue; the encoder gets what it carries per round trip",
    source: "draft-ietf-ccwg-rfc8298bis-screamv2; EricssonResearch/scream",
    receivers: Receivers::One,
    feedback: FeedbackTiming::Clocked,
    needs: |_| &[Need::PacketReports],
    standard_reports: false,
    answers_marks: true,
    app: *b"SCRM",
    colour: "#003f5c",
    params: PARAMS,
    sender: |setup, values| Box::new(sender::Sender::new(setup, Config::new(setup, values))),
    receiver: |_, values| Box::new(receiver::Receiver::new(values)),
    ..crate::fixed::CONTROLLER
};

const PARAMS: &[Param] = &[
    Param::choice(
        "profile",
        "code: every parameter below that stands at the draft's value takes the reference code's instead, and the \
                code's small rules hold (docs/controllers/scream.md)",
        "draft; EricssonResearch/scream, ScreamV2Tx.cpp",
        ["draft", "draft"],
        &["draft", "code"],
    ),
    Param::switch(
        "once_per_rtt",
        "losses and classic marks of packets that left before the last cut belong to it; off: a cut each \
                min(virtual_rtt, s_rtt)",
        "own, as RFC 9002, 7.3.2",
        [true, false],
    ),
    Param::span(
        "qdelay_target",
        "the queueing delay at whose half the window begins to fall, by the most at the whole (code: 100 ms)",
        "draft, QDELAY_TARGET_LO",
        [Span::millis(60), Span::millis(60)],
        [Span::millis(5), Span::secs(1)],
    ),
    Param::span(
        "qdelay_target_max",
        "how far competing flows can raise it (code: 300 ms)",
        "draft, QDELAY_TARGET_HI",
        [Span::millis(400), Span::millis(400)],
        [Span::millis(5), Span::secs(2)],
    ),
    Param::switch(
        "compete",
        "raise the target delay beside flows that fill the queue",
        "RFC 8298, 4.1.2.3",
        [false, false],
    ),
    Param::number(
        "min_ref_wnd",
        "least window, in bytes (code: two packets)",
        "draft, MIN_REF_WND",
        [3_000.0, 3_000.0],
        [500.0, 100_000.0],
    ),
    Param::number(
        "head_room",
        "how many times the most bytes in flight the window can have (code: 2)",
        "draft, BYTES_IN_FLIGHT_HEAD_ROOM",
        [1.5, 1.5],
        [1.0, 10.0],
    ),
    Param::span(
        "virtual_rtt",
        "the round-trip time down to which flows share equally, and the least time between two cuts (code: for the \
                latter 30 ms)",
        "draft, VIRTUAL_RTT",
        [Span::millis(25), Span::millis(25)],
        [Span::millis(1), Span::secs(1)],
    ),
    Param::number("beta_loss", "what a loss leaves of the window", "draft, BETA_LOSS", [0.7, 0.7], [0.1, 1.0]),
    Param::number(
        "beta_ecn",
        "what a mark leaves of it without L4S (code: 0.9)",
        "draft, BETA_ECN",
        [0.8, 0.8],
        [0.1, 1.0],
    ),
    Param::number(
        "post_congestion",
        "round trips after congestion until the window grows by its whole share again (code: 200)",
        "draft, POST_CONGESTION_DELAY_RTTS",
        [100.0, 100.0],
        [1.0, 10_000.0],
    ),
    Param::number(
        "mul_increase",
        "share of itself by which the window grows per round trip (code: 0.05)",
        "draft, MUL_INCREASE_FACTOR",
        [0.02, 0.02],
        [0.0, 1.0],
    ),
    Param::number("alpha_up", "gain of L4S alpha while it rises", "draft, L4S_AVG_G_UP", [0.125, 0.125], [0.0, 1.0]),
    Param::number(
        "alpha_down",
        "gain of L4S alpha while it falls",
        "draft, L4S_AVG_G_DOWN",
        [1.0 / 128.0, 1.0 / 128.0],
        [0.0, 1.0],
    ),
    Param::number("alpha_start", "L4S alpha at first (code: 0.1)", "draft, l4s_alpha", [0.0, 0.0], [0.0, 1.0]),
    Param::number("qdelay_gain", "gain of the queueing delay's mean", "draft, QDELAY_AVG_G", [0.25, 0.25], [0.01, 1.0]),
    Param::switch(
        "reduce_jitter",
        "slower growth and less room where the delay varies (code: on)",
        "draft, REDUCE_JITTER",
        [false, false],
    ),
    Param::number(
        "jitter_extremes_gain",
        "gain of the least and the greatest queueing delay, whose difference is the variation",
        "draft, QDELAY_MIN_MAX_AVG_G",
        [1.0 / 16.0, 1.0 / 16.0],
        [0.0, 1.0],
    ),
    Param::number(
        "jitter_gain",
        "gain of the mean variation",
        "draft, QDELAY_DEV_AVG_G",
        [1.0 / 32.0, 1.0 / 32.0],
        [0.0, 1.0],
    ),
    Param::span(
        "jitter_threshold",
        "the variation of delay at which growth is least",
        "draft, QDELAY_DEV_THRESHOLD",
        [Span::millis(10), Span::millis(10)],
        [Span::millis(1), Span::secs(1)],
    ),
    Param::number(
        "overhead_min",
        "bytes in flight may exceed the window by this factor where the delay varies",
        "draft, REF_WND_OVERHEAD_MIN",
        [1.5, 1.5],
        [1.0, 10.0],
    ),
    Param::number(
        "overhead_max",
        "and by this one where it does not",
        "draft, REF_WND_OVERHEAD_MAX",
        [3.0, 3.0],
        [1.0, 10.0],
    ),
    Param::number(
        "pacing_headroom",
        "packets leave at this many times the target",
        "draft, PACKET_PACING_HEADROOM",
        [1.5, 1.5],
        [1.0, 10.0],
    ),
    Param::rate(
        "pace_min",
        "the target that pacing assumes at least",
        "draft, RATE_PACE_MIN",
        [steadycast_units::Rate::kbps(50), steadycast_units::Rate::kbps(50)],
        [steadycast_units::Rate::kbps(1), steadycast_units::Rate::mbps(10)],
    ),
    Param::number(
        "relaxed_pacing",
        "share of the cap from which packets leave faster still",
        "draft, RELAXED_PACING_LIMIT_LOW",
        [0.8, 0.8],
        [0.0, 1.0],
    ),
    Param::number(
        "relaxed_pacing_most",
        "how many times faster packets leave at the cap",
        "draft, MAX_RELAXED_PACING_FACTOR",
        [4.0, 4.0],
        [1.0, 10.0],
    ),
    Param::number(
        "packet_overhead",
        "bytes per packet that the target leaves free",
        "draft, PACKET_OVERHEAD",
        [20.0, 20.0],
        [0.0, 200.0],
    ),
    Param::number(
        "rate_divisor",
        "the target is this much below what the window carries (code: 1.1)",
        "draft, target bitrate",
        [1.2, 1.2],
        [1.0, 4.0],
    ),
    Param::number(
        "rate_adjust_gain",
        "gain by which a waiting frame lowers the target (code: 1/40)",
        "draft, RATE_ADJUST_GAIN",
        [1.0 / 16.0, 1.0 / 16.0],
        [0.0, 1.0],
    ),
    Param::number(
        "queue_goal",
        "how long a frame may wait, in frame periods, without lowering the target (code: 0.5)",
        "draft, target bitrate",
        [0.25, 0.25],
        [0.0, 10.0],
    ),
    Param::number(
        "frame_size_gain",
        "gain of the mean by which frames exceed their nominal size (code: 0)",
        "draft, FRAME_SIZE_DEV_ALPHA",
        [1.0 / 64.0, 1.0 / 64.0],
        [0.0, 1.0],
    ),
    Param::number(
        "drift_gain",
        "gain of the mean of a round trip's least queueing delay; above a quarter of the target the queue is drained",
        "draft, QDELAY_MIN_AVG_ALPHA",
        [1.0 / 256.0, 1.0 / 256.0],
        [0.0, 1.0],
    ),
    Param::number(
        "rtt_idle_gain",
        "gain of the round-trip time while it falls and the source limits the rate",
        "EricssonResearch/scream",
        [1.0 / 1024.0, 1.0 / 1024.0],
        [0.0, 0.125],
    ),
    Param::span(
        "base_slot",
        "the base delay is the least of slots of this length (code: 10 s)",
        "RFC 6817, 3.4.2",
        [Span::secs(60), Span::secs(60)],
        [Span::secs(1), Span::secs(600)],
    ),
    Param::number("base_slots", "how many slots (code: 50)", "RFC 6817, 3.4.2", [10.0, 10.0], [1.0, 1_000.0]),
    Param::span(
        "reordering",
        "a packet is lost this long after a later one was acknowledged; a late packet makes it as long as it was late",
        "EricssonResearch/scream",
        [Span::millis(30), Span::millis(30)],
        [Span::ZERO, Span::secs(1)],
    ),
    Param::number(
        "loss_ignored",
        "a mean loss up to which losses cut only with a queue above a quarter of the target; 0: all cut (code: 0.01)",
        "draft, LOSS_RATE_THRESHOLD",
        [0.0, 0.0],
        [0.0, 0.5],
    ),
    Param::switch(
        "policer",
        "above `policer_loss` without a queue the window stays below what it was then",
        "draft, link loss and policers",
        [false, false],
    ),
    Param::number(
        "policer_loss",
        "the mean loss above which a policer is assumed",
        "draft, LOSS_RATE_THRESHOLD_POLICER",
        [0.1, 0.1],
        [0.0, 1.0],
    ),
    Param::number(
        "policer_leaves",
        "what it leaves of the window (code: 0.8 of the mean of window and inflection point)",
        "draft, BETA_LOSS_POLICER",
        [0.9, 0.9],
        [0.1, 1.0],
    ),
    Param::switch(
        "spare",
        "smaller cuts while the target is low already",
        "draft, reference window reduction",
        [false, false],
    ),
    Param::number(
        "spare_below",
        "a target below this share of what arrives is low",
        "draft, ACKED_BITRATE_MARGIN",
        [0.8, 0.8],
        [0.0, 1.0],
    ),
    Param::number(
        "spare_by",
        "the share of a cut that is then made",
        "draft, BACKOFF_SCALE_LOW_TARGET_RATE",
        [0.25, 0.25],
        [0.0, 1.0],
    ),
    Param::number(
        "report_packets",
        "the receiver reports after this many packets",
        "draft, feedback",
        [16.0, 16.0],
        [1.0, 1_000.0],
    ),
    Param::span(
        "report_after",
        "or, with a packet at all, after this; and at each frame's last packet",
        "draft, feedback",
        [Span::millis(40), Span::millis(40)],
        [Span::millis(1), Span::secs(1)],
    ),
    Param::span(
        "silence",
        "without feedback for this (or four round trips) the window is halved and what is in flight is forgotten",
        "own; EricssonResearch/scream: 500 ms",
        [Span::millis(500), Span::millis(500)],
        [Span::millis(100), Span::secs(10)],
    ),
];

/// What the parameters say, looked up once. Times in seconds, sizes in bytes.
#[derive(Clone, Copy, Debug)]
struct Config {
    code: bool,
    l4s: bool,
    once_per_rtt: bool,
    mss: f64,
    qdelay_target: f64,
    qdelay_target_max: f64,
    compete: bool,
    min_ref_wnd: f64,
    head_room: f64,
    virtual_rtt: f64,
    /// Least time between two cuts, where the round trip is not shorter.
    cut_interval: f64,
    beta_loss: f64,
    beta_ecn: f64,
    post_congestion: f64,
    mul_increase: f64,
    alpha_up: f64,
    alpha_down: f64,
    alpha_start: f64,
    qdelay_gain: f64,
    reduce_jitter: bool,
    jitter_threshold: f64,
    jitter_extremes_gain: f64,
    jitter_gain: f64,
    overhead_min: f64,
    overhead_max: f64,
    pacing_headroom: f64,
    pace_min: f64,
    relaxed_pacing: f64,
    relaxed_pacing_most: f64,
    packet_overhead: f64,
    rate_divisor: f64,
    rate_adjust_gain: f64,
    queue_goal: f64,
    frame_size_gain: f64,
    drift_gain: f64,
    rtt_idle_gain: f64,
    base_slot: Span,
    base_slots: usize,
    reordering: Span,
    loss_ignored: f64,
    policer: bool,
    policer_loss: f64,
    policer_leaves: f64,
    spare: bool,
    spare_below: f64,
    spare_by: f64,
    silence: Span,
}

impl Config {
    fn new(setup: &Setup, values: &Values) -> Self {
        let code = values.choice("profile") == "code";
        let draft = |name: &str| PARAMS.iter().find(|p| p.name == name).map(|p| p.default(Mode::Repaired));
        let number = |name: &str, other: f64| {
            let given = values.number(name);
            if code && draft(name) == Some(Value::Number(given)) { other } else { given }
        };
        let span = |name: &str, other: Span| {
            let given = values.span(name);
            if code && draft(name) == Some(Value::Span(given)) { other } else { given }
        };
        let mss = setup.packet.as_f64().max(1.0);
        let virtual_rtt = values.span("virtual_rtt").as_secs_f64();
        Self {
            code,
            l4s: setup.ecn == steadycast_units::Ecn::Ect1,
            once_per_rtt: values.switch("once_per_rtt"),
            mss,
            qdelay_target: span("qdelay_target", Span::millis(100)).as_secs_f64(),
            qdelay_target_max: span("qdelay_target_max", Span::millis(300)).as_secs_f64(),
            compete: values.switch("compete"),
            min_ref_wnd: number("min_ref_wnd", 2.0 * mss),
            head_room: number("head_room", 2.0),
            virtual_rtt,
            cut_interval: if code { virtual_rtt.max(0.03) } else { virtual_rtt },
            beta_loss: values.number("beta_loss"),
            beta_ecn: number("beta_ecn", 0.9),
            post_congestion: number("post_congestion", 200.0),
            mul_increase: number("mul_increase", 0.05),
            alpha_up: values.number("alpha_up"),
            alpha_down: values.number("alpha_down"),
            alpha_start: number("alpha_start", 0.1),
            qdelay_gain: values.number("qdelay_gain"),
            reduce_jitter: code || values.switch("reduce_jitter"),
            jitter_extremes_gain: values.number("jitter_extremes_gain"),
            jitter_gain: values.number("jitter_gain"),
            jitter_threshold: values.span("jitter_threshold").as_secs_f64(),
            overhead_min: values.number("overhead_min"),
            overhead_max: values.number("overhead_max"),
            pacing_headroom: values.number("pacing_headroom"),
            pace_min: values.rate("pace_min").map_or(0.0, |r| r.as_bps_f64()),
            relaxed_pacing: values.number("relaxed_pacing"),
            relaxed_pacing_most: values.number("relaxed_pacing_most"),
            packet_overhead: values.number("packet_overhead"),
            rate_divisor: number("rate_divisor", 1.1),
            rate_adjust_gain: number("rate_adjust_gain", 1.0 / 40.0),
            queue_goal: number("queue_goal", 0.5),
            frame_size_gain: number("frame_size_gain", 0.0),
            drift_gain: values.number("drift_gain"),
            rtt_idle_gain: values.number("rtt_idle_gain"),
            base_slot: span("base_slot", Span::secs(10)),
            base_slots: number("base_slots", 50.0) as usize,
            reordering: values.span("reordering"),
            loss_ignored: number("loss_ignored", 0.01),
            policer: values.switch("policer"),
            policer_loss: values.number("policer_loss"),
            policer_leaves: values.number("policer_leaves"),
            spare: values.switch("spare"),
            spare_below: values.number("spare_below"),
            spare_by: values.number("spare_by"),
            silence: values.span("silence"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Chosen, Given};
    use steadycast_units::{Rate, Seed};

    /// Of a session with 1000-byte packets without ECN.
    pub(super) fn config(profile: &str) -> Config {
        let given = [("profile".to_owned(), Given::Text(profile.into()))];
        let chosen = Chosen::new("scream", Mode::Repaired, &given).unwrap();
        let setup = Setup::unicast(Rate::kbps(10), Rate::mbps(50), Seed(1).part("config"));
        Config::new(&setup, &chosen.values)
    }

    #[test]
    fn the_code_replaces_what_stands_at_the_drafts_value() {
        let (draft, code) = (config("draft"), config("code"));
        let told =
            |c: &Config| [c.qdelay_target, c.beta_ecn, c.head_room, c.mul_increase, c.min_ref_wnd, c.alpha_start];
        assert_eq!(told(&draft), [0.06, 0.8, 1.5, 0.02, 3_000.0, 0.0]);
        assert_eq!(told(&code), [0.1, 0.9, 2.0, 0.05, 2_000.0, 0.1]);
        assert_eq!([draft.cut_interval, code.cut_interval], [0.025, 0.03]);
    }
}
