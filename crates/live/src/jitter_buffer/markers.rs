//! Decides whether the RTP marker bits of a sender can be trusted to show where frames end.

use steadycast_wire::payload::PictureKind;

/// What is known about the marker bits of a sender. A receiver must not rely on marker bits (RFC 6184, section 5.1). A
/// marker therefore ends a frame only under two conditions. Markers were right for this kind of picture before, and the
/// sender does not mark every packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Markers {
    /// Whether a marker has been right, for intra, predicted and disposable pictures in this order.
    pub(super) proved: [bool; 3],
    /// Whether there was a frame of several packets that had a marker only in its last packet.
    pub(super) sparing: bool,
    /// Whether a marker was set before the end of a frame.
    pub(super) wrong: bool,
    /// Timestamp and proof of a frame that was finished at its marker. The marker was right if the next packet in
    /// sequence has another timestamp.
    pub(super) early: Option<(u32, Proof)>,
}

/// What a frame shows about the sender's use of markers, if the frame's marker was right. The elements are the kind of
/// the frame's picture, and whether the frame has packets without a marker before its last packet.
pub(super) type Proof = (Option<PictureKind>, bool);

impl Markers {
    /// Returns whether a frame that has its marker is complete, although the next frame has not begun. `kind` may be
    /// unknown if the frame is damaged.
    pub(super) fn end(&self, kind: Option<PictureKind>, damaged: bool) -> bool {
        self.needed(kind) && self.sparing && (kind.is_some() || damaged)
    }

    /// Returns whether frames of this kind end with a marker, as far as is known.
    pub(super) fn needed(&self, kind: Option<PictureKind>) -> bool {
        !self.wrong && kind.map_or(self.proved.contains(&true), |kind| self.proved[kind as usize])
    }

    pub(super) fn prove(&mut self, (kind, sparing): Proof) {
        if let Some(kind) = kind {
            self.proved[kind as usize] = true;
            self.sparing |= sparing;
        }
    }

    /// Processes the first packet of a frame. `in_sequence` says whether the packet before it has arrived.
    pub(super) fn on_frame(&mut self, timestamp: u32, in_sequence: bool) {
        if let Some((before, proof)) = self.early.take() {
            if before == timestamp {
                self.wrong = true;
            } else if in_sequence {
                self.prove(proof);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_ends_a_frame_only_after_one_was_right_and_others_were_spared() {
        let mut markers = Markers::default();
        assert!(!markers.end(Some(PictureKind::Intra), false), "no marker has been right");
        markers.prove((Some(PictureKind::Intra), false));
        assert!(markers.needed(Some(PictureKind::Intra)) && !markers.end(Some(PictureKind::Intra), false));
        markers.prove((Some(PictureKind::Intra), true));
        assert!(markers.end(Some(PictureKind::Intra), false));
        assert!(!markers.end(Some(PictureKind::Predicted), false), "another kind of picture");
        assert!(markers.end(None, true) && !markers.end(None, false), "an unknown kind only of a damaged frame");
    }

    #[test]
    fn a_frame_that_goes_on_after_its_marker_makes_markers_wrong() {
        let early = Markers { early: Some((7, (Some(PictureKind::Intra), true))), ..Markers::default() };
        for (timestamp, in_sequence, wrong, proved) in
            [(7, true, true, false), (8, true, false, true), (8, false, false, false)]
        {
            let mut markers = early;
            markers.on_frame(timestamp, in_sequence);
            assert_eq!((markers.wrong, markers.proved.contains(&true)), (wrong, proved), "{timestamp} {in_sequence}");
            assert!(!markers.end(Some(PictureKind::Intra), false) || proved);
        }
    }
}
