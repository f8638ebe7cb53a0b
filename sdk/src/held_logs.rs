//! Log events that are held until their trace is decided.

mod event;
mod holds;

pub(crate) use self::event::OwnedEvent;
pub(crate) use self::holds::{Held, Holds, Watchers};
