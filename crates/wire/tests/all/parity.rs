//! Parity packets, and the residual loss after recovery.
use proptest::prelude::*;
use steadycast_wire::ParseError;
use steadycast_wire::parity::{HEADER, MAX_PACKETS, MAX_PARITIES, ParityHeader, packet, parity, recover, symbol};
use steadycast_wire::rtp::RtpHeader;

/// Multiplies in GF(2⁸) by shifts, independently of the tables.
fn slow_mul(a: u8, b: u8) -> u8 {
    let (mut product, mut a) = (0u16, u16::from(a));
    for bit in 0..8 {
        product ^= if b >> bit & 1 == 1 { a } else { 0 };
        a = a << 1 ^ if a & 0x80 == 0 { 0 } else { 0x11d };
    }
    product as u8
}

fn slow_inverse(a: u8) -> u8 {
    (1..=255).find(|b| slow_mul(a, *b) == 1).expect("it isn't zero")
}

fn slow_coefficient(index: u8, place: u8) -> u8 {
    slow_mul(0x80 ^ place, slow_inverse(0x80 ^ index ^ place))
}

/// Inverts a square matrix that is augmented with the identity.
fn inverse(mut rows: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let n = rows.len();
    for (at, row) in rows.iter_mut().enumerate() {
        row.extend((0..n).map(|column| u8::from(column == at)));
    }
    for at in 0..n {
        let pivot = (at..n).find(|row| rows[*row][at] != 0).expect("it can be inverted");
        rows.swap(at, pivot);
        let scale = slow_inverse(rows[at][at]);
        let pivot: Vec<u8> = rows[at].iter().map(|byte| slow_mul(*byte, scale)).collect();
        for (other, row) in rows.iter_mut().enumerate() {
            let factor = if other == at { 0 } else { row[at] };
            row.iter_mut().zip(&pivot).for_each(|(byte, pivot)| *byte ^= slow_mul(*pivot, factor));
        }
        rows[at] = pivot;
    }
    rows.into_iter().map(|row| row[n..].to_vec()).collect()
}

fn slices(symbols: &[Vec<u8>]) -> impl Iterator<Item = (u8, &[u8])> {
    (0..).zip(symbols.iter().map(Vec::as_slice))
}

fn header() -> ParityHeader {
    ParityHeader { packets: 20, base: 0xfff0, index: 3, sent: 4 }
}

fn written(header: ParityHeader, symbol: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    header.write(symbol, &mut out);
    out
}

