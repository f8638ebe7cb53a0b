//! Log events that are held until their trace is decided.

mod event;
mod holds;

pub use self::event::OwnedEvent;
pub use self::holds::{Held, Holds, Watchers};
