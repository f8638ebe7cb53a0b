//! The fuzz target `cpath_note`: see [`astracer_fuzz::target`].

#![cfg_attr(fuzzing, no_main)]

astracer_fuzz::program!("cpath_note");
