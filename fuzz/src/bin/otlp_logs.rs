//! The fuzz target `otlp_logs`: see [`astracer_fuzz::target`].

#![cfg_attr(fuzzing, no_main)]

astracer_fuzz::program!("otlp_logs");
