//! Whether a sender's RTP marker bits show the end of its frames.

use steadycast_wire::payload::PictureKind;

/// A receiver must not rely on marker bits (RFC 6184, section 5.1). A marker ends a frame only if it was right for this
/// kind of picture before, and the sender does not mark each packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Markers {
    /// Whether a marker was right, for intra, predicted and disposable pictures.
    pub(super) proved: [bool; 3],
    /// Whether a frame of several packets had a marker only in its last packet.
    pub(super) sparing: bool,
    /// Whether a marker was set before a frame's end.
    pub(super) wrong: bool,
    /// The timestamp and the proof of a frame that was finished at its marker. If the next packet in sequence has
    /// another timestamp, the marker was right.
    pub(super) early: Option<(u32, Proof)>,
}

/// A frame's kind of picture, and whether packets without a marker precede the frame's last packet. Both prove how the
/// sender sets markers, if the frame's marker was right.
pub(super) type Proof = (Option<PictureKind>, bool);

impl Markers {
    /// Returns whether a marker ends the frame. The kind may be unknown if the frame is damaged.
    pub(super) fn end(&self, kind: Option<PictureKind>, damaged: bool) -> bool {
        self.needed(kind) && self.sparing && (kind.is_some() || damaged)
    }

    /// Returns whether all frames of this kind so far ended with a marker.
    pub(super) fn needed(&self, kind: Option<PictureKind>) -> bool {
        !self.wrong && kind.map_or(self.proved.contains(&true), |kind| self.proved[kind as usize])
    }

    pub(super) fn prove(&mut self, (kind, sparing): Proof) {
        if let Some(kind) = kind {
            self.proved[kind as usize] = true;
            self.sparing |= sparing;
        }
    }

    /// Handles a frame's first packet. `in_sequence` states whether the packet before has arrived.
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
