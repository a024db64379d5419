use super::Config;
use super::constants::{
    ALPHA, BASE_SLOT, BASE_SLOTS, FILTER, LAMBDA, LOG_WINDOW, MULTI_LOSS, PLR_REF, PMR_REF, Q_EPS, Q_TH,
};
use super::message::Message;
use crate::base::BaseDelay;
use crate::loss::{LossHistory, LossSettings, ReceivedPacket};
use std::collections::VecDeque;
use steadycast_units::{Bytes, OneWay, Span, Time};

/// A packet arrival. All times are on one clock: either the sender's or the receiver's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) at: Time,
    /// Sequence number of a media packet. `None` for a packet of any other stream.
    pub(super) number: Option<u64>,
    /// Number of packets missing directly before this packet. Used only if `number` is `None`.
    pub(super) missing: u64,
    pub(super) size: Bytes,
    pub(super) delay: Option<OneWay>,
    pub(super) marked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Logged {
    at: Time,
    size: Bytes,
    /// Whether the packet counts as received. False for a late packet, because it was already counted as missing.
    counts: bool,
    missing: u64,
    queue: Span,
    marked: bool,
}

/// The aggregate congestion signal (RFC 8698, sections 4.2 and 5.1).
#[derive(Clone, Debug, Default)]
pub(super) struct Signal {
    config: Config,
    base: BaseDelay,
    log: VecDeque<Logged>,
    queues: VecDeque<Span>,
    highest: Option<u64>,
    first: Option<Time>,
    packets: u64,
    history: LossHistory,
    pub(super) loss: f64,
    marks: f64,
}

impl Signal {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            config: *config,
            base: BaseDelay::new(BASE_SLOT, BASE_SLOTS),
            history: LossHistory::new(LossSettings { discount: 1.0, ..LossSettings::default() }),
            ..Self::default()
        }
    }

    pub(super) fn on_packet(&mut self, packet: &Packet) {
        self.first.get_or_insert(packet.at);
        self.packets += 1;
        let mut counts = true;
        let mut missing = packet.missing;
        if let Some(number) = packet.number {
            // Do not count a late packet as received, because it was already counted as missing.
            counts = self.highest.is_none_or(|highest| number > highest);
            missing = self.highest.map_or(0, |highest| number.saturating_sub(highest).saturating_sub(1));
            self.highest = self.highest.max(Some(number));
            let so_far = self.packets as f64;
            // The receiver does not know the round-trip time. Treat losses within `delta` as one loss event instead.
            let received = ReceivedPacket { seq: number, at: packet.at, ce: false, rtt: self.config.delta };
            self.history.on_packet(&received, || so_far);
        }
        // If no delay was measured for this packet, repeat the last delay, so that `queues` has an entry for every
        // packet.
        let queue = packet.delay.map_or_else(
            || self.queues.back().copied().unwrap_or_default(),
            |delay| self.base.queueing(packet.at, delay),
        );
        self.queues.push_back(queue);
        while self.queues.len() > FILTER {
            self.queues.pop_front();
        }
        let Packet { at, size, marked, .. } = *packet;
        self.log.push_back(Logged { at, size, counts, missing, queue, marked });
        self.forget(packet.at);
    }

    fn forget(&mut self, now: Time) {
        while self.log.front().is_some_and(|packet| now.since(packet.at) > LOG_WINDOW) {
            self.log.pop_front();
        }
    }

    /// Computes the report. Also updates the moving averages of the loss rate and of the marked fraction.
    pub(super) fn report(&mut self, now: Time) -> Message {
        self.forget(now);
        let count = |of: fn(&Logged) -> u64| self.log.iter().map(of).fold(0, u64::saturating_add);
        let (lost, got) = (count(|p| p.missing), count(|p| u64::from(p.counts)));
        let (marked, all) = (count(|p| u64::from(p.marked)), self.log.len() as u64);
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
        // Smooth the loss rate, so that a single loss does not dominate the signal (RFC 8698, section 5.1.2).
        self.loss += ALPHA * (share(lost, lost.saturating_add(got)) - self.loss);
        self.marks += ALPHA * (share(marked, all) - self.marks);
        let filtered = self.queues.iter().min().copied().unwrap_or_default().as_secs_f64();
        let interval = self.history.rate().map(|p| 1.0 / p.get());
        let delay = warped(filtered, self.history.open(), interval);
        let x = aggregate(delay, self.loss, self.marks, &self.config);
        // The sender may ramp up only if the log window has no loss and no queue (RFC 8698).
        let quiet = lost == 0 && self.log.iter().all(|packet| packet.queue < Q_EPS);
        let covered = self.first.map_or(Span::ZERO, |first| now.since(first));
        // While the log is shorter than its window, average the receive rate over the time since the first packet.
        let window = covered.clamp(self.config.delta, LOG_WINDOW.max(self.config.delta));
        Message {
            gradual: !quiet || (self.config.own_rules && marked > 0),
            x: Span::from_secs_f64(x),
            received: self.log.iter().map(|p| p.size).sum::<Bytes>().per(window),
        }
    }
}

