//! The fuzz target `baggage_header`: see [`astracer_fuzz::target`].

#![cfg_attr(fuzzing, no_main)]

astracer_fuzz::program!("baggage_header");
