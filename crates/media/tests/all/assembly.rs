//! The fates of frames whose packets are lost or late.

use proptest::prelude::*;
use steadycast_media::{Assembly, Coded, Fragment, FrameFate, FrameKind, Schedule, SentFrames};
use steadycast_units::{Bytes, Span, Time};

fn at(ms: u64) -> Time {
    Time::ZERO + Span::millis(ms)
}

/// Frames of 250 B in packets of up to 100 B, one frame every 40 ms, of these kinds in coding order.
fn sent(kinds: &str) -> SentFrames {
    let mut all = SentFrames::default();
    for (n, kind) in kinds.chars().enumerate() {
        let kind = match kind {
            'I' => FrameKind::I,
            'P' => FrameKind::P,
            _ => FrameKind::B,
        };
        let (index, now) = (n as u32, at(40 * n as u64));
        all.ready(now, Coded { index, clip: index, display: index, kind, quantizer: 2, size: Bytes::new(250) });
        for (offset, len) in [(0, 100), (100, 100), (200, 50)] {
            all.sent(now, Fragment { frame: index, offset, len });
        }
    }
    all
}

/// Returns the fates if all packets but `lost` arrive, those of `late` frames after 200 ms and the others after 20
/// ms.
fn fates(kinds: &str, lost: &[u64], late: &[u32], playout: Option<Span>) -> String {
    let all = sent(kinds);
    let mut assembly = Assembly::default();
    for (n, (when, fragment)) in all.packets.iter().enumerate() {
        if !lost.contains(&(n as u64)) {
            let delay = if late.contains(&fragment.frame) { Span::millis(200) } else { Span::millis(20) };
            assembly.on_packet(*when + delay, n as u64, *fragment);
        }
    }
    let letter = |fate| match fate {
        FrameFate::Ok => '.',
        FrameFate::Lost => 'x',
        FrameFate::Late => 'l',
        FrameFate::Undecodable => 'u',
    };
    assembly.fates(&all, &Schedule::fixed(playout)).into_iter().map(letter).collect()
}

const PLAYOUT: Option<Span> = Some(Span::millis(150));

#[test]
fn a_frame_is_whole_only_with_all_its_packets() {
    assert_eq!(fates("IBPBPB", &[], &[], PLAYOUT), "......");
    for packet in 9..12 {
        assert_eq!(fates("IPBBPB", &[packet], &[], PLAYOUT), "...x..", "a B frame's loss breaks nothing else");
    }
}

#[test]
fn a_lost_reference_breaks_the_rest_of_its_group() {
    assert_eq!(fates("IPBBPBBIPBB", &[3], &[], PLAYOUT), ".xuuuuu....");
    assert_eq!(fates("IPBBPBBIPBB", &[0], &[], PLAYOUT), "xuuuuuu....");
    assert_eq!(fates("IPBBPBBIPBB", &[12, 25], &[], PLAYOUT), "....xuu.xuu");
    assert_eq!(fates("IPBBPBB", &[0, 4, 19], &[], PLAYOUT), "xxuuuux", "what is lost itself is lost");
}

#[test]
fn what_comes_late_is_late_and_still_a_reference() {
    assert_eq!(fates("IPBBPBB", &[], &[1, 3], PLAYOUT), ".l.l...");
    assert_eq!(fates("IPBBPBB", &[], &[1, 3], None), ".......", "without a limit nothing is late");
    assert_eq!(fates("IPBBPBB", &[0], &[1], PLAYOUT), "xuuuuuu", "what can't be decoded can't be late");
}

#[test]
fn exactly_in_time_is_in_time() {
    let all = sent("I");
    for (playout, fate) in [(Span::millis(20), FrameFate::Ok), (Span::nanos(19_999_999), FrameFate::Late)] {
        let mut assembly = Assembly::default();
        for (n, (when, fragment)) in all.packets.iter().enumerate() {
            assembly.on_packet(*when + Span::millis(20), n as u64, *fragment);
        }
        assert_eq!(assembly.fates(&all, &Schedule::fixed(Some(playout))), [fate]);
    }
}

#[test]
fn duplicates_make_no_frame_whole() {
    let all = sent("I");
    let mut assembly = Assembly::default();
    for _ in 0..3 {
        assembly.on_packet(at(1), 0, all.packets[0].1);
    }
    assert_eq!(assembly.fates(&all, &Schedule::default()), [FrameFate::Lost]);
    let missing: Vec<_> = assembly.missing(&all).iter().map(|m| (m.frame, m.offset, m.len)).collect();
    assert_eq!(missing, [(0, 100, 100), (0, 200, 50)]);
}

#[test]
fn a_frame_that_was_skipped_or_still_waits_is_lost() {
    let mut all = sent("IP");
    let skipped = Coded { index: 2, kind: FrameKind::P, ..all.frames[1].coded };
    all.ready(at(80), skipped);
    let mut assembly = Assembly::default();
    for (n, (when, fragment)) in all.packets.clone().iter().enumerate() {
        assembly.on_packet(*when, n as u64, *fragment);
    }
    assert_eq!(assembly.fates(&all, &Schedule::default()), [FrameFate::Ok, FrameFate::Ok, FrameFate::Lost]);
    assert!(assembly.missing(&all).is_empty(), "of what never began nothing is to be concealed");
    // A third of it has been sent when the run ends.
    all.sent(at(81), Fragment { frame: 2, offset: 0, len: 100 });
    assembly.on_packet(at(82), 6, all.packets[6].1);
    assert_eq!(assembly.fates(&all, &Schedule::default())[2], FrameFate::Lost);
    assert_eq!(assembly.missing(&all).iter().map(|m| (m.frame, m.offset, m.len)).collect::<Vec<_>>(), [(2, 100, 150)]);
}

#[test]
fn a_pause_leaves_a_gap_that_nobody_is_owed() {
    let mut all = sent("IPP");
    all.skip_to(12);
    all.ready(at(900), Coded { index: 12, kind: FrameKind::I, ..all.frames[0].coded });
    assert_eq!(all.frames.len(), 13);
    assert_eq!(all.frames.iter().filter(|f| f.is_gap()).count(), 9);
    assert!(!all.frames[2].is_gap() && !all.frames[12].is_gap());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// An independent formulation: a frame can be decoded if every I and P frame of its group up to it is complete.
    #[test]
    fn fates_follow_from_what_is_whole(
        groups in prop::collection::vec("(I)([PB]{0,9})", 1..6),
        chances in prop::collection::vec(0u8..12, 200),
        late in prop::collection::btree_set(0u32..60, 0..8),
    ) {
        let kinds: String = groups.concat();
        let lost: Vec<u64> = (0..kinds.len() as u64 * 3).filter(|n| chances[*n as usize % 200] == 0).collect();
        let late: Vec<u32> = late.into_iter().collect();
        let got: Vec<char> = fates(&kinds, &lost, &late, PLAYOUT).chars().collect();
        let whole = |n: usize| !lost.iter().any(|p| *p as usize / 3 == n);
        let letters: Vec<char> = kinds.chars().collect();
        for (n, fate) in got.iter().enumerate() {
            let start = (0..=n).rev().find(|m| letters[*m] == 'I').unwrap_or(0);
            let decodable = (start..n).all(|m| letters[m] == 'B' || whole(m));
            let expected = match (whole(n), decodable) {
                (false, _) => 'x',
                (true, false) => 'u',
                (true, true) if late.contains(&(n as u32)) => 'l',
                (true, true) => '.',
            };
            prop_assert_eq!(*fate, expected, "frame {} of {}", n, kinds);
        }
    }
}
