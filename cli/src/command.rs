//! One file for each subcommand.

pub(crate) mod convert;
pub(crate) mod evaluate;
pub(crate) mod inspect;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod tune;
