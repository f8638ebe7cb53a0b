//! Decide: keep or drop, with what weight.
