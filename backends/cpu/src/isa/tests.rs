//! Every operation of every set that this CPU has, lane by lane against plain Rust.

use super::*;
use crate::vectors::{load_two, store_two};

const SPECIAL: [f32; 16] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    1e-40,
    -1e-40,
    f32::MAX,
    f32::MIN_POSITIVE,
    65504.0,
    1.0 + f32::EPSILON,
    -3.25,
    2.5,
    100.25,
];

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

struct Check<F>(F);

/// A check that is generic over the set.
trait Checks {
    fn check<S: Simd>(&self, s: S);
}

impl<F: Checks> Kernel for Check<F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.0.check(s);
    }
}

fn on_every_set(checks: impl Checks + Copy) {
    for isa in Isa::available() {
        isa.run(Check(checks));
    }
}

fn lanes_of<S: Simd>(s: S, v: S::V) -> [f32; MAX_LANES] {
    let mut out = [0.0; MAX_LANES];
    // SAFETY: the array is at least as long as a vector.
    unsafe { s.store(out.as_mut_ptr(), v) };
    out
}

#[derive(Clone, Copy)]
struct Arithmetic;
impl Checks for Arithmetic {
    #[inline(always)]
    fn check<S: Simd>(&self, s: S) {
        let load = |a: &[f32; 32], at: usize| {
            // SAFETY: the array has 32 elements and `at` is below 16.
            unsafe { s.load(a.as_ptr().add(at)) }
        };
        let a: [f32; 32] = std::array::from_fn(|i| SPECIAL[i % 16]);
        let mut b = a;
        for turn in 0..16 {
            b.rotate_left(1);
            for at in (0..16).step_by(S::LANES) {
                let (x, y) = (load(&a, at), load(&b, at));
                let pairs = |v: S::V, f: &dyn Fn(f32, f32) -> f32, what: &str| {
                    for (i, &got) in lanes_of(s, v)[..S::LANES].iter().enumerate() {
                        let (p, q) = (a[at + i], b[at + i]);
                        assert!(same(got, f(p, q)), "{what}({p}, {q}) = {got} in turn {turn}");
                    }
                };
                pairs(s.add(x, y), &|p, q| p + q, "add");
                pairs(s.sub(x, y), &|p, q| p - q, "sub");
                pairs(s.mul(x, y), &|p, q| p * q, "mul");
                pairs(s.div(x, y), &|p, q| p / q, "div");
                pairs(s.max(x, y), &|p, q| if p > q { p } else { q }, "max");
                pairs(s.min(x, y), &|p, q| if p < q { p } else { q }, "min");
                pairs(s.sqrt(x), &|p, _| p.sqrt(), "sqrt");
                pairs(s.abs(x), &|p, _| p.abs(), "abs");
                pairs(s.select(s.gt(x, y), x, y), &|p, q| if p > q { p } else { q }, "select");
                pairs(s.select(s.is_nan(x), y, x), &|p, q| if p.is_nan() { q } else { p }, "is_nan");
            }
        }
        let three = lanes_of(s, s.fma(s.splat(2.0), s.splat(0.5), s.splat(2.0)));
        assert!(three[..S::LANES].iter().all(|&v| v == 3.0));
        for (x, nearest) in [(2.5, 2.0), (3.5, 4.0), (-0.75, -1.0), (1e5 + 0.25, 1e5)] {
            assert_eq!(lanes_of(s, s.round(s.splat(x)))[0], nearest);
        }
        for n in -126..=127 {
            assert_eq!(lanes_of(s, s.pow2(s.splat(n as f32)))[0], 2f32.powi(n));
        }
        for x in [1.0f32, 0.7, 0.71, 1.41, 1.42, 3e38, f32::MIN_POSITIVE, 123.456] {
            let (m, e) = s.frexp(s.splat(x));
            let (m, e) = (lanes_of(s, m)[0], lanes_of(s, e)[0]);
            assert!(m * m >= 0.499_999 && m * m <= 2.000_001, "{x}: {m}");
            assert_eq!(f64::from(m) * 2f64.powf(e.into()), x.into());
        }
    }
}

