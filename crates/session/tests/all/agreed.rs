//! Effects of a session description and a key on a session with a browser: the ids of header extensions, and the
//! receiver's authentication.
#![allow(clippy::unwrap_used, reason = "a test ends where it must not go on")]

use crate::group;

use group::{at, media, rtcp, sender, settings, who};
use steadycast_control::Notice;
use steadycast_session::{
    Emit, FeedbackFormat, HeaderIds, Media, Origin, Output, Profile, RepairSettings, RtcpSettings, SendTime, Sender,
    SenderSettings,
};
use steadycast_units::{Rate, Span, Stamp, Time};
use steadycast_wire::ntp::{self, NtpEpoch};
use steadycast_wire::rtcp::{
    Compound, KeyFrameRequest, Nack, Packet, PacketStatus, ReportBlock, Ticks, TransportFeedback,
};
use steadycast_wire::rtp::{RtpHeader, absolute};

const SENDER: u32 = 0x5e0d_0001;
/// The SSRC under which all browsers report that only receive.
const BROWSER: u32 = 1;

/// A greedy sender with retransmission, after a second.
fn sending(authenticated: bool, feedback: FeedbackFormat, ids: HeaderIds) -> (Sender, Vec<Media>) {
    let rtcp =
        RtcpSettings { authenticated, ..rtcp(Profile::Avpf { t_rr_interval: Span::ZERO }, Rate::mbps(2), false) };
    let repair = Some(RepairSettings { ssrc: 9, payload_type: 97, playout: None });
    let greedy =
        SenderSettings { identity: who(SENDER), greedy: true, repair, feedback, ids, ..settings(rtcp, Emit::Paced) };
    let (mut sender, _) = sender(greedy, Rate::mbps(1), &[]);
    let media = leaving(&mut sender, at(0), at(1_000));
    (sender, media)
}

/// A browser reports on the video under one SSRC, and sends feedback about all packets under another one. After four
/// seconds of both it only sends feedback. If it is authenticated, the controller still gets reports.
#[test]
fn feedback_under_another_ssrc_of_the_same_browser_counts() {
    const OTHER: u32 = 0xfa17_fa17;
    for authenticated in [false, true] {
        let rtcp =
            RtcpSettings { authenticated, ..rtcp(Profile::Avpf { t_rr_interval: Span::ZERO }, Rate::mbps(2), false) };
        let feedback = FeedbackFormat::TransportWide;
        let greedy = SenderSettings { identity: who(SENDER), greedy: true, feedback, ..settings(rtcp, Emit::Paced) };
        let (mut sender, told) = sender(greedy, Rate::mbps(1), &[]);
        let (mut lsr, mut newest, mut begin) = (0, None, 0);
        for ms in 0..6_000 {
            loop {
                match sender.poll(at(ms)) {
                    Output::Media(media) => newest = Some(media.number as u16),
                    Output::Rtcp(bytes) => {
                        if let Some(Packet::SenderReport { ntp, .. }) = Compound::parse(&bytes).unwrap().packets.first()
                        {
                            lsr = ntp::middle(*ntp);
                        }
                    }
                    Output::Wait(_) => break,
                }
            }
            let mut packets = Vec::new();
            if ms % 100 == 0 && ms < 4_000 && lsr > 0 {
                let block = ReportBlock { ssrc: SENDER, lsr, ..ReportBlock::default() };
                packets.push(vec![Packet::ReceiverReport { ssrc: BROWSER, blocks: vec![block] }]);
            }
            if let Some(last) = newest.filter(|last| ms % 50 == 25 && *last >= begin) {
                let came = (begin..=last).map(|_| PacketStatus::At(Ticks::of(at(ms)))).collect();
                let all = TransportFeedback { sender: OTHER, media: SENDER, count: 0, begin_seq: begin, packets: came };
                packets.push(all.to_packets(1_200));
                begin = last + 1;
            }
            for packets in packets {
                let mut bytes = Vec::new();
                Compound { packets }.encode(&mut bytes);
                sender.on_rtcp(at(ms), Origin(1), &bytes);
            }
        }
        let late = told.lock().unwrap().reports.iter().filter(|report| report.0 > at(4_500)).count();
        assert_eq!(late > 10, authenticated, "{late} reports");
    }
}

fn leaving(sender: &mut Sender, from: Time, until: Time) -> Vec<Media> {
    media(sender, from, until).into_iter().map(|(_, packet)| packet).collect()
}

fn hear(sender: &mut Sender, packets: Vec<Packet>) {
    let mut bytes = Vec::new();
    Compound { packets }.encode(&mut bytes);
    sender.on_rtcp(at(1_000), Origin(1), &bytes);
}

#[test]
fn the_first_compound_of_who_is_authenticated_is_answered_though_it_names_nobody() {
    for authenticated in [false, true] {
        let (mut sender, _) = sending(authenticated, FeedbackFormat::TransportWide, HeaderIds::default());
        let missing = vec![(sender.next_seq() - 40) as u16];
        let report = Packet::ReceiverReport { ssrc: BROWSER, blocks: Vec::new() };
        let plea = KeyFrameRequest::PictureLoss { sender: BROWSER, media: SENDER }.to_packet();
        let nack = Nack { sender: BROWSER, media: SENDER, missing }.to_packet();
        hear(&mut sender, vec![report, plea, nack]);
        assert_eq!(sender.take_key_frame(), authenticated);
        let again = leaving(&mut sender, at(1_000), at(1_200)).iter().filter(|packet| packet.repairs.is_some()).count();
        assert_eq!(again, usize::from(authenticated));
    }
}

