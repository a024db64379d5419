//! The receiver in judge's file: whether its feedback comes after each frame from the start.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use gstreamer as gst;
use gstreamer::prelude::*;
use std::sync::{Arc, Mutex};

const PAIR: &str = include_str!("../judge.toml");
const SENDER: &str = include_str!("../../../examples/judge/gstreamer-gcc/send.py");
const TWCC: &str = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
/// The addresses of sender and receiver on the loopback interface.
const HOSTS: [&str; 2] = ["127.0.0.1", "127.0.0.2"];
const SECONDS: u64 = 4;
/// The receiver is late if feedback arrives in fewer than this number of intervals of 100 ms.
const INTERVALS_MIN: usize = 30;

/// Returns the text between two others.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    text.split_once(begin).unwrap().1.split_once(end).unwrap().0
}

fn pipeline(description: &str) -> gst::Pipeline {
    gst::parse::launch(description).unwrap().downcast().unwrap()
}

#[test]
fn feedback_comes_after_each_frame_from_the_start() {
    gst::init().unwrap();
    gststeadycast::register(None).unwrap();
    let [here, there] = HOSTS;
    let receiver = between(PAIR, "run = \"\"\"gst-launch-1.0 -q ", "\"\"\"")
        .replace("y4menc ! filesink location={pictures} buffer-mode=2", "fakesink")
        .replace("udpsrc ", &format!("udpsrc address={there} "))
        .replace("{sender}", here);
    let sender = between(SENDER, "PIPELINE = \"\"\"", "\"\"\"")
        .replace("filesrc location={y4m} ! y4mdec", "videotestsrc is-live=true ! video/x-raw,framerate=30/1")
        .replace("{encoder}", between(SENDER, "ENCODER = \"\"\"", "\"\"\""))
        .replace("udpsrc ", &format!("udpsrc address={here} "))
        .replace("{element}", "rtpsteadycastbwe")
        .replace("{twcc}", TWCC)
        .replace("{host}", there);
    let (receiver, sender) = (pipeline(&receiver), pipeline(&sender));
    let feedback = Arc::new(Mutex::new(Vec::<u64>::new()));
    let (kept, clock) = (Arc::clone(&feedback), gst::SystemClock::obtain());
    let begin = clock.time();
    sender.by_name("estimate").unwrap().static_pad("src").unwrap().add_probe(
        gst::PadProbeType::EVENT_UPSTREAM,
        move |_, info| {
            let is_feedback =
                info.event().and_then(|event| event.structure()).is_some_and(|s| s.name() == "RTPTWCCPackets");
            if is_feedback {
                kept.lock().unwrap().push(gst::SystemClock::obtain().time().saturating_sub(begin).mseconds() / 100);
            }
            gst::PadProbeReturn::Ok
        },
    );
    receiver.set_state(gst::State::Playing).unwrap();
    sender.set_state(gst::State::Playing).unwrap();
    let _ = clock.new_single_shot_id(begin + gst::ClockTime::from_seconds(SECONDS)).wait();
    for each in [sender, receiver] {
        each.set_state(gst::State::Null).unwrap();
    }
    let mut intervals = feedback.lock().unwrap().clone();
    intervals.dedup();
    println!("feedback in {} of {} intervals of 100 ms", intervals.len(), 10 * SECONDS);
    assert!(intervals.len() >= INTERVALS_MIN, "{intervals:?}");
}
