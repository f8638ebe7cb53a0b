//! One file for each subcommand.

pub(crate) mod convert;
pub(crate) mod evaluate;
pub(crate) mod inspect;
pub(crate) mod tune;
