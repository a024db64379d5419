use super::*;

const VIDEO: u32 = 1;
const AUDIO: u32 = 2;
const PACKET: usize = 1_000;

/// The element's state without its pads and thread, at a time that the test sets.
struct Session {
    state: State,
    settings: Settings,
    now: Time,
    pushed: BTreeMap<u32, u16>,
    /// The packets that were sent: SSRC, sequence number and time.
    sent: Vec<(u32, u16, Time)>,
    key_units: u64,
}

impl Session {
    /// Creates a session whose rate is between 200 kb/s and `max` bit/s.
    fn new(max: u32) -> Self {
        gst::init().unwrap();
        let settings = Settings { min: 200_000, max, ..Settings::default() };
        let state = State { sender: Some(settings.sender().unwrap()), ..State::default() };
        let (pushed, sent) = (BTreeMap::new(), Vec::new());
        Self { state, settings, now: Time::from_nanos(1_000_000_000), pushed, sent, key_units: 0 }
    }

    /// Pushes one packet and returns its sequence number.
    fn packet(&mut self, ssrc: u32, timestamp: u32, marker: bool, delta: bool) -> u16 {
        let next = self.pushed.entry(ssrc).or_default();
        let seq = *next;
        *next += 1;
        let size = if ssrc == AUDIO { 100 } else { PACKET };
        let payload_len = size as u16 - 40;
        let header = RtpHeader { payload_type: 96, marker, seq, timestamp, ssrc, send_time: None, payload_len };
        let mut buffer = gst::Buffer::with_size(1).unwrap();
        if delta {
            buffer.get_mut().unwrap().set_flags(gst::BufferFlags::DELTA_UNIT);
        }
        self.state.push(self.now, buffer, size as u64, header, self.settings.pace);
        seq
    }

    /// Pushes a frame of `packets` packets and returns their sequence numbers.
    fn frame(&mut self, ssrc: u32, timestamp: u32, packets: u16, delta: bool) -> Vec<u16> {
        (1..=packets).map(|n| self.packet(ssrc, timestamp, n == packets, delta)).collect()
    }

    /// Sends what is due until `span` from now.
    fn run(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            let mut leaving = Vec::new();
            let until = self.state.poll(self.now, &mut leaving);
            for item in leaving {
                if let Item::Packet(_, header) = item {
                    self.sent.push((header.ssrc, header.seq, self.now));
                }
            }
            let mut notifications = Notifications::default();
            self.state.read(self.now, &self.settings, &mut notifications);
            self.key_units += u64::from(notifications.key_unit);
            match until {
                Some(until) if until < end => self.now = until.max(self.now),
                _ => break,
            }
        }
        self.now = end;
    }

    fn sent(&self, ssrc: u32) -> Vec<u16> {
        self.sent.iter().filter(|packet| packet.0 == ssrc).map(|packet| packet.1).collect()
    }
}

#[test]
fn audio_between_the_packets_of_video_neither_waits_nor_ends_the_skipping_of_video_frames() {
    for (packets, audio_first) in [(2, false), (4, true), (4, false), (9, true)] {
        let mut session = Session::new(200_000);
        let (mut audio, mut frames) = (0, Vec::new());
        if audio_first {
            // Opus's payloader marks the first packet.
            session.packet(AUDIO, 0, true, false);
        }
        // At least 480 kb/s of video over a link of 200 kb/s. The frames after the 120th depend on a new key frame.
        for n in 0..150_u32 {
            let mut frame = Vec::new();
            for part in 1..=packets {
                frame.push(session.packet(VIDEO, n * 3_000, part == packets, n % 120 != 0));
                if part == packets / 2 {
                    session.packet(AUDIO, 960 + n * 960, false, false);
                    audio += 1;
                }
            }
            frames.push(frame);
            session.run(Span::millis(33));
        }
        session.run(Span::secs(3));
        let sent = session.sent(VIDEO);
        let whole = |frame: &Vec<u16>| frame.iter().all(|seq| sent.contains(seq));
        let cut: Vec<_> = frames.iter().filter(|f| !whole(f) && f.iter().any(|seq| sent.contains(seq))).collect();
        assert!(cut.is_empty(), "{packets} packets per frame: {cut:?} in part");
        let skipped = frames.iter().position(|frame| !whole(frame)).unwrap();
        assert!(skipped < 119, "{packets} packets per frame: {skipped}");
        let next = frames.iter().skip(skipped).position(whole).map(|n| n + skipped);
        assert_eq!(next, Some(120), "{packets} packets per frame: only a key frame of video ends the skipping");
        assert!(session.key_units > 0);
        // A stream's first packets do not show yet that it has no frames, so they are paced.
        let sent = session.sent(AUDIO);
        assert_eq!(sent.len(), audio + usize::from(audio_first), "{packets} packets per frame");
        let begin = Time::from_nanos(1_000_000_000);
        for (ssrc, seq, at) in
            session.sent.iter().filter(|packet| packet.0 == AUDIO && packet.1 > u16::from(audio_first))
        {
            let n = u64::from(*seq) - u64::from(audio_first);
            assert_eq!(*at, begin + Span::millis(33) * n, "packet {seq} of {ssrc}");
        }
    }
}

