use crate::FrameKind;
use std::sync::Arc;
use steadycast_units::{Bytes, Rate, Span};

/// The relation of the quantizer to its step size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The step size is proportional to the quantizer (MPEG family, H.263).
    Linear,
    /// This many quantizer steps double the step size and halve the rate: six in H.264 and H.265.
    Logarithmic(u8),
}

/// The sizes of all frames of a clip at all quantizers, with GOPs at the same positions.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    /// The frame rate in frames per second, as a fraction.
    pub fps: (u32, u32),
    /// The number of frames in a group of pictures.
    pub gop: u32,
    /// The relation of the quantizer to its step size.
    pub scale: Scale,
    /// The quantizers in ascending order, from the best to the worst picture.
    pub quantizers: Vec<u8>,
    /// The coding type of each frame, in coding order.
    pub kinds: Vec<FrameKind>,
    /// The display position of each frame, in coding order.
    pub display: Vec<u32>,
    /// The bytes of each frame: one row per quantizer, in coding order.
    pub sizes: Vec<Arc<[u32]>>,
}

/// The reason why a ladder can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LadderError {
    /// The ladder is empty.
    #[error("the ladder has no {0}")]
    Empty(&'static str),
    /// The length of one of the ladder's lists does not match that of the others.
    #[error("the ladder's {what} has {got} entries, {need} are needed")]
    Length {
        /// The name of the list.
        what: &'static str,
        /// The number of entries that the list has.
        got: usize,
        /// The number of entries that the list should have.
        need: usize,
    },
    /// A value of the ladder is not valid, for this reason.
    #[error("the ladder's {0}")]
    Wrong(&'static str),
}

impl Ladder {
    /// Checks that the ladder's lists match.
    ///
    /// # Errors
    /// A list is empty, of the wrong length, or out of range.
    pub fn check(&self) -> Result<(), LadderError> {
        let frames = self.kinds.len();
        if frames == 0 {
            return Err(LadderError::Empty("frames"));
        }
        if self.quantizers.is_empty() {
            return Err(LadderError::Empty("quantizers"));
        }
        let length = |what, got, need| if got == need { Ok(()) } else { Err(LadderError::Length { what, got, need }) };
        length("display order", self.display.len(), frames)?;
        length("list of sizes", self.sizes.len(), self.quantizers.len())?;
        for row in &self.sizes {
            length("row of sizes", row.len(), frames)?;
        }
        let mut order = self.display.clone();
        // Each display position must occur once.
        order.sort_unstable();
        if order.iter().enumerate().any(|(i, d)| *d as usize != i) {
            return Err(LadderError::Wrong("display order is not a permutation of its frames"));
        }
        if self.fps.0 == 0 || self.fps.1 == 0 || self.gop == 0 {
            return Err(LadderError::Wrong("frame rate and GoP must be above zero"));
        }
        if self.quantizers.windows(2).any(|w| w[0] >= w[1]) {
            return Err(LadderError::Wrong("quantizers must rise"));
        }
        if self.sizes.iter().any(|row| row.iter().any(|s| *s > 50_000_000)) {
            return Err(LadderError::Wrong("frames may have 50 MB at most"));
        }
        Ok(())
    }

    /// Returns when frame `n` of the flow is due, from the start of the flow.
    pub fn time(&self, n: u64) -> Span {
        // At 30000/1001 frames per second the product exceeds 64 bits after a week.
        let ns = u128::from(n) * 1_000_000_000 * u128::from(self.fps.1) / u128::from(self.fps.0);
        Span::nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Returns the duration of `frames` frames.
    pub fn span(&self, frames: u64) -> Span {
        self.time(frames)
    }

    /// Returns the number of frames in the clip, which is then repeated.
    pub fn frames(&self) -> u64 {
        self.kinds.len() as u64
    }

    /// Returns the range of frames of the GoP that starts at frame `n` of the clip.
    pub fn gop_at(&self, n: u64) -> std::ops::Range<usize> {
        let n = n as usize;
        n..(n + self.gop as usize).min(self.kinds.len())
    }

    /// Returns the bytes of the frames in `range` at rung `rung`, with `overhead` per packet of up to `payload`
    /// bytes.
    pub fn bytes(&self, rung: usize, range: std::ops::Range<usize>, payload: u64, overhead: u64) -> Bytes {
        let wire = |size: u64| size + size.div_ceil(payload.max(1)) * overhead;
        Bytes::new(self.sizes[rung][range].iter().map(|s| wire(u64::from(*s))).sum())
    }

    /// Returns two rates of rung `rung`, with packet overhead: the mean over the clip, and the rate of the largest GoP.
    pub fn rates(&self, rung: usize, payload: u64, overhead: u64) -> (Rate, Rate) {
        let mean = self.bytes(rung, 0..self.kinds.len(), payload, overhead).per(self.span(self.frames()));
        let mut peak = Rate::ZERO;
        let mut at = 0;
        while at < self.frames() {
            let range = self.gop_at(at);
            let span = self.span(range.len() as u64);
            peak = peak.max(self.bytes(rung, range, payload, overhead).per(span));
            at += u64::from(self.gop);
        }
        (mean, peak)
    }

    /// Returns the range of rates that the ladder serves, with packet overhead: from the lowest mean rate of a
    /// quantizer to the highest rate of a GOP.
    pub fn range(&self, payload: u64, overhead: u64) -> (Rate, Rate) {
        let all: Vec<_> = (0..self.quantizers.len()).map(|r| self.rates(r, payload, overhead)).collect();
        let low = all.iter().map(|r| r.0).min().unwrap_or(Rate::ZERO);
        (low, all.iter().map(|r| r.1).max().unwrap_or(low))
    }
}
