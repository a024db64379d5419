use thiserror::Error;

/// A plane of 8-bit samples, which are stored in rows. `stride` is the distance in bytes between the starts of two
/// rows.
#[derive(Clone, Copy, Debug)]
pub struct Plane<'a> {
    samples: &'a [u8],
    stride: usize,
    /// The number of samples per row.
    pub width: usize,
    /// The number of rows.
    pub height: usize,
}

/// The reason why two planes can't be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PictureError {
    /// The width or the height is zero.
    #[error("a picture of {width}x{height} samples is empty")]
    Empty {
        /// The number of samples per row.
        width: usize,
        /// The number of rows.
        height: usize,
    },
    /// The stride is shorter than a row of samples.
    #[error("rows of {width} samples do not fit a stride of {stride} bytes")]
    Stride {
        /// The number of samples per row.
        width: usize,
        /// The number of bytes from the start of a row to the start of the next row.
        stride: usize,
    },
    /// The memory ends before the last row ends.
    #[error("the picture needs {need} bytes, {got} are there")]
    Short {
        /// The number of bytes from the first sample to the last sample, including both.
        need: usize,
        /// The length of the memory in bytes.
        got: usize,
    },
    /// The two pictures differ in size.
    #[error("pictures of {}x{} and {}x{} cannot be compared", first.0, first.1, second.0, second.1)]
    Sizes {
        /// Width and height of the first picture.
        first: (usize, usize),
        /// Width and height of the second picture.
        second: (usize, usize),
    },
    /// The picture is smaller than the window of 8×8 samples that SSIM needs.
    #[error("SSIM needs at least 8x8 samples, the picture has {width}x{height}")]
    TooSmall {
        /// The number of samples per row.
        width: usize,
        /// The number of rows.
        height: usize,
    },
}

impl<'a> Plane<'a> {
    /// Creates a view of `samples`. Bytes between the rows and after the last row are not read.
    ///
    /// # Errors
    /// Returns an error if the picture is empty, if `stride` is less than `width`, or if the memory is too short.
    pub fn new(samples: &'a [u8], stride: usize, width: usize, height: usize) -> Result<Self, PictureError> {
        if width == 0 || height == 0 {
            return Err(PictureError::Empty { width, height });
        }
        if stride < width {
            return Err(PictureError::Stride { width, stride });
        }
        // Require only the samples of the last row, not its whole stride.
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
