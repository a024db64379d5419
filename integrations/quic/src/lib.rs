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
/// Acknowledgements can be late in bursts, as on Wi-Fi. Frames would wait meanwhile if the window covered a mean round
/// trip only, so it covers the longest one of the last one or two of these spans.
const PEAK_SPAN: Duration = Duration::from_secs(1);
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
        let made = Connection { remote, start: now, rtt, peaks, peaks_since: now, data_limited: false, fates };
        let made = Arc::new(Mutex::new(made));
        *locked(&self.newest) = Some(Arc::clone(&made));
        made
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The controller of a connection of either stack.
#[derive(Debug)]
struct Connection {
    remote: Remote,
    start: Instant,
    /// The smoothed round trip.
    rtt: Duration,
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

    /// Records the state of the connection at an acknowledgement of a packet.
    fn on_ack(&mut self, now: Instant, sent: Instant, rtt: Duration, data_limited: bool) {
        (self.rtt, self.data_limited) = (rtt, data_limited);
        let age = now.saturating_duration_since(self.peaks_since);
        if age > PEAK_SPAN {
            let before = if age > 2 * PEAK_SPAN { Duration::ZERO } else { self.peaks[0] };
            (self.peaks, self.peaks_since) = ([Duration::ZERO, before], now);
        }
        self.peaks[0] = self.peaks[0].max(now.saturating_duration_since(sent));
    }

    /// Records that a packet was acknowledged or lost. A batch has the time of its newest packet (RFC 9002, section
    /// 5.1).
    fn on_fate(&mut self, now: Instant, number: u64, arrived: bool) {
        let at = Some(PeerTime::from_nanos(i64::try_from(self.time(now).as_nanos()).unwrap_or(i64::MAX)));
        let arrived = arrived.then_some(PacketArrival { at, ecn: None });
        self.fates.push(PacketResult { number, arrived });
    }

    fn on_batch(&mut self, now: Instant) {
        let at = self.time(now);
        let fates = std::mem::take(&mut self.fates);
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
