use crate::{Coded, Part};
use std::collections::VecDeque;
use steadycast_units::{Bytes, Rate, Span};

/// A source of coded frames over time. Examples are an [`Encoder`](crate::Encoder), which models an encoder, and a real
/// encoder behind a camera.
pub trait Feed: Send {
    /// Returns when the next frame is ready, as the time since the start of the flow. Returns [`Span::MAX`] if the time
    /// is not known yet.
    fn due(&self) -> Span;

    /// Returns the next frame once it is due. If it returns `None`, the frame is delayed until the time that
    /// [`Feed::due`] then returns. `rate` is the current target rate, and `backlog` is the number of bytes in the
    /// pacer.
    fn next(&mut self, rate: Rate, backlog: Bytes) -> Option<Coded>;

    /// Returns how the last frame is divided into packets. Returns an empty list if only the size of the frame matters.
    fn parts(&mut self) -> VecDeque<Part> {
        VecDeque::new()
    }

    /// Returns when the frame at position `display` in display order was sampled, as the time since the start of the
    /// flow.
    fn shown_at(&self, display: u32) -> Span;

    /// Returns when the frame that [`Feed::next`] returned last was sampled, as the time since the start of the flow. A
    /// live source may know this time more exactly than [`Feed::shown_at`].
    fn sampled_at(&self, coded: &Coded) -> Span {
        self.shown_at(coded.display)
    }

    /// Returns the mean frame duration.
    fn period(&self) -> Span {
        self.shown_at(1)
    }

    /// Resumes after a pause, at the next group of pictures. Returns the number of the first frame of this group.
    fn resume(&mut self) -> u32;

    /// Requests that the encoder codes its next frame as an intra frame.
    fn key_frame(&mut self) {}

    /// Sets the controller's new rate, which includes all packet headers (IP, UDP and RTP).
    fn on_rate(&mut self, rate: Rate);

    /// Returns whether the best quantizer needs less than the rate allows. The content then limits the rate.
    fn limited(&self) -> bool;

    /// Returns the mean rate that the best quantizer needs, including all packet headers (IP, UDP and RTP). Returns
    /// `None` if the rate is not known beforehand.
    fn best(&self) -> Option<Rate> {
        None
    }
}
