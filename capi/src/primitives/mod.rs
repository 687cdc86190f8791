//! Single operators: `primitives.h`. What a plan can do runs as a plan of one or two operators; what is
//! left is done element by element in host memory.

pub(crate) mod activation;
pub(crate) mod batch_norm;
pub(crate) mod convolution;
mod elements;
pub(crate) mod immediate;
pub(crate) mod scratch;
pub(crate) mod tensor;
