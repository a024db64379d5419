use super::{bounds, made, new, text};
use proptest::prelude::*;
use std::ffi::c_char;
use std::ptr;
use steadycast::*;
use steadycast_remote::{
    Bounds, Bytes, FrameEdge, Packet, PacketArrival, PacketResult, PeerTime, Rate, Remote, Stream, Time,
};

/// A decision as it is before the library fills it in.
fn unread() -> SteadycastDecision {
    SteadycastDecision {
        size: size_of::<SteadycastDecision>(),
        target_bps: 0,
        pacing_bps: 0,
        window_bytes: 0,
        limit: 0,
        why: [0; 64],
    }
}

fn refusal(abi: u32, controller: &[u8], params: &str, bounds: &SteadycastBounds) -> String {
    new(abi, controller, params, bounds).unwrap_err()
}

#[test]
fn what_can_t_be_made_is_told_with_place_and_remedy() {
    let good = bounds(100_000, 4_000_000);
    let said = refusal(STEADYCAST_ABI, b"tfcr", "{}", &good);
    assert_eq!(said, "tfcr: no such controller; did you mean \"tfrc\"?");
    assert!(refusal(7, b"tfrc", "{}", &good).contains("version 7"));
    assert!(refusal(STEADYCAST_ABI, b"tf\xff", "{}", &good).contains("UTF-8"));
    assert!(refusal(STEADYCAST_ABI, b"gcc", "{}", &good).contains("probes"));
    let said = refusal(STEADYCAST_ABI, b"gcc", "{\"probes\": [1]}", &good);
    assert_eq!(said, "params.probes: [1] is no value; give a number, a text, true or false");
    assert!(refusal(STEADYCAST_ABI, b"gcc", "probes=no", &good).contains("give a JSON object"));
    assert!(refusal(STEADYCAST_ABI, b"gcc", "{\"porbes\": false}", &good).contains("porbes"));
    assert!(refusal(STEADYCAST_ABI, b"tfrc", "{}", &bounds(2, 1)).contains("floor"));
    assert!(refusal(STEADYCAST_ABI, b"tfrc", "{}", &SteadycastBounds { size: 8, ..good }).contains("its size is 8"));
    let late = SteadycastBounds { late: 1, ..good };
    assert!(refusal(STEADYCAST_ABI, b"scream", "{}", &late).contains("told of with their feedback alone"));
    let rare = SteadycastBounds { interval_ms: 250, ..good };
    assert!(refusal(STEADYCAST_ABI, b"pgmcc", "{}", &rare).contains("feedback comes every 250"));
    let acknowledged = SteadycastBounds { acknowledged: 1, ..good };
    assert!(refusal(STEADYCAST_ABI, b"lda-plus", "{}", &acknowledged).contains("it needs arrival times"));
    // A program made with an earlier header has bounds that end before `late`, or before `acknowledged`.
    let first = SteadycastBounds { size: std::mem::offset_of!(SteadycastBounds, late), ..late };
    let second = SteadycastBounds { size: std::mem::offset_of!(SteadycastBounds, acknowledged), ..acknowledged };
    for (controller, earlier) in [(&b"scream"[..], &first), (b"lda-plus", &second)] {
        // SAFETY: it is not used again.
        unsafe { steadycast_free(new(STEADYCAST_ABI, controller, "{}", earlier).unwrap()) };
    }
    assert!(refusal(STEADYCAST_ABI, b"tfrc", "{}", &SteadycastBounds { ecn: 3, ..good }).contains("ecn: 3"));
    let wrong = [
        ("late", SteadycastBounds { late: 2, ..good }),
        ("probes", SteadycastBounds { probes: 5, ..good }),
        ("acknowledged", SteadycastBounds { acknowledged: u32::MAX, ..good }),
    ];
    for (name, bounds) in wrong {
        let said = refusal(STEADYCAST_ABI, b"tfrc", "{}", &bounds);
        assert!(said.starts_with(&format!("bounds.{name}: ")) && said.contains("give 1 for yes"), "{said}");
    }
    assert!(refusal(STEADYCAST_ABI, b"tfrc", "{}", &SteadycastBounds { packet_bytes: 0, ..good }).contains("size"));
}

