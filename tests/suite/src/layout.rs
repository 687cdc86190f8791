//! Where the elements of a tensor lie: layouts by name.

use fuseplan::{DataType, TensorDescriptor, TensorLayout, error::DescriptorError};
use serde::Deserialize;

/// A memory order with its gaps.
///
/// Written as the dimensions' letters, slowest first (`nchw`, `ndhwc`, `chwn`), then, if wanted, `-gap3`
/// (every dimension but the innermost has three elements more of pitch than it needs), `-step2` (the
/// innermost dimension has a stride of two) and `-of48` (the channels are the first of a tensor of 48). `nchwc16` and its
/// like have their channels in blocks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Layout {
    name: String,
    /// The library's own, of which this has the name, where channels lie in blocks.
    blocked: Option<TensorLayout>,
    order: Vec<usize>,
    gap: usize,
    step: usize,
    /// Channels of the tensor that this is a slice of.
    of: Option<usize>,
}

impl TryFrom<String> for Layout {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let of_name = |layout: &TensorLayout| layout.to_string().eq_ignore_ascii_case(&name);
        if let Some(layout) = TensorLayout::ALL.into_iter().filter(|l| l.block().is_some()).find(of_name) {
            return Ok(Layout { name, blocked: Some(layout), order: Vec::new(), gap: 0, step: 1, of: None });
        }
        let mut parts = name.split('-');
        let letters = parts.next().unwrap_or_default();
        let dimensions = if letters.len() == 5 { "ncdhw" } else { "nchw" };
        let order: Vec<usize> = letters.chars().filter_map(|letter| dimensions.find(letter)).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if sorted != (0..dimensions.len()).collect::<Vec<_>>() {
            return Err(format!("`{name}` does not name each of the dimensions {dimensions} once"));
        }
        let (mut gap, mut step, mut of) = (0, 1, None);
        for part in parts {
            let number = |prefix| part.strip_prefix(prefix).and_then(|digits| digits.parse::<usize>().ok());
            match (number("gap"), number("step"), number("of")) {
                (Some(number), ..) => gap = number,
                (_, Some(number), _) => step = number,
                (.., Some(number)) => of = Some(number),
                _ => return Err(format!("`{part}` of `{name}` is neither gap… nor step… nor of…")),
            }
        }
        Ok(Layout { name, blocked: None, order, gap, step, of })
    }
}

impl Layout {
    /// The layout of this name.
    ///
    /// # Panics
    /// On names that the corpus could not contain.
    pub fn named(name: &str) -> Self {
        Layout::try_from(name.to_owned()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same order without gaps.
    pub fn packed(&self) -> Self {
        Layout::named(self.name.split('-').next().unwrap_or_default())
    }

    /// The library's layout, if this is one of its names.
    pub fn library(&self) -> Option<TensorLayout> {
        TensorLayout::ALL.into_iter().find(|layout| layout.to_string().eq_ignore_ascii_case(&self.name))
    }

    /// Channels of a block, where channels lie in blocks.
    pub fn block(&self) -> Option<usize> {
        self.blocked?.block()
    }

    /// The layout of filters of a tensor in this one: the same order without gaps or blocks.
    pub fn filters(&self) -> Self {
        if self.blocked.is_some() { Layout::named("nchw") } else { self.packed() }
    }

    /// A tensor in this layout; `lens` are in the order N, C, (D,) H, W.
    ///
    /// # Errors
    /// As [`TensorDescriptor::new`].
    pub fn describe(&self, data_type: DataType, lens: &[usize]) -> Result<TensorDescriptor, DescriptorError> {
        if let Some(layout) = self.blocked {
            return TensorDescriptor::with_layout(data_type, layout, lens);
        }
        let mut strides = vec![1; lens.len()];
        let mut pitch = self.step;
        for &d in self.order.iter().rev() {
            if let Some(stride) = strides.get_mut(d) {
                *stride = pitch;
                let len = if d == 1 { self.of.unwrap_or(lens[d]) } else { lens[d] };
                pitch = pitch.saturating_mul(len.max(1)).saturating_add(self.gap);
            }
        }
        TensorDescriptor::new(data_type, lens, &strides)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_strides() {
        let strides = |name| {
            Layout::named(name).describe(DataType::Float, &[2, 3, 4, 5]).unwrap().strides().unwrap().to_vec()
        };
        assert_eq!(strides("nchw"), [60, 20, 5, 1]);
        assert_eq!(strides("nhwc"), [60, 1, 15, 3]);
        assert_eq!(strides("chwn"), [1, 40, 10, 2]);
        assert_eq!(strides("nchw-gap3"), [108, 35, 8, 1]);
        assert_eq!(strides("nchw-step2"), [120, 40, 10, 2]);
        assert_eq!(strides("nchw-of8"), [160, 20, 5, 1]);
        assert_eq!(strides("nhwc-of8"), [160, 1, 40, 8]);
        for name in ["nchx", "nch", "nchwc", "nchwc5", "nchw-hole3", "nncw", "nchw-gap"] {
            assert!(Layout::try_from(name.to_owned()).is_err(), "{name}");
        }
    }
}
