//! The fuzz target `falcon_json`: see [`astracer_fuzz::target`].

#![cfg_attr(fuzzing, no_main)]

astracer_fuzz::program!("falcon_json");
