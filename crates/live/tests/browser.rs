//! A live sender with a minimal browser as receiver, over loopback sockets.
#![allow(clippy::unwrap_used, reason = "a test may stop")]
#![allow(clippy::disallowed_methods, reason = "the browser lives in real time")]

#[allow(dead_code, reason = "in virtual time it can do more")]
mod browsers;

use browsers::{Browser, EPOCH, Feedback, offer};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use steadycast_control::registry;
use steadycast_live::{
    Broadcast, Destination, EncodedFrame, FlowKeys, LiveError, LocalOffer, MediaPort, Medium, NextBroadcastJob,
    NextJob, PairOptions, Publisher, Receiving, SendOptions, Sending, Steering,
};
use steadycast_media::{FrameKind, Scale};
use steadycast_units::Rate;
use steadycast_wire::payload::PayloadFormat;
use steadycast_wire::rtcp::{Compound, FeedbackKind, Packet, PacketStatus, TransportFeedback};
use steadycast_wire::rtp::{RtpHeader, TransportNumber};

/// The SSRC of the receiver, as in Chromium.
const RECEIVER: u32 = 1;

/// Opens a free port for media.
fn media_port() -> Arc<MediaPort> {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    Arc::new(MediaPort::open(&[Ipv4Addr::LOCALHOST.into()], free).unwrap())
}

fn options(to: Destination) -> SendOptions {
    let Value::Object(keys) = json!({ "controller": "steady", "cap": "1Mbps" }) else { panic!() };
    SendOptions {
        flow: FlowKeys::new(keys),
        to,
        pair: PairOptions::default(),
        cname: "it".into(),
        buffer: None,
        consume: None,
        key: None,
    }
}

/// A medium whose pictures an encoder codes during the session.
fn medium() -> Medium {
    let steering = Steering {
        fps: (30, 1),
        gop: 300,
        quantizers: (4, 63),
        scale: Scale::Logarithmic(6),
        sizes: vec![(320, 180)],
        own_pace: false,
        overhead: 0,
    };
    Medium::Encoder { format: PayloadFormat::Vp8, config: Vec::new(), steering }
}

fn begun(offer: String, port: &Arc<MediaPort>) -> Result<Sending, LiveError> {
    let (port, address) = (Arc::clone(port), Ipv4Addr::LOCALHOST.into());
    Sending::start(options(Destination::Browser { offer, port, address, others: Vec::new() }), medium())
}

/// An encoder whose pictures all have the same size.
fn encode(sending: &Sending) {
    let encoder_queue = sending.encoder_queue.clone().unwrap();
    std::thread::spawn(move || {
        loop {
            match encoder_queue.next_job(Duration::from_millis(100)) {
                NextJob::Job(job) => {
                    let (kind, first) = if job.first { (FrameKind::I, 0x10) } else { (FrameKind::P, 0x11) };
                    let bytes = [vec![first], vec![0; 2_000]].concat();
                    encoder_queue.push(EncodedFrame { picture: job.picture, kind, quantizer: job.quantizer, bytes });
                }
                NextJob::Nothing => {}
                NextJob::Closed => return,
            }
        }
    });
}

/// A browser with what it has received.
struct Viewer {
    browser: Browser,
    media: Vec<RtpHeader>,
    numbers: Vec<u16>,
    compounds: Vec<Packet>,
}

impl Viewer {
    fn of(answer: &str) -> Self {
        let browser = Browser::of(answer);
        browser.socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        Self { browser, media: Vec::new(), numbers: Vec::new(), compounds: Vec::new() }
    }

