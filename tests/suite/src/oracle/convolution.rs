//! Cross-correlation by its definition.

use super::Field;
use crate::case::ConvSpec;

/// A spatial dimension, (D,) H or W, as D, H, W.
fn three(conv: &ConvSpec, value: impl Fn(usize) -> usize, rest: usize) -> [usize; 3] {
    let missing = 3 - conv.filter.len();
    std::array::from_fn(|d| if d < missing { rest } else { value(d - missing) })
}

/// `y[n,k,o] = Σ x[n, c, o·stride − pad + t·dilation] · w[k, c, t]` over the channels c of k's group and
/// the taps t that fall into the input.
pub(super) fn forward(conv: &ConvSpec, x: &Field, weights: &[f64], u: f64, product: f64) -> Field {
    let [taps, pad, after, stride, dilation] = [
        three(conv, |d| conv.filter[d], 1),
        three(conv, |d| conv.pad(d), 0),
        three(conv, |d| conv.pad_after(d), 0),
        three(conv, |d| conv.stride(d), 1),
        three(conv, |d| conv.dilation(d), 1),
    ];
    let [images, channels, ..] = x.lens;
    let (filters, per_group) = (conv.filters, channels / conv.groups);
    let mut lens = [images, filters, 0, 0, 0];
    for d in 0..3 {
        lens[2 + d] = (pad[d] + x.lens[2 + d] + after[d] - dilation[d] * (taps[d] - 1) - 1) / stride[d] + 1;
    }
    let [depth, height, width] = [lens[2], lens[3], lens[4]];
    let count = lens.iter().product();
    let (mut value, mut reach) = (vec![0.0; count], vec![0.0; count]);
    // The input index of output o and tap t, if it is not in the padding.
    let index = |d: usize, o: usize, t: usize| {
        (o * stride[d] + t * dilation[d]).checked_sub(pad[d]).filter(|&i| i < x.lens[2 + d])
    };
    for (n, k) in (0..images).flat_map(|n| (0..filters).map(move |k| (n, k))) {
        let group = k / (filters / conv.groups);
        for (c, td, th, tw) in every([per_group, taps[0], taps[1], taps[2]]) {
            let w = weights[(((k * per_group + c) * taps[0] + td) * taps[1] + th) * taps[2] + tw];
            if w == 0.0 {
                continue;
            }
            let columns: Vec<_> = (0..width).filter(|&o| index(2, o, tw).is_some()).collect();
            let (Some(&first), Some(&last)) = (columns.first(), columns.last()) else { continue };
            let start = index(2, first, tw).unwrap_or(0);
            for (od, oh) in (0..depth).flat_map(|d| (0..height).map(move |h| (d, h))) {
                let (Some(id), Some(ih)) = (index(0, od, td), index(1, oh, th)) else { continue };
                let channel = n * channels + group * per_group + c;
                let row = ((channel * x.lens[2] + id) * x.lens[3] + ih) * x.lens[4];
                let out = (((n * filters + k) * depth + od) * height + oh) * width;
                let inputs = x.value[row + start..row + x.lens[4]].iter().step_by(stride[2]);
                let sums = value[out + first..=out + last].iter_mut();
                for ((sum, size), &x) in sums.zip(&mut reach[out + first..=out + last]).zip(inputs) {
                    let product = w * x;
                    *sum += product;
                    *size += product.abs();
                }
            }
        }
    }
    let n = (per_group * taps.iter().product::<usize>() + 2) as f64;
    let gamma = n * u / (1.0 - n * u);
    let underflow = if u == 0.0 { 0.0 } else { n * f64::from(f32::MIN_POSITIVE) };
    let grid = x.grid * super::grid(weights).min(f64::MAX);
    // Multiples of a power of two that are none of them too large for f32, nor too small.
    let least = f64::from(f32::MIN_POSITIVE);
    // Of factors that TF32 has room for, and of others twice as long, 3xTF32 loses nothing.
    let longest = |values: &[f64], bits: i32| {
        let largest = values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        largest <= super::grid(values) * 2f64.powi(bits)
    };
    let whole =
        product == 0.0 || (product == super::TF32X3_PRODUCT && longest(weights, 11) && longest(&x.value, 22));
    let is_exact = |size: f64| whole && grid >= least && size <= grid / super::F32_ROUNDOFF;
    let bound = |&size: &f64| if is_exact(size) { 0.0 } else { (gamma + product) * size + underflow };
    let error = reach.iter().map(bound).collect();
    Field { lens, value, error, reach, grid }
}

/// How much larger than the largest factors what Winograd's F(4x4, 3x3) adds up may be, at the points 0, ±1/√2, ±√2: the
/// largest row of |Aᵀ| (|G| 1 · |Bᵀ| 1), squared. F(2x2, 3x3) has 64.
const AMPLIFICATION: f64 = 620.0;

/// The same of F(2x2, 5x5).
const AMPLIFICATION_OF_5: f64 = 1389.0;

/// Roundings on the way of a factor through the transforms of input, filter and output, and of their constants.
const TRANSFORMS: f64 = 32.0;

/// As [`forward`] by tiles of 4x4 outputs or less with 3x3 filters, of 2x2 with 5x5. Where tiles lie is left to the kernel, so the bound
/// takes the largest elements of all tiles that an output may be in.
pub(super) fn transformed(conv: &ConvSpec, x: &Field, weights: &[f64], u: f64) -> Field {
    let mut y = forward(conv, x, weights, u, 0.0);
    let [images, filters, _, height, width] = y.lens;
    let [_, channels, _, rows, columns] = x.lens;
    let per_group = channels / conv.groups;
    // Of each row or column of outputs, the inputs of its tiles.
    let window = |o: usize, pad: usize, len: usize| {
        (o + 3).saturating_sub(pad + 6).min(len)..(o + 6).saturating_sub(pad).min(len)
    };
    let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, |a: f64, b| a.max(b.abs()));
    // The largest input around every output, for each channel: along lines, then along columns.
    let lines: Vec<f64> = (0..images * channels * rows)
        .flat_map(|line| {
            let line = &x.value[line * columns..][..columns];
            (0..width).map(move |o| largest(&mut line[window(o, conv.pad(1), columns)].iter().copied()))
        })
        .collect();
    let around = |plane: usize, h: usize, w: usize| {
        largest(&mut window(h, conv.pad(0), rows).map(|row| lines[(plane * rows + row) * width + w]))
    };
    let planes: Vec<f64> =
        every([images * channels, 1, height, width]).map(|(plane, _, h, w)| around(plane, h, w)).collect();
    let taps = weights.len() / (filters * per_group);
    let amplification = if taps == 25 { AMPLIFICATION_OF_5 } else { AMPLIFICATION };
    let factor = (per_group as f64 + TRANSFORMS) * u * amplification;
    for (n, k) in (0..images).flat_map(|n| (0..filters).map(move |k| (n, k))) {
        let group = k / (filters / conv.groups);
        let errors = &mut y.error[(n * filters + k) * height * width..][..height * width];
        for c in 0..per_group {
            let weight = largest(&mut weights[(k * per_group + c) * taps..][..taps].iter().copied());
            let plane = n * channels + group * per_group + c;
            let inputs = &planes[plane * height * width..][..height * width];
            for (error, input) in errors.iter_mut().zip(inputs) {
                *error += factor * weight * input;
            }
        }
    }
    y
}

/// Every index of a box, the last dimension fastest.
fn every([a, b, c, d]: [usize; 4]) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    (0..a * b * c * d).map(move |i| (i / (b * c * d), i / (c * d) % b, i / d % c, i % d))
}
