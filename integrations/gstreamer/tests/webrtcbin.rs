//! The element in a call between two `webrtcbin`s over this machine's loopback, with a real encoder that follows it.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const TWCC: &str = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
/// Lower and upper limit of the encoder's rate in bits per second.
const FLOOR: u32 = 100_000;
const MOST: u32 = 1_000_000;

/// Requests a session description by a signal and passes it on.
fn describe(of: &gst::Element, signal: &str, key: &'static str, then: impl Fn(&glib::Value) + Send + 'static) {
    let promise = gst::Promise::with_change_func(move |reply| {
        let reply = reply.unwrap().unwrap();
        then(reply.value(key).unwrap());
    });
    of.emit_by_name::<()>(signal, &[&None::<gst::Structure>, &promise]);
}

/// Sets the local or the remote description of a `webrtcbin`. It processes calls in order in a separate thread, which
/// also runs this callback, so that there is nothing to wait for.
fn take(by: &gst::Element, signal: &str, description: &glib::Value) {
    by.emit_by_name_with_values(signal, &[description.clone(), None::<gst::Promise>.to_value()]);
}

/// Passes the ICE candidates of each to the other.
fn introduce(one: &gst::Element, other: &gst::Element) {
    let other = other.downgrade();
    one.connect("on-ice-candidate", false, move |words| {
        let (line, candidate): (u32, String) = (words[1].get().unwrap(), words[2].get().unwrap());
        if let Some(other) = other.upgrade() {
            other.emit_by_name::<()>("add-ice-candidate", &[&line, &candidate]);
        }
        None
    });
}

