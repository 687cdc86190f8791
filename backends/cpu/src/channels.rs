//! The one place where operators with one value a channel (every alpha, a bias, a spatial batch-norm) are folded, a
//! PReLU's slopes among them, which fold with nothing else, and
//! the one arithmetic of what they fold into.
//!
//! Neighbouring operators become one step of one or two multiply-adds, [`Fold`]. A batch-norm is
//! `(x − mean) · k + bias` with `k = scale / sqrt(variance + ε)`. The mean is taken from x before anything is multiplied
//! by k: in `x · k + (bias − mean · k)` both terms are large where the mean is large beside the deviation, and their
//! difference has lost its digits. So a step has at most one batch-norm. What stands in front of it folds into the first
//! multiply-add, together with the mean; its k and bias are the second, into which what follows folds.
//!
//! All of this is f32, each operation rounded, so that every solver gets the same numbers from the same parameters, as
//! GPUs do. `docs/architecture.md` states it under Numerics.

use std::ffi::c_void;

use fuseplan_api::DataType;

use crate::element::with_value_type;
use crate::isa::{Number, Simd};
use crate::vectors::{load, store, vectors};

/// `x · factor + term`, one multiply-add.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Affine<V> {
    pub(crate) factor: V,
    pub(crate) term: V,
}

impl Affine<f32> {
    /// Leaves every number as it is: adding +0 would change the sign of −0.
    pub(crate) const IDENTITY: Self = Affine { factor: 1.0, term: -0.0 };
}

impl<V: Copy> Affine<V> {
    /// The same map in every lane.
    #[inline(always)]
    pub(crate) fn splat<S: Simd<V = V>>(s: S, of: Affine<f32>) -> Self {
        Affine { factor: s.splat(of.factor), term: s.splat(of.term) }
    }

    /// The map's value at `x`.
    #[inline(always)]
    pub(crate) fn apply<S: Simd<V = V>>(&self, s: S, x: V) -> V {
        s.fma(x, self.factor, self.term)
    }

    /// This map, then a multiplication by `alpha`.
    #[inline(always)]
    fn multiply<S: Simd<V = V>>(self, s: S, alpha: V) -> Self {
        Affine { factor: s.mul(self.factor, alpha), term: s.mul(self.term, alpha) }
    }

    /// This map, then the addition of `bias`.
    #[inline(always)]
    fn add<S: Simd<V = V>>(self, s: S, bias: V) -> Self {
        Affine { term: s.add(self.term, bias), ..self }
    }

    /// This map, then a batch-norm.
    #[inline(always)]
    pub(crate) fn normalize<S: Simd<V = V>>(self, s: S, norm: Norm<V>, epsilon: f32) -> Fold<V> {
        let Norm { scale, bias, mean, variance } = norm;
        let deviation = s.sqrt(s.add(variance, s.splat(epsilon)));
        Fold {
            front: Some(Affine { term: s.sub(self.term, mean), ..self }),
            back: Affine { factor: s.div(scale, deviation), term: bias },
        }
    }
}

/// The parameters of a batch-norm with given statistics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Norm<P> {
    pub(crate) scale: P,
    pub(crate) bias: P,
    pub(crate) mean: P,
    pub(crate) variance: P,
}

/// What neighbouring operators amount to: `back(front(x))`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fold<V> {
    /// The operators in front of a batch-norm, and its mean; `None` without a batch-norm. The factor is a product of
    /// alphas, the same for all channels.
    pub(crate) front: Option<Affine<V>>,
    /// The batch-norm's factor and bias, and the operators behind it.
    pub(crate) back: Affine<V>,
}

impl<V: Copy> Fold<V> {
    /// What the operators make of `x`.
    #[inline(always)]
    pub(crate) fn apply<S: Simd<V = V>>(&self, s: S, x: V) -> V {
        let x = match self.front {
            Some(front) => front.apply(s, x),
            None => x,
        };
        self.back.apply(s, x)
    }
}

/// An operator that folds, with its parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Factor {
    /// A multiplication.
    Alpha(f32),
    /// A bias, with a value for each channel, `stride` elements apart.
    Bias { data: *const c_void, data_type: DataType, stride: usize },
    /// A multiplication by a value for each channel, `stride` elements apart. Only by itself, in front of nothing.
    Slope { data: *const c_void, data_type: DataType, stride: usize },
    /// A batch-norm, with packed parameters for each channel or for each position in each channel.
    Normalize { parameters: Norm<*const c_void>, data_type: DataType, epsilon: f32, per_position: bool },
}

