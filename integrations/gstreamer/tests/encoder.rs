//! The encoder settings that the page and judge's sender have: whether the encoder follows an estimate that changes.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use gstreamer as gst;
use gstreamer::prelude::*;
use std::sync::{Arc, Mutex};

const PAGE: &str = include_str!("../../../docs/gstreamer.md");
const SENDER: &str = include_str!("../../../examples/judge/gstreamer-gcc/send.py");
/// The limits of the estimate, in bits per second. The encoder can't produce less for the snow in the test picture.
const FLOOR: f64 = 500e3;
const CAP: f64 = 3.6e6;
const FPS: usize = 30;
/// The estimate rises by a tenth in this number of frames, ...
const RISE_FRAMES: usize = 12;
/// ... is at its cap until this frame, and then falls to its floor.
const FALL_FRAME: usize = 480;
/// The length of a span in frames. The encoder's rate is compared with the estimate in each span.
const SPAN: usize = 2 * FPS;

/// Returns the description of the encoder in a pipeline.
fn encoder_of(pipeline: &str) -> String {
    let begin = pipeline.find("vp8enc name=encoder").unwrap();
    let (description, _) = pipeline[begin..].split_once('!').unwrap();
    description.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Encodes pictures while the estimate rises from its floor to its cap and then falls. Returns the mean of the estimate
/// and of the encoder's rate in each span, in bits per second.
fn encode(encoder: &str) -> Vec<(f64, f64)> {
    let pipeline = gst::parse::launch(&format!(
        "videotestsrc num-buffers=600 ! video/x-raw,width=640,height=360,framerate={FPS}/1 ! {encoder} \
         ! fakesink name=end"
    ));
    let pipeline: gst::Pipeline = pipeline.unwrap().downcast().unwrap();
    let frames = Arc::new(Mutex::new(Vec::<(f64, f64)>::new()));
    let (encoder, counted) = (pipeline.by_name("encoder").unwrap(), Arc::clone(&frames));
    encoder.set_property("target-bitrate", FLOOR as i32);
    let mut estimate = FLOOR;
    let (weak, estimates) = (
        encoder.downgrade(),
        Mutex::new(move |frames: usize| {
            estimate = match frames {
                FALL_FRAME.. => FLOOR,
                _ if frames.is_multiple_of(RISE_FRAMES) => (1.1 * estimate).min(CAP),
                _ => estimate,
            };
            estimate
        }),
    );
    pipeline.by_name("end").unwrap().static_pad("sink").unwrap().add_probe(
        gst::PadProbeType::BUFFER,
        move |_, info| {
            let mut frames = counted.lock().unwrap();
            let before = weak.upgrade().unwrap().property::<i32>("target-bitrate");
            frames.push((before.into(), (8 * FPS * info.buffer().unwrap().size()) as f64));
            let next = estimates.lock().unwrap()(frames.len());
            weak.upgrade().unwrap().set_property("target-bitrate", next as i32);
            gst::PadProbeReturn::Ok
        },
    );
    pipeline.set_state(gst::State::Playing).unwrap();
    let end = pipeline.bus().unwrap().timed_pop_filtered(None, &[gst::MessageType::Eos, gst::MessageType::Error]);
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(end.unwrap().type_(), gst::MessageType::Eos);
    let frames = frames.lock().unwrap();
    let mean =
        |of: &dyn Fn(&(f64, f64)) -> f64, span: &[(f64, f64)]| span.iter().map(of).sum::<f64>() / span.len() as f64;
    frames.chunks_exact(SPAN).map(|span| (mean(&|frame| frame.0, span), mean(&|frame| frame.1, span))).collect()
}

#[test]
fn the_encoder_follows_an_estimate_that_rises_and_falls() {
    gst::init().unwrap();
    for text in [PAGE, SENDER] {
        let encoder = encoder_of(text);
        let spans = encode(&encoder);
        let told: Vec<String> =
            spans.iter().map(|(estimate, rate)| format!("{:.2}/{:.2}", rate / 1e6, estimate / 1e6)).collect();
        println!("{encoder}: {} Mb/s", told.join(" "));
        assert_eq!(spans.len(), 10);
        for (estimate, rate) in spans {
            assert!((0.6..1.2).contains(&(rate / estimate)), "{rate:.0} b/s of {estimate:.0}: {encoder}");
        }
    }
}
