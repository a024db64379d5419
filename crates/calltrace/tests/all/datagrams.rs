//! The datagrams of a capture are read one by one, each with the fields that identify it in another capture.

use proptest::prelude::*;
use std::time::Duration;
use steadycast_calltrace::datagrams;

/// An IPv4 packet of UDP in an Ethernet frame; `offset` and `more` are those of a fragment.
fn frame(id: u16, offset: u16, more: bool, protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend((20 + body.len() as u16).to_be_bytes());
    frame.extend(id.to_be_bytes());
    frame.extend(((u16::from(more) << 13) | (offset / 8)).to_be_bytes());
    frame.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(body);
    frame
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x13, 0x88, 0x13, 0x8a];
    bytes.extend((8 + payload.len() as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    bytes
}

/// A pcap with times in microseconds; the frames are 1 ms apart.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 0xffff, 1] {
        file.extend(word.to_le_bytes());
    }
    for (n, frame) in frames.iter().enumerate() {
        for word in [7, 1000 * n as u32, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

#[test]
fn a_datagram_has_its_time_its_ends_its_identification_and_its_rtp_number() {
    let mut rtp = vec![0x80, 96, 0x01, 0x02, 0, 0, 0, 0, 0, 0, 0, 9];
    rtp.resize(100, 7);
    let read = datagrams(&pcap(&[frame(40_000, 0, false, 17, &udp(&rtp)), frame(5, 0, false, 17, &udp(b"abc"))]));
    let all = read.unwrap().all;
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].at, Duration::from_secs(7));
    assert_eq!(all[1].at, Duration::from_secs(7) + Duration::from_millis(1));
    assert_eq!((all[0].from.to_string(), all[0].to.to_string()), ("10.0.0.1:5000".into(), "10.0.0.2:5002".into()));
    assert_eq!((all[0].id, all[0].rtp, all[0].size), (Some(40_000), Some((9, 0x0102)), 128));
    assert_eq!((all[1].id, all[1].rtp, all[1].size), (Some(5), None, 31));
    assert_ne!(all[0].digest, all[1].digest);
}

#[test]
fn a_datagram_in_fragments_has_arrived_with_its_last_one_and_one_that_lacks_some_has_not() {
    let whole = udp(&[1; 2000]);
    let parts = |id| [frame(id, 0, true, 17, &whole[..1200]), frame(id, 1200, false, 17, &whole[1200..])];
    let ([first, second], [alone, missing]) = (parts(1), parts(2));
    let read = datagrams(&pcap(&[first, alone, second, frame(3, 0, false, 6, &[0; 20])])).unwrap();
    assert_eq!(read.all.len(), 1);
    assert_eq!((read.all[0].id, read.all[0].size), (Some(1), 2028));
    assert_eq!(read.all[0].at, Duration::from_secs(7) + Duration::from_millis(2));
    assert_eq!(read.notes.len(), 2, "{:?}", read.notes);
    assert!(read.notes[0].contains("1 datagram without some"), "{:?}", read.notes);
    assert!(read.notes[1].contains("TCP"), "{:?}", read.notes);
    let read = datagrams(&pcap(&[missing])).unwrap();
    assert!(read.all.is_empty() && read.notes[0].contains("the first fragment is missing"), "{:?}", read.notes);
}

#[test]
fn what_is_no_capture_is_refused_with_a_remedy() {
    assert!(datagrams(b"").unwrap_err().remedy.contains(".pcap"));
    assert!(datagrams(b"1 I 900 1 0.0").unwrap_err().remedy.contains(".pcap"));
}

proptest! {
    #[test]
    fn a_damaged_capture_never_has_more_datagrams_than_frames(
        sizes in prop::collection::vec(0..64_usize, 1..8),
        at in any::<prop::sample::Index>(),
        byte: u8,
        end: prop::sample::Index,
    ) {
        let whole = |(n, size): (usize, &usize)| frame(n as u16, 0, false, 17, &udp(&vec![n as u8; *size]));
        let frames: Vec<Vec<u8>> = sizes.iter().enumerate().map(whole).collect();
        let mut file = pcap(&frames);
        prop_assert_eq!(datagrams(&file).unwrap().all.len(), frames.len());
        let length = file.len();
        file[at.index(length)] = byte;
        file.truncate(end.index(length));
        if let Ok(read) = datagrams(&file) {
            prop_assert!(read.all.len() <= frames.len());
        }
    }
}
