use crate::Part;
use crate::{Coded, Encoder};
use std::collections::VecDeque;
use steadycast_units::{Bytes, Rate, Span};

/// What delivers coded frames in time: a ladder's [`Encoder`], or a real encoder behind a camera.
pub trait Feed: Send {
    /// When the next frame is ready, from the flow's start; [`Span::MAX`] when that is not known yet.
    fn due(&self) -> Span;

    /// The next frame, once it is due; `None` when it is not there in spite of that: [`Feed::due`] then says when to
    /// ask again. `rate` is the present target, `backlog` what waits in the pacer.
    fn next(&mut self, rate: Rate, backlog: Bytes) -> Option<Coded>;

    /// How the frame that was last delivered is cut into packets; empty where only its size counts.
    fn parts(&mut self) -> VecDeque<Part> {
        VecDeque::new()
    }

    /// When the frame that is shown in place `display` is sampled, from the flow's start.
    fn shown_at(&self, display: u32) -> Span;

    /// How long a frame is shown, on average.
    fn period(&self) -> Span {
        self.shown_at(1)
    }

    /// Starts again after a pause, at the next group of pictures; returns the number of its first frame.
    fn resume(&mut self) -> u32;

    /// A receiver needs a frame that needs no other: the next one that is not coded yet is to be one. Frames that were
    /// made before stay as they are.
    fn key_frame(&mut self) {}

    /// The controller has decided on a new rate, as a rate of IP packets.
    fn on_rate(&mut self, rate: Rate);

    /// Whether the best quantizer needs less than the rate allows: the pictures, not the network, limit the rate.
    fn limited(&self) -> bool;

    /// The mean rate, as one of IP packets, that the best quantizer needs; `None` where that is not known beforehand.
    fn best(&self) -> Option<Rate> {
        None
    }
}

impl Feed for Encoder {
    fn due(&self) -> Span {
        self.due()
    }
    fn next(&mut self, rate: Rate, backlog: Bytes) -> Option<Coded> {
        Some(self.next(rate, backlog))
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
