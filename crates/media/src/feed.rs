use crate::Part;
use crate::{Coded, Encoder};
use std::collections::VecDeque;
use steadycast_units::{Bytes, Rate, Span};

/// A source of coded frames over time: a ladder's [`Encoder`], or a real encoder behind a camera.
pub trait Feed: Send {
    /// Returns when the next frame is ready, from the start of the flow; [`Span::MAX`] if that is not known yet.
    fn due(&self) -> Span;

    /// Returns the next frame once it is due. After `None`, the frame is delayed until the new [`Feed::due`]. `rate` is
    /// the current target, `backlog` the bytes in the pacer.
    fn next(&mut self, rate: Rate, backlog: Bytes) -> Option<Coded>;

    /// Returns how the last frame is divided into packets; empty if only its size matters.
    fn parts(&mut self) -> VecDeque<Part> {
        VecDeque::new()
    }

    /// Returns the sampling time of the frame at position `display` in display order, from the start of the flow.
    fn shown_at(&self, display: u32) -> Span;

    /// Returns the sampling time of the frame that [`Feed::next`] returned last, from the start of the flow. A live
    /// source may know a more exact time than [`Feed::shown_at`].
    fn sampled_at(&self, coded: &Coded) -> Span {
        self.shown_at(coded.display)
    }

    /// Returns the mean frame duration.
    fn period(&self) -> Span {
        self.shown_at(1)
    }

    /// Resumes after a pause at the next group of pictures. Returns the number of its first frame.
    fn resume(&mut self) -> u32;

    /// Requests that the next frame to be coded is an intra frame.
    fn key_frame(&mut self) {}

    /// Sets the controller's new rate, as a rate of IP packets.
    fn on_rate(&mut self, rate: Rate);

    /// Whether the best quantizer needs less than the rate allows, so that the content limits the rate.
    fn limited(&self) -> bool;

    /// Returns the mean rate of the best quantizer, as a rate of IP packets; `None` if it is not known beforehand.
    fn best(&self) -> Option<Rate> {
        None
    }
}

impl Feed for Encoder {
    fn due(&self) -> Span {
        self.due()
    }
    fn next(&mut self, rate: Rate, backlog: Bytes) -> Option<Coded> {
        (!self.abandons_group(rate)).then(|| self.next(rate, backlog))
    }
    fn shown_at(&self, display: u32) -> Span {
        self.shown_at(display)
    }
    fn resume(&mut self) -> u32 {
        self.resume()
    }
    fn on_rate(&mut self, rate: Rate) {
        self.on_rate(rate);
    }
    fn limited(&self) -> bool {
        self.limited()
    }
    fn best(&self) -> Option<Rate> {
        Some(self.best())
    }
}
