//! The fuzz target `w3c_baggage`: see [`astracer_fuzz::target`].

#![cfg_attr(fuzzing, no_main)]

astracer_fuzz::program!("w3c_baggage");
