//! Tests of the exporters through their public interface.

mod errors;
mod fault_table;
mod faults;
mod files;
mod finality;
mod killed;
mod otlp_grpc;
mod otlp_http;
mod provider;
mod sample;
mod suppressed;
mod wire;
mod zipkin;
