//! Fused neural-network operators from one plan.