#[test]
fn the_first_key_frame_is_never_cut_and_of_a_later_frame_that_is_nothing_more_is_sent_until_a_key_frame() {
    for packets in [60, 100, 200] {
        let mut session = Session::new(200_000);
        // 0.4 s at 200 kb/s are 10 packets; twice as much is the bound of a frame that is no key frame.
        let first = session.frame(VIDEO, 0, packets, false);
        session.run(Span::secs(20));
        assert_eq!(session.sent(VIDEO), first);
        assert_eq!(session.key_units, 0);
        let second = session.frame(VIDEO, 3_000, packets, true);
        // The queue drains between two packets of the frame.
        session.run(Span::secs(2));
        let rest = session.packet(VIDEO, 3_000, true, true);
        let third = session.frame(VIDEO, 6_000, 1, true);
        session.run(Span::secs(2));
        let sent = session.sent(VIDEO);
        let part = second.iter().take_while(|seq| sent.contains(seq)).count();
        assert!(part > 10 && part < 60, "{part} of {packets}");
        assert_eq!(sent.len(), usize::from(packets) + part, "neither packet {rest} nor frame {third:?}");
        assert!(session.key_units > 0);
        let key = session.frame(VIDEO, 9_000, 3, false);
        let delta = session.frame(VIDEO, 12_000, 2, true);
        session.run(Span::secs(2));
        assert!(session.sent(VIDEO).ends_with(&[key, delta].concat()));
    }
}

#[test]
fn a_video_stream_without_flags_is_paced_and_a_cut_frame_requests_a_key_frame() {
    let mut session = Session::new(200_000);
    for n in 0..3 {
        session.frame(VIDEO, n * 3_000, 2, false);
        session.run(Span::millis(1));
        assert_eq!(session.sent(VIDEO).len(), 1, "the others wait");
    }
    session.run(Span::secs(2));
    assert_eq!((session.sent(VIDEO).len(), session.key_units), (6, 0));
    session.frame(VIDEO, 9_000, 100, false);
    session.run(Span::secs(2));
    assert!(session.sent(VIDEO).len() < 106);
    assert!(session.key_units > 0);
}

#[test]
fn packets_keep_their_order_when_pace_changes_while_they_wait() {
    let mut random = 7_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut unpaced = 0;
    for _ in 0..50 {
        let mut session = Session::new(1_000_000);
        for n in 0..60 {
            session.settings.pace = draw(4) > 0;
            let packets = 1 + draw(4) as u16;
            session.frame(VIDEO, n * 3_000, packets, n > 0);
            let before = session.sent.len();
            session.run(Span::millis(draw(60)));
            let at = session.sent.get(before).map(|packet| packet.2);
            unpaced += session.sent[before..].iter().filter(|packet| Some(packet.2) == at).count().saturating_sub(1);
        }
        session.run(Span::secs(5));
        let sent = session.sent(VIDEO);
        assert!(sent.is_sorted(), "{sent:?}");
        assert!(!sent.is_empty());
    }
    assert!(unpaced > 0, "some frames were not paced");
}

#[test]
fn a_key_frame_that_is_not_paced_ends_the_requests_for_one() {
    let mut session = Session::new(200_000);
    session.frame(VIDEO, 0, 2, false);
    session.frame(VIDEO, 3_000, 60, true);
    session.run(Span::secs(3));
    assert!(session.key_units > 0);
    session.settings.pace = false;
    session.frame(VIDEO, 6_000, 2, false);
    let before = session.key_units;
    for n in 3..100 {
        session.frame(VIDEO, n * 3_000, 1, true);
        session.run(Span::millis(33));
    }
    assert_eq!(session.key_units, before);
    let pushed = session.pushed[&VIDEO];
    assert!(session.sent(VIDEO).ends_with(&(pushed - 99..pushed).collect::<Vec<_>>()));
}
