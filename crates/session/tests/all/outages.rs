//! Short outages of the path: the session and the controller count the packets that the network dropped as lost, and no
//! others. A forged packet and a restart of the source do not count as such a loss.

#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use crate::group;

use group::{Got, SENDER, receiver, rtcp};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use steadycast_session::{Origin, Profile, Received, Receiver};
use steadycast_units::{Ecn, Rate, Seed, Span, Time};
use steadycast_wire::rtp::RtpHeader;

const SENDERS: Origin = Origin(1);
/// The IP size of a packet in bits.
const PACKET_BITS: f64 = 9_600.0;
/// The start of the outage, and the time after it, in seconds.
const BEGIN: f64 = 4.0;
const AFTER: f64 = 4.0;

/// A video stream over a link that fails once. Times are in seconds, rates in bit/s.
#[derive(Clone, Debug)]
struct Outage {
    rate: f64,
    /// The stream's rate divided by the link's rate, before the outage and 0.3 s after its beginning.
    load: (f64, f64),
    fps: f64,
    /// The number of frames from an I frame to the next one, and its size divided by that of another frame.
    gop: (u32, f64),
    /// Whether the packets of a frame are sent over the frame interval. Otherwise, they are sent together.
    paced: bool,
    length: f64,
    /// Whether the queue keeps packets during the outage. Otherwise, the link loses all packets.
    keeps: bool,
    queue: f64,
    loss: f64,
    /// The difference between the receiver's clock and the sender's clock.
    drift: f64,
    first: (u16, u32),
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Arriving {
    at: f64,
    number: u64,
    timestamp: u32,
}

fn log(range: (f64, f64)) -> impl Strategy<Value = f64> {
    (libm::log(range.0)..libm::log(range.1)).prop_map(libm::exp)
}

prop_compose! {
    fn outage()(
        rate in log((1e5, 2e7)), load in (0.4..0.95, 0.05..0.95), fps in 25.0..60.0, gop in (10u32..250, 1.0..10.0),
        paced: bool, length in log((0.02, 3.0)), keeps: bool, queue in log((0.03, 1.0)), lossy: bool,
        loss in log((0.001, 0.05)), drift in -1e-4..1e-4, first: (u16, u32), seed: u64,
    ) -> Outage {
        let loss = if lossy { loss } else { 0.0 };
        Outage { rate, load, fps, gop, paced, length, keeps, queue, loss, drift, first, seed }
    }
}

impl Outage {
    /// Returns the packets that arrive.
    fn arriving(&self) -> Vec<Arriving> {
        let mut chance = Seed(self.seed).part("loss");
        let (outage, mut queued) = (BEGIN..BEGIN + self.length, VecDeque::new());
        let (mut all, mut number, mut free, mut owed) = (Vec::new(), 0, 0.0_f64, 0.0);
        for frame in 0..((BEGIN + self.length + AFTER) * self.fps) as u32 {
            let begins = f64::from(frame) / self.fps;
            let load = if begins < BEGIN + 0.3 { self.load.0 } else { self.load.1 };
            let (gop, factor) = self.gop;
            let size = if frame % gop == 0 { factor } else { 1.0 } * f64::from(gop) / (f64::from(gop) - 1.0 + factor);
            owed += size * load * self.rate / self.fps / PACKET_BITS;
            let packets = (owed as u64).max(1);
            owed = (owed - packets as f64).max(0.0);
            for packet in 0..packets {
                let place = if self.paced { packet as f64 / packets as f64 } else { 0.0 };
                let sent = begins + place / self.fps;
                number += 1;
                queued.retain(|leaves| *leaves > sent);
                // The receiver knows neither the rate nor the size of a key frame in the first half second.
                let full = sent > 0.5 && queued.len() as f64 >= (self.queue * self.rate / PACKET_BITS).max(2.0);
                if full || chance.unit() < self.loss || !self.keeps && outage.contains(&sent) {
                    continue;
                }
                // Transmission pauses during an outage in which the queue keeps its packets.
                let (starts, takes) = (free.max(sent), PACKET_BITS / self.rate);
                let pauses = self.keeps && starts < outage.end && starts + takes > outage.start;
                free = starts + takes + if pauses { outage.end - starts.max(outage.start) } else { 0.0 };
                queued.push_back(free);
                let timestamp = self.first.1.wrapping_add((begins * 90_000.0) as u32);
                all.push(Arriving { at: (free + 0.02) * (1.0 + self.drift), number: number - 1, timestamp });
            }
        }
        all
    }
}

/// A stream without queueing delay and losses, which ends before the outage.
fn calm() -> impl Strategy<Value = Vec<Arriving>> {
    outage().prop_map(|outage| {
        let load = (outage.load.0.min(0.7), 0.7);
        let calm = Outage {
            rate: outage.rate.max(1e6),
            load,
            gop: (10, 1.0),
            paced: true,
            loss: 0.0,
            first: (0, outage.first.1),
            ..outage
        };
        calm.arriving().into_iter().filter(|packet| packet.at < BEGIN).collect()
    })
}

fn new_receiver() -> (Receiver, Arc<Mutex<Got>>) {
    receiver(2, rtcp(Profile::Avpf { t_rr_interval: Span::ZERO }, Rate::mbps(2), false), Time::ZERO)
}

fn take(receiver: &mut Receiver, at: f64, seq: u16, timestamp: u32) -> Received {
    let (payload_type, ssrc) = (96, SENDER);
    let header = RtpHeader { payload_type, marker: false, seq, timestamp, ssrc, send_time: None, payload_len: 10 };
    let mut datagram = Vec::new();
    header.encode(&[], &[0; 10], &mut datagram);
    let now = Time::from_nanos((at * 1e9) as u64);
    receiver.on_rtp(now, SENDERS, &datagram, Ecn::NotEct, None).unwrap().0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_an_outage_drops_counts_as_lost_for_the_record_and_for_the_controller(outage in outage()) {
        let (mut receiver, got) = new_receiver();
        let arriving = outage.arriving();
        for packet in &arriving {
            let seq = outage.first.0.wrapping_add(packet.number as u16);
            let received = take(&mut receiver, packet.at, seq, packet.timestamp);
            prop_assert!(matches!(received, Received::New(_)), "{packet:?}: {received:?}");
        }
        let (first, last) = (arriving[0], arriving[arriving.len() - 1]);
        let dropped = last.number - first.number + 1 - arriving.len() as u64;
        prop_assert_eq!(receiver.expected() - receiver.received(), dropped);
        // The controller counts the numbers between those that arrive as lost.
        let seqs = &got.lock().unwrap().seqs;
        let steps = |numbers: &[u64]| numbers.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>();
        prop_assert_eq!(steps(seqs), steps(&arriving.iter().map(|packet| packet.number).collect::<Vec<_>>()));
    }

    #[test]
    fn forged_packets_far_ahead_cost_a_stream_nothing_even_with_a_right_timestamp(
        stream in calm(), forged in prop::collection::vec((1_000u16..64_000, 0u32..3), 1..50),
    ) {
        let (mut receiver, _) = new_receiver();
        // The rates are known after a second. Forged packets arrive at even distances from then on.
        let known = stream.iter().position(|packet| packet.at > 1.0).unwrap();
        let every = (stream.len() - known).div_ceil(forged.len());
        let mut forged = forged.into_iter();
        for (n, packet) in stream.iter().enumerate() {
            let received = take(&mut receiver, packet.at, packet.number as u16, packet.timestamp);
            prop_assert!(matches!(received, Received::New(_)));
            if n >= known && (n - known).is_multiple_of(every) && let Some((ahead, frames)) = forged.next() {
                let timestamp = packet.timestamp.wrapping_add(frames * 3_000);
                let received = take(&mut receiver, packet.at, (packet.number as u16).wrapping_add(ahead), timestamp);
                prop_assert!(matches!(received, Received::Unused(_)), "{ahead} ahead: {received:?}");
            }
        }
        prop_assert_eq!((receiver.expected(), receiver.received()), (stream.len() as u64, stream.len() as u64));
    }

    #[test]
    fn a_source_that_restarts_with_other_numbers_has_lost_nothing(
        stream in calm(), ahead in 8_000u16..57_000, other_clock: bool, clock in 1_000_000u32..4_000_000_000,
        silence in 0.06..0.4,
    ) {
        let (mut receiver, _) = new_receiver();
        for packet in &stream {
            take(&mut receiver, packet.at, packet.number as u16, packet.timestamp);
        }
        let later = stream[stream.len() - 1].at - stream[0].at + silence;
        // The media clock goes on, or is another one.
        let clock = if other_clock { clock } else { (later * 90_000.0) as u32 };
        let mut used = 0;
        for packet in &stream {
            let (seq, timestamp) = ((packet.number as u16).wrapping_add(ahead), packet.timestamp.wrapping_add(clock));
            let received = take(&mut receiver, packet.at + later, seq, timestamp);
            used += u64::from(matches!(received, Received::New(_)));
        }
        prop_assert!(used >= stream.len() as u64 / 2, "{used} of {} packets were used", stream.len());
        prop_assert_eq!(receiver.expected(), receiver.received());
    }
}
