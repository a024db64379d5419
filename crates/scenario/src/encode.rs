//! How pictures are encoded. The defaults of the keys in `encode` depend on the codec and on the media.

use crate::model::Media;
use serde_json::{Value as Json, json};
use std::fmt;
use steadycast_settings::tree::{Item, Value};
use steadycast_settings::{Declared, Findings, FromToml, Settings, ToToml, Within, field, settings, words};

words! {
    /// A codec.
    pub enum Codec {
        /// MPEG-2 video.
        Mpeg2 = "mpeg2",
        /// MPEG-4 part 2.
        Mpeg4 = "mpeg4",
        /// H.263.
        H263 = "h263",
        /// H.264. The quantizers are QP values.
        H264 = "h264",
        /// H.265. The quantizers are QP values.
        H265 = "h265",
        /// VP8. The quantizers are those of libvpx, 0 to 63.
        Vp8 = "vp8",
        /// VP9. The quantizers are those of libvpx, 0 to 63.
        Vp9 = "vp9",
        /// AV1. The quantizers are those of SVT-AV1, 0 to 63.
        Av1 = "av1",
    }
}

impl Codec {
    /// Returns whether the encoder can make B frames. No other frame depends on a B frame.
    pub const fn has_b_frames(self) -> bool {
        matches!(self, Self::Mpeg2 | Self::Mpeg4 | Self::H264)
    }

    /// Returns the default range of quantizers, and the valid range.
    const fn quantizers(self) -> (Quantizers, Quantizers) {
        match self {
            Self::Mpeg2 | Self::Mpeg4 | Self::H263 => (Quantizers(2, 31), Quantizers(1, 31)),
            Self::H264 | Self::H265 => (Quantizers(18, 47), Quantizers(0, 51)),
            Self::Vp8 | Self::Vp9 | Self::Av1 => (Quantizers(10, 63), Quantizers(0, 63)),
        }
    }
}

settings! {
    /// How pictures are encoded.
    #[derive(Copy)]
    Encode {
        /// The video codec.
        codec: Codec = STANDARD.codec,
        /// The size of the encoded pictures: WIDTHxHEIGHT such as "640x480", a name (sqcif, qcif, cif, 4cif, qvga, vga,
        /// 720p or 1080p), "clip" for the clip's own size, or "auto". "auto" is the default of clips. It is the clip's
        /// size, but has at most as many samples as 1280x720. The default of the synthetic film is CIF, in which the
        /// film can use 2 Mb/s in mpeg4 and 1.45 Mb/s in h264. If the flow's share of the network is higher, the
        /// default is 1280x720.
        size: Size = STANDARD.size,
        /// The frame rate in pictures per second: a number, "clip" for the clip's own rate, or "auto". "auto", the
        /// default of clips, is the clip's rate, or 25 if the clip's file has none.
        fps: Fps = STANDARD.fps,
        /// The number of frames in a group of pictures, which begins with an I frame.
        gop: u32 where (GOP) = STANDARD.gop,
        /// The number of B frames between two reference frames, with mpeg2, mpeg4 and h264. Other codecs have none.
        bframes: u32 = STANDARD.bframes,
        /// The quantizers that the rate control can choose from, from best to worst, such as "2-31"; "12" is a single
        /// one. For h264 and h265 the default is "18-47"; for vp8, vp9 and av1 it is "10-63".
        q: Quantizers = STANDARD.q,
    }
}

const STANDARD: Encode = Encode {
    codec: Codec::Mpeg4,
    size: Size::Pixels { width: 352, height: 288 },
    fps: Fps::PerSecond(25.0),
    gop: 12,
    bframes: 2,
    q: Codec::Mpeg4.quantizers().0,
};
const GOP: Within<u32> = Within { least: 1, most: 1000, remedy: "from 1 to 1000 frames" };

