//! The fuzz target `joining`: see [`astracer_fuzz::target`].

#![cfg_attr(fuzzing, no_main)]

astracer_fuzz::program!("joining");