#[test]
fn an_error_is_cut_to_the_room_that_there_is() {
    for room in 0..40 {
        let mut error = [1 as c_char; 64];
        // SAFETY: the name ends with a NUL, and the array has the capacity that is passed.
        let made = unsafe {
            steadycast_new(STEADYCAST_ABI, c"tfcr".as_ptr(), ptr::null(), &bounds(1, 2), error.as_mut_ptr(), room)
        };
        assert!(made.is_null());
        assert!(error[room..].iter().all(|byte| *byte == 1), "it wrote beyond {room} bytes");
        assert!(room == 0 || text(&error).len() < room);
    }
}

#[test]
fn a_wrong_call_answers_a_code_and_changes_nothing() {
    let mut decision = unread();
    let mut probe = SteadycastProbe { size: 3, id: 0, packets: 0, bytes: 0, rate_bps: 0, within: 0 };
    let fate = |ecn| SteadycastFate { number: 0, arrived_ns: 5, ecn };
    let own = made("tfrc", "{}");
    // SAFETY: each pointer is null or of this frame, and the handle is freed last.
    unsafe {
        assert_eq!(steadycast_sent(ptr::null_mut(), 0, 1_200, 0), STEADYCAST_NO_NUMBER);
        assert_eq!(steadycast_feedback(ptr::null_mut(), 0, &fate(0), 1), STEADYCAST_NULL);
        assert_eq!(steadycast_feedback(own, 0, ptr::null(), 1), STEADYCAST_NULL);
        assert_eq!(steadycast_feedback(own, 0, ptr::null(), 0), STEADYCAST_OK);
        assert_eq!(steadycast_feedback(own, 0, &fate(4), 1), STEADYCAST_VALUE);
        assert_eq!(steadycast_sent_extra(own, 0, 1_200, 0), STEADYCAST_NO_NUMBER);
        assert_eq!(steadycast_forget(ptr::null_mut(), 0), STEADYCAST_NULL);
        assert_eq!(steadycast_wake(ptr::null_mut()), STEADYCAST_NEVER);
        assert_eq!(steadycast_decision(own, ptr::null_mut()), STEADYCAST_NULL);
        assert_eq!(steadycast_probe(own, &mut probe), STEADYCAST_SIZE);
        decision.size = 4;
        assert_eq!(steadycast_decision(own, &mut decision), STEADYCAST_SIZE);
        assert_eq!(decision.target_bps, 0);
        decision.size = size_of::<SteadycastDecision>();
        assert_eq!(steadycast_decision(own, &mut decision), STEADYCAST_OK);
        assert!((100_000..=10_000_000).contains(&decision.target_bps));
        steadycast_free(own);
        steadycast_free(ptr::null_mut());
    }
}

#[test]
fn a_controller_that_never_limits_the_bytes_in_flight_has_no_window() {
    for (controller, limited) in [("tfrc", false), ("lda-plus", false), ("scream", true), ("pgmcc", true)] {
        let (own, mut decision) = (made(controller, "{}"), unread());
        // SAFETY: each pointer is of this frame, and the handle is freed last.
        unsafe {
            assert_eq!(steadycast_decision(own, &mut decision), STEADYCAST_OK);
            assert_eq!(decision.window_bytes != -1, limited, "{controller}");
            steadycast_free(own);
        }
    }
}

#[test]
fn the_names_of_all_controllers_can_be_read_in_any_room() {
    // SAFETY: the array has the capacity that is passed.
    let needed = unsafe { steadycast_controllers(ptr::null_mut(), 0) };
    let mut names = vec![0 as c_char; needed];
    // SAFETY: as above.
    assert_eq!(unsafe { steadycast_controllers(names.as_mut_ptr(), needed) }, needed);
    let names = text(&names);
    assert!(names.lines().any(|name| name == "steady") && names.len() + 1 == needed);
}

/// A call of the C library with arbitrary times and numbers.
#[derive(Clone, Debug)]
enum Call {
    Sent(i64, u32, u32),
    Extra(i64, u32),
    Forget(u64),
    Feedback(i64, Vec<(u64, i64, i32)>),
    Timer(i64),
    Queued(i64, u64, i64, i64),
}