#[derive(Clone, Copy)]
struct Access;
impl Checks for Access {
    #[inline(always)]
    fn check<S: Simd>(&self, s: S) {
        let source: [f32; 3 * MAX_LANES] = std::array::from_fn(|i| i as f32 + 1.0);
        for n in 0..=S::LANES {
            let mut out = [-1.0; MAX_LANES];
            // SAFETY: all addresses are inside of the arrays.
            let part = unsafe {
                let part = s.load_part(source.as_ptr(), n);
                s.store_part(out.as_mut_ptr(), s.splat(7.0), n);
                part
            };
            let part = lanes_of(s, part);
            for i in 0..S::LANES {
                assert_eq!(part[i], if i < n { i as f32 + 1.0 } else { 0.0 });
                assert_eq!(out[i], if i < n { 7.0 } else { -1.0 });
            }
        }
        let grid: [[f32; MAX_LANES]; MAX_LANES] =
            std::array::from_fn(|i| std::array::from_fn(|j| (i * MAX_LANES + j) as f32));
        // SAFETY: each row is at least as long as a vector.
        let mut rows = std::array::from_fn(|i| unsafe { s.load(grid[i].as_ptr()) });
        s.transpose(&mut rows);
        for (i, row) in rows[..S::LANES].iter().enumerate() {
            for (j, &v) in lanes_of(s, *row)[..S::LANES].iter().enumerate() {
                assert_eq!(v, grid[j][i]);
            }
        }
        let index = std::array::from_fn(|i| ((i * 5 + 3) % S::LANES) as u32);
        // SAFETY: the array is at least as long as a vector.
        let permuted = lanes_of(s, s.permute(unsafe { s.load(source.as_ptr()) }, &index));
        for (i, &v) in permuted[..S::LANES].iter().enumerate() {
            assert_eq!(v, source[index[i] as usize]);
        }
        // SAFETY: the array has more than two vectors.
        let (a, b) = unsafe { (s.load(source.as_ptr()), s.load(source.as_ptr().add(S::LANES))) };
        let [even, odd] = s.even_odd(a, b).map(|v| lanes_of(s, v));
        let slides = [s.slide::<1>(a, b), s.slide::<2>(a, b), s.slide::<3>(a, b)].map(|v| lanes_of(s, v));
        for i in 0..S::LANES {
            assert_eq!([even[i], odd[i]], [source[2 * i], source[2 * i + 1]]);
            assert_eq!(slides.map(|v| v[i]), [1, 2, 3].map(|by| source[i + by]));
        }
        for (start, end) in (0..=S::LANES).flat_map(|start| (0..=2 * S::LANES).map(move |end| (start, end))) {
            let inside = s.lanes(start..end);
            let halves: [u16; MAX_LANES] = std::array::from_fn(|i| i as u16 + 1);
            // SAFETY: the arrays have a vector.
            let (wide, halves) =
                unsafe { (s.load_lanes(source.as_ptr(), inside), s.load_lanes_16(halves.as_ptr(), inside)) };
            for (i, &v) in lanes_of(s, wide)[..S::LANES].iter().enumerate() {
                let expected = if (start..end).contains(&i) { i + 1 } else { 0 };
                assert_eq!((v as usize, usize::from(halves[i])), (expected, expected));
            }
        }
        // SAFETY: the address is inside of the array.
        let splat = lanes_of(s, unsafe { s.load_splat(&source[5]) });
        assert!(splat[..S::LANES].iter().all(|&v| v == 6.0));
    }
}

