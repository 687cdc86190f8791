//! Winograd's minimal filtering F(m x m, r x r): tiles of the input, filters and tiles of the output as values of
//! polynomials at points, where a convolution is a product.
//!
//! With the points p and infinity, `output = Aᵀ [(G filter Gᵀ) ⊙ (Bᵀ input B)] A`: Aᵀ has the powers of the points, G the
//! powers divided by `N(p) = Π (p − q)` over the other points q, Bᵀ the coefficients of `Π (x − q)`.

#![expect(clippy::needless_range_loop, reason = "rows and columns of small matrices have names")]

use std::f32::consts::{FRAC_1_SQRT_2, SQRT_2};

use crate::isa::Simd;

/// Extent of the largest tile of the input.
pub(super) const MOST_IN: usize = 6;
/// Extent of the largest tile of the output.
pub(super) const MOST_OUT: usize = 4;
/// Extent of the largest filter.
pub(super) const MOST_TAPS: usize = 5;

/// The transforms of a tile along one dimension.
pub(super) trait Transform: 'static {
    /// Extent of a tile of the output.
    const OUT: usize;
    /// Extent of the filter.
    const TAPS: usize;
    /// Extent of a tile of the input, and the number of points.
    const IN: usize = Self::OUT + Self::TAPS - 1;
    /// G: what each point makes of a filter's taps.
    const FILTER: [[f32; MOST_TAPS]; MOST_IN];

    /// `Bᵀ x`, of the first [`Transform::IN`] elements.
    fn input<S: Simd>(s: S, x: [S::V; MOST_IN]) -> [S::V; MOST_IN];

    /// `Aᵀ x`, the first [`Transform::OUT`] elements.
    fn output<S: Simd>(s: S, x: [S::V; MOST_IN]) -> [S::V; MOST_OUT];
}

/// F(2x2, 3x3) at the points 0, 1, −1: 16 products for 4 outputs. Integers stay exact.
pub(super) struct F2x2;

impl Transform for F2x2 {
    const OUT: usize = 2;
    const TAPS: usize = 3;
    const FILTER: [[f32; MOST_TAPS]; MOST_IN] = [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [0.5, 0.5, 0.5, 0.0, 0.0],
        [0.5, -0.5, 0.5, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0, 0.0],
        [0.0; MOST_TAPS],
        [0.0; MOST_TAPS],
    ];

    #[inline(always)]
    fn input<S: Simd>(s: S, x: [S::V; MOST_IN]) -> [S::V; MOST_IN] {
        [s.sub(x[0], x[2]), s.add(x[1], x[2]), s.sub(x[2], x[1]), s.sub(x[3], x[1]), x[4], x[5]]
    }

    #[inline(always)]
    fn output<S: Simd>(s: S, x: [S::V; MOST_IN]) -> [S::V; MOST_OUT] {
        [s.add(x[0], s.add(x[1], x[2])), s.add(s.sub(x[1], x[2]), x[3]), x[2], x[3]]
    }
}

/// F(4x4, 3x3) at the points 0, ±1/√2, ±√2: 36 products for 16 outputs. These points, reciprocal to one another, give
/// about a fifth of the error of 0, ±1, ±2.
pub(super) struct F4x4;

/// The points but for their signs; `B` is `2 · A` in f32 too.
const A: f32 = FRAC_1_SQRT_2;
const B: f32 = SQRT_2;

impl Transform for F4x4 {
    const OUT: usize = 4;
    const TAPS: usize = 3;
    // N(0) = A² B² = 1, N(±A) = 2 A² (A² − B²) = −1.5, N(±B) = 2 B² (B² − A²) = 6.
    const FILTER: [[f32; MOST_TAPS]; MOST_IN] = [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [-1.0 / 1.5, -A / 1.5, -0.5 / 1.5, 0.0, 0.0],
        [-1.0 / 1.5, A / 1.5, -0.5 / 1.5, 0.0, 0.0],
        [1.0 / 6.0, B / 6.0, 2.0 / 6.0, 0.0, 0.0],
        [1.0 / 6.0, -B / 6.0, 2.0 / 6.0, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0, 0.0],
    ];

    #[inline(always)]
    fn input<S: Simd>(s: S, x: [S::V; MOST_IN]) -> [S::V; MOST_IN] {
        let [a, b] = [A, B].map(|p| s.splat(p));
        let [minus_a, minus_b] = [-A, -B].map(|p| s.splat(p));
        // −A², −B², and −(A² + B²).
        let [a2, b2, sum] = [-0.5, -2.0, -2.5].map(|p| s.splat(p));
        let (even_a, odd_a) = (s.fma(b2, x[2], x[4]), s.fma(b2, x[1], x[3]));
        let (even_b, odd_b) = (s.fma(a2, x[2], x[4]), s.fma(a2, x[1], x[3]));
        [
            s.fma(sum, x[2], s.add(x[0], x[4])),
            s.fma(a, odd_a, even_a),
            s.fma(minus_a, odd_a, even_a),
            s.fma(b, odd_b, even_b),
            s.fma(minus_b, odd_b, even_b),
            s.fma(sum, x[3], s.add(x[1], x[5])),
        ]
    }

