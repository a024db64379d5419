//! Steadycast's rate controllers as bandwidth estimators of webrtc-rs ([`rtc_interceptor::BandwidthEstimator`]).
//!
//! ```
//! use rtc_interceptor::{
//!     BandwidthEstimator, CongestionControlBuilder, PacerBuilder, Registry, Slot, TwccSenderBuilder,
//! };
//! use steadycast_remote::{Bounds, ParamError, Rate};
//! use steadycast_webrtc::{SharedEstimator, Steadycast};
//!
//! let estimator = Steadycast::new("steady", &[], &Bounds::new(Rate::kbps(100), Rate::mbps(4)))?;
//! let estimator = SharedEstimator::new(estimator);
//! let chain = Registry::new()
//!     .with(Slot::CongestionControl, CongestionControlBuilder::new(estimator.clone()).build())
//!     .with(Slot::TwccSender, TwccSenderBuilder::new().build())
//!     .with(Slot::Pacer, PacerBuilder::new().build())
//!     .build();
//! # let _ = chain;
//! // The rate for the encoder, before each frame:
//! assert!(estimator.target_bitrate() > 0.0);
//! # Ok::<(), ParamError>(())
//! ```
//!
//! webrtc-rs informs an estimator of a sent packet only together with the packet's feedback. The estimator therefore
//! can't distinguish a silent receiver from a silent application: if feedback stops, only the controller's timer lowers
//! the rate. Controllers with a window (`scream`, `pgmcc`, `lda-plus`) are refused.

use rtc_interceptor::{BandwidthEstimator, EstimatorStats, PacketReport};
use rtc_rtcp::transport_feedbacks::cc_feedback_report::Ecn as Mark;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use steadycast_remote::{
    Bounds, Bytes, Decision, Ecn, FrameEdge, Given, MediaQueue, Packet, PacketArrival, PacketResult, ParamError,
    PeerTime, Remote, Span, Time,
};

/// Size of the IPv4 and UDP headers, which webrtc-rs does not count.
const HEADERS: u64 = 28;
/// Maximum age of the packets in the first report.
const BEFORE: Duration = Duration::from_secs(60);
/// Delay of a wake-up that is overdue.
const SOON: Duration = Duration::from_millis(1);

/// The pacer's rate, as a multiple of the estimate. On a link of 2.4 Mb/s with a queue of 14 packets, bursts at 2.5 times
/// the estimate lost 14 % of the packets, and at 1.2 times 4 %.
const PACING: f64 = 1.2;
/// The encoder's share of the estimate without losses. RTP headers take 2 %.
const ENCODER_SHARE: f64 = 0.95;
/// Number of retransmissions per lost packet. webrtc-rs answers each request, and requests are repeated.
const RETRANSMISSIONS: f64 = 2.0;
/// Minimum share of the encoder.
const ENCODER_SHARE_MIN: f64 = 0.7;

/// A bandwidth estimator with a rate controller of Steadycast.
pub struct Steadycast {
    // A controller is `Send` but not `Sync`; the lock only satisfies the compiler.
    remote: Mutex<Remote>,
    decision: Decision,
    /// The share of a full IP packet that webrtc-rs counts.
    counted: f64,
    /// The clock's start and its latest time, once a call has given a time.
    clock: Option<(Instant, Instant)>,
    wake: Option<Time>,
    fates: Vec<PacketResult>,
}

impl std::fmt::Debug for Steadycast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steadycast").field("decision", &self.decision).finish_non_exhaustive()
    }
}

impl Steadycast {
    /// Creates the controller called `controller`, see [`Remote::new`]. Rates and sizes in `bounds` are those of IP
    /// packets.
    ///
    /// # Errors
    /// Those of [`Remote::new`], with [`steadycast_remote::Feedback::late`].
    pub fn new(controller: &str, params: &[(String, Given)], bounds: &Bounds) -> Result<Self, ParamError> {
        let mut bounds = bounds.clone();
        bounds.feedback.late = true;
        let mut remote = Remote::new(controller, params, &bounds)?;
        // The pacer's queue is unknown here. An empty report says that the source has frames, whose varying rate
        // `steady` uses in place of probes.
        remote.queued(&MediaQueue { at: Time::ZERO, waiting: Bytes::ZERO, age: Span::ZERO, frame: None });
        let packet = bounds.packet.as_f64();
        Ok(Self {
            decision: remote.decision(),
            remote: Mutex::new(remote),
            counted: (packet - HEADERS as f64).max(1.0) / packet,
            clock: None,
            wake: None,
            fates: Vec::new(),
        })
    }

