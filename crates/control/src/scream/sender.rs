use super::Config;
use super::constants::{
    BASE_SLOT, BASE_SLOTS, LEAST_TIMEOUT, OVERHEAD_MAX, OVERHEAD_MIN, PACE_MIN, PACING_HEADROOM, PACKET_OVERHEAD,
    RELAXED_PACING, RELAXED_PACING_MOST, REORDERING, RTT_IDLE_GAIN,
};
use super::delay::Delay;
use super::flight::{FeedbackSummary, InFlight};
use super::window::{Input, PeakFilter, ReferenceWindow, alpha};
use crate::base::BaseDelay;
use crate::entry::Setup;
use crate::meter::Meter;
use crate::no_feedback_timer::NoFeedbackTimer;
use crate::{
    Decision, ExtraSent, Limit, MediaQueue, PacketReport, ReceiverId, Report, SenderHalf, Sent, Wake, Why, Window,
};
use steadycast_units::{Bytes, Rate, Span, Time};

/// Duration over which the receive rate is measured (EricssonResearch/scream).
const RECEIVE_RATE_WINDOW: Span = Span::millis(100);
/// Minimum interval between updates of alpha, in seconds.
const ALPHA_INTERVAL: f64 = 0.01;
/// Weight of a new sample in the smoothed round-trip time (RFC 6298, section 2.3).
const RTT_GAIN: f64 = 0.125;
/// A round-trip sample of at least this many seconds is ignored.
const ABSURD_RTT: f64 = 60.0;
/// Maximum of `adjust`, by which old frames in the pacer lower the target.
const MOST_ADJUST: f64 = 0.5;
/// Maximum of `frame_deviation`, by which large frames lower the target.
const MOST_FRAME_DEVIATION: f64 = 0.2;
/// Maximum fraction by which a small window lowers the target.
const MOST_SMALL_WINDOW: f64 = 0.2;
const SMALL_WINDOW: f64 = 0.1;
/// A gap of this length or more between two frames is a pause of the encoder. It does not count as a frame period.
const ABSURD_PERIOD: Span = Span::millis(500);
/// Minimum pacing rate before the first feedback, in bit/s.
const FIRST_PACE: f64 = 1e6;
/// How long a standing queue is drained, in round trips.
const DRAIN_ROUNDS: f64 = 5.0;
/// A standing queue is drained for at least this time.
const DRAIN_LEAST: Span = Span::millis(200);
/// If the target is above this fraction of the maximum rate, the window is limited.
const NEAR_CAP: f64 = 0.95;
/// The window is limited to this multiple of the window that the maximum rate needs. The limit is at least the peak of
/// the bytes in flight.
const CAP_HEADROOM: f64 = 1.5;
/// Time in seconds that is added to the round-trip time when the window for the maximum rate is computed
/// (EricssonResearch/scream).
const CAP_RTT_ADDEND: f64 = 0.001;
/// Maximum weight of a new packet in the mean loss rate.
const LOSS_GAIN: f64 = 0.0025;
const TIMEOUT_RTTS: f64 = 4.0;

#[derive(Default)]
pub(super) struct Sender {
    config: Config,
    floor: f64,
    cap: f64,
    window: ReferenceWindow,
    flight: InFlight,
    delay: Delay,
    base: BaseDelay,
    no_feedback: NoFeedbackTimer,
    peak: PeakFilter,
    acked: Meter,
    alpha: f64,
    /// Since the last update of alpha: the number of packets reported as received, and how many of them are marked.
    reported: (u32, u32),
    alpha_at: Option<Time>,
    filtered_at: Option<Time>,
    s_rtt: Option<f64>,
    /// The result of the first smoothing, in seconds. Used only if the round-trip time is smoothed twice.
    first_rtt: f64,
    /// When the second smoothing was last applied.
    second_at: Time,
    loss_rate: f64,
    /// The maximum bytes in flight in the current round trip, and in the previous one.
    most: (f64, f64),
    round_began: Option<Time>,
    round_lost: bool,
    frame_period: f64,
    last_frame: Option<Time>,
    adjust: f64,
    frame_deviation: f64,
    drain_until: Option<Time>,
    target: f64,
    rule: &'static str,
    by: Option<ReceiverId>,
}

