//! The fuzz target `jaeger_json`: see [`astracer_fuzz::target`].

#![cfg_attr(fuzzing, no_main)]

astracer_fuzz::program!("jaeger_json");
