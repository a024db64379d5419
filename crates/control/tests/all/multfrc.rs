//! The claims about `multfrc`, `e-multfrc`, `aio-tfrc` and `eaio-tfrc`.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use crate::harness;

use harness::proof::{any_path, arrivals, op, receiver_stands, sender_stands, table, world_stands};
use harness::{Loss, Path, Plan, World, assert_between, assert_snapshot, assert_within, s};
use proptest::prelude::*;
use steadycast_control::registry::{Chosen, Given};
use steadycast_control::{Arrival, Departing, Due, FrameEdge, Mode, ReceiverId, Reply, SenderHalf, Slot};
use steadycast_units::{Bytes, Ecn, PeerTime, Rate, Span, Time};

const ALL: [&str; 4] = ["multfrc", "e-multfrc", "aio-tfrc", "eaio-tfrc"];
const S: Bytes = Bytes::new(1000);

fn text(value: &str) -> Given {
    Given::Text(value.into())
}

/// The scenario of the paper: 1 Mb/s, and 168 ms including a packet of 1000 bytes on the wire.
fn wireless(loss: f64) -> Path {
    Path::clean(Span::millis(160)).bottleneck(Rate::mbps(1), 50).losing(Loss::Bernoulli(loss))
}

fn fixed(controller: &'static str, n: f64, path: Path) -> World {
    Plan::new(controller, path).set("law", text("fixed")).set("n", Given::Number(n)).build()
}

/// Returns n from the decision's rule.
fn n_of(world: &World) -> f64 {
    let rule = &world.sender.decision().why.rule;
    rule.strip_prefix("n = ").and_then(|r| r.split(':').next()).and_then(|n| n.parse().ok()).unwrap()
}

#[test]
fn one_connection_is_tfrc_to_the_packet() {
    let run = |name: &'static str| {
        let mut plan = Plan::new(name, wireless(0.02));
        plan.params = if name == "tfrc" {
            Vec::new()
        } else {
            vec![("law".into(), text("fixed")), ("n".into(), Given::Number(1.0))]
        };
        let mut world = plan.build();
        world.run_until(s(100.0));
        world.sent
    };
    let tfrc = run("tfrc");
    assert!(tfrc.len() > 2_000);
    // The floor applies to the stream in one case and to the connection in the other, but never binds here.
    for name in ALL {
        assert!(run(name) == tfrc, "{name}");
    }
}

#[test]
fn n_connections_have_n_times_the_rate_of_one_where_nothing_limits_them() {
    let path = || Path::clean(Span::millis(168)).losing(Loss::Bernoulli(0.02));
    let rate = |name, n| {
        let mut world = fixed(name, n, path());
        world.run_until(s(600.0));
        world.received_rate(0, s(30.0), s(600.0)).as_bps_f64()
    };
    let one = rate("multfrc", 1.0);
    for n in [2.0, 4.0] {
        assert_within(rate("multfrc", n), n * one, 0.08);
    }
    for n in [1.5, 2.0, 4.0, 9.0] {
        assert_within(rate("aio-tfrc", n), n * one, 0.08);
    }
}

#[test]
fn each_connection_sends_at_its_own_rate_in_turns() {
    let plan = Plan::new("multfrc", wireless(0.0)).set("law", text("fixed")).set("n", Given::Number(3.0));
    let mut sender =
        Chosen::shared("multfrc", Mode::Repaired, &plan.params).unwrap().sender(&plan.setup(ReceiverId(1), "s"));
    let mut turns = [0u32; 3];
    for seq in 0..3_000u64 {
        let at = Time::ZERO + Span::millis(seq);
        let notice = sender.notice(&Departing { at, seq, size: S, edge: FrameEdge::default() });
        assert_eq!((notice.id(), notice.bytes().len()), (7, 9));
        let (id, own) = (usize::from(notice.bytes()[4]), u32::from_be_bytes(notice.bytes()[5..].try_into().unwrap()));
        // Each connection has its own sequence numbers, without a gap.
        assert_eq!(own, turns[id]);
        turns[id] += 1;
    }
    assert_eq!(turns, [1_000; 3]);
}

#[test]
fn a_connection_opens_with_a_packet_at_once_and_slow_start_and_the_newest_closes_first() {
    let mut world = Plan::new("multfrc", Path::clean(Span::millis(168)).losing(Loss::Bernoulli(0.02)))
        .set("period", text("10s"))
        .build();
    world.run_until(s(10.001));
    assert_eq!(n_of(&world), 2.0);
    let before = world.target();
    let sent = world.sent.len();
    world.run_until(s(10.4));
    assert!(world.sent.len() > sent + 4);
    // 4 packets per round trip at first.
    assert_between(world.target().saturating_sub(before.scale(0.5)), Rate::kbps(150), Rate::kbps(900));
    // A longer path counts as congestion: one connection less per period.
    world.path.delay = Span::millis(300);
    world.run_until(s(35.0));
    assert_eq!(n_of(&world), 1.0);
}