/// Computes the encoder's rate from the reference window, in bit/s.
///
/// ```text
///           8 ref_wnd                                            MSS                       1
///  target = ───────── (1 − clamp(MSS/ref_wnd − 0.1, 0, 0.2)) ────────────  ─────────────────────────────
///             s_rtt                                           MSS + 20 B   1.2 + adjust + frame_deviation
/// ```
fn window_rate(ref_wnd: f64, s_rtt: f64, adjust: f64, frame_deviation: f64, config: &Config) -> f64 {
    let ratio = (config.mss / ref_wnd).min(1.0);
    let small = 1.0 - (ratio - SMALL_WINDOW).clamp(0.0, MOST_SMALL_WINDOW);
    let payload = config.mss / (config.mss + PACKET_OVERHEAD.as_f64());
    let divisor = config.profile.rate_divisor + adjust + frame_deviation;
    8.0 * ref_wnd / (s_rtt + config.profile.rtt_more).max(1e-4) * small * payload / divisor
}

impl Sender {
    pub(super) fn new(setup: &Setup, config: Config) -> Self {
        let (floor, cap) = setup.rate_limits();
        Self {
            floor,
            cap,
            window: ReferenceWindow::new(),
            flight: InFlight::new(REORDERING),
            delay: Delay::new(&config),
            base: BaseDelay::new(BASE_SLOT, BASE_SLOTS),
            frame_period: 0.02,
            target: floor,
            rule: "least rate until the first feedback",
            config,
            ..Self::default()
        }
    }

    fn timeout(&self) -> Span {
        LEAST_TIMEOUT.max(Span::from_secs_f64(self.s_rtt.unwrap_or(0.0) * TIMEOUT_RTTS))
    }

    /// Records a sent packet. `left` is its send time. `at` is the current time, which may be later.
    fn sent(&mut self, at: Time, left: Time, number: u64, size: Bytes) {
        self.flight.on_sent(number, size.get(), left);
        let bytes = self.flight.bytes as f64;
        self.most.0 = self.most.0.max(bytes);
        self.peak.add(at, bytes);
        self.no_feedback.on_sent(at, self.timeout());
    }

    /// Updates the smoothed round-trip time (RFC 6298).
    ///
    /// If the source does not use the whole window, the queue is shorter than it would be with a full window. A sample
    /// below the smoothed round-trip time then has a smaller weight. Otherwise the rate would rise, because it is the
    /// window divided by the smoothed round-trip time.
    fn measure(&mut self, now: Time, mut rtt: f64) {
        let Some(s_rtt) = self.s_rtt else {
            (self.s_rtt, self.first_rtt, self.second_at) = (Some(rtt), rtt, now);
            return;
        };
        if self.config.profile.rtt_twice {
            self.first_rtt += RTT_GAIN * (rtt - self.first_rtt);
            if now.since(self.second_at).as_secs_f64() < self.first_rtt {
                return;
            }
            (rtt, self.second_at) = (self.first_rtt, now);
        }
        // Compare the window with the bytes in flight, to see whether the source uses the whole window.
        let limited = self.window.room(self.most.0.max(self.most.1), &self.config) < self.window.bytes;
        let gain = if rtt < s_rtt && limited { RTT_IDLE_GAIN } else { RTT_GAIN };
        self.s_rtt = Some(s_rtt + gain * (rtt - s_rtt));
    }

    fn measure_newest(&mut self, now: Time, summary: &FeedbackSummary) {
        let Some((sent, delay)) = summary.newest else { return };
        let rtt = now.since(sent).as_secs_f64();
        if rtt < ABSURD_RTT {
            self.measure(now, rtt);
        }
        // The reference code measures the delay variation from every packet. The draft takes only the newest packet of
        // a report.
        if self.config.profile.every_packet
            && let Some((least, most)) = summary.extremes
        {
            for delay in [least, most] {
                self.delay.extreme(self.base.queueing(now, delay).as_secs_f64());
            }
        }
        if let Some(delay) = delay {
            self.delay.sample(self.base.queueing(now, delay).as_secs_f64());
        }
    }

    fn end_round(&mut self, now: Time, s_rtt: f64) {
        if self.round_began.is_some_and(|began| now.since(began).as_secs_f64() < s_rtt) {
            return;
        }
        if self.delay.round(self.round_lost, &self.config) {
            self.base.reset();
            self.drain_until = Some(now + Span::from_secs_f64(s_rtt * DRAIN_ROUNDS).max(DRAIN_LEAST));
        }
        self.round_lost = false;
        self.most = (self.flight.bytes as f64, self.most.0);
        self.round_began = Some(now);
    }

