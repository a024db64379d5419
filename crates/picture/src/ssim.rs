use crate::{PictureError, Plane};

/// The side of a block in samples. A window consists of 2×2 blocks (8×8 samples), so that neighbouring windows share
/// the sums over their blocks.
const BLOCK: usize = 4;
/// The number of samples in a window.
const N: f64 = 64.0;

/// Returns the mean structural similarity of two planes. It is 1 if the planes are identical, and near 0 if they are
/// unrelated.
///
/// The definition is equation 13 of Wang, Bovik, Sheikh, Simoncelli: "Image quality assessment: from error visibility
/// to structural similarity", IEEE Trans. Image Processing 13(4), 2004. In each window, μ are the means, σ² the
/// variances, and σ_ab is the covariance:
///
/// ```text
///           (2 μ_a μ_b + C1) (2 σ_ab + C2)
/// SSIM = -------------------------------------
///        (μ_a² + μ_b² + C1) (σ_a² + σ_b² + C2)
/// ```
///
/// The window is 8×8 samples, weights all samples equally, and moves in steps of 4 samples. Rows and columns beyond a
/// multiple of 4 are ignored. C2 = (0.03·255)² as in the paper. C1 is a 64th of the (0.01·255)² in the paper. FFmpeg's
/// filter uses the same C1, so the results are comparable with FFmpeg. C1 matters only in almost black windows.
///
/// # Errors
/// Returns an error if the sizes of the planes differ, or if a side is shorter than a window.
pub fn ssim(a: &Plane<'_>, b: &Plane<'_>) -> Result<f64, PictureError> {
    a.same_size(b)?;
    let (across, down) = (a.width / BLOCK, a.height / BLOCK);
    if across < 2 || down < 2 {
        return Err(PictureError::TooSmall { width: a.width, height: a.height });
    }
    let mut columns = Columns::of(across * BLOCK);
    let mut above = vec![Sums::default(); across];
    let mut here = vec![Sums::default(); across];
    let mut total = 0.0;
    for row in 0..down {
        // Reuse the sums of the previous row of blocks. Windows overlap by half, so these sums are the upper half of
        // the windows.
        std::mem::swap(&mut above, &mut here);
        sum_blocks(a, b, row * BLOCK, &mut columns, &mut here);
        if row > 0 {
            total += above.windows(2).zip(here.windows(2)).map(|(up, low)| similarity(up, low)).sum::<f64>();
        }
    }
    Ok(total / ((across - 1) * (down - 1)) as f64)
}

/// Sums over samples of both planes.
#[derive(Clone, Copy, Default)]
struct Sums {
    a: u32,
    b: u32,
    squares: u32,
    products: u32,
}

impl Sums {
    fn plus(self, other: Self) -> Self {
        Self {
            a: self.a + other.a,
            b: self.b + other.b,
            squares: self.squares + other.squares,
            products: self.products + other.products,
        }
    }
}

/// The sums of each column in a row of blocks. Separate arrays let the compiler vectorize the loops. Sums of samples
/// fit into 16 bits, so that a vector register contains twice as many of them.
struct Columns {
    a: Vec<u16>,
    b: Vec<u16>,
    squares: Vec<u32>,
    products: Vec<u32>,
}

impl Columns {
    fn of(width: usize) -> Self {
        Self { a: vec![0; width], b: vec![0; width], squares: vec![0; width], products: vec![0; width] }
    }

    fn clear(&mut self) {
        self.a.fill(0);
        self.b.fill(0);
        self.squares.fill(0);
        self.products.fill(0);
    }

    fn add(&mut self, a: &[u8], b: &[u8]) {
        let pairs = a.iter().zip(b);
        for (sum, (&a, _)) in self.a.iter_mut().zip(pairs.clone()) {
            *sum += u16::from(a);
        }
        for (sum, (_, &b)) in self.b.iter_mut().zip(pairs.clone()) {
            *sum += u16::from(b);
        }
        for (sum, (&a, &b)) in self.squares.iter_mut().zip(pairs.clone()) {
            *sum += u32::from(u16::from(a) * u16::from(a)) + u32::from(u16::from(b) * u16::from(b));
        }
        for (sum, (&a, &b)) in self.products.iter_mut().zip(pairs) {
            *sum += u32::from(u16::from(a) * u16::from(b));
        }
    }
}

fn sum_blocks(a: &Plane<'_>, b: &Plane<'_>, top: usize, columns: &mut Columns, blocks: &mut [Sums]) {
    columns.clear();
    for y in top..top + BLOCK {
        columns.add(a.row(y), b.row(y));
    }
    let narrow = |sums: &[u16]| sums.iter().map(|&sum| u32::from(sum)).sum();
    let all = columns.a.chunks_exact(BLOCK).zip(columns.b.chunks_exact(BLOCK));
    let all = all.zip(columns.squares.chunks_exact(BLOCK).zip(columns.products.chunks_exact(BLOCK)));
    for (block, ((a, b), (squares, products))) in blocks.iter_mut().zip(all) {
        *block = Sums { a: narrow(a), b: narrow(b), squares: squares.iter().sum(), products: products.iter().sum() };
    }
}

fn similarity(up: &[Sums], low: &[Sums]) -> f64 {
    // `a` and `b` are sums of N samples. So products of two means become N² times as large, and variances become
    // N·(N−1) times as large. C2 is scaled like the variances. As in FFmpeg's filter, C1 is scaled only by N.
    const C1: f64 = 0.01 * 0.01 * 255.0 * 255.0 * N;
    const C2: f64 = 0.03 * 0.03 * 255.0 * 255.0 * N * (N - 1.0);
    let sums = up.iter().chain(low).copied().fold(Sums::default(), Sums::plus);
    let (a, b) = (f64::from(sums.a), f64::from(sums.b));
    let (squares, products) = (f64::from(sums.squares), f64::from(sums.products));
    let variances = N * squares - a * a - b * b;
    let covariance = N * products - a * b;
    (2.0 * a * b + C1) * (2.0 * covariance + C2) / ((a * a + b * b + C1) * (variances + C2))
}
