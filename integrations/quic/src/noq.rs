//! The interface to noq, which reports each packet by its number, and whose pacer accepts a rate.

use crate::{Connection, DRAIN, Steadycast, locked};
use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Most packets in flight whose numbers are stored.
const MOST: usize = 1 << 14;

impl Steadycast {
    /// Sets the controllers of a sender's connections, and asks for immediate acknowledgements, as
    /// [`Steadycast::configure_quinn`] does.
    pub fn configure_noq(self: &Arc<Self>, transport: &mut noq_proto::TransportConfig) {
        let mut acks = noq_proto::AckFrequencyConfig::default();
        acks.ack_eliciting_threshold(0_u32.into());
        transport.ack_frequency_config(Some(acks)).congestion_controller_factory(Arc::clone(self) as Arc<_>);
    }
}

#[derive(Clone, Debug)]
struct Noq {
    connection: Arc<Mutex<Connection>>,
    /// The controller's packet numbers, by QUIC's packet numbers.
    numbers: BTreeMap<u64, u64>,
}

impl ControllerFactory for Steadycast {
    fn build(self: Arc<Self>, now: Instant, _mtu: u16) -> Box<dyn Controller> {
        Box::new(Noq { connection: self.connect(now), numbers: BTreeMap::new() })
    }
}

impl Controller for Noq {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        let mut connection = locked(&self.connection);
        // Packets that are never acknowledged (RFC 9000, section 13.2) would fill the map.
        if self.numbers.len() == MOST {
            self.numbers.pop_first();
        }
        self.numbers.insert(pn, connection.sent(now, bytes.into()));
        let at = connection.time(now);
        connection.serve(at);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, pn: u64, app_limited: bool, rtt: &RttEstimator) {
        let mut connection = locked(&self.connection);
        connection.on_ack(now, sent, (rtt.get(), rtt.min()), app_limited);
        let number = self.numbers.remove(&pn).unwrap_or_else(|| connection.sent(sent, bytes));
        connection.on_fate(now, number, true);
    }

    fn on_end_acks(&mut self, now: Instant, _in_flight: u64, _app_limited: bool, _largest: Option<u64>) {
        locked(&self.connection).on_ack_end(now);
    }

    fn on_packet_lost(&mut self, _bytes: u16, pn: u64, now: Instant) {
        if let Some(number) = self.numbers.remove(&pn) {
            locked(&self.connection).on_fate(now, number, false);
        }
    }

    fn on_congestion_event(&mut self, now: Instant, _: Instant, _: bool, _: bool, _: u64, _: u64) {
        locked(&self.connection).report(now, Duration::ZERO);
    }

    fn on_mtu_update(&mut self, _mtu: u16) {}

    // The pacer enforces the rate. Two round trips leave room for packets in the network's queues.
    fn window(&self) -> u64 {
        let connection = locked(&self.connection);
        connection.window(2 * connection.peak())
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics.pacing_rate = Some(locked(&self.connection).remote.decision().pacing.scale(DRAIN).as_bps() / 8);
        metrics.send_quantum = Some(2_400);
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
