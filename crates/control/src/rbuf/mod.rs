//! Rate control by the receiver's buffer (Hong, Park: A Cost-Effective Rate Control for Streaming Video for Wireless
//! Portable Devices, 2011).
//!
//! `rbuf-type1` uses the fill level and its change. `rbuf-type2` uses only the level. `no-control` uses neither.

mod message;
mod receiver;
mod sender;

use crate::entry::{Controller, FeedbackTiming, Receivers, params};
use crate::fixed::{CONTROLLER as CONSTANT, Constant};
use receiver::Receiver;
use sender::Sender;
use steadycast_units::{Bytes, Rate, Span};

const SOURCE: &str = "Hong, Park 2011";
const COLOUR: &str = "#2ca02c";

pub(crate) const TYPE1: Controller = Controller {
    name: "rbuf-type1",
    about: "keeps the fill level of the receiver's buffer between 20 % and 90 %, by the level and its change",
    when: "to repeat the experiments of its paper; it controls a player's buffer level, not congestion",
    source: SOURCE,
    receivers: Receivers::One,
    feedback: FeedbackTiming::Clocked,
    standard_reports: false,
    extension: EXTENSION,
    answers_marks: true,
    app: *b"RBUF",
    colour: COLOUR,
    params: PARAMS,
    sender: |setup, values| Box::new(Sender::new(setup, values, true)),
    receiver: |_, values| Box::new(Receiver::new(values.choice("cc_cap") == "tfrc")),
    ..CONSTANT
};

pub(crate) const TYPE2: Controller = Controller {
    name: "rbuf-type2",
    about: "keeps the fill level of the receiver's buffer between 20 % and 90 %, by the level alone",
    when: "to repeat the experiments of its paper; it controls a player's buffer level, not congestion",
    source: "Hong, Park 2011, section 4.4; its predecessor of 2009",
    dashes: &[6.0, 2.0],
    params: PARAMS.split_at(9).0,
    sender: |setup, values| Box::new(Sender::new(setup, values, false)),
    ..TYPE1
};

pub(crate) const NO_CONTROL: Controller = Controller {
    name: "no-control",
    about: "sends at a constant rate, with a constant delay between packets; feedback is ignored",
    when: "to repeat the experiments of its paper, and never on a shared network",
    source: "Hong, Park 2011, figure 11",
    colour: COLOUR,
    dashes: &[2.0, 2.0],
    params: PARAMS.split_at(1).0,
    sender: |setup, values| {
        let rate = Train::new(setup.packet).rate(values.span("ipd_min")).min(setup.cap);
        Box::new(Constant { rate, rule: "least delay between packets" })
    },
    ..CONSTANT
};

/// The header extension element that carries the smoothed round-trip time to the receiver: 24 bits, in units of 10 µs.
/// The value 0 means unknown.
const EXTENSION: u8 = 7;

params! {
    /// All parameters of the family. `no-control` has only the first parameter. Only `rbuf-type1` has the last
    /// parameter.
    const {
    span ipd_min: "the minimum delay between two packets, which sets the highest rate",
        "Hong, Park, section 3.3: 1 ms", [Span::millis(1); 2], IPD_RANGE;
    number b_l: "the fill level, as a share of the buffer, below which the rate is raised (underflow)",
        "Hong, Park, section 4.4: B_min, 20 %", [0.2; 2], [0.0, 0.9];
    number margin:
        "with margin_mode = fixed, the free share of the buffer below which the rate is lowered (overflow); 0.1: from \
         a fill level of 90 %",
        "Hong, Park, section 4.4: α, 10 %", [0.1; 2], [0.0, 0.9];
    choice margin_mode:
        "how much free space counts as overflow; fixed: margin; latency: what is sent in k_lat round trips",
        "Hong, Park, section 3.2: B_H = B_max − k S/rtt, whose second term is a rate",
        ["fixed"; 2], &["fixed", "latency"];
    number k_lat: "the number of round trips with margin_mode = latency",
        "Hong, Park, section 3.2: k ≥ 1", [1.0; 2], [1.0, 100.0];
    choice added:
        "the meaning of the 1 in eq. 15: one packet more in each round trip (packet), or in each round trip a rate \
         higher by one packet per second (rate)",
        "Hong, Park, eq. 15, whose 1 has no unit; table 1 has rates in packets per second",
        ["packet"; 2], &["packet", "rate"];
    span ipd_max: "the maximum delay between two packets, which sets the lowest rate",
        "Hong, Park, section 3.3: 20 ms", [Span::millis(20); 2], IPD_RANGE;
    span ipd_start: "the delay between two packets at the start",
        "not in the paper", [Span::millis(20); 2], IPD_RANGE;
    choice cc_cap: "tfrc: the rate is at most TCP's throughput at the loss event rate; none: only the buffer limits it",
        "not in the paper, which has no congestion control", ["tfrc", "none"], &["tfrc", "none"];
    choice stable:
        "the rule between underflow and overflow; literal: eq. 15 as printed; predictive: eq. 15 with the fill level \
         extrapolated over the next round trips",
        "Hong, Park, eq. 15; the prediction that section 4.4 claims is not printed",
        ["predictive", "literal"], &["predictive", "literal"];
    }
}

