//! Tensors whose last dimension has the features, as the images of one pixel that plans compute fully connected layers on.

use fuseplan_api::{TensorDescriptor, TensorLayout};

/// What [`rows`] accepts, in words.
pub const ROWS: &str = "features side by side, in rows at one distance";

/// A tensor of any rank, or a layer's matrix `[outputs, features]`, as `[rows, features, 1, 1]` in the same memory, channels innermost. `None` where no strides say that:
/// where the features do not lie side by side, or the rows not at one distance.
///
/// ```
/// use fuseplan::{DataType, TensorDescriptor, chains};
/// # fn main() -> Result<(), fuseplan::Error> {
/// let tokens = TensorDescriptor::packed(DataType::Float, &[2, 50, 64])?;
/// assert_eq!(chains::rows(&tokens).unwrap().lens(), [100, 64, 1, 1]);
/// let image = TensorDescriptor::new(DataType::Float, &[2, 7, 7, 64], &[64 * 49, 7, 1, 49])?;
/// assert_eq!(chains::rows(&image), None);
/// # Ok(())
/// # }
/// ```
pub fn rows(tensor: &TensorDescriptor) -> Option<TensorDescriptor> {
    let (&features, outer) = tensor.lens().split_last()?;
    let (&step, distances) = tensor.strides()?.split_last()?;
    if features > 1 && step != 1 {
        return None;
    }
    let mut long = outer.iter().zip(distances).rev().filter(|&(&len, _)| len > 1);
    let (mut count, distance) = long.next().map_or((1, features), |(&len, &distance)| (len, distance));
    for (&len, &next) in long {
        if next != distance * count {
            return None;
        }
        count *= len;
    }
    let (lens, distance) = ([count, features, 1, 1], if count > 1 { distance } else { features });
    let made = if distance == features {
        TensorDescriptor::with_layout(tensor.data_type(), TensorLayout::Nhwc, &lens)
    } else {
        TensorDescriptor::new(tensor.data_type(), &lens, &[distance, 1, distance, distance])
    };
    made.ok().filter(|rows| !rows.overlaps_itself())
}
