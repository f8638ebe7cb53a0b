//! Parameters by key. Each key that was ever given its own parameters gets a slot, which it keeps
//! when parameters change.
//!
//! A record stores its key's slot. Parameters older than a slot have no entry for it and use their
//! defaults for that key, as they did before. So a call decides by the old parameters or by the new
//! ones, and never by another key's.

use std::collections::HashMap;
use std::fmt;

use crate::per_key::{KEYS_MAX, PerKey};
use crate::policy::Policy;

/// The number of slots in a table: twice as many as keys can have their own parameters at once.
const NAMES_MAX: usize = 2 * KEYS_MAX;

/// The slot of each key that was ever given its own parameters. Slot 0 is for all other keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(HashMap<String, u32>);

impl Names {
    pub(super) fn slot(&self, key: &str) -> u32 {
        self.0.get(key).copied().unwrap_or(0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().map(|(key, slot)| (key.as_str(), *slot))
    }

    fn give(&mut self, key: &str) -> u32 {
        let next = self.0.len() as u32 + 1;
        *self.0.entry(key.to_owned()).or_insert(next)
    }

    /// Returns false if there are more slots than a table remembers.
    pub(super) fn fit(&self) -> bool {
        self.0.len() <= NAMES_MAX
    }
}

/// The policies of one config.
#[derive(Debug)]
pub(super) struct Policies<L> {
    policies: Box<[L]>,
    /// The parameters of each policy as text. Equal parameters have equal texts, and share a
    /// policy.
    texts: Box<[String]>,
    /// For each slot, its index in `policies`. Slots beyond the end use index 0, the defaults.
    by_slot: Box<[u32]>,
    /// Whether some policy reads the table's pace.
    are_paced: bool,
}

impl<L: Policy> Policies<L> {
    pub(super) fn new<P: fmt::Display>(
        per_key: &PerKey<P>,
        policy: impl Fn(&P) -> L,
        names: &mut Names,
    ) -> Self {
        let (mut policies, mut texts) = (Vec::new(), Vec::new());
        let mut known: HashMap<String, u32> = HashMap::new();
        let mut number = |parameters: &P| {
            *known.entry(format!("{parameters:#}")).or_insert_with_key(|text| {
                policies.push(policy(parameters));
                texts.push(text.clone());
                policies.len() as u32 - 1
            })
        };
        let mut by_slot = vec![number(per_key.default())];
        for (key, parameters) in per_key.overrides() {
            let number = number(parameters);
            // A key with the default parameters needs no slot, unless it already has one.
            if number == 0 && names.slot(key) == 0 {
                continue;
            }
            let slot = names.give(key) as usize;
            if by_slot.len() <= slot {
                by_slot.resize(slot + 1, 0);
            }
            by_slot[slot] = number;
        }
        let are_paced = policies.iter().any(Policy::is_paced);
        Policies { policies: policies.into(), texts: texts.into(), by_slot: by_slot.into(), are_paced }
    }

    #[inline]
    pub(super) fn are_paced(&self) -> bool {
        self.are_paced
    }

    #[inline]
    fn number(&self, slot: u32) -> usize {
        self.by_slot.get(slot as usize).copied().unwrap_or(0) as usize
    }

    /// The policy of a slot.
    #[inline]
    pub(super) fn of(&self, slot: u32) -> &L {
        &self.policies[self.number(slot)]
    }

    /// Whether this slot's parameters equal those of the other's slot.
    pub(super) fn same<M: Policy>(&self, slot: u32, other: &Policies<M>, other_slot: u32) -> bool {
        self.texts[self.number(slot)] == other.texts[other.number(other_slot)]
    }
}
