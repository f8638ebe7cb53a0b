//! Replay recorded workloads through samplers and score what is kept.
