//! Where the elements of a tensor lie: layouts by name.

use fuseplan::{DataType, TensorDescriptor, error::DescriptorError};
use serde::Deserialize;

/// A memory order with its gaps.
///
/// Written as the dimensions' letters, slowest first (`nchw`, `ndhwc`, `chwn`), then, if wanted, `-gap3`
/// (every dimension but the innermost has three elements more of pitch than it needs) and `-step2` (the
/// innermost dimension has a stride of two).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Layout {
    name: String,
    order: Vec<usize>,
    gap: usize,
    step: usize,
}

impl TryFrom<String> for Layout {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let mut parts = name.split('-');
        let letters = parts.next().unwrap_or_default();
        let dimensions = if letters.len() == 5 { "ncdhw" } else { "nchw" };
        let order: Vec<usize> = letters.chars().filter_map(|letter| dimensions.find(letter)).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if sorted != (0..dimensions.len()).collect::<Vec<_>>() {
            return Err(format!("`{name}` does not name each of the dimensions {dimensions} once"));
        }
        let (mut gap, mut step) = (0, 1);
        for part in parts {
            let number = |prefix| part.strip_prefix(prefix).and_then(|digits| digits.parse::<usize>().ok());
            match (number("gap"), number("step")) {
                (Some(number), _) => gap = number,
                (_, Some(number)) => step = number,
                _ => return Err(format!("`{part}` of `{name}` is neither gap… nor step…")),
            }
        }
        Ok(Layout { name, order, gap, step })
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

    /// A tensor in this layout; `lens` are in the order N, C, (D,) H, W.
    ///
    /// # Errors
    /// As [`TensorDescriptor::new`].
    pub fn describe(&self, data_type: DataType, lens: &[usize]) -> Result<TensorDescriptor, DescriptorError> {
        let mut strides = vec![1; lens.len()];
        let mut pitch = self.step;
        for &d in self.order.iter().rev() {
            if let Some(stride) = strides.get_mut(d) {
                *stride = pitch;
                pitch = pitch.saturating_mul(lens[d].max(1)).saturating_add(self.gap);
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
        let strides =
            |name| Layout::named(name).describe(DataType::Float, &[2, 3, 4, 5]).unwrap().strides().to_vec();
        assert_eq!(strides("nchw"), [60, 20, 5, 1]);
        assert_eq!(strides("nhwc"), [60, 1, 15, 3]);
        assert_eq!(strides("chwn"), [1, 40, 10, 2]);
        assert_eq!(strides("nchw-gap3"), [108, 35, 8, 1]);
        assert_eq!(strides("nchw-step2"), [120, 40, 10, 2]);
        for name in ["nchx", "nch", "nchwc", "nchw-hole3", "nncw", "nchw-gap"] {
            assert!(Layout::try_from(name.to_owned()).is_err(), "{name}");
        }
    }
}