/// The factor of [`Fold::front`]: the product of the alphas in front of the batch-norm, if there is one.
#[inline(always)]
pub(crate) fn front_factor(factors: impl Iterator<Item = Factor>) -> Option<f32> {
    let mut product = 1.0;
    for factor in factors {
        match factor {
            Factor::Alpha(alpha) => product *= alpha,
            Factor::Bias { .. } | Factor::Slope { .. } => {}
            Factor::Normalize { .. } => return Some(product),
        }
    }
    None
}

/// Entries of a table that follow one another: of neighbouring channels at one position of the image, or of neighbouring
/// positions in one channel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) channel: usize,
    pub(crate) position: usize,
    pub(crate) len: usize,
    /// Whether the next entry is that of the next channel, rather than position.
    pub(crate) along_channels: bool,
    /// Places in a channel.
    pub(crate) plane: usize,
}

impl Run {
    /// One entry for each of so many channels.
    pub(crate) fn channels(len: usize) -> Self {
        Run { channel: 0, position: 0, len, along_channels: true, plane: 1 }
    }

    /// The index of the first entry's value and the distance to the next one's, in a list with one value a channel whose
    /// neighbours are `stride` apart.
    pub(crate) fn per_channel(&self, stride: usize) -> (usize, usize) {
        (self.channel * stride, if self.along_channels { stride } else { 0 })
    }

    /// The index of the first entry's value and the distance to the next one's, in a packed list with one value for each position in each channel.
    pub(crate) fn per_position(&self) -> (usize, usize) {
        (self.channel * self.plane + self.position, if self.along_channels { self.plane } else { 1 })
    }
}

/// Tables that [`fold`] writes: the factors and the terms of [`Fold::back`], and the terms of [`Fold::front`].
pub(crate) const TABLES: usize = 3;

/// Lists as long as a table that [`fold`] needs as scratch.
pub(crate) const LISTS: usize = 4;

/// Folds `factors`, at most one of them a batch-norm, for the entries of `runs`. `tables` holds [`TABLES`] tables and
/// `lists` [`LISTS`] lists, all of one length, which is a multiple of every vector's lanes and no less than the number
/// of entries. Entries behind the last are unspecified up to a whole vector, then the identity.
///
/// # Safety
/// The factors' parameters are readable for all entries, as elements of the factors' data types, which are of
/// [`DATA_TYPES`](crate::element::DATA_TYPES).
#[inline(always)]
pub(crate) unsafe fn fold<S: Simd>(
    s: S,
    factors: impl Iterator<Item = Factor>,
    runs: impl Iterator<Item = Run> + Clone,
    tables: &mut [f32],
    lists: &mut [f32],
) {
    let len = tables.len() / TABLES;
    let padded = runs.clone().map(|run| run.len).sum::<usize>().next_multiple_of(S::LANES);
    assert!(padded <= len && len.is_multiple_of(S::LANES) && lists.len() >= LISTS * len);
    let (factor, rest) = tables.split_at_mut(len);
    let (term, front) = rest.split_at_mut(len);
    factor.fill(Affine::IDENTITY.factor);
    term.fill(Affine::IDENTITY.term);
    macro_rules! each {
        (|$back:ident, $at:ident| $value:expr) => {
            for $at in (0..padded).step_by(S::LANES) {
                // SAFETY: the tables have `padded` elements, a multiple of the lanes.
                let $back = unsafe {
                    Affine { factor: s.load(factor.as_ptr().add($at)), term: s.load(term.as_ptr().add($at)) }
                };
                let back = $value;
                // SAFETY: as for the loads.
                unsafe {
                    s.store(factor.as_mut_ptr().add($at), back.factor);
                    s.store(term.as_mut_ptr().add($at), back.term);
                }
            }
        };
    }
    macro_rules! list {
        ($i:literal, $at:ident) => {
            // SAFETY: the list is one of LISTS, which have `padded` elements each.
            unsafe { s.load(lists.as_ptr().add($i * len + $at)) }
        };
    }
    for step in factors {
        match step {
            Factor::Alpha(alpha) => {
                let alpha = s.splat(alpha);
                each!(|back, at| back.multiply(s, alpha));
            }
            Factor::Bias { data, data_type, stride } => {
                let index = |run: &Run| run.per_channel(stride);
                // SAFETY: the bias has an element of its type for each channel.
                unsafe { gather(s, (data, data_type), runs.clone(), index, &mut lists[..padded]) };
                each!(|back, at| back.add(s, list!(0, at)));
            }
            Factor::Slope { data, data_type, stride } => {
                let index = |run: &Run| run.per_channel(stride);
                // SAFETY: the slope has an element of its type for each channel.
                unsafe { gather(s, (data, data_type), runs.clone(), index, &mut lists[..padded]) };
                each!(|back, at| back.multiply(s, list!(0, at)));
            }
            Factor::Normalize { parameters, data_type, epsilon, per_position } => {
                let index = |run: &Run| if per_position { run.per_position() } else { run.per_channel(1) };
                let Norm { scale, bias, mean, variance } = parameters;
                for (i, values) in [scale, bias, mean, variance].into_iter().enumerate() {
                    let to = &mut lists[i * len..][..padded];
                    // SAFETY: each parameter has an element for each channel, or for each position in each channel.
                    unsafe { gather(s, (values, data_type), runs.clone(), index, to) };
                }
                each!(|back, at| {
                    let norm = Norm {
                        scale: list!(0, at),
                        bias: list!(1, at),
                        mean: list!(2, at),
                        variance: list!(3, at),
                    };
                    let fold = back.normalize(s, norm, epsilon);
                    if let Some(Affine { term, .. }) = fold.front {
                        // SAFETY: the table has `padded` elements.
                        unsafe { s.store(front.as_mut_ptr().add(at), term) };
                    }
                    fold.back
                });
            }
        }
    }
}

