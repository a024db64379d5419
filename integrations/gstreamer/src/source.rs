//! An RTP stream of the session: its frames, and whether other frames depend on them.

use steadycast_sender::{FrameRole, StreamId};
use steadycast_wire::rtp::RtpHeader;

/// The state of one SSRC: video, audio or retransmissions.
#[derive(Debug)]
pub(crate) struct Source {
    /// The sender's stream of this SSRC's paced packets.
    pub(crate) stream: StreamId,
    /// Whether the incoming frame is paced.
    pub(crate) is_paced: bool,
    /// Time stamp of the incoming frame.
    frame: Option<u32>,
    /// Whether the newest packet has the marker.
    marker: bool,
    /// Whether a frame ended without the marker, which only video sets on its frames' last packets (RFC 3551, section
    /// 4.1).
    is_unmarked: bool,
    /// Whether buffer flags distinguish key frames.
    is_flagged: bool,
}

impl Source {
    pub(crate) const fn new(stream: StreamId) -> Self {
        Self { stream, is_paced: false, frame: None, marker: false, is_unmarked: false, is_flagged: false }
    }

    /// Forgets the incoming frame, because a flush has removed the rest of it.
    pub(crate) fn flush(&mut self) {
        self.frame = None;
    }

    /// Returns the role of the frame that the packet begins; `None` within a frame. `delta` is GStreamer's flag of
    /// frames that depend on others.
    pub(crate) fn read(&mut self, header: &RtpHeader, delta: bool) -> Option<FrameRole> {
        let is_first = self.frame.is_none();
        let begins = self.frame != Some(header.timestamp);
        self.is_unmarked |= begins && !is_first && !self.marker;
        self.is_flagged |= delta;
        (self.frame, self.marker) = (Some(header.timestamp), header.marker);
        begins.then_some(match delta {
            true => FrameRole::Reference,
            // An encoder's first frame is a key frame, even before any flag.
            false if self.is_flagged || is_first => FrameRole::Key,
            // Without flags, it is unknown which frames depend on this one.
            false => FrameRole::Disposable,
        })
    }

    /// Whether frames can be recognised, by flags or by markers at their ends.
    pub(crate) const fn has_frames(&self) -> bool {
        self.is_flagged || !self.is_unmarked
    }
}
