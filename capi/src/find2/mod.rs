//! Find by problem: `find2.h`. A problem is an operator with its tensors, or several that are fused; a solution
//! is a problem with the solver that was found for it, and can be run, saved and loaded.
//!
//! A problem becomes the same chain of operators that single calls and plans run as, so whatever a plan takes
//! is a problem that has a solution.

mod operands;
pub(crate) mod options;
pub(crate) mod problem;
mod saved;
pub(crate) mod search;
pub(crate) mod solution;
