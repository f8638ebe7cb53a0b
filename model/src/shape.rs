//! Call trees.
