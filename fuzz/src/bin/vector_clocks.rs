//! The fuzz target `vector_clocks`: see [`astracer_fuzz::target`].

#![cfg_attr(fuzzing, no_main)]

astracer_fuzz::program!("vector_clocks");