/// Copies the entries' values to `to`, as f32, and fills what is left of it with zeros.
///
/// # Safety
/// `index` gives each run's first index and step in the readable list, whose elements are of this type.
#[inline(always)]
unsafe fn gather<S: Simd>(
    s: S,
    (list, data_type): (*const c_void, DataType),
    runs: impl Iterator<Item = Run>,
    index: impl Fn(&Run) -> (usize, usize),
    to: &mut [f32],
) {
    with_value_type!(data_type, T => {
        // SAFETY: as promised by the caller.
        unsafe { gather_of(s, list.cast::<T>(), runs, index, to) }
    });
}

/// [`gather`] of a list whose elements' type is known.
///
/// # Safety
/// As of `gather`.
#[inline(always)]
unsafe fn gather_of<S: Simd, T: Number>(
    s: S,
    list: *const T,
    runs: impl Iterator<Item = Run>,
    index: impl Fn(&Run) -> (usize, usize),
    to: &mut [f32],
) {
    let mut rest = to;
    for run in runs {
        let (to, behind) = rest.split_at_mut(run.len);
        let (first, step) = index(&run);
        // SAFETY: the caller says that the list has the indices `first + i · step` of the run, and `to` has its length.
        unsafe {
            match step {
                0 => to.fill((*list.add(first)).widen()),
                1 => {
                    let (from, to) = (list.add(first), to.as_mut_ptr());
                    vectors!(S, run.len, |at, count| {
                        store(s, to.add(at), load(s, from.add(at), count), count);
                    });
                }
                _ => (0..).zip(to).for_each(|(i, to)| *to = (*list.add(first + i * step)).widen()),
            }
        }
        rest = behind;
    }
    rest.fill(0.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Kernel, MAX_LANES};

    /// Channels that leave a rest of every vector.
    const CHANNELS: usize = MAX_LANES + 3;

    /// Entries of the tables.
    const LEN: usize = 3 * MAX_LANES;

    struct Folded<'a>(&'a [Factor], &'a mut [f32]);

    impl Kernel for Folded<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let mut lists = [f32::NAN; LISTS * LEN];
            let runs = [Run::channels(CHANNELS)].into_iter();
            // SAFETY: the tests' lists have a value for each channel.
            unsafe { fold(s, self.0.iter().copied(), runs, self.1, &mut lists) }
        }
    }

    /// The folds of all channels and of the entries behind them that are the identity, on every instruction set.
    fn folds(factors: &[Factor]) -> Vec<Fold<f32>> {
        let front = front_factor(factors.iter().copied());
        let of = |isa: &Isa| {
            let mut tables = [f32::NAN; TABLES * LEN];
            isa.run(Folded(factors, &mut tables));
            let fold = |c: usize| Fold {
                front: front.map(|factor| Affine { factor, term: tables[2 * LEN + c] }),
                back: Affine { factor: tables[c], term: tables[LEN + c] },
            };
            assert!((2 * MAX_LANES..LEN).all(|c| fold(c).back == Affine::IDENTITY));
            (0..CHANNELS).map(fold).collect::<Vec<_>>()
        };
        let all: Vec<_> = Isa::available().iter().map(of).collect();
        assert!(all.iter().all(|folds| *folds == all[0]));
        all[0].clone()
    }

    fn norm(lists: [&Vec<f32>; 4], epsilon: f32) -> Factor {
        let [scale, bias, mean, variance] = lists.map(|list| list.as_ptr().cast());
        let parameters = Norm { scale, bias, mean, variance };
        Factor::Normalize { parameters, data_type: DataType::Float, epsilon, per_position: false }
    }

    #[test]
    fn a_step_is_its_operators() {
        let biases: Vec<f32> =
            (0..2 * CHANNELS).map(|c| if c % 2 == 0 { c as f32 } else { f32::NAN }).collect();
        let bias = |values: &[f32], stride| Factor::Bias {
            data: values.as_ptr().cast(),
            data_type: DataType::Float,
            stride,
        };
        let front = [Factor::Alpha(2.0), bias(&biases, 2), Factor::Alpha(0.5)];
        let expected = |c: usize| Fold { front: None, back: Affine { factor: 1.0, term: c as f32 } };
        assert_eq!(folds(&front), (0..CHANNELS).map(expected).collect::<Vec<_>>());

        // (x + c − 1000) · 4 / sqrt(3.5 + 0.5) + 7, then + 1, times −2.
        let [scale, seven, mean, variance] = [4.0, 7.0, 1000.0, 3.5f32].map(|x| vec![x; CHANNELS]);
        let norm = norm([&scale, &seven, &mean, &variance], 0.5);
        let ones = vec![1.0f32; CHANNELS];
        let all = [front[0], front[1], front[2], norm, bias(&ones, 1), Factor::Alpha(-2.0)];
        let expected = |c: usize| Fold {
            front: Some(Affine { factor: 1.0, term: c as f32 - 1000.0 }),
            back: Affine { factor: -4.0, term: -16.0 },
        };
        assert_eq!(folds(&all), (0..CHANNELS).map(expected).collect::<Vec<_>>());
    }

    #[test]
    fn parameters_are_of_their_own_type() {
        use half::{bf16, f16};
        let values: Vec<f32> = (0..CHANNELS).map(|c| 0.25 * c as f32 + 1.0).collect();
        let halves: Vec<f16> = values.iter().map(|&v| f16::from_f32(v)).collect();
        let short: Vec<bf16> = values.iter().map(|&v| bf16::from_f32(v)).collect();
        let lists: [(*const c_void, DataType); 3] = [
            (values.as_ptr().cast(), DataType::Float),
            (halves.as_ptr().cast(), DataType::Half),
            (short.as_ptr().cast(), DataType::BFloat16),
        ];
        let all = lists.map(|(data, data_type)| {
            let parameters = Norm { scale: data, bias: data, mean: data, variance: data };
            let norm = Factor::Normalize { parameters, data_type, epsilon: 0.0, per_position: false };
            folds(&[Factor::Bias { data, data_type, stride: 1 }, norm])
        });
        let expected = |&v: &f32| Fold {
            front: Some(Affine { factor: 1.0, term: 0.0 }),
            back: Affine { factor: v / v.sqrt(), term: v },
        };
        assert!(all.iter().all(|folds| *folds == values.iter().map(expected).collect::<Vec<_>>()));
    }

    #[test]
    fn without_variance_the_factor_is_infinite() {
        let [scale, bias, mean, variance] = [-1.0, 7.0, 1000.0, 0.0f32].map(|x| vec![x; CHANNELS]);
        let norm = norm([&scale, &bias, &mean, &variance], 0.0);
        let expected = Fold {
            front: Some(Affine { factor: 1.0, term: -1000.0 }),
            back: Affine { factor: f32::NEG_INFINITY, term: 7.0 },
        };
        assert_eq!(folds(&[norm]), vec![expected; CHANNELS]);
    }

    #[test]
    fn nothing_folds_into_the_identity() {
        assert!(folds(&[]).iter().all(|fold| fold.back.term.is_sign_negative()));
        assert_eq!(folds(&[]), vec![Fold { front: None, back: Affine::IDENTITY }; CHANNELS]);
    }
}
