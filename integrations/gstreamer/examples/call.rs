//! One direction of a call: `call send HOST SECONDS [CONTROLLER]` on one host, `call receive HOST SECONDS` on the
//! other.
//!
//! The sender produces 30 frames per second. Like those of an ideal encoder, their sizes follow `estimated-bitrate`
//! exactly. Each side ends by itself, and prints its counts as JSON.

use gstreamer as gst;
use gstreamer::prelude::*;
use std::sync::{Arc, Mutex};

type Error = Box<dyn std::error::Error>;

const TWCC: &str = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
/// Ports of the media, of its RTCP, and of the RTCP in the reverse direction.
const PORTS: [u16; 3] = [21_000, 21_001, 21_005];
const FPS: u64 = 30;

/// Returns caps that make `rtpsession` add transport-wide numbers to packets.
fn caps() -> String {
    format!(
        "application/x-rtp, media=(string)application, clock-rate=(int)90000, encoding-name=(string)X-GST, payload=(int)96, \
         rtcp-fb-transport-cc=(boolean)true, extmap-5=(string)\"{TWCC}\""
    )
}

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    gst::init()?;
    gststeadycast::register(None)?;
    match words[..] {
        ["send", host, seconds] => send(host, seconds.parse()?, "tfrc"),
        ["send", host, seconds, controller] => send(host, seconds.parse()?, controller),
        ["receive", host, seconds] => receive(host, seconds.parse()?),
        _ => Err("call send HOST SECONDS [CONTROLLER], or call receive HOST SECONDS".into()),
    }
}

fn pipeline(description: &str) -> Result<gst::Pipeline, Error> {
    gst::parse::launch(description)?.downcast().map_err(|_| "it is no pipeline".into())
}

fn named(pipeline: &gst::Pipeline, name: &str) -> Result<gst::Element, Error> {
    pipeline.by_name(name).ok_or_else(|| format!("there is no {name}").into())
}

/// Returns the errors and warnings on the pipeline's bus.
fn troubles(pipeline: &gst::Pipeline) -> Vec<String> {
    let bus = pipeline.bus();
    let all = std::iter::from_fn(|| bus.as_ref()?.pop());
    all.filter_map(|message| match message.view() {
        gst::MessageView::Error(error) => Some(format!("error: {}", error.error())),
        gst::MessageView::Warning(warning) => Some(format!("warning: {}", warning.error())),
        _ => None,
    })
    .collect()
}

fn list(numbers: &[u64]) -> String {
    let all: Vec<_> = numbers.iter().map(u64::to_string).collect();
    format!("[{}]", all.join(", "))
}

fn send(host: &str, seconds: u64, controller: &str) -> Result<(), Error> {
    let [media, rtcp, back] = PORTS;
    let pipeline = pipeline(&format!(
        "rtpbin name=bin rtp-profile=avpf \
         appsrc name=frames is-live=true format=time do-timestamp=true caps=application/octet-stream \
           ! rtpgstpay pt=96 mtu=1200 auto-header-extension=true ! {} \
           ! rtpsteadycastbwe name=bwe controller={controller} min-bitrate=200000 max-bitrate=10000000 ! bin.send_rtp_sink_0 \
         bin.send_rtp_src_0 ! udpsink host={host} port={media} sync=false async=false \
         bin.send_rtcp_src_0 ! udpsink host={host} port={rtcp} sync=false async=false \
         udpsrc port={back} ! bin.recv_rtcp_sink_0",
        caps()
    ))?;
    let (frames, bwe) = (named(&pipeline, "frames")?, named(&pipeline, "bwe")?);
    let notified = Arc::new(Mutex::new(0_u64));
    let counter = Arc::clone(&notified);
    bwe.connect_notify(Some("estimated-bitrate"), move |_, _| {
        if let Ok(mut count) = counter.lock() {
            *count += 1;
        }
    });
    pipeline.set_state(gst::State::Playing)?;
    let clock = gst::SystemClock::obtain();
    let begin = clock.time();
    let mut rates = Vec::new();
    for frame in 0..seconds * FPS {
        let _ = clock.new_single_shot_id(begin + gst::ClockTime::SECOND * frame / FPS).wait();
        let rate = u64::from(bwe.property::<u32>("estimated-bitrate"));
        if frame % FPS == 0 {
            rates.push(rate);
        }
        let buffer = gst::Buffer::from_slice(vec![0_u8; (rate / 8 / FPS).max(100) as usize]);
        let _: gst::FlowReturn = frames.emit_by_name("push-buffer", &[&buffer]);
    }
    let (why, stats) = (bwe.property::<String>("why"), bwe.property::<gst::Structure>("stats"));
    let troubles = troubles(&pipeline);
    pipeline.set_state(gst::State::Null)?;
    let count = |name| stats.get::<u64>(name).unwrap_or(0);
    println!(
        "{{\"estimates\": {}, \"why\": {why:?}, \"troubles\": {troubles:?}, \"sent\": {}, \"lost\": {}, \"feedback\": {}, \
         \"dropped\": {}, \"notified\": {}}}",
        list(&rates),
        count("packets-sent"),
        count("packets-lost"),
        count("feedback-events"),
        count("frames-dropped"),
        notified.lock().map_or(0, |count| *count)
    );
    Ok(())
}

