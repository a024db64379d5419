//! Steadycast's rate controllers as congestion controllers of QUIC, for frames that are sent as streams. Two stacks are
//! supported: quinn ([`quinn_proto::congestion::Controller`]), whose interface does not identify packets, and noq,
//! whose interface identifies each packet.
//!
//! ```
//! use steadycast_quic::{Bounds, Rate, Steadycast};
//!
//! let controllers = Steadycast::new("steady", &[], &Bounds::new(Rate::kbps(100), Rate::mbps(20)))?;
//! let mut transport = quinn_proto::TransportConfig::default();
//! controllers.configure_quinn(&mut transport);
//! // As soon as there is a connection, its decision contains the rate for the encoder:
//! assert!(controllers.decision().is_none());
//! # Ok::<(), steadycast_quic::ParamError>(())
//! ```
//!
//! The stacks provide no timer to a controller. Its timers are therefore handled together with the next packet or
//! acknowledgement.

mod noq;
mod quinn;

pub use steadycast_remote::{Bounds, Decision, Given, ParamError, Rate};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use steadycast_remote::{Bytes, FrameEdge, Packet, PacketArrival, PacketResult, PeerTime, Remote, Span, Time};

/// Size of the IPv4 and UDP headers, which QUIC does not count.
const HEADERS: u64 = 28;
/// Window in excess of the rate's bytes in flight: two full packets. Stacks need room for one, and a receiver may delay
/// an acknowledgement until it has two.
const EXTRA: u64 = 2_400;
/// Frames that wait are sent at this multiple of the pacing rate, so that the frames behind them do not wait longer and
/// longer.
const DRAIN: f64 = 1.25;
/// Acknowledgements can be late in bursts, as on Wi-Fi. Frames would wait meanwhile if the window covered a mean round
/// trip only, so it covers the longest one of the last one or two of these spans.
const PEAK_SPAN: Duration = Duration::from_secs(1);
/// A receiver that delays acknowledgements by at least this does not acknowledge each packet at once.
const ACK_DELAY_MIN: Duration = Duration::from_millis(1);
/// For this time after a delayed acknowledgement, results of packets are passed on one acknowledgement late. A stack
/// tells the delay of an acknowledgement only with the next one.
const ACK_DELAY_MEMORY: Duration = Duration::from_secs(1);
/// The round-trip time before one is measured (RFC 9002, section 6.2.2).
const INITIAL_RTT: Duration = Duration::from_millis(333);

/// Makes the controllers of an endpoint's connections.
#[derive(Debug)]
pub struct Steadycast {
    controller: String,
    params: Vec<(String, Given)>,
    bounds: Bounds,
    newest: Mutex<Option<Arc<Mutex<Connection>>>>,
}

impl Steadycast {
    /// Creates a factory of the controller called `controller`. Rates and sizes in `bounds` are those of IP packets.
    ///
    /// # Errors
    /// Those of [`Remote::new`], with [`steadycast_remote::Feedback::late`], because quinn does not report a packet
    /// when it is sent.
    pub fn new(controller: &str, params: &[(String, Given)], bounds: &Bounds) -> Result<Arc<Self>, ParamError> {
        let mut bounds = bounds.clone();
        bounds.feedback.late = true;
        Remote::new(controller, params, &bounds)?;
        let (controller, params) = (controller.to_owned(), params.to_vec());
        Ok(Arc::new(Self { controller, params, bounds, newest: Mutex::default() }))
    }

    /// Returns the decision of the newest connection: its target is the rate for the encoder. `None` without one.
    pub fn decision(&self) -> Option<Decision> {
        let newest = locked(&self.newest).clone()?;
        let decision = locked(&newest).remote.decision();
        Some(decision)
    }