/// Reduces a long delay after a loss (RFC 8698, section 4.2). Without this reduction, flows that fill the queue would
/// starve this flow.
///
/// `delay` is in seconds. `since` is the number of packets since the last loss. `interval` is the mean loss interval,
/// in packets.
///
/// ```text
///             QTH · exp(−λ (d − QTH)/QTH)    for d ≥ QTH, less than 7 loss intervals after a loss
///  d_tilde =
///             d                              otherwise
/// ```
///
/// In the eighth loss interval after a loss, d_tilde rises linearly from the upper expression to the lower.
fn warped(delay: f64, since: f64, interval: Option<f64>) -> f64 {
    let threshold = Q_TH.as_secs_f64();
    let Some(interval) = interval.filter(|_| delay >= threshold) else { return delay };
    let warped = threshold * libm::exp(-LAMBDA * (delay - threshold) / threshold);
    let beyond = ((since - MULTI_LOSS * interval) / interval).clamp(0.0, 1.0);
    beyond * delay + (1.0 - beyond) * warped
}

/// Computes the aggregate congestion signal, in seconds (RFC 8698, section 4.2).
///
/// ```text
///                     ⎛p_mark⎞²         ⎛p_loss⎞²
///  x = d_tilde + 2 ms ⎜──────⎟  + 10 ms ⎜──────⎟       at most x_max
///                     ⎝ 1 %  ⎠          ⎝ 1 %  ⎠
/// ```
fn aggregate(delay: f64, loss: f64, marks: f64, config: &Config) -> f64 {
    let (marks, loss) = (marks / PMR_REF, loss / PLR_REF);
    (delay + config.d_mark * marks * marks + config.d_loss * loss * loss).min(config.x_max)
}

#[cfg(test)]
mod tests {
    use super::super::tests::printed;
    use super::*;

    fn near(got: f64, want: f64, by: f64) {
        assert!((got - want).abs() <= by, "{got} is not {want}");
    }

    fn ms(n: u64) -> Time {
        Time::ZERO + Span::millis(n)
    }

    #[test]
    fn beside_losses_a_delay_above_50_ms_counts_less_the_longer_it_is() {
        for (delay, want) in [(0.075, 0.038_940), (0.1, 0.030_327), (0.15, 0.018_394), (0.3, 0.004_104)] {
            near(warped(delay, 10.0, Some(100.0)), want, 1e-6);
            near(warped(delay, 699.0, Some(100.0)), want, 1e-6);
            // In the middle of the eighth loss interval, the result is the mean of the delay and the warped delay.
            // After that interval, and before the first loss, it is the delay itself.
            near(warped(delay, 750.0, Some(100.0)), f64::midpoint(delay, want), 1e-6);
            near(warped(delay, 801.0, Some(100.0)), delay, 1e-9);
            near(warped(delay, 10.0, None), delay, 1e-9);
        }
        near(warped(0.049, 10.0, Some(100.0)), 0.049, 1e-9);
        near(warped(0.05, 10.0, Some(100.0)), 0.05, 1e-9);
    }