    /// Runs until `done`, or for 5 s.
    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let from = EPOCH.elapsed();
        let mut datagram = [0; 2_048];
        while !done(self) {
            let failed = &self.browser.client.failed;
            assert!(EPOCH.elapsed() - from < Duration::from_secs(5), "{failed:?} {:?}", self.media.len());
            if let Some(len) = self.browser.turn(&mut datagram) {
                self.take(&datagram[..len]);
            }
        }
    }

    fn take(&mut self, datagram: &[u8]) {
        let srtp = self.browser.srtp.as_mut().unwrap();
        if steadycast_wire::is_rtcp(datagram) {
            let bytes = srtp.open_rtcp(datagram).unwrap();
            self.compounds.extend(Compound::parse(bytes).unwrap().packets);
            return;
        }
        let (header, mut elements, _) = RtpHeader::parse(srtp.open_rtp(Browser::now(), datagram).unwrap()).unwrap();
        let number = elements.find(|(id, _)| *id == 4).and_then(|(_, bytes)| TransportNumber::read(bytes));
        self.numbers.extend(number.map(|number| number.seq));
        self.media.push(header);
    }
}

#[test]
fn a_browser_gets_media_with_its_payload_types_and_its_first_report_counts() {
    let sending = begun(offer(), &media_port()).unwrap();
    encode(&sending);
    let mut viewer = Viewer::of(&sending.sdp);
    viewer.until(|viewer| viewer.media.len() > 10);
    assert!(viewer.media.iter().all(|header| header.payload_type == 96), "{:?}", viewer.media);
    assert_eq!(viewer.numbers.len(), viewer.media.len());
    // The first compound of a browser: an empty report and a PLI, without a CNAME.
    let (ssrc, media) = (RECEIVER.to_be_bytes(), viewer.media[0].ssrc.to_be_bytes());
    let mut asks = [&[0x80, 201, 0, 1][..], &ssrc, &[0x81, 206, 0, 2], &ssrc, &media].concat();
    viewer.browser.srtp.as_mut().unwrap().protect_rtcp(&mut asks, 0);
    viewer.browser.socket.send(&asks).unwrap();
    let status = || sending.handle.status(Duration::from_secs(1));
    viewer.until(|_| status()["key_frames"].as_u64() == Some(1));
    let connection = &status()["browser"];
    let at = viewer.browser.client.at.to_string();
    let values = ["state", "why", "address", "is_silent"].map(|key| connection[key].clone());
    assert_eq!(values, [json!("connected"), json!(null), json!(at), json!(false)]);
    sending.handle.stop();
    viewer.until(|viewer| viewer.browser.client.closed);
    let bye = |packet: &Packet| matches!(packet, Packet::Bye { ssrcs, .. } if ssrcs.contains(&viewer.media[0].ssrc));
    assert!(viewer.compounds.iter().any(bye));
    assert!(sending.handle.finish().is_ok());
}

/// Returns the counts of a port by reason.
fn dropped(port: &MediaPort) -> BTreeMap<&'static str, u64> {
    port.dropped().into_iter().map(|(reason, count)| (reason.name(), count)).collect()
}

#[test]
fn viewers_share_a_port_and_one_that_leaves_does_not_change_another() {
    let port = media_port();
    let sessions: Vec<Sending> = (0..4).map(|_| begun(offer(), &port).unwrap()).collect();
    sessions.iter().for_each(encode);
    let mut viewers: Vec<Viewer> = sessions.iter().map(|sending| Viewer::of(&sending.sdp)).collect();
    let mut sources = BTreeSet::new();
    for viewer in &mut viewers {
        assert_eq!(viewer.browser.socket.peer_addr().unwrap().port(), port.port());
        viewer.until(|viewer| viewer.media.len() > 10);
        let own: BTreeSet<u32> = viewer.media.iter().map(|header| header.ssrc).collect();
        assert_eq!(own.len(), 1, "the media of one session");
        sources.extend(own);
    }
    assert_eq!(sources.len(), 4);
    // A stranger's datagrams reach no session.
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.connect(("127.0.0.1", port.port())).unwrap();
    for datagram in [&[0x80, 201, 0, 1, 0, 0, 0, 1][..], &[22, 254, 253, 0], &[99], &[0, 1, 0, 0]] {
        stranger.send(datagram).unwrap();
    }
    sessions[0].handle.stop();
    viewers[0].until(|viewer| viewer.browser.client.closed);
    assert!(sessions[0].handle.finish().is_ok());
    let before = viewers[1].media.len();
    viewers[1].until(|viewer| viewer.media.len() > before + 30);
    let counts = dropped(&port);
    assert_eq!((counts["unknown_address"], counts["other_protocol"]), (2, 2), "{counts:?}");
    assert_eq!((counts["failed_integrity"], counts["foreign_address"], counts["full_queue"]), (0, 0, 0));
}