/// The SSRC that a sender's report answers (DLRR), the middle 32 bits of its clock's time, and the delay since.
fn answers(bytes: &[u8]) -> Vec<[u32; 3]> {
    let word = |at: &[u8]| u32::from_be_bytes(at.try_into().unwrap());
    let block = |packet: &Packet| match packet {
        Packet::Unknown { packet_type: 207, body, .. } => Some([8, 12, 16].map(|at| word(&body[at..at + 4]))),
        _ => None,
    };
    Compound::parse(bytes).unwrap().packets.iter().filter_map(block).collect()
}

#[test]
fn a_browser_computes_the_round_trip_from_the_answer_to_its_clock() {
    let (epoch, ways) = (NtpEpoch::from_unix_secs(7), [1, 20, 120, 700].map(Span::millis));
    for (authenticated, way) in [false, true].into_iter().flat_map(|it| ways.map(|way| (it, way))) {
        let (mut sender, _) = sending(authenticated, FeedbackFormat::TransportWide, HeaderIds::default());
        let left = at(1_000).before(way);
        let block = [BROWSER, u32::from_be_bytes([4, 0, 0, 2])].map(u32::to_be_bytes).concat();
        let body = [block, epoch.ntp(left).to_be_bytes().to_vec()].concat();
        let clock = Packet::Unknown { packet_type: 207, count: 0, body };
        let report = Packet::ReceiverReport { ssrc: BROWSER, blocks: Vec::new() };
        hear(&mut sender, vec![report, clock]);
        let mut told = Vec::new();
        for now in (1_000..4_000).map(at) {
            loop {
                match sender.poll(now) {
                    Output::Rtcp(bytes) => told.extend(answers(&bytes).into_iter().map(|it| (now, it))),
                    Output::Media(_) => {}
                    Output::Wait(_) => break,
                }
            }
        }
        // The answer is sent once, in the next report. An unknown host gets none.
        let expected = usize::from(authenticated);
        assert_eq!(told.len(), expected);
        for (now, [who, lrr, delay]) in told {
            assert_eq!(who, BROWSER);
            let round_trip = ntp::round_trip(epoch.middle(now + way), lrr, delay).unwrap();
            let apart = round_trip.max(way * 2).saturating_sub(round_trip.min(way * 2));
            // Three times are rounded down to 1/65536 s.
            assert!(apart <= Span::micros(50), "{round_trip:?} over a way of {way:?}");
        }
    }
}

#[test]
fn packets_carry_their_number_and_time_in_the_elements_that_were_agreed_on_and_have_the_size_that_they_tell() {
    let times = [SendTime::Ours, SendTime::Absolute(2), SendTime::Absolute(14), SendTime::Omitted];
    for (send_time, transport) in times.into_iter().flat_map(|time| [4, 13].map(|id| (time, id))) {
        for feedback in [FeedbackFormat::TransportWide, FeedbackFormat::Rfc8888] {
            let (mut sender, mut packets) = sending(true, feedback, HeaderIds { transport, send_time });
            let missing = vec![(sender.next_seq() - 40) as u16];
            let report = Packet::ReceiverReport { ssrc: BROWSER, blocks: Vec::new() };
            hear(&mut sender, vec![report, Nack { sender: BROWSER, media: SENDER, missing }.to_packet()]);
            packets.extend(leaving(&mut sender, at(1_000), at(1_100)));
            assert!(packets.iter().any(|packet| packet.repairs.is_some()), "retransmissions, too");
            for packet in packets {
                let stamp = packet.header.send_time.unwrap();
                let mut datagram = Vec::new();
                packet.encode(&vec![7; packet.payload_len()], &mut datagram);
                assert_eq!(datagram.len() + 28, packet.size.get() as usize, "the size told is the size encoded");
                let (header, elements, _) = RtpHeader::parse(&datagram).unwrap();
                assert_eq!(header.send_time, (send_time == SendTime::Ours).then_some(stamp));
                let number = (feedback == FeedbackFormat::TransportWide)
                    .then(|| (transport, (packet.number as u16).to_be_bytes().to_vec()));
                let time = match send_time {
                    SendTime::Absolute(id) => Some((id, absolute(stamp).to_vec())),
                    _ => None,
                };
                let expected: Vec<_> = number.into_iter().chain(time).collect();
                assert_eq!(elements.map(|(id, data)| (id, data.to_vec())).collect::<Vec<_>>(), expected);
            }
        }
    }
}

#[test]
fn a_notice_travels_to_receivers_of_ours_alone() {
    let (_, packets) = sending(true, FeedbackFormat::Own, HeaderIds::default());
    for (id, send_time) in (1..15).flat_map(|id| [SendTime::Ours, SendTime::Absolute(id)].map(|time| (id, time))) {
        let ids = HeaderIds { send_time, ..HeaderIds::default() };
        let mut datagram = Vec::new();
        Media { notice: Notice::new(id, &[7; 8]), ids, ..packets[0] }.encode(&[], &mut datagram);
        let (_, elements, _) = RtpHeader::parse(&datagram).unwrap();
        let found: Vec<_> = elements.map(|(id, data)| (id, data.len())).collect();
        // The send-time extension only exists between Steadycast's ends: no controller uses the id 1.
        let expected = if send_time == SendTime::Ours { (id, 8) } else { (id, 3) };
        assert_eq!(found, [expected]);
    }
}

#[test]
fn abs_send_time_counts_seconds_in_24_bits_of_which_18_are_behind_the_point() {
    let of =
        |ms| u32::from_be_bytes(std::array::from_fn(|n| if n == 0 { 0 } else { absolute(Stamp::of(at(ms)))[n - 1] }));
    assert_eq!([0, 500, 1_000, 63_000, 64_000, 64_250].map(of), [0, 1 << 17, 1 << 18, 63 << 18, 0, 1 << 16]);
}
