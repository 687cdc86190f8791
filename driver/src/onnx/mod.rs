//! Networks from ONNX files: what of them runs as fused plans, and how much faster.
//!
//! A file is read (`proto`, `graph`), every value gets its lengths (`shapes`, `rules`, `window`, `contents`), the graph is
//! written down for the library's finder of chains (`idioms`, `lower`), and its answer is put beside the arithmetic of
//! each node (`work`, `network`). `explain` and `bench` print it, `html` makes a page of it.

mod bench;
mod contents;
mod explain;
mod graph;
mod html;
mod idioms;
mod lower;
mod network;
mod proto;
mod rules;
mod shapes;
mod tensor;
#[cfg(test)]
mod tests;
mod window;
mod work;

pub(crate) use bench::{Settings, run as bench};
pub(crate) use explain::run as explain;
pub(crate) use network::{NetworkFlags, Request, ShapeFlags, is_file};