#[test]
#[ignore = "claim: needs GStreamer's webrtcbin, with libnice"]
fn between_two_webrtcbins_feedback_raises_the_estimate_to_its_bound_and_a_real_encoder_sends_more() {
    gst::init().unwrap();
    gststeadycast::register(None).unwrap();
    for (element, package) in [("webrtcbin", "gstreamer1.0-plugins-bad"), ("nicesrc", "gstreamer1.0-nice")] {
        assert!(gst::ElementFactory::find(element).is_some(), "{element} is missing: apt-get install {package}");
    }
    let caller = gst::parse::launch(&format!(
        "webrtcbin name=web bundle-policy=max-bundle \
         videotestsrc is-live=true pattern=snow ! video/x-raw,width=320,height=240,framerate=30/1 ! videoconvert \
           ! vp8enc name=encoder deadline=1 end-usage=cbr target-bitrate=200000 keyframe-max-dist=60 \
           ! rtpvp8pay pt=96 mtu=1200 auto-header-extension=true \
           ! application/x-rtp,media=video,encoding-name=VP8,payload=96,clock-rate=90000,\
             rtcp-fb-transport-cc=(boolean)true,extmap-5=(string)\"{TWCC}\" ! web."
    ));
    let caller: gst::Pipeline = caller.unwrap().downcast().unwrap();
    let (callee, from) = (gst::Pipeline::new(), caller.by_name("web").unwrap());
    let to = gst::ElementFactory::make("webrtcbin").property_from_str("bundle-policy", "max-bundle").build().unwrap();
    callee.add(&to).unwrap();
    let encoder = caller.by_name("encoder").unwrap();
    let bwe = gst::ElementFactory::make("rtpsteadycastbwe")
        .property("min-bitrate", FLOOR)
        .property("max-bitrate", MOST)
        .build()
        .unwrap();
    bwe.connect_notify(Some("estimated-bitrate"), move |bwe, _| {
        encoder.set_property("target-bitrate", bwe.property::<u32>("estimated-bitrate") as i32);
    });
    let given = bwe.clone();
    from.connect("request-aux-sender", false, move |_| Some(given.to_value()));
    introduce(&from, &to);
    introduce(&to, &from);

    // Counts the bytes that the other end decodes.
    let came = Arc::new(AtomicU64::new(0));
    let (counter, there) = (Arc::clone(&came), callee.downgrade());
    to.connect_pad_added(move |_, pad| {
        let Some(there) = there.upgrade() else { return };
        let sink = gst::ElementFactory::make("fakesink").property("sync", false).build().unwrap();
        there.add(&sink).unwrap();
        sink.sync_state_with_parent().unwrap();
        let end = sink.static_pad("sink").unwrap();
        let counter = Arc::clone(&counter);
        end.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
            counter.fetch_add(info.buffer().map_or(0, |buffer| buffer.size() as u64), Ordering::Relaxed);
            gst::PadProbeReturn::Ok
        });
        pad.link(&end).unwrap();
    });

    let (asked, answerer) = (Mutex::new(false), to.clone());
    from.connect("on-negotiation-needed", false, move |words| {
        let mut asked = asked.lock().unwrap();
        if std::mem::replace(&mut *asked, true) {
            return None;
        }
        let (from, to) = (words[0].get::<gst::Element>().unwrap(), answerer.clone());
        describe(&from.clone(), "create-offer", "offer", move |offer| {
            take(&from, "set-local-description", offer);
            take(&to, "set-remote-description", offer);
            let (from, to) = (from.clone(), to.clone());
            describe(&to.clone(), "create-answer", "answer", move |answer| {
                take(&to, "set-local-description", answer);
                take(&from, "set-remote-description", answer);
            });
        });
        None
    });
    callee.set_state(gst::State::Playing).unwrap();
    // GStreamer 1.22 answers with the extension only if a separate transceiver names it.
    let direction = glib::Type::from_name("GstWebRTCRTPTransceiverDirection").unwrap();
    let receiving = glib::EnumClass::with_type(direction).unwrap().to_value_by_nick("recvonly").unwrap();
    let caps = format!(
        "application/x-rtp,media=video,encoding-name=VP8,payload=96,clock-rate=90000,\
         rtcp-fb-transport-cc=(boolean)true,extmap-5=(string)\"{TWCC}\""
    );
    to.emit_by_name_with_values("add-transceiver", &[receiving, caps.parse::<gst::Caps>().unwrap().to_value()]);
    caller.set_state(gst::State::Playing).unwrap();

    let clock = gst::SystemClock::obtain();
    let begin = clock.time();
    let (mut estimates, mut bytes) = (Vec::new(), Vec::new());
    for second in 1..=20 {
        let _ = clock.new_single_shot_id(begin + gst::ClockTime::SECOND * second).wait();
        estimates.push(bwe.property::<u32>("estimated-bitrate"));
        bytes.push(came.load(Ordering::Relaxed));
    }
    let stats = bwe.property::<gst::Structure>("stats");
    let why = bwe.property::<String>("why");
    let mut troubles = Vec::new();
    for pipeline in [&caller, &callee] {
        while let Some(message) = pipeline.bus().unwrap().pop() {
            match message.view() {
                gst::MessageView::Error(error) => troubles.push(error.error().to_string()),
                gst::MessageView::Warning(warning) => troubles.push(warning.error().to_string()),
                _ => {}
            }
        }
        pipeline.set_state(gst::State::Null).unwrap();
    }
    let count = |name| stats.get::<u64>(name).unwrap();
    println!("estimates {estimates:?}, bytes {bytes:?}, {stats}, {why}");
    assert_eq!(troubles, Vec::<String>::new());
    assert!(count("feedback-events") > 20, "{stats}");
    assert!(count("packets-lost") * 100 <= count("packets-sent"), "{stats}");
    // Without feedback the estimate is the floor; the encoder's rate excludes the packets' headers.
    let estimate = *estimates.last().unwrap();
    assert!((MOST * 8 / 10..=MOST).contains(&estimate), "{estimates:?}: {why}");
    // An encoder that follows the estimate sends several times the floor, and no more than the estimate.
    let last = (bytes[19] - bytes[14]) * 8 / 5;
    assert!(
        (2 * u64::from(FLOOR)..=u64::from(estimate) * 12 / 10).contains(&last),
        "{last} b/s of {estimate}: {bytes:?}"
    );
}
