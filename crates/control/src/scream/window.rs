use super::Config;
use super::constants::{BETA_LOSS, MIN_REF_WND, VIRTUAL_RTT};
use steadycast_settings::words;
use steadycast_units::{Span, Time};

/// Lower bound of the factor that slows growth near the inflection point.
const LEAST_SCALE: f64 = 0.1;
/// The factor that slows growth is the square of `INFLECTION` · (ref_wnd − inflection) / inflection.
const INFLECTION: f64 = 8.0;
/// Lower bound of each factor that makes a reduction smaller.
const LEAST_CUT: f64 = 0.25;
/// If an L4S mark arrives after this number of round trips without a reduction, the window is first limited to the
/// bytes in flight, and then reduced.
const RESET_QUIET_RTTS: f64 = 100.0;

/// Updates alpha, the L4S moving average of the fraction of marked packets, and returns it. By default the gain is 1/8
/// while alpha rises, and 1/128 while it falls.
///
/// ```text
///  α ← F/8 + 7α/8    where F ≥ α        α ← 127 α/128    else
/// ```
pub(super) fn alpha(alpha: f64, marked: f64, config: &Config) -> f64 {
    if marked >= alpha {
        config.alpha_up * marked + (1.0 - config.alpha_up) * alpha
    } else {
        alpha * (1.0 - config.alpha_down)
    }
}

/// The inputs of a window update. Times are in seconds, and sizes are in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    pub(super) now: Time,
    pub(super) s_rtt: f64,
    /// Send time of the newest lost packet.
    pub(super) lost: Option<Time>,
    /// Send time of the newest marked packet.
    pub(super) marked: Option<Time>,
    pub(super) alpha: f64,
    pub(super) loss_rate: f64,
    pub(super) qdelay: f64,
    pub(super) qdelay_mean: f64,
    pub(super) qdelay_target: f64,
    pub(super) delay_scale: f64,
    /// Whether the target rate is well below the receive rate.
    pub(super) low: bool,
    pub(super) acked: f64,
    pub(super) acked_marked: f64,
    /// The maximum bytes in flight in the current and the previous round trip.
    pub(super) flight: f64,
    /// The maximum bytes in flight in the previous round trip.
    pub(super) flight_before: f64,
    pub(super) at_cap: bool,
}

