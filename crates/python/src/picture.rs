use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use steadycast_picture::{PictureError, Plane, psnr_db, ssim};

fn plane(py: Python<'_>, buffer: &PyBuffer<u8>) -> PyResult<(Vec<u8>, usize, usize)> {
    let &[height, width] = buffer.shape() else {
        return Err(PyValueError::new_err("a plane has two dimensions: rows, columns"));
    };
    Ok((buffer.to_vec(py)?, width, height))
}

fn compare(
    py: Python<'_>,
    a: &PyBuffer<u8>,
    b: &PyBuffer<u8>,
    measure: fn(&Plane<'_>, &Plane<'_>) -> Result<f64, PictureError>,
) -> PyResult<f64> {
    let ((a, width, height), (b, other_width, other_height)) = (plane(py, a)?, plane(py, b)?);
    py.detach(|| {
        measure(&Plane::new(&a, width, width, height)?, &Plane::new(&b, other_width, other_width, other_height)?)
    })
    .map_err(|e| PyValueError::new_err(e.to_string()))
}

/// Returns the PSNR of two 2-D uint8 planes of the same size, in dB. Returns infinity if they are equal.
#[pyfunction]
pub(crate) fn picture_psnr(py: Python<'_>, a: PyBuffer<u8>, b: PyBuffer<u8>) -> PyResult<f64> {
    compare(py, &a, &b, psnr_db)
}

/// Returns the SSIM of two 2-D uint8 planes of the same size. The result is at most 1.
#[pyfunction]
pub(crate) fn picture_ssim(py: Python<'_>, a: PyBuffer<u8>, b: PyBuffer<u8>) -> PyResult<f64> {
    compare(py, &a, &b, ssim)
}
