//! Tests of the receiver through its public interface.

mod logs;
mod metrics;
mod receive;
mod refused_early;
mod sample;
mod tls;
mod turns;
