//! Interoperability with GStreamer, as receiver and as sender.

use std::path::{Path, PathBuf};
use std::process::Command;
use steadycast_wire::payload::{Depacketiser, PayloadFormat, is_key_frame, payloads};
use steadycast_wire::rtp::RtpHeader;

const FRAMES: usize = 25;
/// Every twelfth frame is a key frame.
const KEYS: [usize; 3] = [0, 12, 24];

/// Format, encoder, payloader and depayloader of GStreamer, and the caps of the depayloader.
const CASES: [(PayloadFormat, &str, &str, &str, &str); 3] = [
    (
        PayloadFormat::H265,
        "x265enc bitrate=600 key-int-max=12 tune=zerolatency option-string=min-keyint=12:scenecut=0:open-gop=0 \
            log-level=none",
        "rtph265pay",
        "rtph265depay",
        "video/x-h265,stream-format=byte-stream,alignment=au",
    ),
    (
        PayloadFormat::Vp8,
        "vp8enc target-bitrate=600000 keyframe-max-dist=12 deadline=1",
        "rtpvp8pay picture-id-mode=15-bit",
        "rtpvp8depay",
        "video/x-vp8",
    ),
    (
        PayloadFormat::Vp9,
        "vp9enc target-bitrate=600000 keyframe-max-dist=12 deadline=1 lag-in-frames=0 auto-alt-ref=0",
        "rtpvp9pay picture-id-mode=15-bit",
        "rtpvp9depay",
        "video/x-vp9",
    ),
];

fn launch(pipeline: &str) {
    let words = pipeline.split_whitespace();
    let done = Command::new("gst-launch-1.0").arg("-q").args(words).output().expect("gst-launch-1.0 is there");
    assert!(done.status.success(), "{pipeline}\n{}", String::from_utf8_lossy(&done.stderr));
}

/// A temporary folder, which is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("steadycast-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }
    /// Returns the frames, whose files are numbered.
    fn frames(&self, name: &str) -> Vec<Vec<u8>> {
        (0..).map_while(|n| std::fs::read(self.0.join(format!("{name}{n}"))).ok()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Reads RTP packets, each after its length of 16 bits (RFC 4571).
fn framed(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).expect("it was written");
    let (mut rest, mut packets) = (&bytes[..], Vec::new());
    while let Some((len, behind)) = rest.split_first_chunk::<2>() {
        let (packet, behind) = behind.split_at(u16::from_be_bytes(*len).into());
        packets.push(packet.to_vec());
        rest = behind;
    }
    packets
}

/// Returns the frame with start codes of four bytes, so that only the NAL units are compared. Other formats are
/// unchanged.
fn with_long_start_codes(format: PayloadFormat, frame: &[u8]) -> Vec<u8> {
    if format != PayloadFormat::H265 {
        return frame.to_vec();
    }
    let mut out = Vec::new();
    for (n, byte) in frame.iter().enumerate() {
        let starts = frame[n..].starts_with(&[0, 0, 1]);
        if starts && !out.ends_with(&[0]) {
            out.push(0);
        }
        out.push(*byte);
    }
    out
}

#[test]
#[ignore = "needs gst-launch-1.0"]
fn frames_come_through_gstreamers_payloaders_and_depayloaders() {
    for (format, encoder, payloader, depayloader, caps) in CASES {
        let folder = Folder::new(format.codec());
        let at = |name: &str| folder.0.join(name).display().to_string();
        // With buffering, filesink of GStreamer 1.22 drops packets.
        launch(&format!(
            "videotestsrc pattern=smpte num-buffers={FRAMES} ! video/x-raw,width=320,height=240,framerate=25/1 ! \
                {encoder} ! {caps} ! \
             tee name=t ! queue ! multifilesink location={}%d t. ! queue ! {payloader} mtu=200 pt=96 ! \
             application/x-rtp ! rtpstreampay ! filesink buffer-mode=unbuffered location={}",
            at("frame"),
            at("theirs"),
        ));
        let frames = folder.frames("frame");
        assert_eq!(frames.len(), FRAMES, "{format:?}");
        let frames: Vec<_> = frames.iter().map(|frame| with_long_start_codes(format, frame)).collect();
        let keys: Vec<usize> = (0..FRAMES).filter(|n| is_key_frame(format, &frames[*n])).collect();
        assert_eq!(keys, KEYS, "{format:?}");

        // GStreamer's packets, our depacketiser.
        let (mut depacketiser, mut got) = (Depacketiser::new(format), Vec::new());
        let packets = framed(&folder.0.join("theirs"));
        assert!(packets.len() > 2 * FRAMES, "{format:?}: frames in several packets");
        for packet in &packets {
            let (header, _, payload) = RtpHeader::parse(packet).expect("it is RTP");
            assert_eq!(depacketiser.push(payload), Ok(()), "{format:?}");
            if header.marker {
                let frame = depacketiser.finish();
                assert!(!frame.damaged, "{format:?}: frame {}", got.len());
                got.push(frame.bytes);
            }
        }
        assert!(got == frames, "{format:?}: other frames came out");

        // Our packets, GStreamer's depayloader.
        let (mut seq, mut stream) = (65_500u16, Vec::new());
        for (picture, frame) in (0u32..).zip(&frames) {
            for payload in payloads(format, frame, 0x7ff8 + picture, 150) {
                let (mut body, mut packet) = (Vec::new(), Vec::new());
                payload.write(&mut body);
                let header = RtpHeader {
                    payload_type: 96,
                    marker: payload.fragment.last,
                    seq,
                    timestamp: picture * 3_600,
                    ssrc: 1,
                    send_time: None,
                    payload_len: body.len() as u16,
                };
                header.encode(&[], &body, &mut packet);
                stream.extend((packet.len() as u16).to_be_bytes());
                stream.extend(packet);
                seq = seq.wrapping_add(1);
            }
        }
        std::fs::write(folder.0.join("ours"), &stream).expect("it can be written");
        launch(&format!(
            "filesrc location={} ! application/x-rtp-stream,media=(string)video,clock-rate=90000,encoding-name=(string){},payload=96 ! \
             rtpstreamdepay ! {depayloader} ! {caps} ! multifilesink location={}%d",
            at("ours"),
            format.encoding(),
            at("back"),
        ));
        let back: Vec<_> = folder.frames("back").iter().map(|frame| with_long_start_codes(format, frame)).collect();
        assert_eq!(back.len(), FRAMES, "{format:?}");
        assert!(back == frames, "{format:?}: GStreamer read other frames");
    }
}
