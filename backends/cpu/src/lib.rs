//! fuseplan's CPU backend: SIMD kernels chosen at run time, and the reference that they are judged by.