fn call() -> impl Strategy<Value = Call> {
    let at = || prop_oneof![0..60_000_000_000_i64, any::<i64>()];
    let number = || prop_oneof![0..300_u64, any::<u64>()];
    let arrived = prop_oneof![at(), Just(STEADYCAST_MISSING), Just(STEADYCAST_NO_TIME)];
    prop_oneof![
        4 => (at(), 0..3_000_u32, 0..16_u32).prop_map(|(at, size, flags)| Call::Sent(at, size, flags)),
        1 => (at(), 1..4_u32, prop::bool::ANY)
            .prop_map(|(at, stream, covered)| Call::Extra(at, stream | if covered { 0 } else { STEADYCAST_UNCOVERED })),
        1 => number().prop_map(Call::Forget),
        2 => (at(), prop::collection::vec((number(), arrived, -1..4_i32), 0..30))
            .prop_map(|(at, fates)| Call::Feedback(at, fates)),
        1 => at().prop_map(Call::Timer),
        1 => (at(), any::<u64>(), any::<i64>(), any::<i64>())
            .prop_map(|(at, waiting, age, frame)| Call::Queued(at, waiting, age, frame)),
    ]
}

/// Makes the same call to the Rust library, if it has the function.
fn same(remote: &mut Remote, call: &Call) {
    let time = |ns: i64| Time::from_nanos(ns.max(0).unsigned_abs());
    match call {
        Call::Sent(at, size, flags) => {
            let edge = FrameEdge { first: flags & 1 != 0, last: flags & 2 != 0 };
            let size = Bytes::new((*size).into());
            if flags & STEADYCAST_UNCOVERED != 0 {
                remote.sent_uncovered(time(*at), Stream::Media, size);
                return;
            }
            remote.sent(time(*at), &Packet { size, edge, data_limited: flags & 4 != 0 });
        }
        Call::Extra(at, stream) => {
            let covered = stream & STEADYCAST_UNCOVERED == 0;
            let streams = [Stream::Media, Stream::Repair, Stream::Parity, Stream::Padding];
            let (at, stream, size) = (time(*at), streams[(stream & 3) as usize], Bytes::new(900));
            if covered {
                remote.sent_extra(at, stream, size)
            } else {
                remote.sent_uncovered(at, stream, size)
            };
        }
        Call::Forget(number) => remote.forget(*number),
        Call::Feedback(at, fates) => {
            let fates = fates.iter().map(|(number, at, ecn)| PacketResult {
                number: *number,
                arrived: (*at != STEADYCAST_MISSING).then(|| PacketArrival {
                    at: (*at != STEADYCAST_NO_TIME).then(|| PeerTime::from_nanos(*at)),
                    ecn: u8::try_from(*ecn).ok().map(steadycast_remote::Ecn::from_bits),
                }),
            });
            remote.feedback(time(*at), fates);
        }
        Call::Timer(at) => remote.timer(time(*at)),
        Call::Queued(..) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_calls_give_what_the_rust_library_gives(
        controller in prop::sample::select(vec!["tfrc", "steady", "scream", "asmp"]),
        calls in prop::collection::vec(call(), 0..120),
    ) {
        let own = made(controller, "{}");
        let bounds = Bounds::new(Rate::bps(100_000), Rate::bps(10_000_000));
        let mut remote = Remote::new(controller, &[], &bounds).unwrap();
        let mut told = unread();
        let calls: Vec<_> = calls.into_iter().filter(|call| !matches!(call, Call::Queued(..))).collect();
        for call in &calls {
            same(&mut remote, call);
            // SAFETY: the handle is freed last, and slices live as long as the call.
            unsafe {
                match call {
                    Call::Sent(at, size, flags) => { steadycast_sent(own, *at, *size, *flags); }
                    Call::Extra(at, stream) => { steadycast_sent_extra(own, *at, 900, *stream); }
                    Call::Forget(number) => prop_assert_eq!(steadycast_forget(own, *number), STEADYCAST_OK),
                    Call::Feedback(at, fates) => {
                        let fates: Vec<_> = fates
                            .iter()
                            .map(|&(number, arrived_ns, ecn)| SteadycastFate { number, arrived_ns, ecn })
                            .collect();
                        prop_assert_eq!(steadycast_feedback(own, *at, fates.as_ptr(), fates.len()), STEADYCAST_OK);
                    }
                    Call::Timer(at) => { steadycast_timer(own, *at); }
                    Call::Queued(..) => {}
                }
                prop_assert_eq!(steadycast_decision(own, &mut told), STEADYCAST_OK);
            }
            let wanted = remote.decision();
            prop_assert_eq!((told.target_bps, told.pacing_bps), (wanted.target.as_bps(), wanted.pacing.as_bps()));
            prop_assert!(wanted.why.rule.starts_with(&text(&told.why)));
        }
        // SAFETY: it is not used again.
        unsafe { steadycast_free(own) };
    }

    #[test]
    fn a_queue_of_any_length_and_age_breaks_nothing(
        calls in prop::collection::vec(call(), 0..60),
        controller in prop::sample::select(vec!["steady", "scream", "nada"]),
    ) {
        let own = made(controller, "{}");
        for call in &calls {
            if let Call::Queued(at, waiting, age, frame) = call {
                // SAFETY: the handle is freed last.
                prop_assert_eq!(unsafe { steadycast_queued(own, *at, *waiting, *age, *frame) }, STEADYCAST_OK);
            }
        }
        // SAFETY: it is not used again.
        unsafe { steadycast_free(own) };
    }
}

#[test]
fn a_wrong_call_of_a_sender_answers_a_code() {
    let (none, good) = (ptr::null_mut(), bounds(100_000, 4_000_000));
    let mut error = [0 as c_char; 256];
    let settings = SteadycastSenderSettings {
        size: size_of::<SteadycastSenderSettings>(),
        format: STEADYCAST_RFC8888,
        retransmissions_covered: 0,
        padding: 0,
        max_backlog_ms: 1_000,
        credit_ms: 20,
    };
    let mut new = |abi, settings: &SteadycastSenderSettings| {
        // SAFETY: all pointers are of this frame.
        let made = unsafe {
            let (name, params) = (c"steady".as_ptr(), ptr::null());
            steadycast_sender_new(abi, name, params, &good, settings, error.as_mut_ptr(), error.len())
        };
        if made.is_null() { Err(text(&error)) } else { Ok(made) }
    };
    assert!(new(STEADYCAST_ABI + 1, &settings).unwrap_err().contains("version 3"));
    assert!(new(2, &SteadycastSenderSettings { size: 8, ..settings }).unwrap_err().contains("its size is 8"));
    assert!(new(2, &SteadycastSenderSettings { format: 9, ..settings }).unwrap_err().contains("format: 9"));
    let sender = new(2, &settings).unwrap();
    let size = size_of::<SteadycastStream>();
    let (kind, ssrc) = (STEADYCAST_VIDEO, 1);
    let video = SteadycastStream { size, kind, ssrc, retransmission: 1, uncovered: 0, least_bps: 0, most_bps: 0 };
    let packet = SteadycastPacket { id: 7, size_bytes: 1_000, flags: 3, seq: 1 };
    let mut output = SteadycastOutput {
        size: size_of::<SteadycastOutput>(),
        id: 0,
        number: 0,
        at_ns: 0,
        stream: 0,
        kind: 0,
        seq: 0,
    };
    let mut encoder = SteadycastEncoder { size: size_of::<SteadycastEncoder>(), rate_bps: 0, skip: 0, key_frame: 0 };
    let junk = [0_u8; 7];
    // SAFETY: the handle is freed at the end, and all else is of this frame.
    unsafe {
        assert_eq!(steadycast_sender_stream(none, &video), STEADYCAST_NULL);
        assert_eq!(steadycast_sender_stream(sender, &SteadycastStream { kind: 0, ..video }), STEADYCAST_VALUE);
        assert_eq!(steadycast_sender_stream(sender, &SteadycastStream { size: 3, ..video }), STEADYCAST_SIZE);
        let without_stream = [
            steadycast_sender_push(sender, 0, 0, &packet),
            steadycast_sender_frame(sender, 0, 0, STEADYCAST_FRAME_KEY),
            steadycast_sender_resend(sender, 0, 0, 1),
            steadycast_sender_key_frame(sender, 0),
            steadycast_sender_encoder(sender, 0, 0, &mut encoder),
        ];
        assert_eq!(without_stream, [STEADYCAST_VALUE; 5]);
        let wrong = [
            SteadycastStream { retransmission: 2, ..video },
            SteadycastStream { uncovered: 2, ..video },
            SteadycastStream { least_bps: 2, most_bps: 1, ..video },
        ];
        for wrong in wrong {
            assert_eq!(steadycast_sender_stream(sender, &wrong), STEADYCAST_VALUE);
        }
        assert_eq!(steadycast_sender_stream(sender, &video), 0);
        assert_eq!(steadycast_sender_stream(sender, &video), STEADYCAST_VALUE, "the SSRC is taken");
        assert_eq!(steadycast_sender_key_frame(sender, 0), STEADYCAST_OK);
        assert_eq!(steadycast_sender_encoder(sender, 0, 0, &mut encoder), STEADYCAST_OK);
        assert_eq!(steadycast_sender_encoder(sender, 0, 1, &mut encoder), STEADYCAST_VALUE, "there is no second one");
        assert_eq!(steadycast_sender_push(sender, 0, 0, ptr::null()), STEADYCAST_NULL);
        assert_eq!(steadycast_sender_push(sender, 0, 0, &packet), 1);
        assert_eq!(steadycast_sender_frame(sender, 0, 0, 0), STEADYCAST_VALUE);
        assert_eq!(steadycast_sender_poll(sender, 0, ptr::null_mut()), STEADYCAST_NULL);
        assert_eq!(steadycast_sender_poll(sender, 0, &mut output), STEADYCAST_SEND);
        assert_eq!((output.id, output.number, output.kind), (7, 0, 0));
        assert_eq!(steadycast_sender_poll(sender, 0, &mut output), STEADYCAST_WAIT);
        assert_eq!(steadycast_sender_rtcp(sender, 0, junk.as_ptr(), junk.len()), STEADYCAST_VALUE);
        assert_eq!(steadycast_sender_sent_as(sender, 0, 9, 0, 0), STEADYCAST_VALUE);
        assert_eq!(steadycast_sender_sent_as(sender, 0, STEADYCAST_NAME_RTP, 1, 65_536), STEADYCAST_VALUE);
        assert_eq!(steadycast_sender_sent_as(sender, 0, STEADYCAST_NAME_OWN, 0, 5), STEADYCAST_OK);
        assert_eq!(steadycast_sender_number(sender, STEADYCAST_NAME_OWN, 0, 5), 0);
        assert_eq!(steadycast_sender_number(sender, STEADYCAST_NAME_OWN, 0, 6), STEADYCAST_NO_NUMBER);
        assert_eq!(steadycast_sender_feedback(sender, 0, ptr::null(), 1), STEADYCAST_NULL);
        steadycast_sender_free(sender);
        steadycast_sender_free(none);
    }
}

#[test]
fn a_transport_wide_number_takes_the_room_that_there_is() {
    let mut plain = [0u8; 14 + 8];
    plain[..14].copy_from_slice(&[0x80, 0xe0, 0x12, 0x34, 1, 2, 3, 4, 5, 6, 7, 8, 0xaa, 0xbb]);
    // SAFETY: each pointer is null, or has the room that is named.
    unsafe {
        assert_eq!(steadycast_transport_number(ptr::null_mut(), 0, 0, 5, 1), STEADYCAST_NULL);
        for room in 0..22 {
            let mut packet = plain;
            assert_eq!(steadycast_transport_number(packet.as_mut_ptr(), 14, room, 5, 0x0102), STEADYCAST_VALUE);
            assert_eq!(packet, plain);
        }
        let mut packet = plain;
        assert_eq!(steadycast_transport_number(packet.as_mut_ptr(), 14, 22, 0, 1), STEADYCAST_VALUE);
        assert_eq!(steadycast_transport_number(packet.as_mut_ptr(), 14, 22, 5, 0x0102), 22);
        assert_eq!(packet[0], 0x90);
        assert_eq!(packet[12..], [0xbe, 0xde, 0, 1, 0x51, 1, 2, 0, 0xaa, 0xbb]);
        // The number of a retransmission replaces the first one.
        assert_eq!(steadycast_transport_number(packet.as_mut_ptr(), 22, 22, 5, 0x0304), 22);
        assert_eq!(packet[16..20], [0x51, 3, 4, 0]);
    }
}