    fn count_losses(&mut self, summary: &FeedbackSummary) {
        let gain = LOSS_GAIN.min(self.config.mss / (2.0 * self.window.bytes));
        for _ in 0..summary.delivered {
            self.loss_rate -= gain * self.loss_rate;
        }
        for _ in 0..summary.lost {
            self.loss_rate += gain * (1.0 - self.loss_rate);
        }
        self.round_lost |= summary.lost > 0;
    }

    fn count_marks(&mut self, now: Time, summary: &FeedbackSummary, s_rtt: f64) {
        self.reported.0 += summary.delivered;
        self.reported.1 += summary.marked;
        // Update alpha at most once per interval, so that it does not depend on the number of reports.
        let due = self.alpha_at.is_none_or(|at| now.since(at).as_secs_f64() >= ALPHA_INTERVAL.min(s_rtt));
        if due && self.reported.0 > 0 {
            self.alpha = alpha(self.alpha, f64::from(self.reported.1) / f64::from(self.reported.0), &self.config);
            (self.reported, self.alpha_at) = ((0, 0), Some(now));
        }
    }

    fn set_target(&mut self, now: Time) {
        let Some(s_rtt) = self.s_rtt else { return };
        let mut target = window_rate(self.window.bytes, s_rtt, self.adjust, self.frame_deviation, &self.config);
        if self.drain_until.is_some_and(|until| now < until) {
            target /= 2.0;
            self.rule = "standing queue: drained";
        }
        self.target = target.clamp(self.floor, self.cap);
    }

    fn limit_at_cap(&mut self) {
        let (Some(s_rtt), Some(peak)) = (self.s_rtt, self.peak.get()) else { return };
        // Near the cap there may be no congestion that keeps the window small. Limit it here instead.
        if self.target > NEAR_CAP * self.cap {
            let needed = CAP_HEADROOM * self.cap / 8.0 * (s_rtt + CAP_RTT_ADDEND);
            self.window.limit(peak.max(needed));
        }
    }

    fn overhead(&self) -> f64 {
        OVERHEAD_MIN + (OVERHEAD_MAX - OVERHEAD_MIN) * self.delay.scale
    }

    fn pace(&self) -> f64 {
        let pace = PACING_HEADROOM * self.target.max(PACE_MIN.as_bps_f64());
        if self.s_rtt.is_none() {
            return pace.max(FIRST_PACE);
        }
        // Pace faster near the cap, so that large frames do not queue at the sender.
        let above = (self.target / self.cap - RELAXED_PACING) / (1.0 - RELAXED_PACING);
        pace / (1.0 - above.clamp(0.0, 1.0)).clamp(1.0 / RELAXED_PACING_MOST, 1.0)
    }
}

impl SenderHalf for Sender {
    fn on_sent(&mut self, sent: &Sent) {
        self.sent(sent.at, sent.left, sent.number, sent.size);
    }

    fn on_extra_sent(&mut self, sent: &ExtraSent) {
        self.sent(sent.at, sent.left, sent.number, sent.size);
    }

    fn on_queue(&mut self, queue: &MediaQueue) {
        let Some(frame) = queue.frame else { return };
        let gap = self.last_frame.replace(queue.at).map(|last| queue.at.since(last));
        if let Some(gap) = gap.filter(|gap| *gap < ABSURD_PERIOD) {
            self.frame_period += (gap.as_secs_f64() - self.frame_period) / 16.0;
        }
        let period = self.frame_period.max(1e-3);
        let error = (queue.age.as_secs_f64() - period * self.config.profile.queue_goal) / period;
        self.adjust = (self.adjust + self.config.profile.rate_adjust_gain * error).clamp(0.0, MOST_ADJUST);
        let nominal = (self.target * period / 8.0).max(1.0);
        let over = (frame.as_f64() / nominal - 1.0).max(0.0);
        self.frame_deviation += self.config.profile.frame_size_gain * (over - self.frame_deviation);
        self.frame_deviation = self.frame_deviation.min(MOST_FRAME_DEVIATION);
    }