    #[inline(always)]
    fn output<S: Simd>(s: S, x: [S::V; MOST_IN]) -> [S::V; MOST_OUT] {
        let (sum_a, difference_a) = (s.add(x[1], x[2]), s.sub(x[1], x[2]));
        let (sum_b, difference_b) = (s.add(x[3], x[4]), s.sub(x[3], x[4]));
        let [a, b, a2, b2, a3, b3] = [A, B, 0.5, 2.0, 0.5 * A, 2.0 * B].map(|power| s.splat(power));
        [
            s.add(x[0], s.add(sum_a, sum_b)),
            s.fma(b, difference_b, s.mul(a, difference_a)),
            s.fma(b2, sum_b, s.mul(a2, sum_a)),
            s.fma(b3, difference_b, s.fma(a3, difference_a, x[5])),
        ]
    }
}

/// F(2x2, 5x5) at the points of [`F4x4`], whose tiles of the input it has: 36 products for 4 outputs.
pub(super) struct F2x2Of5;

impl Transform for F2x2Of5 {
    const OUT: usize = 2;
    const TAPS: usize = 5;
    const FILTER: [[f32; MOST_TAPS]; MOST_IN] = [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [-1.0 / 1.5, -A / 1.5, -0.5 / 1.5, -0.5 * A / 1.5, -0.25 / 1.5],
        [-1.0 / 1.5, A / 1.5, -0.5 / 1.5, 0.5 * A / 1.5, -0.25 / 1.5],
        [1.0 / 6.0, B / 6.0, 2.0 / 6.0, 2.0 * B / 6.0, 4.0 / 6.0],
        [1.0 / 6.0, -B / 6.0, 2.0 / 6.0, -2.0 * B / 6.0, 4.0 / 6.0],
        [0.0, 0.0, 0.0, 0.0, 1.0],
    ];

    #[inline(always)]
    fn input<S: Simd>(s: S, x: [S::V; MOST_IN]) -> [S::V; MOST_IN] {
        F4x4::input(s, x)
    }

    #[inline(always)]
    fn output<S: Simd>(s: S, x: [S::V; MOST_IN]) -> [S::V; MOST_OUT] {
        let (sum_a, difference_a) = (s.add(x[1], x[2]), s.sub(x[1], x[2]));
        let (sum_b, difference_b) = (s.add(x[3], x[4]), s.sub(x[3], x[4]));
        let [a, b] = [A, B].map(|point| s.splat(point));
        let second = s.fma(b, difference_b, s.fma(a, difference_a, x[5]));
        [s.add(x[0], s.add(sum_a, sum_b)), second, x[2], x[3]]
    }
}

/// `Bᵀ tile B`, in place.
#[inline(always)]
pub(super) fn input_tile<S: Simd, W: Transform>(s: S, tile: &mut [[S::V; MOST_IN]; MOST_IN]) {
    for j in 0..W::IN {
        let mut column = [s.splat(0.0); MOST_IN];
        for i in 0..W::IN {
            column[i] = tile[i][j];
        }
        let column = W::input(s, column);
        for i in 0..W::IN {
            tile[i][j] = column[i];
        }
    }
    for row in &mut tile[..W::IN] {
        *row = W::input(s, *row);
    }
}

/// `Aᵀ points A`.
#[inline(always)]
pub(super) fn output_tile<S: Simd, W: Transform>(
    s: S,
    points: &[[S::V; MOST_IN]; MOST_IN],
) -> [[S::V; MOST_OUT]; MOST_OUT] {
    let mut half = [[s.splat(0.0); MOST_IN]; MOST_OUT];
    for j in 0..W::IN {
        let mut column = [s.splat(0.0); MOST_IN];
        for i in 0..W::IN {
            column[i] = points[i][j];
        }
        let column = W::output(s, column);
        for i in 0..W::OUT {
            half[i][j] = column[i];
        }
    }
    let mut tile = [[s.splat(0.0); MOST_OUT]; MOST_OUT];
    for i in 0..W::OUT {
        tile[i] = W::output(s, half[i]);
    }
    tile
}

/// `G filter Gᵀ`.
#[inline(always)]
pub(super) fn filter_tile<S: Simd, W: Transform>(
    s: S,
    taps: &[[S::V; MOST_TAPS]; MOST_TAPS],
) -> [[S::V; MOST_IN]; MOST_IN] {
    let mut points = [[s.splat(0.0); MOST_IN]; MOST_IN];
    for i in 0..W::IN {
        let mut row = [s.splat(0.0); MOST_TAPS];
        for j in 0..W::TAPS {
            row[j] = combine::<S, W>(s, i, taps.map(|line| line[j]));
        }
        for j in 0..W::IN {
            points[i][j] = combine::<S, W>(s, j, row);
        }
    }
    points
}

/// What a point makes of taps.
#[inline(always)]
fn combine<S: Simd, W: Transform>(s: S, point: usize, x: [S::V; MOST_TAPS]) -> S::V {
    let factors = W::FILTER[point].map(|factor| s.splat(factor));
    let mut sum = s.mul(factors[0], x[0]);
    for tap in 1..W::TAPS {
        sum = s.fma(factors[tap], x[tap], sum);
    }
    sum
}
