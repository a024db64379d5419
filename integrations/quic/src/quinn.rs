//! The interface to quinn, which reports packets only with their acknowledgements, and is controlled only by the
//! window.

use crate::{Connection, DRAIN, Steadycast, locked};
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The window covers at most this multiple of the smoothed round trip, because quinn's pacer divides the window by it.
const PEAK_MAX: u32 = 4;

impl Steadycast {
    /// Sets the controllers of a sender's connections, and asks the receiver to acknowledge each packet at once
    /// (draft-ietf-quic-ack-frequency; ignored by a peer without it).
    pub fn configure_quinn(self: &Arc<Self>, transport: &mut quinn_proto::TransportConfig) {
        let mut acks = quinn_proto::AckFrequencyConfig::default();
        acks.ack_eliciting_threshold(0_u32.into());
        transport.ack_frequency_config(Some(acks)).congestion_controller_factory(Arc::clone(self) as Arc<_>);
    }
}

struct Quinn(Arc<Mutex<Connection>>);

impl ControllerFactory for Steadycast {
    fn build(self: Arc<Self>, now: Instant, _mtu: u16) -> Box<dyn Controller> {
        Box::new(Quinn(self.connect(now)))
    }
}

impl Controller for Quinn {
    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        let mut connection = locked(&self.0);
        connection.on_ack(now, sent, (rtt.get(), rtt.min()), app_limited);
        let number = connection.sent(sent, bytes);
        connection.on_fate(now, number, true);
    }

    fn on_end_acks(&mut self, now: Instant, _in_flight: u64, _app_limited: bool, _largest: Option<u64>) {
        locked(&self.0).on_ack_end(now);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, _persistent: bool, lost_bytes: u64) {
        let mut connection = locked(&self.0);
        let mut left = lost_bytes;
        while left > 0 {
            let size = left.min(1_200);
            left -= size;
            let number = connection.sent(sent, size);
            connection.on_fate(now, number, false);
        }
        connection.report(now, Duration::ZERO);
    }

    fn on_mtu_update(&mut self, _mtu: u16) {}

    // Only the window limits the rate.
    fn window(&self) -> u64 {
        let connection = locked(&self.0);
        connection.window(connection.peak().min(PEAK_MAX * connection.rtt).mul_f64(DRAIN))
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics.pacing_rate = Some(locked(&self.0).remote.decision().pacing.as_bps());
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self(Arc::clone(&self.0)))
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