/// Every 16-bit pattern widens as `half` widens it; rounding is tried around every one of them.
#[derive(Clone, Copy)]
struct Conversions;
impl Conversions {
    #[inline(always)]
    fn check_type<S: Simd, T: Number + PartialEq + std::fmt::Debug>(s: S, from_bits: fn(u16) -> T) {
        for base in (0..=u16::MAX).step_by(MAX_LANES) {
            let narrow: [T; MAX_LANES] = std::array::from_fn(|i| from_bits(base + i as u16));
            for n in [S::LANES, 3] {
                // SAFETY: the array is at least as long as a vector.
                let wide = lanes_of(s, unsafe { T::load_part(s, narrow.as_ptr(), n) });
                for i in 0..n {
                    assert!(same(wide[i], narrow[i].widen()), "{:?}", narrow[i]);
                }
            }
            // Values next to, and half-way between, the 16-bit ones.
            for step in [0u32, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001] {
                let wide: [f32; MAX_LANES] =
                    std::array::from_fn(|i| f32::from_bits(narrow[i].widen().to_bits().wrapping_add(step)));
                let mut out = [T::ZERO; MAX_LANES];
                // SAFETY: the arrays are at least as long as a vector.
                unsafe { T::store(s, out.as_mut_ptr(), s.load(wide.as_ptr())) };
                for i in 0..S::LANES {
                    let expected = T::narrow(wide[i]);
                    let nan = out[i].widen().is_nan() && wide[i].is_nan();
                    assert!(nan || out[i] == expected, "{}: {:?}, not {expected:?}", wide[i], out[i]);
                }
            }
        }
    }

    /// Of two vectors, and of parts of them.
    #[inline(always)]
    fn check_two<S: Simd, T: Number + PartialEq + std::fmt::Debug>(s: S, from_bits: fn(u16) -> T) {
        let place = |element: usize| match T::deals::<S>() {
            true => (element % 2, element / 2),
            false => (element / S::LANES, element % S::LANES),
        };
        for base in (0..=u16::MAX).step_by(2 * MAX_LANES) {
            let narrow: [T; 2 * MAX_LANES] = std::array::from_fn(|i| from_bits(base + i as u16));
            for n in [2 * S::LANES, 2 * S::LANES - 3, S::LANES - 1] {
                // SAFETY: the array is at least as long as two vectors.
                let two = unsafe { load_two(s, narrow.as_ptr(), n) };
                let wide = two.map(|v| lanes_of(s, v));
                for (i, element) in narrow[..2 * S::LANES].iter().enumerate() {
                    let (vector, lane) = place(i);
                    let expected = if i < n { element.widen() } else { 0.0 };
                    assert!(same(wide[vector][lane], expected), "{expected}");
                }
                for step in [0u32, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001] {
                    let wide_near = wide.map(|v| v.map(|x| f32::from_bits(x.to_bits().wrapping_add(step))));
                    let mut out = [T::ZERO; 2 * MAX_LANES];
                    // SAFETY: the arrays are at least as long as a vector, and as two.
                    unsafe {
                        let near = wide_near.map(|v| s.load(v.as_ptr()));
                        store_two(s, out.as_mut_ptr(), near, n);
                    }
                    for (i, &element) in out[..2 * S::LANES].iter().enumerate() {
                        let (vector, lane) = place(i);
                        let expected = if i < n { T::narrow(wide_near[vector][lane]) } else { T::ZERO };
                        let nan = element.widen().is_nan() && expected.widen().is_nan();
                        assert!(nan || element == expected, "{element:?}, not {expected:?}");
                    }
                }
            }
        }
    }
}
impl Checks for Conversions {
    #[inline(always)]
    fn check<S: Simd>(&self, s: S) {
        Self::check_type::<S, f16>(s, f16::from_bits);
        Self::check_type::<S, bf16>(s, bf16::from_bits);
        Self::check_two::<S, f16>(s, f16::from_bits);
        Self::check_two::<S, bf16>(s, bf16::from_bits);
    }
}

#[test]
fn arithmetic_is_that_of_rust() {
    on_every_set(Arithmetic);
}

#[test]
fn loads_and_stores_touch_what_they_say() {
    on_every_set(Access);
}

#[test]
fn conversions_round_to_nearest_even_and_keep_nan() {
    on_every_set(Conversions);
}
