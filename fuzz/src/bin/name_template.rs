//! The fuzz target `name_template`: see [`astracer_fuzz::target`].

#![cfg_attr(fuzzing, no_main)]

astracer_fuzz::program!("name_template");
