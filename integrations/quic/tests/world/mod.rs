//! A sender of frames and their receiver over a link, in virtual time.
#![allow(clippy::unwrap_used, reason = "what stops here is a test or an example")]
#![allow(
    clippy::disallowed_methods,
    reason = "an `Instant` has no other beginning; the times that follow are computed"
)]

#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use steadycast_quic::{Bounds, Decision, Rate, Steadycast};
use steadycast_remote::Seed;
use support::{Congestion, FRAME, PAYLOAD, Peer};
pub use support::{Noq, Quinn};

pub struct Path {
    pub bps: u64,
    pub way: Duration,
    pub queue: Duration,
    pub loss: f64,
    pub controller: &'static str,
    /// Delay spikes in both directions, as of a busy Wi-Fi channel.
    pub spikes: bool,
    /// A random delay of at most 2 ms in both directions; spikes include it.
    pub jitter: bool,
    /// Whether the receiver acknowledges each packet at once.
    pub prompt: bool,
}

#[derive(Debug)]
pub struct Outcome {
    pub bps: f64,
    /// The 95th percentile of the delay of frames, from the encoder to the last byte at the receiver.
    pub delay: Duration,
    pub lost: u64,
}

const WARM: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(40);
/// Frames are skipped while the frames of a second are unacknowledged or wait.
const WAITING: usize = 25;

/// Runs 40 s, and measures the last 30 s. `each` is called with the controller's decision once per second.
pub fn over<P: Peer>(path: &Path, seed: u8, mut each: impl FnMut(&Decision)) -> Outcome {
    let bounds = Bounds::new(Rate::kbps(100), Rate::bps(if path.spikes { 4_000_000 } else { path.bps * 5 / 4 }));
    let no_probes = [("probes".to_owned(), steadycast_quic::Given::Switch(false))];
    let controllers =
        Steadycast::new(path.controller, if path.controller == "gcc" { &no_probes } else { &[] }, &bounds).unwrap();
    let congestion = if path.prompt { Congestion::Steadycast } else { Congestion::UsualAcks }(Arc::clone(&controllers));
    let places: [SocketAddr; 2] = ["10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap()];
    let (certificate, key) = support::new_certificate();
    let start = Instant::now();
    let sender = P::connect(start, places[1], certificate.clone(), &congestion, seed);
    let mut ends = [sender, P::listen(certificate, key, seed)];
    let (mut now, mut frame, mut free) = (start, start, start);
    let mut wires: BTreeMap<(Instant, u64), (usize, Vec<u8>)> = BTreeMap::new();
    let (mut order, mut buffer) = (0, Vec::new());
    // The latest arrival in each direction.
    let mut last = [start; 2];
    let (mut index, mut chance) = (0_u32, Seed(seed.into()).part("link"));
    let (mut bytes, mut lost, mut delays) = (0, 0, Vec::new());
    while now < start + END {
        // 1. The encoder makes a frame at the controller's rate.
        if now >= frame {
            frame += FRAME;
            index += 1;
            if let Some(decision) = controllers.decision() {
                if index % 25 == 0 {
                    each(&decision);
                }
                let size = decision.target.as_bps() as f64 * PAYLOAD * FRAME.as_secs_f64() / 8.0;
                let mut content = vec![0; (size as usize).max(8)];
                let at = u64::try_from((now - start).as_nanos()).unwrap();
                content[..8].copy_from_slice(&at.to_be_bytes());
                ends[0].send_frame(&content, WAITING);
            }
        }
        // 2. Datagrams arrive.
        while let Some(wire) = wires.first_entry().filter(|wire| wire.key().0 <= now) {
            let (to, datagram) = wire.remove();
            ends[to].on_datagram(now, places[1 - to], &datagram);
        }
        // 3. Both ends send, over the link and back.
        let mut next = frame;
        for (n, end) in ends.iter_mut().enumerate() {
            for content in end.on_time(now) {
                if now > start + WARM {
                    let at = Duration::from_nanos(u64::from_be_bytes(content[..8].try_into().unwrap()));
                    delays.push(now - start - at);
                    bytes += content.len();
                }
            }
            while end.transmit(now, &mut buffer).is_some() {
                let mut arrives = Some(now + path.way);
                if n == 0 {
                    let fits = free.saturating_duration_since(now) <= path.queue;
                    if fits {
                        let bits = (buffer.len() as u64 + 28) * 8;
                        free = free.max(now) + Duration::from_nanos(bits * 1_000_000_000 / path.bps);
                    }
                    arrives = (fits && !chance.happens(path.loss)).then_some(free + path.way);
                }
                lost += u64::from(arrives.is_none());
                if path.spikes || path.jitter {
                    let spike = if path.spikes && chance.happens(0.07) { chance.between(0.03, 0.14) } else { 0.0 };
                    let late = Duration::from_secs_f64(spike + chance.between(0.0, 0.002));
                    // Packets behind a late one wait as well.
                    arrives = arrives.map(|at| (at + late).max(last[n]));
                    last[n] = arrives.unwrap_or(last[n]);
                }
                if let Some(at) = arrives {
                    order += 1;
                    wires.insert((at, order), (1 - n, buffer.clone()));
                }
            }
            next = end.timeout().map_or(next, |at| next.min(at));
        }
        next = wires.first_key_value().map_or(next, |((at, _), _)| next.min(*at));
        now = next.max(now + Duration::from_micros(10));
    }
    delays.sort_unstable();
    let bps = bytes as f64 * 8.0 / (END - WARM).as_secs_f64();
    Outcome { bps, delay: delays[delays.len() * 95 / 100], lost }
}

/// 5 Mb/s with 100 ms of round trip and 500 ms of queue.
pub const LONG: Path = Path {
    bps: 5_000_000,
    way: Duration::from_millis(50),
    queue: Duration::from_millis(500),
    loss: 0.0,
    controller: "steady",
    spikes: false,
    jitter: false,
    prompt: true,
};
/// 2 Mb/s with 50 ms of round trip and 100 ms of queue, which loses 1 %.
pub const LOSSY: Path = Path {
    bps: 2_000_000,
    way: Duration::from_millis(25),
    queue: Duration::from_millis(100),
    loss: 0.01,
    controller: "steady",
    spikes: false,
    jitter: false,
    prompt: true,
};
