//! What stands between convolutions where an image's channels are weighed by what the image is as a whole: the mean of each channel
//! over the pixels, and the product of an image with one number for each image and channel. In f32, on the host.
//!
//! Sums are those of the same pieces of an image on any number of threads, and so are their bits.

use fuseplan::Handle;
use fuseplan::error::ExecuteError;

use crate::torch::Layout;

/// How an image lies in memory: channels side by side for each pixel, or pixels for each channel.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Lies {
    Rows,
    Planes,
}

/// Distances in elements, where the pixels of an image are one dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Strides {
    batch: usize,
    channel: usize,
    pixel: usize,
}

/// One of the two, on tensors of certain layouts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pixels {
    lies: Lies,
    batch: usize,
    channels: usize,
    pixels: usize,
    image: Strides,
    /// The numbers of each image and channel: what is made of the mean, what is read of the product.
    numbers: Strides,
    /// The product's.
    output: Option<Strides>,
}

/// The fewest pixels of a piece whose sum is made by itself, and the most pieces of an image.
const PIECE: usize = 16;
const PIECES: usize = 64;
/// Elements that a thread takes at a time, and the fewest that several threads share.
const OF_THREAD: usize = 4096;
const SHARED: usize = 4 * OF_THREAD;
/// Floats of a vector.
const LANES: usize = 8;

type Vector = [f32; LANES];

/// Batch, channels and pixels of an image, and how far these are from each other, if the pixels lie at one distance.
fn image_of(layout: &Layout) -> Option<([usize; 3], Strides)> {
    let (lens, [of_batch, channel, line, pixel]) = layout.f32_image()?;
    let [batch, channels, height, width] = lens;
    let pixel = match (height, width) {
        (1, 1) => 1,
        (1, _) => pixel,
        (_, 1) => line,
        _ if line == width.checked_mul(pixel)? => pixel,
        _ => return None,
    };
    let strides = Strides { batch: of_batch, channel, pixel };
    (lens.iter().all(|&len| len > 0)).then_some(([batch, channels, height * width], strides))
}

impl Pixels {
    /// The mean of each channel of an image, if it lies in rows or planes.
    pub(crate) fn mean(image: &Layout, result: &Layout) -> Option<Self> {
        Self::of(image, result, None)
    }

    /// The product of an image with numbers of each image and channel.
    pub(crate) fn product(image: &Layout, numbers: &Layout, result: &Layout) -> Option<Self> {
        Self::of(image, numbers, Some(result))
    }

    fn of(image: &Layout, numbers: &Layout, result: Option<&Layout>) -> Option<Self> {
        let (lens, strides) = image_of(image)?;
        let [batch, channels, pixels] = lens;
        let (of_numbers, numbers) = image_of(numbers)?;
        if of_numbers != [batch, channels, 1] {
            return None;
        }
        let output = match result.map(image_of) {
            None => None,
            Some(Some((of, strides))) if of == lens => Some(strides),
            Some(_) => return None,
        };
        let is = |unit: fn(&Strides) -> usize| {
            unit(&strides) == 1 && output.as_ref().is_none_or(|of| unit(of) == 1)
        };
        // Numbers are read as a row where channels are.
        let has_rows = is(|of| of.channel) && (output.is_none() || numbers.channel == 1);
        let lies = match (has_rows, is(|of| of.pixel)) {
            (true, true) if channels < pixels => Lies::Planes,
            (true, _) => Lies::Rows,
            (false, true) => Lies::Planes,
            (false, false) => return None,
        };
        Some(Pixels { lies, batch, channels, pixels, image: strides, numbers, output })
    }

    /// Whether the product may be written where the image lies.
    pub(crate) fn is_in_place(&self) -> bool {
        self.output == Some(self.image)
    }

    /// Computes on a handle's threads.
    ///
    /// # Errors
    /// As those of [`Handle::for_each`].
    ///
    /// # Safety
    /// The addresses are those of memory of the layouts, of which the result's may be written, and is the image's where that is
    /// [right](Self::is_in_place) or has nothing in common with it.
    pub(crate) unsafe fn compute(
        &self,
        handle: &Handle,
        image: usize,
        numbers: usize,
        output: usize,
    ) -> Result<(), ExecuteError> {
        // SAFETY: as the function's own.
        unsafe {
            match &self.output {
                Some(to) => self.multiply(handle, image, numbers, (output, to)),
                None if self.lies == Lies::Rows => self.add_up_rows(handle, image, output),
                None => self.add_up_planes(handle, image, output),
            }
        }
    }