impl Encode {
    /// Reads the table `encode`. Its defaults depend on `media`, which is `None` if the media could not be read.
    pub(crate) fn read_for(item: &Item, media: Option<&Media>, out: &mut Findings) -> Option<Self> {
        let (sequence, modelled) = match media {
            Some(Media::Rfc8593 { frames, .. }) => (frames.as_deref(), true),
            other => (other, false),
        };
        // Allow the keys of clips if the media could not be read, because the media may be a clip.
        let has_clip = matches!(sequence, Some(Media::Clip { .. })) || media.is_none();
        for own in ["size", "fps"].iter().filter_map(|key| item.get(key)) {
            if matches!(own.text(), Some("clip" | "auto")) && !has_clip {
                out.problem(
                    &own.at,
                    "the flow has no clip whose value it could be",
                    "write a value, or media = \"clip\"",
                );
            }
        }
        // Read these keys first, because the defaults of the other keys depend on them.
        let codec = field(item, "codec", &[], out).ok().flatten().unwrap_or(STANDARD.codec);
        let gop = field(item, "gop", &[&GOP], out).ok().flatten().unwrap_or(STANDARD.gop);
        let ((q, known), can_b) = (codec.quantizers(), codec.has_b_frames());
        // Use fewer B frames in a short GOP. A GOP of one or two frames has no room for two B frames.
        let bframes = if can_b && !modelled { STANDARD.bframes.min(gop - 1) } else { 0 };
        // Use the size and the frame rate of a clip. Media of another kind have no size of their own.
        let (size, fps) = match (has_clip, modelled) {
            (true, _) => (Size::Auto, Fps::Auto),
            // Use 30 frames per second, for which the default parameters of RFC 8593's codec are meant.
            (false, true) => (STANDARD.size, Fps::PerSecond(30.0)),
            (false, false) => (STANDARD.size, STANDARD.fps),
        };
        let encode = Self::fill(item, Some(&Self { codec, size, fps, gop, bframes, q }), out);
        if let (Some(given), Ok(Some(number))) = (item.get("bframes"), field::<u32>(item, "bframes", &[], out)) {
            if !can_b && number > 0 {
                out.problem(&given.at, "this codec is encoded without B frames", "write bframes = 0, or another codec");
            } else if number > 16 || number >= gop {
                let what = format!("{number} B frames in a row are too many");
                out.problem(&given.at, what, "write fewer than gop, and at most 16");
            }
            if modelled && number > 0 {
                out.problem(&given.at, "RFC 8593's codec has no B frames", "write bframes = 0, or leave it out");
            }
        }
        let encode = encode?;
        if let Some(given) = item.get("q").filter(|_| encode.q.0 < known.0 || encode.q.1 > known.1) {
            let remedy = format!("write a range within \"{}-{}\"", known.0, known.1);
            out.problem(&given.at, "the codec does not have all of these quantizers", remedy);
        }
        Some(encode)
    }
}

/// The size of the encoded pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The size of the clip. It is scaled down if the clip has more samples than 1280x720.
    Auto,
    /// The size of the clip, never scaled.
    Clip,
    /// A size in pixels. Width and height are even numbers.
    Pixels {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
}

impl Size {
    pub(crate) const HD: Self = Self::Pixels { width: 1280, height: 720 };
}

const SIZES: &[(&str, u32, u32)] = &[
    ("sqcif", 128, 96),
    ("qcif", 176, 144),
    ("cif", 352, 288),
    ("4cif", 704, 576),
    ("qvga", 320, 240),
    ("vga", 640, 480),
    ("720p", 1280, 720),
    ("1080p", 1920, 1080),
];

impl Declared for Size {
    fn schema() -> Json {
        json!({ "type": "string", "pattern": "^(auto|clip|sqcif|qcif|cif|4cif|qvga|vga|720p|1080p|[0-9]+x[0-9]+)$" })
    }
}

