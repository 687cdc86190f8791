//! The C functions as callers call them, one module for each thing that callers rely on.

#[macro_use]
mod common;

mod alphas;
mod constant;
mod descriptors;
mod refused;