    /// Calls a function with each number below a count, on as many threads as that is worth.
    fn for_each(
        &self,
        handle: &Handle,
        items: usize,
        f: &(dyn Fn(usize) + Sync),
    ) -> Result<(), ExecuteError> {
        if self.batch * self.channels * self.pixels < SHARED {
            (0..items).for_each(f);
            return Ok(());
        }
        handle.for_each(items, f).map_err(ExecuteError::from)
    }

    /// # Errors and safety
    /// As of [`compute`](Self::compute).
    unsafe fn multiply(
        &self,
        handle: &Handle,
        image: usize,
        numbers: usize,
        (output, to): (usize, &Strides),
    ) -> Result<(), ExecuteError> {
        // Lines along which elements lie side by side, one of them for each pixel, or for each channel.
        let (lines, len) = match self.lies {
            Lies::Rows => (self.pixels, self.channels),
            Lies::Planes => (self.channels, self.pixels),
        };
        let at_once = (OF_THREAD / len).clamp(1, lines);
        let of_image = lines.div_ceil(at_once);
        self.for_each(handle, self.batch * of_image, &|item| {
            let (of, first) = (item / of_image, item % of_image * at_once);
            for line in first..lines.min(first + at_once) {
                // SAFETY: the elements are within the layouts; no two items have one in common, so no other thread writes them.
                unsafe {
                    match self.lies {
                        Lies::Rows => weigh(
                            address(image, of * self.image.batch + line * self.image.pixel),
                            address(numbers, of * self.numbers.batch),
                            address(output, of * to.batch + line * to.pixel).cast_mut(),
                            len,
                        ),
                        Lies::Planes => scale(
                            address(image, of * self.image.batch + line * self.image.channel),
                            address(numbers, of * self.numbers.batch + line * self.numbers.channel).read(),
                            address(output, of * to.batch + line * to.channel).cast_mut(),
                            len,
                        ),
                    }
                }
            }
        })
    }

    /// Where the mean of a channel of an image is written.
    fn result(&self, output: usize, of: usize, channel: usize) -> *mut f32 {
        address(output, of * self.numbers.batch + channel * self.numbers.channel).cast_mut()
    }

    /// # Errors and safety
    /// As of [`compute`](Self::compute).
    unsafe fn add_up_planes(&self, handle: &Handle, image: usize, output: usize) -> Result<(), ExecuteError> {
        let at_once = (OF_THREAD / self.pixels).clamp(1, self.channels);
        let of_image = self.channels.div_ceil(at_once);
        self.for_each(handle, self.batch * of_image, &|item| {
            let (of, first) = (item / of_image, item % of_image * at_once);
            for channel in first..self.channels.min(first + at_once) {
                // SAFETY: the elements are within the layouts, and each result is one item's.
                unsafe {
                    let plane = address(image, of * self.image.batch + channel * self.image.channel);
                    self.result(output, of, channel).write(sum(plane, self.pixels) / self.pixels as f32);
                }
            }
        })
    }

    /// # Errors and safety
    /// As of [`compute`](Self::compute).
    unsafe fn add_up_rows(&self, handle: &Handle, image: usize, output: usize) -> Result<(), ExecuteError> {
        let piece = self.pixels.div_ceil(PIECES).max(PIECE);
        let pieces = self.pixels.div_ceil(piece);
        let mut sums = vec![0f32; self.batch * pieces * self.channels];
        let start = sums.as_mut_ptr().expose_provenance();
        self.for_each(handle, self.batch * pieces, &|item| {
            let (of, first) = (item / pieces, item % pieces * piece);
            // SAFETY: the pixels are within the layout, and the sums are this item's own.
            unsafe {
                let rows = address(image, of * self.image.batch + first * self.image.pixel);
                let sums = address(start, item * self.channels).cast_mut();
                add_rows(rows, self.image.pixel, piece.min(self.pixels - first), sums, self.channels);
            }
        })?;
        for (of, sums) in sums.chunks_exact_mut(pieces * self.channels).enumerate() {
            let (whole, rest) = sums.split_at_mut(self.channels);
            for row in rest.chunks_exact(self.channels) {
                whole.iter_mut().zip(row).for_each(|(sum, more)| *sum += more);
            }
            for (channel, sum) in whole.iter().enumerate() {
                // SAFETY: the result is within its layout, and no other thread is left.
                unsafe { self.result(output, of, channel).write(sum / self.pixels as f32) };
            }
        }
        Ok(())
    }
}

