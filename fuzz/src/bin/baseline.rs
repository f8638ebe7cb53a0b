//! The fuzz target `baseline`: see [`astracer_fuzz::target`].

#![cfg_attr(fuzzing, no_main)]

astracer_fuzz::program!("baseline");
