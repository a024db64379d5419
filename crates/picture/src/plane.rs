use thiserror::Error;

/// One plane of 8-bit samples, row by row, `stride` bytes from the start of one row to the start of the next.
#[derive(Clone, Copy, Debug)]
pub struct Plane<'a> {
    samples: &'a [u8],
    stride: usize,
    /// Samples per row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// Why two planes cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PictureError {
    /// Width or height is zero.
    #[error("a picture of {width}x{height} samples is empty")]
    Empty {
        /// Samples per row.
        width: usize,
        /// Rows.
        height: usize,
    },
    /// Rows would overlap.
    #[error("rows of {width} samples do not fit a stride of {stride} bytes")]
    Stride {
        /// Samples per row.
        width: usize,
        /// Bytes from one row to the next.
        stride: usize,
    },
    /// The memory ends before the last row does.
    #[error("the picture needs {need} bytes, {got} are there")]
    Short {
        /// Bytes from the first sample to the last, inclusive.
        need: usize,
        /// Bytes given.
        got: usize,
    },
    /// The two pictures differ in size.
    #[error("pictures of {}x{} and {}x{} cannot be compared", first.0, first.1, second.0, second.1)]
    Sizes {
        /// Width and height of the first.
        first: (usize, usize),
        /// Width and height of the second.
        second: (usize, usize),
    },
    /// SSIM looks through windows of 8×8 samples, and none fits.
    #[error("SSIM needs at least 8x8 samples, the picture has {width}x{height}")]
    TooSmall {
        /// Samples per row.
        width: usize,
        /// Rows.
        height: usize,
    },
}

impl<'a> Plane<'a> {
    /// A view of `samples`; bytes between the rows, and after the last one, are not read.
    ///
    /// # Errors
    /// When the picture is empty, when `stride` is below `width`, or when the memory is too short.
    pub fn new(samples: &'a [u8], stride: usize, width: usize, height: usize) -> Result<Self, PictureError> {
        if width == 0 || height == 0 {
            return Err(PictureError::Empty { width, height });
        }
        if stride < width {
            return Err(PictureError::Stride { width, stride });
        }
        let need = stride.saturating_mul(height - 1).saturating_add(width);
        if samples.len() < need {
            return Err(PictureError::Short { need, got: samples.len() });
        }
        Ok(Self { samples, stride, width, height })
    }

    pub(crate) fn row(&self, y: usize) -> &'a [u8] {
        let start = y * self.stride;
        &self.samples[start..start + self.width]
    }

    pub(crate) fn same_size(&self, other: &Self) -> Result<(), PictureError> {
        let (first, second) = ((self.width, self.height), (other.width, other.height));
        if first == second { Ok(()) } else { Err(PictureError::Sizes { first, second }) }
    }
}