/// Serves all viewers for this long.
fn watch(viewers: &mut [Viewer], span: Duration) {
    let from = EPOCH.elapsed();
    while EPOCH.elapsed() - from < span {
        for viewer in &mut *viewers {
            let mut datagram = [0; 2_048];
            while let Some(len) = viewer.browser.turn(&mut datagram) {
                viewer.take(&datagram[..len]);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the number of frames that arrived since packet `from`, and the number of packets that are missing between
/// the first and the last one.
fn arrived(viewer: &Viewer, from: usize) -> (usize, usize) {
    let headers = &viewer.media[from..];
    let seqs: BTreeSet<u16> = headers.iter().map(|header| header.seq.wrapping_sub(headers[0].seq)).collect();
    let missing = seqs.last().map_or(0, |last| usize::from(*last) + 1 - seqs.len());
    (headers.iter().filter(|header| header.marker).count(), missing)
}

#[test]
fn a_second_and_a_tenth_viewer_on_the_port_change_nothing_of_what_reaches_the_first() {
    let port = media_port();
    let (mut sessions, mut viewers) = (Vec::<Sending>::new(), Vec::<Viewer>::new());
    let mut frames = Vec::new();
    for count in [1, 2, 10] {
        while viewers.len() < count {
            let sending = begun(offer(), &port).unwrap();
            encode(&sending);
            let mut viewer = Viewer::of(&sending.sdp);
            viewer.until(|viewer| !viewer.media.is_empty());
            viewer.browser.socket.set_nonblocking(true).unwrap();
            viewers.push(viewer);
            sessions.push(sending);
            watch(&mut viewers, Duration::from_millis(50));
        }
        let from = viewers[0].media.len() - 1;
        watch(&mut viewers, Duration::from_secs(2));
        let (came, missing) = arrived(&viewers[0], from);
        assert_eq!(missing, 0, "beside {count}");
        frames.push(came);
    }
    // A frame more or less is due to the times at which counting starts and ends; the rest is for a busy machine.
    assert!(frames.iter().all(|came| *came * 10 >= frames[0] * 8), "{frames:?}");
    for (session, viewer) in sessions.iter().zip(&viewers) {
        let own: BTreeSet<u32> = viewer.media.iter().map(|header| header.ssrc).collect();
        assert_eq!((own.len(), arrived(viewer, 0).1), (1, 0));
        assert_eq!(session.handle.status(Duration::from_secs(1))["unsent"], 0);
    }
    assert_eq!(dropped(&port).values().sum::<u64>(), 0);
}

/// Passes on what a publisher sends, until the broadcast ends: a picture each 40 ms, at two rungs.
fn publish(broadcast: Broadcast) {
    std::thread::spawn(move || {
        for n in 0.. {
            match broadcast.next_job(Duration::ZERO) {
                NextBroadcastJob::Job(job) => {
                    let (kind, first) = if job.first { (FrameKind::I, 0x10) } else { (FrameKind::P, 0x11) };
                    let unit = |len| (kind, [vec![first], vec![0; len]].concat());
                    broadcast.push(n, None, vec![unit(800), unit(300)]);
                }
                NextBroadcastJob::Nothing => {}
                NextBroadcastJob::Closed => return,
            }
            std::thread::sleep(Duration::from_millis(40));
        }
    });
}

/// A publisher is a source with its own pace. Each controller has a viewer of it. Within the time, a viewer has to get
/// a second of pictures, without loss.
#[test]
fn viewers_of_a_publisher_get_its_pictures_with_every_controller() {
    let steering = Steering {
        fps: (25, 1),
        gop: 12,
        quantizers: (4, 63),
        scale: Scale::Logarithmic(6),
        sizes: vec![(320, 180)],
        own_pace: true,
        overhead: 0,
    };
    let broadcast = Broadcast::new(steering, 2, Rate::kbps(200), Rate::kbps(100));
    let port = media_port();
    let names: Vec<&str> = registry::ALL.iter().map(|controller| controller.name).collect();
    let begun = |name: &&str| {
        let (port, address) = (Arc::clone(&port), Ipv4Addr::LOCALHOST.into());
        let mut options = options(Destination::Browser { offer: offer(), port, address, others: Vec::new() });
        let Value::Object(keys) = json!({ "controller": name, "cap": "1Mbps" }) else { panic!() };
        options.flow = FlowKeys::new(keys);
        let (format, broadcast) = (PayloadFormat::Vp8, broadcast.clone());
        let medium = Medium::Broadcast { format, config: Vec::new(), broadcast };
        Sending::start(options, medium).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let sessions: Vec<Sending> = names.iter().map(begun).collect();
    let mut viewers: Vec<Viewer> = sessions.iter().map(|sending| Viewer::of(&sending.sdp)).collect();
    let mut feedbacks: Vec<Feedback> = names.iter().map(|_| Feedback::default()).collect();
    publish(broadcast.clone());
    let frames = |viewer: &Viewer| viewer.media.iter().filter(|it| it.payload_type == 96 && it.marker).count();
    let is_served = |viewer: &Viewer| frames(viewer) >= 25;
    viewers.iter().for_each(|viewer| viewer.browser.socket.set_nonblocking(true).unwrap());
    let from = EPOCH.elapsed();
    while !viewers.iter().all(is_served) && EPOCH.elapsed() - from < Duration::from_secs(15) {
        let before: Vec<usize> = viewers.iter().map(|viewer| viewer.numbers.len()).collect();
        watch(&mut viewers, Duration::from_millis(2));
        for ((viewer, feedback), before) in viewers.iter_mut().zip(&mut feedbacks).zip(before) {
            viewer.numbers[before..]
                .iter()
                .for_each(|number| feedback.on_packet(Browser::now(), viewer.media[0].ssrc, *number));
            feedback.send(&mut viewer.browser);
        }
    }
    broadcast.close();
    for (name, viewer) in names.iter().zip(&viewers) {
        assert!(is_served(viewer), "{name}: {} frames", frames(viewer));
        let distinct: BTreeSet<u16> = viewer.numbers.iter().copied().collect();
        let sent = distinct.last().map_or(0, |last| usize::from(*last) + 1);
        assert_eq!((viewer.numbers.len(), distinct.len()), (sent, sent), "{name}");
    }
}

#[test]
fn an_unacceptable_offer_is_an_error_with_its_place() {
    let port = media_port();
    let place = |offer: String| begun(offer, &port).err().map(|error| error.place);
    assert_eq!(place(offer().replace("VP8", "XYZ")).as_deref(), Some("offer.codec"));
    assert_eq!(place("no offer".into()).as_deref(), Some("offer.text"));
    let busy = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _bound = UdpSocket::bind(busy).unwrap();
    let error = MediaPort::open(&[busy.ip()], busy.port()).unwrap_err();
    assert_eq!(error.place, busy.to_string());
    assert!(error.remedy.contains("another port"), "{error}");
}

/// A browser that publishes VP8, with what it has received.
struct Sender {
    browser: Browser,
    seq: u16,
    rtx: u16,
    number: u16,
    compounds: Vec<Packet>,
}

impl Sender {
    fn of(answer: &str) -> Self {
        let browser = Browser::of(answer);
        browser.socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        Self { browser, seq: 65_530, rtx: 9, number: 65_500, compounds: Vec::new() }
    }

    /// Sends a packet with a transport-wide number.
    fn packet(&mut self, payload_type: u8, seq: u16, ssrc: u32, timestamp: u32, payload: &[u8]) {
        let [first, second] = seq.to_be_bytes();
        let number = self.number.to_be_bytes();
        self.number = self.number.wrapping_add(1);
        let padding = if payload.is_empty() { 0x20 } else { 0 };
        let mut packet = vec![0x90 | padding, 0x80 | payload_type, first, second];
        packet.extend(timestamp.to_be_bytes());
        packet.extend(ssrc.to_be_bytes());
        packet.extend([0xbe, 0xde, 0, 1, 0x41, number[0], number[1], 0]);
        packet.extend(payload);
        packet.extend(if payload.is_empty() { vec![0, 0, 0, 4] } else { Vec::new() });
        self.browser.srtp.as_mut().unwrap().protect_rtp(&mut packet, 0);
        self.browser.socket.send(&packet).unwrap();
    }

    /// Sends a frame, or loses it.
    fn frame(&mut self, n: u32, is_key: bool, is_lost: bool) {
        // The payload descriptor of a first packet, and a frame header with 320x180 samples (RFC 7741).
        let head: &[u8] = if is_key { &[0x10, 0x10, 2, 0, 0x9d, 1, 0x2a, 64, 1, 180, 0] } else { &[0x10, 0x11, 2, 0] };
        let seq = self.seq;
        self.seq = self.seq.wrapping_add(1);
        if is_lost {
            self.number = self.number.wrapping_add(1);
        } else {
            self.packet(96, seq, 77, n * 3_600, &[head, &[0; 400]].concat());
        }
    }

    /// Sends padding in the retransmission stream, which the browser has not announced.
    fn padding(&mut self) {
        self.rtx = self.rtx.wrapping_add(1);
        self.packet(97, self.rtx, 78, 0, &[]);
    }

    fn turn(&mut self) {
        let mut datagram = [0; 2_048];
        let Some(len) = self.browser.turn(&mut datagram) else { return };
        let srtp = self.browser.srtp.as_mut().unwrap();
        self.compounds.extend(Compound::parse(srtp.open_rtcp(&datagram[..len]).unwrap()).unwrap().packets);
    }

    fn asks_key_frame(&self) -> bool {
        let pli =
            |packet: &Packet| matches!(packet, Packet::Feedback { kind: FeedbackKind::Payload, fmt: 1, media: 77, .. });
        self.compounds.iter().any(pli)
    }

    /// Returns the transport-wide numbers that were reported as received, and those that were not.
    fn reported(&self) -> [BTreeSet<u16>; 2] {
        let mut all = [BTreeSet::new(), BTreeSet::new()];
        let reports = self.compounds.iter().filter_map(|packet| TransportFeedback::from_packet(packet).unwrap());
        for report in reports {
            for (n, status) in report.packets.iter().enumerate() {
                let is_missing = *status == PacketStatus::Missing;
                all[usize::from(is_missing)].insert(report.begin_seq.wrapping_add(n as u16));
            }
        }
        all
    }
}

#[test]
fn a_publisher_s_frames_arrive_all_its_packets_are_reported_and_damage_asks_for_a_key_frame() {
    let offer = offer().replace("a=recvonly", "a=sendonly");
    let publisher =
        Publisher { offer, port: media_port(), address: Ipv4Addr::LOCALHOST.into(), others: Vec::new(), audio: true };
    let receiving = Receiving::from_browser(&publisher, "it".into()).unwrap();
    receiving.frame_queue.want();
    let mut sender = Sender::of(receiving.answer.as_ref().unwrap());
    let from = EPOCH.elapsed();
    while sender.browser.srtp.is_none() {
        assert!(EPOCH.elapsed() - from < Duration::from_secs(5), "{:?}", sender.browser.client.failed);
        sender.turn();
    }
    let (mut n, mut frames) = (0, Vec::new());
    let lost = 40;
    while !sender.asks_key_frame() || n < 80 {
        assert!(EPOCH.elapsed() - from < Duration::from_secs(15), "{:?}", receiving.handle.status(Duration::ZERO));
        sender.frame(n, n == 0, n == lost);
        if n % 5 == 0 {
            sender.padding();
        }
        n += 1;
        let next = EPOCH.elapsed() + Duration::from_millis(20);
        while EPOCH.elapsed() < next {
            sender.turn();
        }
        frames.extend(receiving.frame_queue.take(Duration::ZERO).unwrap());
    }
    // After the key frame the frames are whole again.
    sender.frame(n, true, false);
    let until = EPOCH.elapsed() + Duration::from_secs(2);
    while EPOCH.elapsed() < until && frames.iter().filter(|frame| frame.whole).count() < lost as usize + 1 {
        sender.turn();
        frames.extend(receiving.frame_queue.take(Duration::ZERO).unwrap());
    }
    let whole: Vec<i64> = frames.iter().filter(|frame| frame.whole).map(|frame| frame.ticks / 3_600).collect();
    assert_eq!(whole[..lost as usize], (0..i64::from(lost)).collect::<Vec<_>>());
    assert_eq!(whole[lost as usize..], [i64::from(n)], "a frame needs those before it");
    let [came, missing] = sender.reported();
    let first = 65_500_u16;
    // The lost frame's number follows those of the frames and the padding before it.
    let number = first.wrapping_add(lost as u16 + lost as u16 / 5);
    assert_eq!(missing.difference(&came).copied().collect::<Vec<_>>(), [number], "{came:?}");
    let status = receiving.handle.status(Duration::from_secs(1));
    assert_eq!(status["browser"]["state"], "connected");
    receiving.handle.stop();
    let from = EPOCH.elapsed();
    while !sender.browser.client.closed {
        assert!(EPOCH.elapsed() - from < Duration::from_secs(5));
        sender.turn();
    }
    assert!(receiving.handle.finish().is_ok());
}

#[test]
fn a_server_s_answer_to_our_offer_starts_a_session_whose_frames_arrive_and_either_end_closes_it() {
    for server_closes in [false, true] {
        let offer = LocalOffer::new(options(Destination::Server(Ipv4Addr::LOCALHOST.into())), &medium()).unwrap();
        let address = Ipv4Addr::LOCALHOST.into();
        let offered = offer.sdp.clone();
        let publisher =
            Publisher { offer: offered.clone(), port: media_port(), address, others: Vec::new(), audio: true };
        let receiving = Receiving::from_browser(&publisher, "it".into()).unwrap();
        receiving.frame_queue.want();
        let sending = offer.start(receiving.answer.as_ref().unwrap(), medium()).unwrap();
        assert_eq!(sending.sdp, offered);
        encode(&sending);
        let (from, mut whole) = (EPOCH.elapsed(), 0);
        while whole < 60 {
            assert!(EPOCH.elapsed() - from < Duration::from_secs(15), "{}", sending.handle.status(Duration::ZERO));
            let frames = receiving.frame_queue.take(Duration::from_millis(100)).unwrap();
            whole += frames.iter().filter(|frame| frame.whole).count();
        }
        let status = sending.handle.status(Duration::from_secs(1));
        assert_eq!(status["browser"]["state"], "connected");
        assert_eq!(status["refused"], 0);
        assert_eq!(status["feedback_refused"], 0);
        // The rate comes from transport-wide feedback, which is not refused.
        assert!(status["feedback"].as_u64().unwrap() > 10, "{status}");
        assert!(status["decision"]["rtt_ms"].is_f64(), "{status}");
        let (first, second) =
            if server_closes { (&receiving.handle, &sending.handle) } else { (&sending.handle, &receiving.handle) };
        first.stop();
        assert!(second.wait(Duration::from_secs(10)), "{}", second.status(Duration::ZERO));
        assert!(first.finish().is_ok() && second.finish().is_ok());
    }
}

#[test]
fn an_answer_that_can_not_be_used_is_an_error_with_its_place() {
    let offer = || LocalOffer::new(options(Destination::Server(Ipv4Addr::LOCALHOST.into())), &medium()).unwrap();
    let place = |answer: &str| offer().start(answer, medium()).err().map(|error| error.place);
    assert_eq!(place("no answer").as_deref(), Some("answer.text"));
    // An offer can't be used as an answer, because it does not choose a DTLS role.
    let own = offer().sdp.replace("a=sendonly", "a=recvonly");
    assert_eq!(place(&own).as_deref(), Some("answer.setup"));
    assert_eq!(
        place(&own.replace("127.0.0.1", "::1").replace("actpass", "passive")).as_deref(),
        Some("answer.candidates")
    );
}
