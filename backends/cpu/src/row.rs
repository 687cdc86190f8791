//! Where rows of elements begin.

use fuseplan_api::volume::Volume;

/// Where a row of elements begins: image, channel, line (counted through depth and height), column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowStart {
    pub(crate) image: usize,
    pub(crate) channel: usize,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl RowStart {
    /// Its offset in a tensor, in elements.
    pub(crate) fn offset(&self, tensor: &Volume) -> usize {
        let (height, strides) = (tensor.lens[3], &tensor.strides);
        self.image * strides[0]
            + tensor.channel_offset(self.channel)
            + self.line / height * strides[2]
            + self.line % height * strides[3]
            + self.column * strides[4]
    }
}
