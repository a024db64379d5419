//! An attacker forges receivers. A separate process, because the test measures the memory of its process.
#![allow(clippy::unwrap_used, reason = "a test ends where it must not go on")]

#[path = "all/group/mod.rs"]
#[allow(dead_code, reason = "one test uses a part")]
mod group;

use group::{at, rtcp, settings};
use steadycast_control::registry::{Chosen, Setup};
use steadycast_control::{Mode, ReceiverId};
use steadycast_session::{Emit, Origin, Profile, Sender, SenderSettings};
use steadycast_units::{Rate, Seed};
use steadycast_wire::rtcp::{Compound, Packet, ReportBlock};

/// A sender with a controller that keeps a table of receivers.
fn sender() -> Sender {
    let asmp = Chosen::shared("asmp", Mode::Repaired, &[]).unwrap();
    let setup = Setup {
        session_bandwidth: Rate::mbps(2),
        group: true,
        id: ReceiverId(group::SENDER),
        ..Setup::unicast(Rate::kbps(64), Rate::mbps(10), Seed(1).part("half"))
    };
    let rtcp = rtcp(Profile::Asmp, Rate::mbps(2), true);
    let settings = SenderSettings { app: *b"ASMP", ..settings(rtcp, Emit::Paced) };
    Sender::new(settings, asmp.sender(&setup), Seed(1).part("rtcp"), at(0))
}

/// A forged report with a rate of 100 kB/s.
fn report(ssrc: u32) -> Vec<u8> {
    let block = ReportBlock { ssrc: group::SENDER, highest_seq: 70_000, lsr: 1, dlsr: 1, ..ReportBlock::default() };
    let mut data = 100_000f32.to_be_bytes().to_vec();
    data.extend([0, 0, 0, 0, 0, 0, 200, 0, 4, 0, 0, 0]);
    let packets = vec![
        Packet::ReceiverReport { ssrc, blocks: vec![block] },
        Packet::Sdes { chunks: vec![(ssrc, format!("{ssrc}@nowhere"))] },
        Packet::App { ssrc, subtype: 1, name: *b"ASMP", data },
    ];
    let mut bytes = Vec::new();
    Compound { packets }.encode(&mut bytes);
    bytes
}

/// Returns the resident memory in bytes; `None` if the system does not provide it.
fn resident() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split_whitespace().nth(1)?.parse::<f64>().ok().map(|pages| pages * 4096.0)
}

#[test]
fn a_hundred_thousand_made_up_receivers_take_fifty_megabytes_and_more_of_them_no_more() {
    let mut sender = sender();
    let spoof = |sender: &mut Sender, from: u32, to: u32| {
        for n in from..to {
            // SSRCs are spread over the whole space, four per millisecond.
            let ssrc = n.wrapping_mul(2_654_435_761).max(2);
            sender.on_rtcp(at(u64::from(n) / 4), Origin(9), &report(ssrc));
        }
    };
    spoof(&mut sender, 1, 1_000);
    let before = resident();
    spoof(&mut sender, 1_000, 100_000);
    if let (Some(before), Some(after)) = (before, resident()) {
        assert!((1e6..50e6).contains(&(after - before)), "{} MB", (after - before) / 1e6);
    }
    let known = sender.receivers();
    assert!((50_000..=100_000).contains(&known), "{known}");
    spoof(&mut sender, 100_000, 150_000);
    let known = sender.receivers();
    assert!((100_000..=1 << 17).contains(&known), "{known}");
    if let (Some(before), Some(after)) = (before, resident()) {
        assert!((after - before) < 70e6, "{} MB", (after - before) / 1e6);
    }
    // A real receiver's report still counts.
    sender.on_rtcp(at(37_501), Origin(3), &report(7));
    assert_eq!(sender.receivers(), known);
    assert!(sender.decision().target <= Rate::kbps(801), "{}", sender.decision().target);
}
