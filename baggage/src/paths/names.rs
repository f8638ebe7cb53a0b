//! Numbers for places: a function, and the functions around it.
//!
//! A place is a node of a tree, so that a time is counted once, for the innermost function, and is
//! still known to be inside all of them.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A node of the tree of places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place(pub(super) u32);

impl Place {
    /// Around all functions.
    pub(super) const NOWHERE: Place = Place(0);
    /// Functions beyond the bound on places.
    pub(super) const OTHERS: Place = Place(1);
}

/// The bound on places of a process.
const PLACES_MAX: usize = 20_000;
/// Longer names are cut, in bytes.
const NAME_MAX: usize = 128;
const CACHED: usize = 128;

pub(crate) const OTHERS: &str = "(others)";
pub(super) const NOT_RECORDED: &str = "(not recorded)";

/// The tree of places of a process.
#[derive(Debug)]
pub(crate) struct Names {
    number: u32,
    tree: RwLock<Tree>,
}

#[derive(Debug)]
struct Tree {
    numbers: HashMap<(u32, Arc<str>), u32>,
    /// The parent and the name of each place.
    places: Vec<(u32, Arc<str>)>,
    names: HashMap<Arc<str>, Arc<str>>,
}

#[derive(Clone, Copy)]
struct Cached {
    owner: u32,
    around: u32,
    name: (usize, usize),
    place: u32,
}

thread_local! {
    /// The places that this thread has looked up: callsites are few, and their names stay.
    static CACHE: [Cell<Cached>; CACHED] =
        const { [const { Cell::new(Cached { owner: 0, around: 0, name: (0, 0), place: 0 }) }; CACHED] };
}

impl Default for Names {
    fn default() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let others: Arc<str> = OTHERS.into();
        Names {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            tree: RwLock::new(Tree {
                numbers: HashMap::from([((0, others.clone()), Place::OTHERS.0)]),
                places: vec![(0, "".into()), (0, others.clone())],
                names: HashMap::from([(others.clone(), others)]),
            }),
        }
    }
}

impl Names {
    /// The place of a callsite's function, called in another one.
    #[inline]
    pub(crate) fn inside_static(&self, around: Place, name: &'static str) -> Place {
        let key = (name.as_ptr().addr(), name.len());
        let slot = (key.0 >> 3 ^ key.0 >> 10 ^ (around.0 as usize).wrapping_mul(7)) % CACHED;
        let found = CACHE.try_with(|cache| {
            let cached = cache[slot].get();
            let is_known = (cached.owner, cached.around, cached.name) == (self.number, around.0, key);
            is_known.then_some(Place(cached.place))
        });
        if let Ok(Some(place)) = found {
            return place;
        }
        let place = self.inside(around, name);
        let cached = Cached { owner: self.number, around: around.0, name: key, place: place.0 };
        let _ = CACHE.try_with(|cache| cache[slot].set(cached));
        place
    }

    /// The place of a function that is called in another one.
    pub(crate) fn inside(&self, around: Place, name: &str) -> Place {
        let name = cut(name);
        let tree = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        let shared = tree.names.get(name).cloned();
        let known = shared.as_ref().and_then(|name| tree.numbers.get(&(around.0, name.clone())));
        if let Some(known) = known {
            return Place(*known);
        }
        if tree.places.len() >= PLACES_MAX {
            return Place::OTHERS;
        }
        drop(tree);
        let name = shared.unwrap_or_else(|| name.into());
        let mut tree = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tree.numbers.get(&(around.0, name.clone())) {
            return Place(*known);
        }
        if tree.places.len() >= PLACES_MAX {
            return Place::OTHERS;
        }
        let name = tree.names.entry(name.clone()).or_insert(name).clone();
        let number = tree.places.len() as u32;
        tree.places.push((around.0, name.clone()));
        tree.numbers.insert((around.0, name), number);
        Place(number)
    }

    /// The name of the innermost function.
    pub(crate) fn name(&self, place: Place) -> Arc<str> {
        let tree = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        tree.places.get(place.0 as usize).map_or_else(|| OTHERS.into(), |(_, name)| name.clone())
    }

    /// Calls `f` with the name of each place.
    pub(super) fn each(&self, places: impl Iterator<Item = Place>, mut f: impl FnMut(&Arc<str>)) {
        let tree = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        let names = places.filter_map(|place| tree.places.get(place.0 as usize));
        names.for_each(|(_, name)| f(name));
    }

    /// The place around a place.
    pub(crate) fn around(&self, place: Place) -> Place {
        let tree = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        Place(tree.places.get(place.0 as usize).map_or(0, |(around, _)| *around))
    }

    /// Whether a function of this name is at the place, or around it.
    pub(crate) fn is_within(&self, place: Place, name: &str) -> bool {
        let tree = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        let mut at = place.0;
        while let Some((around, own)) = tree.places.get(at as usize).filter(|_| at != 0) {
            if **own == *name {
                return true;
            }
            at = *around;
        }
        false
    }
}

/// As much of a name as is kept.
pub(super) fn cut(name: &str) -> &str {
    if name.len() <= NAME_MAX {
        return name;
    }
    let end = (0..=NAME_MAX).rev().find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart_by_what_is_around_them() {
        let names = Names::default();
        let root = names.inside(Place::NOWHERE, "root");
        let (load, again) = (names.inside_static(root, "load"), names.inside(root, "load"));
        assert_eq!(load, again);
        let other = names.inside_static(Place::NOWHERE, "load");
        assert_ne!(load, other);
        assert_eq!(&*names.name(load), "load");
        assert!(names.is_within(load, "root") && names.is_within(load, "load"));
        assert!(!names.is_within(other, "root"));
        // Another table has numbers of its own.
        let second = Names::default();
        second.inside(Place::NOWHERE, "first");
        assert_eq!(&*second.name(second.inside_static(Place::NOWHERE, "load")), "load");
    }

    #[test]
    fn many_names_take_a_bounded_table() {
        let names = Names::default();
        for number in 0..PLACES_MAX * 2 {
            names.inside(Place::NOWHERE, &number.to_string());
        }
        assert_eq!(names.inside(Place::NOWHERE, "one more"), Place::OTHERS);
        let long = "é".repeat(100);
        assert_eq!(cut(&long), "é".repeat(64));
    }
}