#[test]
fn a_parity_payload_has_the_layout_that_is_written_down() {
    let bytes = written(header(), &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(bytes, [0xc0, 20, 0xff, 0xf0, 3, 4, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(ParityHeader::parse(&bytes), Ok((header(), &bytes[HEADER..])));
    // The last two bytes are reserved, and ignored.
    let later = [&bytes[..6], &[9, 9], &bytes[8..]].concat();
    assert_eq!(ParityHeader::parse(&later).map(|it| it.0), Ok(header()));
}

#[test]
fn absurd_parity_headers_are_refused() {
    let parse = |at: usize, value: u8| {
        let mut bytes = written(header(), &[0; 8]);
        bytes[at] = value;
        ParityHeader::parse(&bytes).map(|it| it.0)
    };
    for (at, value) in [(0, 0x40), (0, 0x00), (0, 0xc1), (0, 0xff), (1, 0), (5, 3), (5, 0)] {
        assert!(matches!(parse(at, value), Err(ParseError::Malformed { .. })), "{at} {value}");
    }
    for (at, value) in [(1, 65), (1, 255), (4, 64), (4, 255), (5, 65), (5, 255)] {
        assert!(matches!(parse(at, value), Err(ParseError::TooMany { limit: 64, .. })), "{at} {value}");
    }
    assert_eq!(parse(1, 64), Ok(ParityHeader { packets: MAX_PACKETS, ..header() }));
    assert_eq!(parse(5, 64), Ok(ParityHeader { sent: MAX_PARITIES, ..header() }));
    for len in 0..16 {
        let bytes = written(header(), &[0; 8]);
        assert!(matches!(ParityHeader::parse(&bytes[..len]), Err(ParseError::Short { .. })), "{len}");
    }
}

#[test]
fn a_symbol_contains_a_packet_without_its_number_and_source() {
    let head = [0x91, 0xe0, 0x12, 0x34, 1, 2, 3, 4, 9, 9, 9, 9, 8, 8, 8, 8];
    let datagram = [&head[..], &[0xbe, 0xde, 0, 1, 0x10, 7, 0, 0], &[5]].concat();
    let symbol = symbol(&datagram).expect("it is a packet");
    assert_eq!(symbol, [0, 5, 0x01, 0xe0, 1, 2, 3, 4, 8, 8, 8, 8, 5]);
    let bare = vec![0x81, 0xe0, 0x12, 0x34, 1, 2, 3, 4, 9, 9, 9, 9, 8, 8, 8, 8, 5];
    assert_eq!(packet(&symbol, 0x1234, 0x0909_0909).as_ref(), Ok(&bare), "all but the header extension");
    assert_eq!(packet(&[&symbol[..], &[0; 30]].concat(), 0x1234, 0x0909_0909), Ok(bare));
}

#[test]
fn symbols_of_no_packet_are_rejected() {
    assert!(matches!(symbol(&[0x80; 11]), Err(ParseError::Short { .. })));
    assert!(matches!(symbol(&[0x40; 12]), Err(ParseError::Version { got: 1 })));
    assert!(matches!(symbol(&vec![0x80; 65_548]), Err(ParseError::TooMany { limit: 65_535, .. })));
    assert!(matches!(packet(&[0, 0, 0, 0, 0, 0, 0], 0, 0), Err(ParseError::Short { .. })));
    assert!(matches!(packet(&[0, 2, 0, 0, 0, 0, 0, 0, 1], 0, 0), Err(ParseError::Short { .. })));
    assert!(matches!(packet(&[0, 0, 0, 0, 0, 0, 0, 0, 1], 0, 0), Err(ParseError::Malformed { .. })));
    for flags in [0x80, 0x40, 0x10] {
        assert!(matches!(packet(&[0, 0, flags, 0, 0, 0, 0, 0], 0, 0), Err(ParseError::Malformed { .. })), "{flags:#x}");
    }
    // A header extension and contributing sources that exceed the packet.
    let head = [0x90, 96, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xbe, 0xde, 0, 2, 1, 2, 3, 4];
    assert!(matches!(symbol(&head), Err(ParseError::Short { .. })));
    assert!(matches!(symbol(&[&[0x82], &head[1..16]].concat()), Err(ParseError::Short { .. })));
}

#[test]
fn parities_have_the_bytes_that_another_program_computed() {
    // The values were computed in Python by shifts and a search for inverses.
    let symbols: [&[u8]; 3] = [b"one", b"three", b"fifteen"];
    let parities: Vec<_> = (0..4).map(|index| parity(index, &symbols)).collect();
    assert_eq!(
        parities,
        [
            [0x7d, 0x6f, 0x71, 0x11, 0x00, 0x65, 0x6e],
            [0x72, 0x96, 0x16, 0x82, 0x43, 0x98, 0x5c],
            [0x2f, 0xef, 0xc3, 0xe6, 0x86, 0x04, 0xf8],
            [0x7a, 0x15, 0x23, 0x5c, 0xca, 0x49, 0xe8],
        ]
    );
}

#[test]
fn every_coefficient_is_the_one_of_the_scaled_cauchy_matrix() {
    for index in 0..MAX_PARITIES {
        for place in 0..MAX_PACKETS {
            let mut symbols = vec![vec![0]; place.into()];
            symbols.push(vec![1]);
            let expected = if index == 0 { 1 } else { slow_coefficient(index, place) };
            assert_eq!(parity(index, &symbols), [expected], "{index} {place}");
        }
    }
}

#[test]
fn a_full_block_is_recovered_from_parity_alone() {
    let symbols: Vec<Vec<u8>> = (0..MAX_PACKETS).map(|n| vec![n, n.wrapping_mul(7), 255 - n]).collect();
    let parities: Vec<_> = (0..MAX_PARITIES).map(|index| parity(index, &symbols)).collect();
    let recovered =
        recover(MAX_PACKETS, &[], &slices(&parities).collect::<Vec<_>>()).expect("there are as many as packets");
    assert_eq!(recovered, (0..MAX_PACKETS).zip(symbols).collect::<Vec<_>>());
}

#[test]
fn foreign_packets_are_rejected_and_redundant_ones_ignored() {
    let malformed = |got| matches!(got, Err(ParseError::Malformed { .. }));
    assert!(malformed(recover(2, &[(2, &[1])], &[(0, &[1])])));
    assert!(malformed(recover(2, &[(0, &[1])], &[])));
    assert!(malformed(recover(2, &[(0, &[1, 2])], &[(0, &[1])])));
    // A duplicate parity does not add information.
    assert!(malformed(recover(2, &[], &[(0, &[1]), (0, &[2])])));
    assert!(matches!(recover(65, &[], &[]), Err(ParseError::TooMany { .. })));
    assert!(matches!(recover(1, &[], &[(64, &[1])]), Err(ParseError::TooMany { .. })));
    assert_eq!(recover(2, &[(0, &[1]), (0, &[9]), (1, &[2])], &[(5, &[1])]), Ok(vec![]));
    assert_eq!(recover(0, &[], &[]), Ok(vec![]));
    assert_eq!(recover(2, &[(1, &[2])], &[(0, &[3]), (1, &[0])]), Ok(vec![(0, vec![1])]));
}

/// Returns the residual loss rate of an (n, k) code at the packet loss rate p: p · Σ_{j=n−k..n−1} C(n−1, j) p^j
/// (1−p)^{n−1−j}.
fn residual(n: usize, k: usize, p: f64) -> f64 {
    let mut others = vec![1.0];
    for _ in 0..n - 1 {
        others = step(&others, p);
    }
    p * others[n - k..].iter().sum::<f64>()
}

/// Returns the share of blocks with an unrecoverable packet.
fn blocks_lost(n: usize, k: usize, p: f64) -> f64 {
    let mut lost = vec![1.0];
    for _ in 0..n {
        lost = step(&lost, p);
    }
    lost[n - k + 1..].iter().sum()
}

/// Returns the distribution of the number of losses after one more packet.
fn step(lost: &[f64], p: f64) -> Vec<f64> {
    let mut next = vec![0.0; lost.len() + 1];
    for (j, share) in lost.iter().enumerate() {
        next[j] += share * (1.0 - p);
        next[j + 1] += share * p;
    }
    next
}

/// Returns the residual loss of the simple Gilbert model. Transitions are good → bad with probability a and back with
/// b. All packets in the bad state are lost.
fn residual_in_bursts(n: usize, k: usize, a: f64, b: f64) -> f64 {
    let bad = a / (a + b);
    // Distributions of the number of losses by state, before the next packet.
    let (mut good_now, mut bad_now) = (vec![1.0 - bad], vec![bad]);
    for _ in 0..n {
        let lost = step(&bad_now, 1.0);
        let kept = step(&good_now, 0.0);
        let mix = |stay: f64, come: f64, here: &[f64], there: &[f64]| -> Vec<f64> {
            here.iter().zip(there).map(|(here, there)| stay * here + come * there).collect()
        };
        good_now = mix(1.0 - a, b, &kept, &lost);
        bad_now = mix(1.0 - b, a, &lost, &kept);
    }
    let all = good_now.iter().zip(&bad_now).enumerate().skip(n - k + 1);
    all.map(|(j, (good, bad))| j as f64 * (good + bad)).sum::<f64>() / n as f64
}

fn power(of: f64, times: u32) -> f64 {
    (0..times).map(|_| of).product()
}

fn near(got: f64, told: f64) {
    assert!((got / told - 1.0).abs() < 0.005, "{got:e} instead of {told:e}");
}

#[test]
fn the_residual_of_independent_loss_is_the_closed_form() {
    let codes = [(11, 10), (12, 10), (13, 10), (24, 20), (25, 20)];
    let table = [
        (0.01, [9.56e-4, 5.18e-5, 2.06e-6, 7.61e-7, 3.63e-8]),
        (0.02, [3.66e-3, 3.90e-4, 3.07e-5, 2.09e-5, 1.98e-6]),
        (0.05, [2.01e-2, 5.10e-3, 9.78e-4, 1.29e-3, 2.99e-4]),
        (0.10, [6.51e-2, 3.03e-2, 1.11e-2, 1.93e-2, 8.51e-3]),
    ];
    for (p, told) in table {
        codes.iter().zip(told).for_each(|((n, k), told)| near(residual(*n, *k, p), told));
        // One parity packet, as in one-dimensional FlexFEC.
        let single = residual(11, 10, p);
        assert!((single - p * (1.0 - power(1.0 - p, 10))).abs() < 1e-12);
    }
    near(blocks_lost(11, 10, 0.01), 5.18e-3);
    near(blocks_lost(12, 10, 0.01), 2.06e-4);
    near(blocks_lost(24, 20, 0.01), 3.63e-6);
}

#[test]
fn the_residual_of_bursts_is_the_recursion() {
    let codes = [(11, 10), (12, 10), (24, 20), (25, 20), (30, 20)];
    let table = [
        (0.01, 1.25, [3.74e-3, 1.13e-3, 1.39e-4, 3.90e-5, 4.6e-8]),
        (0.01, 2.0, [7.17e-3, 4.54e-3, 1.89e-3, 1.11e-3, 6.15e-5]),
        (0.02, 2.0, [1.46e-2, 9.42e-3, 4.35e-3, 2.64e-3, 1.74e-4]),
        (0.05, 4.0, [4.57e-2, 3.97e-2, 3.17e-2, 2.68e-2, 1.01e-2]),
    ];
    for (loss, burst, told) in table {
        let b = 1.0 / burst;
        let a = b * loss / (1.0 - loss);
        codes.iter().zip(told).for_each(|((n, k), told)| near(residual_in_bursts(*n, *k, a, b), told));
    }
}

#[test]
fn the_decoder_has_the_residual_loss_of_the_closed_form() {
    let (n, k, p) = (7u8, 4u8, 0.1f64);
    let symbols: Vec<Vec<u8>> = (1..=k).map(|byte| vec![byte; 3]).collect();
    let parities: Vec<Vec<u8>> = (0..n - k).map(|index| parity(index, &symbols)).collect();
    let mut left = 0.0;
    // Every loss pattern, weighted by its probability.
    for pattern in 0u32..1 << n {
        let here = |(at, symbol), from: u8| (pattern >> (from + at) & 1 == 0).then_some((at, symbol));
        let sources: Vec<(u8, &[u8])> = slices(&symbols).filter_map(|it| here(it, 0)).collect();
        let repairs: Vec<(u8, &[u8])> = slices(&parities).filter_map(|it| here(it, k)).collect();
        let lost = symbols.len() - sources.len();
        let lost_in_all = pattern.count_ones();
        let probability = power(p, lost_in_all) * power(1.0 - p, u32::from(n) - lost_in_all);
        match recover(k, &sources, &repairs) {
            Ok(recovered) => {
                assert!(recovered.iter().all(|(at, it)| *it == symbols[usize::from(*at)]));
                assert_eq!(recovered.len(), lost);
            }
            Err(_) => left += probability * lost as f64 / f64::from(k),
        }
    }
    assert!((left - residual(n.into(), k.into(), p)).abs() < 1e-12, "{left}");
}

fn packets(most: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..=most)
}

/// Returns the packets of a block from number 65,530 on, with varying headers.
fn block(payloads: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let one = |(n, payload): (u16, &Vec<u8>)| {
        let header = RtpHeader {
            payload_type: 96,
            marker: n % 3 == 0,
            seq: 65_530u16.wrapping_add(n),
            timestamp: 3_600 * u32::from(n / 3),
            ssrc: 0x1234_5678,
            send_time: None,
            payload_len: payload.len() as u16,
        };
        let mut out = Vec::new();
        let element = [n as u8; 3];
        let elements: [(u8, &[u8]); 1] = [(2, &element)];
        header.encode(&elements[..usize::from(n % 2)], payload, &mut out);
        out
    };
    (0..).zip(payloads).map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_k_of_n_give_all_packets_back(
        payloads in packets(64), order in prop::collection::vec(any::<u32>(), 128), count in 1u8..=64,
    ) {
        let block = block(&payloads);
        let k = block.len() as u8;
        let symbols: Vec<Vec<u8>> = block.iter().map(|it| symbol(it).expect("it is a packet")).collect();
        let parities: Vec<Vec<u8>> = (0..count).map(|index| parity(index, &symbols)).collect();
        // The k of the n packets that arrive.
        let mut arrived: Vec<usize> = (0..usize::from(k) + usize::from(count)).collect();
        arrived.sort_by_key(|n| order[*n]);
        arrived.truncate(k.into());
        let (mut sources, mut repairs) = (Vec::new(), Vec::new());
        for n in arrived {
            match n.checked_sub(k.into()) {
                None => sources.push((n as u8, &symbols[n][..])),
                Some(n) => repairs.push((n as u8, &parities[n][..])),
            }
        }
        let recovered = recover(k, &sources, &repairs).expect("k of n are enough");
        prop_assert_eq!(recovered.len() + sources.len(), usize::from(k));
        for (place, symbol) in recovered {
            let seq = 65_530u16.wrapping_add(place.into());
            let got = packet(&symbol, seq, 0x1234_5678).expect("it is a packet's");
            let read = |bytes| RtpHeader::parse(bytes).map(|(header, _, payload)| (header, payload.to_vec()));
            prop_assert_eq!(read(&got), read(&block[usize::from(place)]));
        }
    }

    #[test]
    fn a_slow_inversion_of_the_whole_matrix_recovers_the_same(
        symbols in prop::collection::vec(prop::collection::vec(any::<u8>(), 5), 1..10),
        rows in prop::collection::btree_set(0u8..74, 10),
    ) {
        // Rows 0…k−1 are those of packets, the others those of parity.
        let k = symbols.len() as u8;
        let rows: Vec<u8> = rows.into_iter().filter(|row| *row < k || *row >= 10).collect();
        prop_assume!(rows.len() >= symbols.len());
        let rows = &rows[..symbols.len()];
        let parities: Vec<Vec<u8>> = (0..MAX_PARITIES).map(|index| parity(index, &symbols)).collect();
        let matrix = rows.iter().map(|row| {
            (0..k).map(|place| match row.checked_sub(10) {
                Some(index) => slow_coefficient(index, place),
                None => u8::from(*row == place),
            }).collect()
        }).collect();
        let got: Vec<&[u8]> = rows.iter().map(|row| match row.checked_sub(10) {
            Some(index) => &parities[usize::from(index)][..],
            None => &symbols[usize::from(*row)],
        }).collect();
        let slow: Vec<Vec<u8>> = inverse(matrix).iter().map(|row| {
            (0..5).map(|byte| row.iter().zip(&got).fold(0, |sum, (c, it)| sum ^ slow_mul(*c, it[byte]))).collect()
        }).collect();
        prop_assert_eq!(&slow, &symbols);
        let (mut sources, mut repairs) = (Vec::new(), Vec::new());
        for (row, symbol) in rows.iter().zip(&got) {
            match row.checked_sub(10) {
                Some(index) => repairs.push((index, *symbol)),
                None => sources.push((*row, *symbol)),
            }
        }
        let recovered = recover(k, &sources, &repairs);
        let missing = (0..k).filter(|place| !rows.contains(place));
        let expected: Vec<_> = missing.map(|place| (place, slow[usize::from(place)].clone())).collect();
        prop_assert_eq!(recovered, Ok(expected));
    }

    #[test]
    fn parity_0_is_the_plain_xor(symbols in packets(64)) {
        let mut xor = vec![0; symbols.iter().map(Vec::len).max().unwrap_or(0)];
        for symbol in &symbols {
            xor.iter_mut().zip(symbol).for_each(|(sum, byte)| *sum ^= byte);
        }
        prop_assert_eq!(parity(0, &symbols), xor);
    }

    #[test]
    fn arbitrary_payloads_and_symbols_never_panic(
        payload in prop::collection::vec(any::<u8>(), 0..60), count: u8,
        sources in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..20)), 0..8),
        parities in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..20)), 0..8),
    ) {
        let _ = ParityHeader::parse(&payload);
        let _ = (symbol(&payload), packet(&payload, 1, 2));
        let sources: Vec<(u8, &[u8])> = sources.iter().map(|(at, it)| (*at % 8, &it[..])).collect();
        let parities: Vec<(u8, &[u8])> = parities.iter().map(|(at, it)| (*at, &it[..])).collect();
        let _ = recover(count % 8, &sources, &parities);
        let _ = recover(count, &sources, &parities);
    }
}