/// The constant part a of the send time t(S) = a + b·S (equation 11). Together with [`PER_BYTE`] it gives 5 ms for 1000
/// bytes, as in figure 8.
const PER_PACKET: Span = Span::millis(1);
/// The time per byte b in t(S) = a + b·S (equation 11).
const PER_BYTE: Span = Span::micros(4);
/// γ₁: in underflow, the rate is multiplied by this factor (equation 14, section 4.4).
const GAMMA_UNDER: f64 = 1.2;
/// γ₂: in overflow, the rate is multiplied by this factor (equation 16, section 4.4).
const GAMMA_OVER: f64 = 0.9;
/// In underflow, this factor replaces γ₁ while the buffer still drains (section 4.4). The paper prints the condition
/// with the opposite sign. In paper mode, the factor therefore replaces γ₁ while the buffer fills.
const GAMMA_UNDER_FAST: f64 = 1.3;
/// In overflow, this factor replaces γ₂ while the buffer still fills (section 4.4). The paper prints the condition with
/// the opposite sign. In paper mode, the factor therefore replaces γ₂ while the buffer drains.
const GAMMA_OVER_FAST: f64 = 0.8;

/// Number of round trips ahead for which ΔB is extrapolated (`stable = "predictive"`). The paper has no such rule.
const HORIZON: f64 = 8.0;
/// Maximum additive step, as a fraction of the data sent in a round trip (`stable = "predictive"`). The paper has no
/// such rule.
const STEP: f64 = 0.05;
/// Weight of the old value in the smoothed round-trip time. It has the value of RFC 6298, because equation 17 gives
/// none.
const ALPHA_SRTT: f64 = 0.875;
const IPD_RANGE: [Span; 2] = [Span::ZERO, Span::secs(600)];

/// Packets that are sent with a fixed delay between them. Their rate is T = S / (t(S) + IPD) (equation 11).
#[derive(Clone, Copy, Debug, Default)]
struct Train {
    packet: Bytes,
    /// t(S): how long sending one packet takes.
    sending: Span,
}

impl Train {
    fn new(packet: Bytes) -> Self {
        Self { packet, sending: PER_PACKET + PER_BYTE * packet.get() }
    }

    fn rate(&self, delay: Span) -> Rate {
        self.packet.per(self.sending + delay)
    }

    /// Returns the delay between packets that leads to `rate`. Returns zero if no delay is short enough.
    fn delay(&self, rate: Rate) -> Span {
        self.packet.at(rate).saturating_sub(self.sending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(bytes: u64) -> Train {
        Train::new(Bytes::new(bytes))
    }

    #[test]
    fn a_delay_of_twenty_milliseconds_gives_six_twenty_fifths_of_the_rate_at_one() {
        let train = train(1000);
        let share = train.rate(Span::millis(20)).ratio(train.rate(Span::millis(1)));
        assert!((share - 0.24).abs() < 1e-6, "{share}");
    }

    #[test]
    fn a_rate_s_delay_gives_that_rate_again() {
        let train = train(160);
        for ms in [1, 7, 20, 3_000] {
            let rate = train.rate(Span::millis(ms));
            let again = train.delay(rate).as_millis_f64();
            // Tolerate a small error, because rates are whole bits per second.
            assert!((again - ms as f64).abs() < 0.002 * ms as f64, "{again} {ms}");
        }
        assert_eq!(train.delay(Rate::mbps(100)), Span::ZERO);
    }

    #[test]
    fn smaller_packets_react_more_to_a_delay() {
        let slope = |bytes| train(bytes).rate(Span::millis(1)).ratio(train(bytes).rate(Span::millis(20)));
        assert!(slope(500) > slope(1000) && slope(1000) > slope(1500));
    }
}
