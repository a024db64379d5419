//! Models of video that describe frames by their sizes. No codec is linked.

mod assembly;
mod audio;
mod buffer;
mod encoder;
mod feed;
mod frame;
mod ladder;
mod playout;
mod rfc8593;
mod rungs;

pub use assembly::{Assembly, DecodeChain, FrameFate, MissingBytes, SentFrame, SentFrames};
pub use audio::{AUDIO_PACKET_TIME, AudioFeed, CodedAudio, ConstantAudio, packet_len, packet_rate};
pub use buffer::{Consume, PlayBuffer};
pub use encoder::{BacklogRule, Bucket, Coded, Encoder, Evalvid, PerFrame, Rungs, Vbr, bucket};
pub use feed::Feed;
pub use frame::{Emit, Fragment, Frame, FrameKind, Part};
pub use ladder::{Ladder, LadderError, Scale};
pub use playout::{ADAPTIVE, Bounds, Playout, Schedule};
pub use rfc8593::{CodecModel, CodecSettings, RFC8593, SyntheticCodec};
pub use rungs::{
    BUILT_IN_SWITCHING, RungChooser, RungContext, RungHistory, RungNeed, RungReason, SwitchingFactory, SwitchingRule,
    WORST_OVER, abandons_group, spaced_rates,
};