    /// Returns the controller's decision. Its rates are those of IP packets.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    fn time(&mut self, at: Instant, now: Instant) -> Time {
        let (start, last) = self.clock.get_or_insert_with(|| (now.checked_sub(BEFORE).unwrap_or(now), now));
        *last = now.max(*last);
        let since = at.saturating_duration_since(*start).as_nanos();
        Time::ZERO + Span::nanos(u64::try_from(since).unwrap_or(u64::MAX))
    }

    fn remote(&mut self) -> &mut Remote {
        self.remote.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&mut self) {
        let remote = self.remote();
        let (decision, wake) = (remote.decision(), remote.wake().map(|wake| wake.at));
        (self.decision, self.wake) = (decision, wake);
    }
}

impl BandwidthEstimator for Steadycast {
    fn on_reports(&mut self, now: Instant, reports: &[PacketReport]) {
        if reports.is_empty() {
            return;
        }
        let mut fates = std::mem::take(&mut self.fates);
        for report in reports {
            let left = self.time(report.departure, now);
            let size = Bytes::new(report.size as u64 + HEADERS);
            let packet = Packet { size, edge: FrameEdge::default(), data_limited: false };
            let number = self.remote().sent(left, &packet);
            let nanos = |at: Duration| i64::try_from(at.as_nanos()).unwrap_or(i64::MAX);
            let ecn = match report.ecn {
                Mark::NotEct => Ecn::NotEct,
                Mark::Ect1 => Ecn::Ect1,
                Mark::Ect0 => Ecn::Ect0,
                Mark::Ce => Ecn::Ce,
            };
            let arrived = report.arrived.then_some(PacketArrival {
                at: report.arrival.map(|at| PeerTime::from_nanos(nanos(at))),
                // Transport-wide feedback has no ECN field.
                ecn: (!report.is_twcc).then_some(ecn),
            });
            fates.push(PacketResult { number, arrived });
        }
        let at = self.time(now, now);
        self.remote().feedback(at, fates.drain(..));
        self.fates = fates;
        self.read();
    }

    fn target_bitrate(&self) -> f64 {
        self.decision.target.as_bps_f64() * self.counted
    }

    fn handle_timeout(&mut self, now: Instant) {
        // No timer runs before the first report.
        if self.clock.is_some() {
            let at = self.time(now, now);
            self.remote().timer(at);
            self.read();
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let (start, last) = self.clock?;
        let wake = start.checked_add(Duration::from_nanos(self.wake?.as_nanos()))?;
        Some(wake.max(last + SOON))
    }

    fn stats(&self) -> EstimatorStats {
        let mut stats = EstimatorStats::default();
        stats.packet_loss = self.decision.why.loss;
        stats.round_trip_time = self.decision.why.rtt.map(|rtt| Duration::from_nanos(rtt.as_nanos()));
        stats
    }
}

/// An estimator that a chain and the program share: the program reads its rate for the encoder.
#[derive(Clone)]
pub struct SharedEstimator {
    estimator: Arc<Mutex<dyn BandwidthEstimator>>,
    /// The factor by which the rate for webrtc-rs is higher than the estimate.
    pacing: f64,
}

impl std::fmt::Debug for SharedEstimator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedEstimator").field("target_bitrate", &self.target_bitrate()).finish_non_exhaustive()
    }
}

impl SharedEstimator {
    /// Shares `estimator`, which may also be webrtc-rs' own. Clones share the same estimator.
    pub fn new(estimator: impl BandwidthEstimator + 'static) -> Self {
        Self { estimator: Arc::new(Mutex::new(estimator)), pacing: 1.0 }
    }

    /// Returns the estimator for a chain with webrtc-rs' pacer, which sends at exactly the rate of its estimator. Its
    /// queue would grow without limit if the estimate were that rate, because headers and retransmissions are added to
    /// what the encoder makes. The rate is therefore 1.2 times the estimate.
    #[must_use]
    pub fn paced(&self) -> Self {
        Self { pacing: PACING, ..self.clone() }
    }

    /// Returns the bitrate for the encoder, in bits per second. It leaves the rest of the estimate to headers and
    /// retransmissions.
    pub fn encoder_bitrate(&self) -> f64 {
        let estimator = self.lock();
        let loss = estimator.stats().packet_loss.unwrap_or_default();
        estimator.target_bitrate() * (ENCODER_SHARE - RETRANSMISSIONS * loss).max(ENCODER_SHARE_MIN)
    }

    fn lock(&self) -> MutexGuard<'_, dyn BandwidthEstimator + 'static> {
        self.estimator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BandwidthEstimator for SharedEstimator {
    fn on_reports(&mut self, now: Instant, reports: &[PacketReport]) {
        self.lock().on_reports(now, reports);
    }

    fn target_bitrate(&self) -> f64 {
        self.lock().target_bitrate() * self.pacing
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.lock().handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.lock().poll_timeout()
    }

    fn stats(&self) -> EstimatorStats {
        self.lock().stats()
    }
}
