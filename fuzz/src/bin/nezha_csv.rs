//! The fuzz target `nezha_csv`: see [`astracer_fuzz::target`].

#![cfg_attr(fuzzing, no_main)]

astracer_fuzz::program!("nezha_csv");
