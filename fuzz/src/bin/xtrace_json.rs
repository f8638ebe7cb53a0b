//! The fuzz target `xtrace_json`: see [`astracer_fuzz::target`].

#![cfg_attr(fuzzing, no_main)]

astracer_fuzz::program!("xtrace_json");