    fn on_unknown(&mut self, packets: &[PacketReport]) {
        packets.iter().for_each(|packet| self.flight.on_unknown(packet.number));
    }

    fn on_report(&mut self, report: &Report<'_>) {
        let now = report.at;
        let summary = self.flight.on_report(now, report.packets, Span::from_secs_f64(self.s_rtt.unwrap_or(0.0)));
        // Ignore a report without a newly acknowledged or newly lost packet. It must neither end the round trip nor
        // restart the timer.
        if summary == FeedbackSummary::default() {
            return;
        }
        if summary.delivered > 0 {
            self.no_feedback.on_feedback(now);
            if self.flight.bytes > 0 {
                self.no_feedback.on_sent(now, self.timeout());
            }
        }
        self.by = Some(report.from);
        self.measure_newest(now, &summary);
        let Some(s_rtt) = self.s_rtt else { return };
        self.end_round(now, s_rtt);
        self.count_losses(&summary);
        self.count_marks(now, &summary, s_rtt);
        let every = self.config.cut_interval.min(s_rtt);
        if self.filtered_at.is_none_or(|at| now.since(at).as_secs_f64() >= every) {
            self.filtered_at = Some(now);
            self.delay.filter(&self.config);
        }
        self.acked.add(Bytes::new(summary.acked), now, RECEIVE_RATE_WINDOW);
        let arrives = self.acked.rate(now, RECEIVE_RATE_WINDOW).map_or(0.0, Rate::as_bps_f64);
        let before = self.window.bytes;
        let cut = self.window.update(
            &Input {
                now,
                s_rtt,
                lost: summary.latest_lost,
                marked: summary.latest_marked,
                alpha: self.alpha,
                loss_rate: self.loss_rate,
                qdelay: self.delay.latest,
                qdelay_mean: self.delay.mean,
                qdelay_target: self.delay.target,
                delay_scale: self.delay.scale,
                low: self.target < self.config.profile.spare_below * arrives,
                acked: summary.acked as f64,
                acked_marked: summary.acked_marked as f64,
                flight: self.most.0.max(self.most.1),
                flight_before: self.most.1,
                at_cap: self.target >= self.cap,
            },
            &self.config,
        );
        self.limit_at_cap();
        self.rule = match cut {
            Some(cut) => cut.word(),
            None if self.window.bytes > before => "window grows",
            None if self.target >= self.cap => "cap reached",
            None => "window held",
        };
        self.set_target(now);
    }

    fn on_timer(&mut self, now: Time) {
        if self.no_feedback.has_expired(now) {
            // Assume that all packets in flight are lost. Otherwise they would fill the window and block the sender.
            self.flight.clear(now);
            self.window.halve(now);
            self.target = (self.target / 2.0).max(self.floor);
            self.rule = "no feedback: halved";
        }
    }

    fn wake(&self) -> Option<Wake> {
        self.no_feedback.wake()
    }

    fn decision(&self) -> Decision {
        let free = self.window.bytes * self.overhead() - self.flight.bytes as f64;
        Decision {
            target: Rate::from_bps_f64(self.target),
            pacing: Rate::from_bps_f64(self.pace()),
            window: Some(Window::Bytes(Bytes::new(free.max(0.0) as u64))),
            limit: Limit::between(self.target, self.floor, self.cap, !self.window.has_fallen()),
            why: Why {
                loss: Some(self.loss_rate),
                rtt: self.s_rtt.map(Span::from_secs_f64),
                by: self.by,
                ..Why::rule(self.rule)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, config_of};
    use super::*;

    fn near(got: f64, want: f64) {
        assert!((got - want).abs() <= 1.0, "{got} is not {want}");
    }

    #[test]
    fn the_target_is_what_the_window_carries_less_headers_and_room() {
        let config = config();
        near(window_rate(20_000.0, 0.05, 0.0, 0.0, &config), 2_614_379.0);
        // A window of few packets reduces the target by up to a fifth.
        near(window_rate(5_000.0, 0.05, 0.0, 0.0, &config), 588_235.0);
        near(window_rate(20_000.0, 0.05, 0.5, 0.2, &config), 2_614_379.0 * 1.2 / 1.9);
        near(window_rate(20_000.0, 0.05, 0.0, 0.0, &config_of("code")), 160_000.0 / 0.051 / 1.02 / 1.1);
    }
}