/// A receiver's IP bytes per second, and sequence numbers.
#[derive(Default)]
struct Counted {
    seconds: Vec<u64>,
    first: Option<u64>,
    highest: u64,
    packets: u64,
}

fn receive(host: &str, seconds: u64) -> Result<(), Error> {
    let [media, rtcp, back] = PORTS;
    let pipeline = pipeline(&format!(
        "rtpbin name=bin rtp-profile=avpf latency=100 \
         udpsrc name=media port={media} caps=\"{}\" ! bin.recv_rtp_sink_0 \
         fakesink name=end sync=false async=false \
         udpsrc port={rtcp} ! bin.recv_rtcp_sink_0 \
         bin.send_rtcp_src_0 ! udpsink host={host} port={back} sync=false async=false",
        caps().replace('"', "\\\"")
    ))?;
    let pad = named(&pipeline, "media")?.static_pad("src").ok_or("udpsrc has a pad")?;
    let end = named(&pipeline, "end")?.static_pad("sink").ok_or("fakesink has a pad")?;
    named(&pipeline, "bin")?.connect_pad_added(move |_, pad| {
        if pad.name().starts_with("recv_rtp_src") && !end.is_linked() {
            let _ = pad.link(&end);
        }
    });
    let counted = Arc::new(Mutex::new(Counted { seconds: vec![0; seconds as usize], ..Counted::default() }));
    let clock = gst::SystemClock::obtain();
    let begin = clock.time();
    let (count, clock_there) = (Arc::clone(&counted), clock.clone());
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        if let (Some(buffer), Ok(mut counted)) = (info.buffer(), count.lock())
            && let Ok(head) = buffer.map_readable()
            && let Some(&[_, _, high, low]) = head.get(..4)
        {
            let second = clock_there.time().saturating_sub(begin).seconds() as usize;
            if let Some(bytes) = counted.seconds.get_mut(second) {
                *bytes += buffer.size() as u64 + 28;
            }
            let seq = u16::from_be_bytes([high, low]);
            let near = counted.highest;
            let seq = near.saturating_add_signed(i64::from(seq.wrapping_sub(near as u16) as i16));
            let seq = if counted.first.is_none() { (1 << 16) + (seq & 0xffff) } else { seq };
            counted.first.get_or_insert(seq);
            counted.highest = counted.highest.max(seq);
            counted.packets += 1;
        }
        gst::PadProbeReturn::Ok
    });
    // RTCP gets a twentieth of this. The default, from the present receiving rate, can delay feedback.
    let session = named(&pipeline, "bin")?.emit_by_name::<gst::Element>("get-session", &[&0_u32]);
    session.set_property("bandwidth", 2e6);
    pipeline.set_state(gst::State::Playing)?;
    let _ = clock.new_single_shot_id(begin + gst::ClockTime::from_seconds(seconds)).wait();
    let troubles = troubles(&pipeline);
    pipeline.set_state(gst::State::Null)?;
    let counted = counted.lock().map_err(|_| "the probe has failed")?;
    let expected = counted.first.map_or(0, |first| counted.highest - first + 1);
    println!(
        "{{\"bytes\": {}, \"packets\": {}, \"expected\": {expected}, \"troubles\": {troubles:?}}}",
        list(&counted.seconds),
        counted.packets
    );
    Ok(())
}
