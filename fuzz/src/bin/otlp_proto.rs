//! The fuzz target `otlp_proto`: see [`astracer_fuzz::target`].

#![cfg_attr(fuzzing, no_main)]

astracer_fuzz::program!("otlp_proto");
