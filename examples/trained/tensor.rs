//! Tensors in host memory and what networks do between plans.

use std::error::Error;

use fuseplan::{DataType, TensorDescriptor, TensorLayout};

/// A packed f32 tensor N, C, H, W in either layout.
#[derive(Debug, Clone)]
pub(crate) struct HostTensor {
    pub(crate) layout: TensorLayout,
    pub(crate) descriptor: TensorDescriptor,
    pub(crate) data: Vec<f32>,
}

impl HostTensor {
    /// The tensor with the value that `value` gives for each place `[n, c, h, w]`.
    pub(crate) fn from_fn(
        layout: TensorLayout,
        lens: [usize; 4],
        mut value: impl FnMut([usize; 4]) -> f32,
    ) -> Result<Self, Box<dyn Error>> {
        let descriptor = TensorDescriptor::with_layout(DataType::Float, layout, &lens)?;
        let mut tensor = HostTensor { layout, descriptor, data: vec![0.0; descriptor.span()] };
        for place in places(lens) {
            let offset = tensor.offset(place);
            tensor.data[offset] = value(place);
        }
        Ok(tensor)
    }

    /// A tensor of NaN, so that what a kernel does not write is seen.
    pub(crate) fn poisoned(layout: TensorLayout, descriptor: TensorDescriptor) -> Self {
        HostTensor { layout, descriptor, data: vec![f32::NAN; descriptor.span()] }
    }

    /// The tensor of values in NCHW order.
    pub(crate) fn from_nchw(
        layout: TensorLayout,
        lens: [usize; 4],
        values: &[f32],
    ) -> Result<Self, Box<dyn Error>> {
        let mut values = values.iter().copied();
        Self::from_fn(layout, lens, |_| values.next().unwrap_or(f32::NAN))
    }

    pub(crate) fn lens(&self) -> [usize; 4] {
        std::array::from_fn(|d| self.descriptor.lens()[d])
    }

    pub(crate) fn at(&self, place: [usize; 4]) -> f32 {
        self.data[self.offset(place)]
    }

    /// The values in NCHW order, whatever the layout.
    pub(crate) fn nchw(&self) -> impl Iterator<Item = f32> + '_ {
        places(self.lens()).map(|place| self.at(place))
    }

    fn offset(&self, place: [usize; 4]) -> usize {
        self.descriptor.offset(&place)
    }

    /// `x · min(max(x + 3, 0), 6) / 6`
    pub(crate) fn hard_swish(mut self) -> Self {
        for x in &mut self.data {
            *x *= (*x + 3.0).clamp(0.0, 6.0) / 6.0;
        }
        self
    }

    /// The mean of each channel's image.
    pub(crate) fn mean(&self) -> Result<Self, Box<dyn Error>> {
        let [n, c, h, w] = self.lens();
        Self::from_fn(self.layout, [n, c, 1, 1], |[n, c, ..]| {
            let pixels = places([1, 1, h, w]).map(|[.., y, x]| f64::from(self.at([n, c, y, x])));
            (pixels.sum::<f64>() / (h * w) as f64) as f32
        })
    }

    /// `x · min(max(0.2 · gate + 0.5, 0), 1)`, with one gate for each channel.
    pub(crate) fn gated(&self, gate: &Self) -> Result<Self, Box<dyn Error>> {
        Self::from_fn(self.layout, self.lens(), |[n, c, h, w]| {
            self.at([n, c, h, w]) * (0.2 * gate.at([n, c, 0, 0]) + 0.5).clamp(0.0, 1.0)
        })
    }

    /// Channels `4c + 2p + q` become rows and columns of parity `(p, q)` of channel `c`.
    pub(crate) fn pixel_shuffle(&self) -> Result<Self, Box<dyn Error>> {
        let [n, c, h, w] = self.lens();
        Self::from_fn(self.layout, [n, c / 4, 2 * h, 2 * w], |[n, c, y, x]| {
            self.at([n, 4 * c + 2 * (y % 2) + x % 2, y / 2, x / 2])
        })
    }
}

/// Every place `[n, c, h, w]`, the last index fastest.
fn places([n, c, h, w]: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    (0..n * c * h * w).map(move |i| [i / (c * h * w), i / (h * w) % c, i / w % h, i % w])
}