words! {
    /// Why the window was reduced.
    pub(super) enum Cut {
        Loss = "loss",
        ClassicMark = "ECN mark",
        L4sMark = "L4S marks",
        Delay = "queueing delay",
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct ReferenceWindow {
    pub(super) bytes: f64,
    /// The inflection point: the size of the window before the last reduction that followed growth. The window grows
    /// slowly near this size.
    inflection: f64,
    /// Whether the next reduction sets the inflection point. True if the window has grown since the last reduction.
    may_move: bool,
    /// Whether losses were reported since the last reduction.
    lost: bool,
    /// Whether marks were reported since the last reduction.
    marked: bool,
    /// When congestion was last seen. `None` before the first congestion.
    congested: Option<Time>,
    reacted: Option<Time>,
    /// When a loss or a classic mark last reduced the window.
    episode: Option<Time>,
}

impl ReferenceWindow {
    pub(super) fn new() -> Self {
        Self { bytes: MIN_REF_WND.as_f64(), inflection: 1.0, may_move: true, ..Self::default() }
    }

    pub(super) fn has_fallen(&self) -> bool {
        self.reacted.is_some()
    }

    /// Returns the factor in [0.1, 1] that slows growth near the inflection point. It is 1 if the window is at least
    /// 12.5 % away from that point.
    fn scale(&self) -> f64 {
        let off = INFLECTION * (self.bytes - self.inflection) / self.inflection;
        (off * off).clamp(LEAST_SCALE, 1.0)
    }

    /// Shrinks and grows the window. Both steps use the growth factor from before this update.
    pub(super) fn update(&mut self, input: &Input, config: &Config) -> Option<Cut> {
        let scale = self.scale();
        let cut = self.shrink(scale, input, config);
        self.grow(scale, input, config);
        cut
    }

    fn shrink(&mut self, scale: f64, input: &Input, config: &Config) -> Option<Cut> {
        // Ignore a packet that was sent before the last reduction, because it belongs to the same congestion episode.
        let fresh = |sent: Option<Time>| {
            sent.is_some_and(|sent| !config.once_per_rtt || self.episode.is_none_or(|at| sent > at))
        };
        let queued = input.qdelay_mean > input.qdelay_target / 4.0;
        self.lost |= fresh(input.lost) && (queued || input.loss_rate >= config.profile.loss_ignored);
        self.marked |= if config.l4s { input.marked.is_some() } else { fresh(input.marked) };
        if input.lost.is_some() || input.marked.is_some() {
            self.congested = Some(input.now);
        }
        // Wait before the next reduction, because the effect of the last one is seen only a round trip later.
        let since = self.reacted.map_or(f64::INFINITY, |at| input.now.since(at).as_secs_f64());
        if since < config.cut_interval.min(input.s_rtt) {
            return None;
        }
        let half = input.qdelay_target / 2.0;
        let cut = if self.lost {
            Cut::Loss
        } else if self.marked {
            if config.l4s { Cut::L4sMark } else { Cut::ClassicMark }
        } else if input.qdelay_mean > half {
            Cut::Delay
        } else {
            return None;
        };
        let before = self.bytes;
        let spared = if input.low { LEAST_CUT } else { 1.0 };
        // Divide each reduction by the number of reductions in a round trip. Their sum then does not depend on their
        // number.
        let long_way = (input.s_rtt / config.cut_interval).max(1.0);
        match cut {
            Cut::Loss => self.bytes *= BETA_LOSS,
            Cut::ClassicMark => self.bytes *= config.profile.beta_ecn,
            Cut::L4sMark => {
                let mut by = input.alpha / 2.0 * spared / long_way;
                // While the queue is short, reduce less if the window is near its inflection point or if the delay
                // varies.
                if input.qdelay < input.qdelay_target / 4.0 {
                    by *= scale.max(LEAST_CUT) * input.delay_scale.max(LEAST_CUT);
                }
                let long = RESET_QUIET_RTTS * VIRTUAL_RTT.as_secs_f64().max(input.s_rtt);
                // First limit the window to the bytes in flight. After long growth it may be far above what the path
                // carries.
                if since > long && self.reacted.is_some() {
                    self.bytes = self.bytes.min(input.flight_before);
                }
                self.bytes *= 1.0 - by;
            }
            Cut::Delay => {
                // Treat delay like a fraction of marked packets. This fraction is 0 at half of the target, and 1 at the
                // target and above.
                let virtual_alpha = ((input.qdelay_mean - half) / half).clamp(0.0, 1.0);
                let twice = if config.profile.divided_twice { long_way } else { 1.0 };
                self.bytes *= 1.0 - virtual_alpha / 2.0 * spared / long_way / twice;
                if config.profile.delay_congests {
                    self.congested = Some(input.now);
                }
            }
        }
        if std::mem::take(&mut self.may_move) {
            self.inflection = before;
        }
        self.bytes = self.bytes.max(MIN_REF_WND.as_f64());
        (self.lost, self.marked, self.reacted) = (false, false, Some(input.now));
        // Losses and classic marks reduce the window by a fixed factor, so allow one such reduction per round trip. L4S
        // marks and delay may reduce the window several times per round trip. Each of these reductions is divided by
        // the number of reductions in a round trip.
        if matches!(cut, Cut::Loss | Cut::ClassicMark) {
            self.episode = Some(input.now);
        }
        Some(cut)
    }

    /// Increases the window by about a packet per round trip plus a small fraction of itself.
    ///
    /// ```text
    ///                   MSS            s_rtt                             ⎛         ref_wnd           ⎞
    ///  acked · min(1, ─────── ) min(1, ───── ) max(¼, scl) max(0.1, d) · ⎜1 + 0.02 ─────── post · scl⎟
    ///                 ref_wnd          25 ms                             ⎝           MSS             ⎠
    /// ```
    ///
    /// `acked` excludes marked bytes. `scl` is the argument `scale`, and `d` is `Input::delay_scale`. `post` rises from
    /// 0 to 1 after congestion.
    fn grow(&mut self, scale: f64, input: &Input, config: &Config) {
        let ratio = (config.mss / self.bytes).min(1.0);
        let rtts = input.s_rtt.max(VIRTUAL_RTT.as_secs_f64());
        // Let the multiplicative part return slowly after congestion.
        let post = self.congested.map_or(1.0, |at| {
            (input.now.since(at).as_secs_f64() / (config.profile.post_congestion * rtts)).clamp(0.0, 1.0)
        });
        let by = (input.acked - input.acked_marked).max(0.0)
            * ratio
            * (input.s_rtt / VIRTUAL_RTT.as_secs_f64()).min(1.0)
            * scale.max(LEAST_CUT)
            * input.delay_scale.max(LEAST_SCALE)
            * (1.0 + config.profile.mul_increase * self.bytes / config.mss * post * scale);
        // Do not grow beyond what the source fills, because a larger window would be untested.
        if by > 0.0 && self.bytes + by <= self.room(input.flight, config) && !input.at_cap {
            self.bytes += by;
            self.may_move = true;
        }
    }

    /// Returns the largest window that growth may reach. `flight` is the maximum number of bytes in flight.
    pub(super) fn room(&self, flight: f64, config: &Config) -> f64 {
        config.mss + config.profile.head_room * flight
    }

    pub(super) fn limit(&mut self, most: f64) {
        self.bytes = self.bytes.min(most).max(MIN_REF_WND.as_f64());
    }

    pub(super) fn halve(&mut self, now: Time) {
        self.bytes = (self.bytes / 2.0).max(MIN_REF_WND.as_f64());
        self.congested = Some(now);
        self.reacted = Some(now);
        // A loss that is reported after the timeout belongs to the same episode. Do not reduce for it again.
        self.episode = Some(now);
    }
}

/// Maximum of a value over the last second, in slots of 50 ms (EricssonResearch/scream).
#[derive(Clone, Debug, Default)]
pub(super) struct PeakFilter {
    slots: std::collections::VecDeque<f64>,
    since: Option<Time>,
}

impl PeakFilter {
    const SLOT: Span = Span::millis(50);
    const SLOTS: usize = 20;

    pub(super) fn add(&mut self, now: Time, value: f64) {
        match self.slots.front_mut() {
            Some(front) if self.since.is_some_and(|since| now.since(since) < Self::SLOT) => *front = front.max(value),
            _ => {
                self.slots.push_front(value);
                self.slots.truncate(Self::SLOTS);
                self.since = Some(now);
            }
        }
    }

    /// Returns the maximum over the last second. Returns `None` until a second has passed.
    pub(super) fn get(&self) -> Option<f64> {
        (self.slots.len() == Self::SLOTS).then(|| self.slots.iter().copied().fold(0.0, f64::max))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, config_of};
    use super::*;

    fn near(got: f64, want: f64) {
        assert!((got - want).abs() <= want.abs() * 1e-6 + 1e-6, "{got} is not {want}");
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::millis(ms)
    }

    /// Returns an input without any event. The round-trip time is 50 ms, and there is no queue.
    fn quiet(ms: u64) -> Input {
        Input {
            now: at(ms),
            s_rtt: 0.05,
            lost: None,
            marked: None,
            alpha: 0.0,
            loss_rate: 0.0,
            qdelay: 0.0,
            qdelay_mean: 0.0,
            qdelay_target: 0.06,
            delay_scale: 1.0,
            low: false,
            acked: 0.0,
            acked_marked: 0.0,
            flight: 1e9,
            flight_before: 1e9,
            at_cap: false,
        }
    }

    fn window(bytes: f64, inflection: f64) -> ReferenceWindow {
        ReferenceWindow { bytes, inflection, ..ReferenceWindow::new() }
    }

    #[test]
    fn alpha_rises_by_an_eighth_and_falls_by_a_128th() {
        let config = config();
        let mut value = 0.0;
        for (marked, want) in [(1.0, 0.125), (1.0, 0.234_375), (0.0, 0.232_543_945), (0.5, 0.265_975_952)] {
            value = alpha(value, marked, &config);
            near(value, want);
        }
    }

    #[test]
    fn alpha_of_a_steady_fifth_is_a_fifth_after_two_seconds_of_reports_each_25_ms() {
        let config = config();
        let after = (0..80).fold(0.0, |value, _| alpha(value, 0.2, &config));
        assert!((after - 0.2).abs() < 0.01, "{after}");
    }

    #[test]
    fn near_the_inflection_point_everything_is_slower() {
        for (off, want) in
            [(0.125, 1.0), (-0.125, 1.0), (0.05, 0.16), (-0.05, 0.16), (0.0395, 0.1), (0.0, 0.1), (3.0, 1.0)]
        {
            near(window(20_000.0 * (1.0 + off), 20_000.0).scale(), want);
        }
        // A new window has its inflection point at one byte.
        near(ReferenceWindow::new().scale(), 1.0);
    }

    #[test]
    fn a_full_window_acknowledged_adds_a_packet_and_two_percent() {
        let config = config();
        let mut window = window(20_000.0, 1.0);
        window.update(&Input { acked: 20_000.0, ..quiet(50) }, &config);
        near(window.bytes, 21_400.0);
        let mut start = ReferenceWindow::new();
        let rounds = (1..100).find(|n| {
            start.update(&Input { acked: start.bytes, ..quiet(50 * n) }, &config);
            start.bytes >= 31_250.0
        });
        assert_eq!(rounds, Some(22));
        // Marked bytes must not increase the window.
        let before = window.bytes;
        window.update(&Input { acked: 8_000.0, acked_marked: 8_000.0, ..quiet(100) }, &config);
        near(window.bytes, before);
    }

    #[test]
    fn a_window_grows_to_what_half_as_much_again_as_was_in_flight_and_not_at_the_cap() {
        let config = config();
        let input = |flight| Input { acked: 20_000.0, flight, ..quiet(50) };
        for (flight, at_cap, want) in [(13_600.0, false, 21_400.0), (13_599.0, false, 20_000.0), (1e9, true, 20_000.0)]
        {
            let mut window = window(20_000.0, 1.0);
            window.update(&Input { at_cap, ..input(flight) }, &config);
            near(window.bytes, want);
        }
    }

    #[test]
    fn each_event_takes_its_share() {
        let classic = config();
        let l4s = Config { l4s: true, ..classic };
        let code = config_of("code");
        let marked = Some(at(990));
        let cases = [
            (&classic, Input { lost: marked, ..quiet(1_000) }, Cut::Loss, 0.7),
            (&classic, Input { marked, ..quiet(1_000) }, Cut::ClassicMark, 0.8),
            // The reduction is α/2, scaled by 25 ms/s_rtt.
            (&l4s, Input { marked, alpha: 0.4, qdelay: 0.02, ..quiet(1_000) }, Cut::L4sMark, 0.9),
            (&classic, Input { qdelay_mean: 0.045, ..quiet(1_000) }, Cut::Delay, 1.0 - 0.125),
            (&classic, Input { qdelay_mean: 0.2, ..quiet(1_000) }, Cut::Delay, 0.75),
            (&code, Input { marked, ..quiet(1_000) }, Cut::ClassicMark, 0.9),
            // The reduction is scaled twice by 30 ms/s_rtt, and quartered while the target is low.
            (&code, Input { qdelay_mean: 0.2, s_rtt: 0.06, ..quiet(1_000) }, Cut::Delay, 1.0 - 0.125),
            (&code, Input { qdelay_mean: 0.2, s_rtt: 0.06, low: true, ..quiet(1_000) }, Cut::Delay, 1.0 - 0.03125),
            // A loss takes precedence over a mark, and a mark takes precedence over delay.
            (&classic, Input { lost: marked, marked, qdelay_mean: 0.2, ..quiet(1_000) }, Cut::Loss, 0.7),
            (&classic, Input { marked, qdelay_mean: 0.2, ..quiet(1_000) }, Cut::ClassicMark, 0.8),
        ];
        for (config, input, cut, leaves) in cases {
            let mut window = window(20_000.0, 1.0);
            assert_eq!(window.update(&input, config), Some(cut));
            near(window.bytes, 20_000.0 * leaves);
        }
    }

    #[test]
    fn a_cut_takes_the_old_inflection_point_and_moves_it_only_after_growth() {
        let config = Config { l4s: true, ..config() };
        let mut window = window(20_000.0, 40_000.0);
        let marked = |ms| Input { marked: Some(at(ms)), alpha: 0.8, ..quiet(ms) };
        // Far from the inflection point, the whole reduction applies. The window before the reduction becomes the new
        // inflection point.
        window.update(&marked(1_000), &config);
        near(window.bytes, 16_000.0);
        near(window.inflection, 20_000.0);
        window.update(&marked(1_100), &config);
        near(window.inflection, 20_000.0);
        near(window.bytes, 12_800.0);
        window.update(&Input { acked: 1_000.0, ..quiet(1_150) }, &config);
        let grown = window.bytes;
        window.update(&marked(1_200), &config);
        near(window.inflection, grown);
        // At the inflection point, only a quarter of the reduction applies.
        let mut near_it = ReferenceWindow { bytes: 20_000.0, inflection: 20_000.0, ..window };
        near_it.update(&marked(2_000), &config);
        near(near_it.bytes, 20_000.0 * (1.0 - 0.2 / 4.0));
    }

    #[test]
    fn before_the_first_congestion_growth_is_whole_and_the_first_mark_is_no_late_one() {
        let config = Config { l4s: true, ..config() };
        // Start the clock near zero. The window must not take a time of zero for "never".
        let mut window = window(20_000.0, 1.0);
        window.update(&Input { acked: 20_000.0, ..quiet(1) }, &config);
        near(window.bytes, 21_400.0);
        let first = Input { marked: Some(at(60_000)), flight_before: 5_000.0, ..quiet(60_000) };
        window.update(&first, &config);
        near(window.bytes, 21_400.0);
        // More than 100 round trips after the last reduction, a mark first limits the window to the bytes in flight.
        let late = Input { marked: Some(at(66_000)), flight_before: 5_000.0, ..quiet(66_000) };
        window.update(&late, &config);
        near(window.bytes, 5_000.0);
    }

    #[test]
    fn growth_is_held_back_for_a_hundred_round_trips_after_congestion() {
        let config = config();
        for (ms, want) in [(0, 1_000.0), (2_500, 1_200.0), (5_000, 1_400.0), (50_000, 1_400.0)] {
            let mut window = ReferenceWindow { congested: Some(at(1_000)), ..window(20_000.0, 1.0) };
            window.update(&Input { acked: 20_000.0, ..quiet(1_000 + ms) }, &config);
            near(window.bytes, 20_000.0 + want);
        }
    }

    #[test]
    fn a_cut_by_delay_holds_growth_back_in_the_code_alone_and_rare_losses_without_a_queue_do_not_cut_there() {
        for (profile, congests, leaves) in [("draft", false, 14_000.0), ("code", true, 20_000.0)] {
            let config = config_of(profile);
            let mut delayed = window(20_000.0, 1.0);
            delayed.update(&Input { qdelay_mean: 0.2, ..quiet(1_000) }, &config);
            assert_eq!(delayed.congested.is_some(), congests);
            for (loss_rate, qdelay_mean, leaves) in
                [(0.005, 0.0, leaves), (0.02, 0.0, 14_000.0), (0.005, 0.028, 14_000.0)]
            {
                let mut window = window(20_000.0, 1.0);
                window.update(&Input { lost: Some(at(990)), loss_rate, qdelay_mean, ..quiet(1_000) }, &config);
                near(window.bytes, leaves);
            }
        }
    }

    #[test]
    fn losses_of_one_round_trip_of_100_ms_cut_once_and_as_printed_four_times() {
        // The lost packets were sent between 0 and 100 ms. Their losses are reported every 25 ms, starting at 100 ms.
        for (once, want) in [(true, 0.7), (false, 0.7f64 * 0.7 * 0.7 * 0.7)] {
            let config = Config { once_per_rtt: once, ..config() };
            let mut window = window(100_000.0, 1.0);
            for n in 0..4 {
                let lost = Some(at(25 * n + 1));
                window.update(&Input { lost, s_rtt: 0.1, ..quiet(100 + 25 * n) }, &config);
            }
            near(window.bytes, 100_000.0 * want);
        }
    }

    #[test]
    fn a_peak_is_known_after_a_second_and_forgotten_a_second_later() {
        let mut peak = PeakFilter::default();
        let mut after = |from: u64, to: u64, value: f64| {
            (from..to).for_each(|ms| peak.add(at(ms), value));
            peak.get()
        };
        assert_eq!(after(0, 900, 5.0), None);
        assert_eq!(after(900, 1_000, 7.0), Some(7.0));
        assert_eq!(after(1_000, 1_800, 1.0), Some(7.0));
        assert_eq!(after(1_800, 2_100, 1.0), Some(1.0));
    }
}
