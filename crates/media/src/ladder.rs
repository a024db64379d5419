use crate::FrameKind;
use std::sync::Arc;
use steadycast_units::{Bytes, Rate, Span};

/// How the quantizer determines the step size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The step size is proportional to the quantizer (MPEG family, H.263).
    Linear,
    /// The step size doubles, and the rate halves, whenever the quantizer increases by this number. The number is six
    /// in H.264 and H.265.
    Logarithmic(u8),
}

/// The sizes of all frames of a clip at all quantizers. The GOPs start at the same frames at all quantizers.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    /// The frame rate in frames per second, as numerator and denominator.
    pub fps: (u32, u32),
    /// The number of frames in a group of pictures.
    pub gop: u32,
    /// How the quantizer determines the step size.
    pub scale: Scale,
    /// The quantizers in ascending order, from the best to the worst picture.
    pub quantizers: Vec<u8>,
    /// The coding type of each frame, in coding order.
    pub kinds: Vec<FrameKind>,
    /// The position of each frame in display order. The list is in coding order.
    pub display: Vec<u32>,
    /// The size of each frame in bytes. There is one row per quantizer, and each row is in coding order.
    pub sizes: Vec<Arc<[u32]>>,
}

/// The reason why a ladder can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LadderError {
    /// A list of the ladder is empty.
    #[error("the ladder has no {0}")]
    Empty(&'static str),
    /// A list of the ladder does not have the length that the other lists require.
    #[error("the ladder's {what} has {got} entries, {need} are needed")]
    Length {
        /// What the list contains.
        what: &'static str,
        /// The number of entries that the list has.
        got: usize,
        /// The number of entries that the list should have.
        need: usize,
    },
    /// A value of the ladder is not valid. The text says why.
    #[error("the ladder's {0}")]
    Wrong(&'static str),
}

impl Ladder {
    /// Checks that all lists of the ladder are valid and match in length.
    ///
    /// # Errors
    /// Returns an error if a list is empty or has the wrong length, or if a value is out of range.
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
        // Check that each display position occurs exactly once.
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

    /// Returns when frame `n` of the flow is due, as the time since the start of the flow. This is also the duration of
    /// `n` frames.
    pub fn time(&self, n: u64) -> Span {
        // Compute in 128 bits. At 30000/1001 frames per second, the product exceeds 64 bits after a week.
        let ns = u128::from(n) * 1_000_000_000 * u128::from(self.fps.1) / u128::from(self.fps.0);
        Span::nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Returns the number of frames in the clip. The encoder repeats the clip after this number of frames.
    pub fn frames(&self) -> u64 {
        self.kinds.len() as u64
    }

    /// Returns the range of frames of the GOP that starts at frame `n` of the clip.
    pub fn gop_at(&self, n: u64) -> std::ops::Range<usize> {
        let n = n as usize;
        n..(n + self.gop as usize).min(self.kinds.len())
    }

    /// Returns the number of bytes that the frames in `range` need at rung `rung`, which is an index into the
    /// quantizers. Each packet has up to `payload` bytes of content and `overhead` bytes of headers.
    pub fn bytes(&self, rung: usize, range: std::ops::Range<usize>, payload: u64, overhead: u64) -> Bytes {
        let wire = |size: u64| size + size.div_ceil(payload.max(1)) * overhead;
        Bytes::new(self.sizes[rung][range].iter().map(|s| wire(u64::from(*s))).sum())
    }

    /// Returns two rates of rung `rung`, including packet headers: the mean rate over the clip, and the highest rate of
    /// a GOP.
    pub fn rates(&self, rung: usize, payload: u64, overhead: u64) -> (Rate, Rate) {
        let mean = self.bytes(rung, 0..self.kinds.len(), payload, overhead).per(self.time(self.frames()));
        let mut peak = Rate::ZERO;
        let mut at = 0;
        while at < self.frames() {
            let range = self.gop_at(at);
            let span = self.time(range.len() as u64);
            peak = peak.max(self.bytes(rung, range, payload, overhead).per(span));
            at += u64::from(self.gop);
        }
        (mean, peak)
    }

    /// Returns the range of rates that the ladder can serve, including packet headers. The lower limit is the lowest
    /// mean rate of a quantizer. The upper limit is the highest rate of a GOP.
    pub fn range(&self, payload: u64, overhead: u64) -> (Rate, Rate) {
        let all: Vec<_> = (0..self.quantizers.len()).map(|r| self.rates(r, payload, overhead)).collect();
        let low = all.iter().map(|r| r.0).min().unwrap_or(Rate::ZERO);
        (low, all.iter().map(|r| r.1).max().unwrap_or(low))
    }
}
