//! The C functions as callers call them, one module for each thing that callers rely on.

#[macro_use]
mod common;

mod alphas;
mod descriptors;
mod refused;