#[test]
fn with_one_and_a_half_connections_two_packets_in_three_are_marked_and_numbered() {
    for (n, of) in [(1.0, (30, 30)), (1.5, (20, 30)), (2.0, (15, 30)), (9.0, (10, 90)), (2.9, (100, 290))] {
        let plan = Plan::new("eaio-tfrc", wireless(0.0)).set("law", text("fixed")).set("n", Given::Number(n));
        let mut sender: Box<dyn SenderHalf> =
            Chosen::shared("eaio-tfrc", Mode::Repaired, &plan.params).unwrap().sender(&plan.setup(ReceiverId(1), "s"));
        let mut marked = 0u16;
        for seq in 0..of.1 {
            let notice = sender.notice(&Departing { at: Time::ZERO, seq, size: S, edge: FrameEdge::default() });
            let bytes = notice.bytes();
            assert_eq!((notice.id(), bytes.len()), (3, 8));
            marked += u16::from(bytes[3] & 1);
            // Marked packets have their own numbers; the others carry the newest number.
            assert_eq!(u16::from_be_bytes([bytes[4], bytes[5]]), marked - 1);
            // The number of marked packets is the sum of 1/n, within one.
            assert!((f64::from(marked) - (seq + 1) as f64 / n).abs() <= 1.0, "{n} {seq}");
            assert_within(f64::from(u16::from_be_bytes([bytes[6], bytes[7]])) / 256.0, n, 0.005);
        }
        assert!(u64::from(marked).abs_diff(of.0) <= 1, "{marked} of {} at {n}", of.1);
    }
}

/// Delivers packets with these marks to a receiver half, 10 ms apart, except those in `lost`. Returns when p is first
/// reported.
fn first_loss(marks: &[(bool, u16)], lost: &[usize]) -> Option<usize> {
    let plan = Plan::new("eaio-tfrc", wireless(0.0));
    let mut half = Chosen::shared("eaio-tfrc", Mode::Repaired, &[]).unwrap().receiver(&plan.setup(ReceiverId(9), "r"));
    for (k, (marked, vseq)) in marks.iter().enumerate() {
        if lost.contains(&k) {
            continue;
        }
        let at = Time::ZERO + Span::millis(10) * k as u64;
        let mut notice = vec![0, 0x27, 0x10, u8::from(*marked)];
        notice.extend(vseq.to_be_bytes());
        notice.extend([2, 0]);
        let sent = PeerTime::from_nanos(at.as_nanos() as i64);
        half.on_arrival(&Arrival {
            at,
            seq: k as u64,
            size: S,
            sent,
            sampled: sent,
            edge: FrameEdge::default(),
            ecn: Ecn::NotEct,
            notice: &notice,
            buffer: None,
        });
        while let Due::At(wake) = half.due() {
            if wake.at > at {
                break;
            }
            let slot = Slot { now: at, expected: 1, lost: 0, members: 2, interval: Span::secs(1), rtcp_share: 0.0 };
            let Reply::Body(body) = half.report(&slot) else { continue };
            if f32::from_be_bytes(body.bytes[12..16].try_into().unwrap()) > 0.0 {
                return Some(k);
            }
        }
    }
    None
}

#[test]
fn a_marked_loss_shows_after_three_packets_of_any_kind_and_an_unmarked_one_never() {
    // Every third packet is marked.
    let marks: Vec<(bool, u16)> = (0..60).map(|k| (k % 3 == 0, k / 3)).collect();
    assert_eq!(first_loss(&marks, &[30]), Some(33));
    assert_eq!(first_loss(&marks, &[30, 31]), Some(34));
    assert_eq!(first_loss(&marks, &[31, 32, 34, 35]), None);
    // The same holds across the wrap of the virtual sequence number.
    let wrapping: Vec<(bool, u16)> = (0..60).map(|k| (k % 3 == 0, (k / 3 + 65_530) as u16)).collect();
    assert_eq!(first_loss(&wrapping, &[18]), Some(21));
    assert_eq!(first_loss(&wrapping, &[19]), None);
}