fn address(base: usize, elements: usize) -> *const f32 {
    std::ptr::with_exposed_provenance::<f32>(base).wrapping_add(elements)
}

/// Makes a function of a body that is compiled for the processor's wider vectors as well, with the same results.
macro_rules! widened {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $body:block) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// What is read and written along the line is memory that may be.
        unsafe fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            unsafe fn body($($argument: $type),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                unsafe fn wide($($argument: $type),*) $(-> $result)? {
                    // SAFETY: as the function's own.
                    unsafe { body($($argument),*) }
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has the instructions; else as the function's own.
                    return unsafe { wide($($argument),*) };
                }
            }
            // SAFETY: as the function's own.
            unsafe { body($($argument),*) }
        }
    };
}

/// # Safety
/// There are as many elements to read.
#[inline(always)]
unsafe fn vector(at: *const f32) -> Vector {
    // SAFETY: as the function's own; it is read without alignment.
    unsafe { at.cast::<Vector>().read_unaligned() }
}

#[inline(always)]
fn plus(a: Vector, b: Vector) -> Vector {
    std::array::from_fn(|lane| a[lane] + b[lane])
}

widened! {
    /// Elements with the number of each.
    fn weigh(x: *const f32, by: *const f32, out: *mut f32, count: usize) {
        let whole = count - count % LANES;
        // SAFETY: as the function's own.
        unsafe {
            for at in (0..whole).step_by(LANES) {
                let (a, b) = (vector(x.add(at)), vector(by.add(at)));
                let product: Vector = std::array::from_fn(|lane| a[lane] * b[lane]);
                out.add(at).cast::<Vector>().write_unaligned(product);
            }
            for at in whole..count {
                out.add(at).write(x.add(at).read() * by.add(at).read());
            }
        }
    }
}

widened! {
    /// Elements with one number.
    fn scale(x: *const f32, by: f32, out: *mut f32, count: usize) {
        let whole = count - count % LANES;
        // SAFETY: as the function's own.
        unsafe {
            for at in (0..whole).step_by(LANES) {
                let a = vector(x.add(at));
                out.add(at).cast::<Vector>().write_unaligned(a.map(|of| of * by));
            }
            for at in whole..count {
                out.add(at).write(x.add(at).read() * by);
            }
        }
    }
}

widened! {
    /// The sum of elements side by side.
    fn sum(x: *const f32, count: usize) -> f32 {
        const STEP: usize = 4 * LANES;
        let (mut sums, whole) = ([[0f32; LANES]; 4], count - count % STEP);
        // SAFETY: as the function's own.
        unsafe {
            for at in (0..whole).step_by(STEP) {
                for (index, sum) in sums.iter_mut().enumerate() {
                    *sum = plus(*sum, vector(x.add(at + index * LANES)));
                }
            }
            let lanes = plus(plus(sums[0], sums[1]), plus(sums[2], sums[3]));
            let tail = (whole..count).map(|at| x.add(at).read()).sum::<f32>();
            lanes.iter().sum::<f32>() + tail
        }
    }
}

widened! {
    /// The sums of rows that lie at one distance, four rows at a time.
    fn add_rows(rows: *const f32, pitch: usize, count: usize, sums: *mut f32, channels: usize) {
        let (whole, of_four) = (channels - channels % LANES, count - count % 4);
        // SAFETY: as the function's own; sums are other memory.
        unsafe {
            for first in (0..count).step_by(4) {
                let row = rows.add(first * pitch);
                if first == of_four {
                    for left in 0..count - first {
                        for at in 0..channels {
                            *sums.add(at) += row.add(left * pitch + at).read();
                        }
                    }
                    break;
                }
                for at in (0..whole).step_by(LANES) {
                    let x = row.add(at);
                    let two = plus(vector(x), vector(x.add(pitch)));
                    let more = plus(vector(x.add(2 * pitch)), vector(x.add(3 * pitch)));
                    let sum = plus(vector(sums.add(at)), plus(two, more));
                    sums.add(at).cast::<Vector>().write_unaligned(sum);
                }
                for at in whole..channels {
                    let x = row.add(at);
                    let two = x.read() + x.add(pitch).read();
                    *sums.add(at) += two + (x.add(2 * pitch).read() + x.add(3 * pitch).read());
                }
            }
        }
    }
}