    #[test]
    fn loss_and_marks_count_by_their_squares() {
        let config = printed();
        for (loss, want) in [(0.005, 0.0025), (0.01, 0.010), (0.02, 0.040), (0.05, 0.250)] {
            near(aggregate(0.0, loss, 0.0, &config), want, 1e-9);
        }
        for (marks, want) in [(0.01, 0.002), (0.05, 0.050), (0.1, 0.200)] {
            near(aggregate(0.0, 0.0, marks, &config), want, 1e-9);
        }
        near(aggregate(0.015, 0.01, 0.01, &config), 0.027, 1e-9);
        near(aggregate(1.0, 1.0, 0.0, &config), 3.2767, 1e-9);
    }

    /// Delivers packets every 10 ms, and skips a packet if `lost` returns true for its number. `queue` returns the
    /// queueing delay of a packet, in ms.
    fn run(
        signal: &mut Signal,
        numbers: std::ops::Range<u64>,
        lost: fn(u64) -> bool,
        queue: fn(u64) -> u64,
    ) -> Message {
        let end = numbers.end;
        for number in numbers.filter(|n| !lost(*n)) {
            let (sent, at) = (ms(number * 10), ms(number * 10 + 30 + queue(number)));
            let delay = OneWay::to_peer(sent, steadycast_units::PeerTime::from_nanos(at.as_nanos() as i64));
            let (size, delay) = (Bytes::new(1_250), Some(delay));
            signal.on_packet(&Packet { at, number: Some(number), missing: 0, size, delay, marked: number % 20 == 7 });
        }
        signal.report(ms(end * 10 + 30))
    }

    #[test]
    fn without_loss_and_queue_the_rate_may_ramp_up_and_a_single_slow_packet_ends_that() {
        let config = printed();
        let mut signal = Signal::new(&config);
        let message = run(&mut signal, 0..100, |_| false, |_| 0);
        assert!(!message.gradual);
        // Two of fifty packets are marked, and the smoothing weight is a tenth, so x is (0.004/0.01)² · 2 ms.
        near(message.x.as_secs_f64(), 0.000_32, 1e-6);
        near(message.received.as_bps_f64(), 1e6, 25e3);
        // One of fifty packets has waited for 12 ms. The minimum filter over fifteen packets hides this delay. The
        // ramp-up still ends, because the receiver checks the delay of every packet.
        let message = run(&mut signal, 100..150, |_| false, |n| if n == 120 { 12 } else { 0 });
        assert!(message.gradual && message.x < Span::millis(3), "{message:?}");
        assert!(!run(&mut signal, 150..250, |_| false, |_| 9).gradual);
    }

    #[test]
    fn a_tenth_of_what_is_missing_goes_into_the_mean_and_a_late_packet_is_lost() {
        let config = printed();
        let mut signal = Signal::new(&config);
        run(&mut signal, 0..100, |_| false, |_| 0);
        let message = run(&mut signal, 100..150, |n| n % 10 == 5, |_| 0);
        assert!(message.gradual);
        near(signal.loss, 0.01, 0.001);
        let late = Packet {
            at: ms(1_530),
            number: Some(105),
            missing: 0,
            size: Bytes::new(1_250),
            delay: None,
            marked: false,
        };
        signal.on_packet(&late);
        signal.report(ms(1_530));
        near(signal.loss, 0.019, 0.0015);
    }

    #[test]
    fn marks_end_the_ramp_up_unless_as_printed() {
        let config = Config { own_rules: true, ..printed() };
        assert!(run(&mut Signal::new(&config), 0..100, |_| false, |_| 0).gradual);
    }
}
