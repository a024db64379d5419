//! PSNR and SSIM of pictures.
//!
//! All functions process one plane of 8-bit samples: luma, or one of the two chroma planes. The results agree with
//! FFmpeg's filters: `psnr` to 0.01 dB, and `ssim` to 0.001.

mod plane;
mod psnr;
mod ssim;

pub use plane::{PictureError, Plane};
pub use psnr::{mean_squared_error, psnr_db};
pub use ssim::ssim;
