//! Groups in bounded memory.

use std::collections::HashMap;

use rapidhash::fast::RandomState;

use crate::value::Value;

/// Groups of which the smallest keys stay when there are too many. The kept ones and the sum of
/// the others depend only on the rows, not on their order.
#[derive(Debug)]
pub(crate) struct Bounded<G> {
    pub(crate) groups: HashMap<Box<[Value]>, G, RandomState>,
    /// Larger keys belong to the others.
    ceiling: Option<Box<[Value]>>,
    pub(crate) other: Option<G>,
}

impl<G> Default for Bounded<G> {
    fn default() -> Self {
        Bounded { groups: HashMap::default(), ceiling: None, other: None }
    }
}

pub(crate) trait Absorb {
    fn absorb(&mut self, other: Self);
}

impl<G: Absorb> Bounded<G> {
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.other.is_none()
    }

    pub(crate) fn group(
        &mut self,
        key: &[Value],
        beyond: bool,
        limit: usize,
        start: impl FnOnce() -> G,
    ) -> &mut G {
        if beyond || self.ceiling.as_deref().is_some_and(|ceiling| key > ceiling) {
            return self.other.get_or_insert_with(start);
        }
        if self.groups.contains_key(key) {
            // The borrow of a hit alone could not be returned from a conditional `get_mut`.
            return match self.groups.get_mut(key) {
                Some(group) => group,
                None => self.other.get_or_insert_with(start),
            };
        }
        if self.groups.len() >= limit.saturating_mul(2) {
            self.trim(limit);
            if self.ceiling.as_deref().is_some_and(|ceiling| key > ceiling) {
                return self.other.get_or_insert_with(start);
            }
        }
        self.groups.entry(key.into()).or_insert_with(start)
    }

    /// Keeps the `limit` smallest keys.
    pub(crate) fn trim(&mut self, limit: usize) {
        if self.groups.len() <= limit || limit == 0 {
            return;
        }
        let mut all: Vec<_> = std::mem::take(&mut self.groups).into_iter().collect();
        all.select_nth_unstable_by(limit - 1, |one, two| one.0.cmp(&two.0));
        for (_, group) in all.drain(limit..) {
            self.absorb(group);
        }
        self.ceiling = all.last().map(|(key, _)| key.clone());
        self.groups = all.into_iter().collect();
    }

    fn absorb(&mut self, group: G) {
        match &mut self.other {
            Some(other) => other.absorb(group),
            None => self.other = Some(group),
        }
    }

    pub(crate) fn merge(&mut self, more: Bounded<G>, limit: usize) {
        if let Some(other) = more.other {
            self.absorb(other);
        }
        let lower = match (self.ceiling.take(), more.ceiling) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        self.ceiling = lower;
        for (key, group) in more.groups {
            match self.groups.get_mut(&key) {
                Some(known) => known.absorb(group),
                None => {
                    self.groups.insert(key, group);
                }
            }
        }
        if let Some(ceiling) = &self.ceiling {
            let beyond: Vec<_> = self.groups.extract_if(|key, _| key > ceiling).collect();
            beyond.into_iter().for_each(|(_, group)| self.absorb(group));
        }
        if self.groups.len() >= limit.saturating_mul(2) {
            self.trim(limit);
        }
    }
}