impl FromToml for Size {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        let text = item.text().unwrap_or_default();
        match text {
            "auto" => return Some(Self::Auto),
            "clip" => return Some(Self::Clip),
            _ => {}
        }
        if let Some((_, width, height)) = SIZES.iter().find(|(name, ..)| *name == text) {
            return Some(Self::Pixels { width: *width, height: *height });
        }
        // Accept only even numbers, because chroma has half the resolution in each direction (4:2:0).
        let side = |t: &str| t.parse::<u32>().ok().filter(|n| (16..=8192).contains(n) && n % 2 == 0);
        if let Some((width, height)) = text.split_once('x').and_then(|(w, h)| Some((side(w)?, side(h)?))) {
            return Some(Self::Pixels { width, height });
        }
        let names: Vec<_> = SIZES.iter().map(|(name, ..)| *name).collect();
        let what = format!("{} is not a picture size", item.shown());
        let remedy = format!(
            "write \"auto\", \"clip\", {}, or two even numbers from 16 to 8192 as in \"640x480\"",
            names.join(", ")
        );
        out.refuse(&item.at, what, remedy)
    }
}

impl ToToml for Size {
    fn value(&self) -> Option<Value> {
        Some(Value::Text(self.to_string()))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Clip => f.write_str("clip"),
            Self::Pixels { width, height } => write!(f, "{width}x{height}"),
        }
    }
}

/// The frame rate in pictures per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fps {
    /// The frame rate of the clip, or 25 if the clip's file has none.
    Auto,
    /// The frame rate of the clip.
    Clip,
    /// A frame rate in pictures per second.
    PerSecond(f64),
}

impl Fps {
    /// Returns the number of pictures per second. Returns `None` if the clip determines it.
    pub const fn number(self) -> Option<f64> {
        match self {
            Self::Auto | Self::Clip => None,
            Self::PerSecond(fps) => Some(fps),
        }
    }
}

impl Declared for Fps {
    fn schema() -> Json {
        json!({ "anyOf": [{ "enum": ["auto", "clip"] }, { "type": "number", "minimum": 1, "maximum": 240 }] })
    }
}

impl FromToml for Fps {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        match item.text() {
            Some("auto") => return Some(Self::Auto),
            Some("clip") => return Some(Self::Clip),
            _ => {}
        }
        let fps = f64::read(item, out)?;
        if (1.0..=240.0).contains(&fps) {
            return Some(Self::PerSecond(fps));
        }
        let remedy = "write a number from 1 to 240, \"auto\" or \"clip\"";
        out.refuse(&item.at, format!("{fps} is out of range"), remedy)
    }
}

impl ToToml for Fps {
    fn value(&self) -> Option<Value> {
        Some(match self {
            Self::Auto => Value::Text("auto".to_owned()),
            Self::Clip => Value::Text("clip".to_owned()),
            Self::PerSecond(fps) => Value::Real(*fps),
        })
    }
}

/// A range of quantizers: the lowest one, which gives the best picture, and the highest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantizers(pub u8, pub u8);

impl Declared for Quantizers {
    fn schema() -> Json {
        json!({ "anyOf": [{ "type": "string", "pattern": "^[0-9]+(-[0-9]+)?$" }, { "type": "integer" }] })
    }
}

impl FromToml for Quantizers {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        let text = match &item.value {
            Value::Whole(n) => n.to_string(),
            _ => item.text().unwrap_or_default().to_owned(),
        };
        let (low, high) = text.split_once('-').unwrap_or((&text, &text));
        match (low.trim().parse::<u8>(), high.trim().parse::<u8>()) {
            // Accept numbers up to 63, because no codec has a higher quantizer. `read_for` checks the range of the
            // chosen codec.
            (Ok(low), Ok(high)) if low <= high && high <= 63 => Some(Self(low, high)),
            _ => {
                let what = format!("{} is not a range of quantizers", item.shown());
                out.refuse(&item.at, what, "write for example \"2-31\", the best first")
            }
        }
    }
}

impl ToToml for Quantizers {
    fn value(&self) -> Option<Value> {
        Some(Value::Text(format!("{}-{}", self.0, self.1)))
    }
}
