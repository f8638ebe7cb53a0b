//! The fuzz target `zipkin_json`: see [`astracer_fuzz::target`].

#![cfg_attr(fuzzing, no_main)]

astracer_fuzz::program!("zipkin_json");