#[test]
fn over_a_lossy_link_each_finds_more_than_one_connection_and_uses_what_one_leaves() {
    for name in ALL {
        let run = |loss: f64| {
            // The period is a quarter of the paper's, so that n settles in a quarter of the time.
            let mut world = Plan::new(name, wireless(loss)).set("period", text("5s")).build();
            world.run_until(s(600.0));
            (world.received_rate(0, s(300.0), s(600.0)).ratio(Rate::mbps(1)), n_of(&world), world)
        };
        let (used, n, world) = run(0.04);
        // TFRC alone uses 0.27 of the link here, and at most 0.96 can arrive.
        assert!((0.7..0.961).contains(&used), "{name}: {used}");
        assert!((2.0..9.0).contains(&n), "{name}: {n}");
        let lost = world.loss(0, s(300.0), s(590.0));
        assert!((0.035..0.065).contains(&lost), "{name}: {lost}");
        let (used, n, _) = run(0.0);
        assert!((0.9..1.001).contains(&used) && (1.0..=3.0).contains(&n), "{name}: {used} with {n}");
    }
}

#[test]
fn two_share_one_link_about_equally_with_the_loss_of_one_virtual_flow_each() {
    // A stream with n = 2 and no other traffic, with and without marking. Without marking the single stream would have
    // fewer loss events.
    for name in ["aio-tfrc", "eaio-tfrc"] {
        let mut world = fixed(name, 2.0, Path::clean(Span::millis(100)).losing(Loss::Bernoulli(0.03)));
        world.run_until(s(400.0));
        let p = world.decisions.iter().filter(|d| d.at > s(50.0)).filter_map(|d| d.decision.why.loss);
        // The mean of eight loss intervals varies. As 1/p is this mean, its average is right, while the average of p
        // would be too high.
        let (sum, n) = p.fold((0.0, 0), |(sum, n), p| (sum + 1.0 / p, n + 1));
        // A loss event takes 1/p packets and a round trip of the virtual flow. This gives about 0.027 here, while the
        // aggregate has 0.023.
        assert_within(f64::from(n) / sum, 0.027, 0.12);
    }
}

#[test]
fn silence_halves_the_rate_of_all_connections_to_the_floor() {
    for name in ALL {
        let mut world = fixed(name, 3.0, Path::clean(Span::millis(100)).losing(Loss::Bernoulli(0.02)));
        world.run_until(s(60.0));
        let before = world.target();
        world.path.back_loss = Loss::All;
        world.run_for(Span::secs(2));
        assert!(world.target() <= before.scale(0.3), "{name}: {before} to {}", world.target());
        world.run_for(Span::secs(600));
        assert_eq!(world.target(), Rate::kbps(1), "{name}");
        world.path.back_loss = Loss::None;
        world.run_for(Span::secs(300));
        assert!(world.target() >= before.scale(0.4), "{name}: {}", world.target());
    }
}

#[test]
fn alone_on_a_link_each_fills_it() {
    let page = include_str!("../../../../docs/controllers/multfrc.md");
    let mut tables = Vec::new();
    for name in ALL {
        let note: fn(&World) -> String = |world| format!("{:.2}", n_of(world));
        let table =
            table(name, &[], &[(1_000, 160), (2_000, 50)], (200.0, 400.0), ("   n", note), |used, loss, rtt| {
                // With IIMD n is still on its way: n² = 1 + t/40 s.
                assert!((0.7..=1.001).contains(&used), "{rtt}: {used}");
                assert!(loss < 0.08, "{rtt}: {loss}");
            });
        assert_snapshot(&format!("{name}.txt"), &table);
        tables.push(table);
    }
    for (i, a) in tables.iter().enumerate() {
        assert!(page.contains(a), "the page shows another table of {}:\n{a}", ALL[i]);
        assert!(!tables[..i].contains(a), "{} has another one's table", ALL[i]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_a_sender_hears_its_rate_stays_within_its_bounds(
        ops in prop::collection::vec((op(), 0u64..2_000), 1..100), which in 0usize..4, paper in any::<bool>(),
    ) {
        sender_stands(ALL[which], &[], if paper { Mode::Paper } else { Mode::Repaired }, ops)?;
    }

    #[test]
    fn whatever_a_receiver_hears_its_reports_are_sound(many in arrivals(9), one in arrivals(8)) {
        receiver_stands("multfrc", &[], many)?;
        receiver_stands("eaio-tfrc", &[], one)?;
    }

    #[test]
    fn any_path_keeps_the_loop_alive_and_bounded(path in any_path(), which in 0usize..4) {
        world_stands(ALL[which], &path, 3.0)?;
    }
}