    fn connect(&self, now: Instant) -> Arc<Mutex<Connection>> {
        let remote = Remote::new(&self.controller, &self.params, &self.bounds).expect("it was made before");
        let (rtt, peaks, fates) = (INITIAL_RTT, [Duration::ZERO; 2], Vec::new());
        let (start, ack, ack_delay, peaks_since) = (now, None, (now, Duration::ZERO), now);
        let made = Connection { remote, start, rtt, ack, ack_delay, peaks, peaks_since, data_limited: false, fates };
        let made = Arc::new(Mutex::new(made));
        *locked(&self.newest) = Some(Arc::clone(&made));
        made
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An acknowledgement of one or more packets.
#[derive(Debug)]
struct Ack {
    /// The round trip of its newest packet, with the receiver's delay.
    round_trip: Duration,
    /// Whether all of its packets are known.
    complete: bool,
}

/// The controller of a connection of either stack.
#[derive(Debug)]
struct Connection {
    remote: Remote,
    start: Instant,
    /// The smoothed round trip.
    rtt: Duration,
    /// The newest acknowledgement.
    ack: Option<Ack>,
    /// When an acknowledgement was last found to be delayed by the receiver, and by how much.
    ack_delay: (Instant, Duration),
    /// The longest round trips of the current and of the previous [`PEAK_SPAN`].
    peaks: [Duration; 2],
    peaks_since: Instant,
    /// Whether there was nothing to send before the newest acknowledgements.
    data_limited: bool,
    /// Fates of packets in the current batch of acknowledgements.
    fates: Vec<PacketResult>,
}

impl Connection {
    /// Converts to the connection's clock. It starts at 60 s, because packets may precede the controller.
    fn time(&self, at: Instant) -> Time {
        let since = at.saturating_duration_since(self.start);
        Time::ZERO + Span::secs(60) + Span::nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    fn sent(&mut self, at: Instant, bytes: u64) -> u64 {
        let size = Bytes::new(bytes + HEADERS);
        let packet = Packet { size, edge: FrameEdge::default(), data_limited: self.data_limited };
        self.remote.sent(self.time(at), &packet)
    }

    /// Records that a packet was acknowledged, and the state of the connection before. `smoothed` and `min` are those of
    /// the stack's round-trip time.
    fn on_ack(&mut self, now: Instant, sent: Instant, (smoothed, min): (Duration, Duration), data_limited: bool) {
        if let Some(ack) = self.ack.take_if(|ack| ack.complete) {
            // The acknowledgement has changed the smoothed round trip from s to (7 s + r) / 8, unless it was old. r is
            // its round trip without the delay that the receiver has reported (RFC 9002, section 5.3).
            let r = (8 * smoothed).saturating_sub(7 * self.rtt).max(min);
            let mut delay = if smoothed == self.rtt { Duration::ZERO } else { ack.round_trip.saturating_sub(r) };
            if delay >= ACK_DELAY_MIN {
                self.ack_delay = (now, delay);
            } else if self.fates.len() == 1 && self.has_ack_delay(now) {
                // The stack does not subtract a delay if r would be below the shortest round trip. The receiver did
                // delay this acknowledgement, because it is of a single packet.
                delay = self.ack_delay.1.min(ack.round_trip.saturating_sub(min));
            }
            self.report(now, delay);
        }
        let round_trip = now.saturating_duration_since(sent);
        let newest = self.ack.as_ref().map_or(round_trip, |ack| ack.round_trip.min(round_trip));
        self.ack = Some(Ack { round_trip: newest, complete: false });
        (self.rtt, self.data_limited) = (smoothed, data_limited);
        let age = now.saturating_duration_since(self.peaks_since);
        if age > PEAK_SPAN {
            let before = if age > 2 * PEAK_SPAN { Duration::ZERO } else { self.peaks[0] };
            (self.peaks, self.peaks_since) = ([Duration::ZERO, before], now);
        }
        self.peaks[0] = self.peaks[0].max(round_trip);
    }

    /// Records that a packet was acknowledged or lost. A batch has the time of its newest packet (RFC 9002, section
    /// 5.1).
    fn on_fate(&mut self, now: Instant, number: u64, arrived: bool) {
        let at = Some(PeerTime::from_nanos(i64::try_from(self.time(now).as_nanos()).unwrap_or(i64::MAX)));
        let arrived = arrived.then_some(PacketArrival { at, ecn: None });
        self.fates.push(PacketResult { number, arrived });
    }

    /// Records the end of an acknowledgement. Its packets are passed to the controller now, or with the next one.
    fn on_ack_end(&mut self, now: Instant) {
        if let Some(ack) = &mut self.ack {
            ack.complete = true;
        }
        if !self.has_ack_delay(now) {
            self.report(now, Duration::ZERO);
        }
    }

    /// Whether the receiver has delayed acknowledgements recently.
    fn has_ack_delay(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.ack_delay.0) <= ACK_DELAY_MEMORY
    }

    /// Passes the results of packets to the controller. Their acknowledgement was delayed by `delay`.
    fn report(&mut self, now: Instant, delay: Duration) {
        let at = self.time(now);
        let delay = i64::try_from(delay.as_nanos()).unwrap_or(0);
        let mut fates = std::mem::take(&mut self.fates);
        for at in fates.iter_mut().filter_map(|fate| fate.arrived.as_mut()?.at.as_mut()) {
            *at = PeerTime::from_nanos(at.as_nanos() - delay);
        }
        self.remote.feedback(at, fates);
        self.serve(at);
    }

    fn serve(&mut self, at: Time) {
        if self.remote.wake().is_some_and(|wake| wake.at <= at) {
            self.remote.timer(at);
        }
    }

    /// Returns the longest recent round trip.
    fn peak(&self) -> Duration {
        self.peaks[0].max(self.peaks[1]).max(self.rtt)
    }

    /// Returns the bytes that may be in flight at the pacing rate during `time`.
    fn window(&self, time: Duration) -> u64 {
        self.remote.decision().pacing.over(Span::from_secs_f64(time.as_secs_f64())).get() + EXTRA
    }
}
