//! The fuzz target `sampler_config`: see [`astracer_fuzz::target`].

#![cfg_attr(fuzzing, no_main)]

astracer_fuzz::program!("sampler_config");
