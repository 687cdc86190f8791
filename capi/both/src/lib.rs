//! libMIOpen with the functions of libfuseplan in it, for packages that have to be small: what computes is there once.
//!
//! The soname is libMIOpen's. Beside it lies a `libfuseplan.so.0` without code, a filter: the loader looks up in this library what
//! programs ask that one for.

use MIOpen as _;
use fuseplan_c as _;
