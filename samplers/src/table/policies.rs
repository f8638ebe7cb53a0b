//! Parameters, by key: for each key that was ever given its own a slot, which stays its slot when
//! parameters change.
//!
//! A record knows its key's slot. Parameters that are older than the slot have nothing there: for
//! them the key is one like all others, as it was. So a call decides by old parameters or by new
//! ones, and never by another key's.

use std::collections::HashMap;
use std::fmt;

use crate::per_key::{KEYS_MAX, PerKey};

/// The slots that a table may give: twice as many as there may be keys with parameters of their own
/// at once.
const NAMES_MAX: usize = 2 * KEYS_MAX;

/// The slot of each key that was ever given its own parameters; 0 is all others'.
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

    /// False if there are more than a table remembers.
    pub(super) fn fit(&self) -> bool {
        self.0.len() <= NAMES_MAX
    }
}

/// The policies of one config.
#[derive(Debug)]
pub(super) struct Policies<L> {
    policies: Box<[L]>,
    /// The parameters of each policy as text: equal parameters, which print alike, share a policy.
    texts: Box<[String]>,
    /// The position in `policies` for each slot; slots beyond have the first, as keys without their
    /// own.
    by_slot: Box<[u32]>,
}

impl<L> Policies<L> {
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
            // A key whose parameters are those of all needs no slot, unless it has one from before.
            if number == 0 && names.slot(key) == 0 {
                continue;
            }
            let slot = names.give(key) as usize;
            if by_slot.len() <= slot {
                by_slot.resize(slot + 1, 0);
            }
            by_slot[slot] = number;
        }
        Policies { policies: policies.into(), texts: texts.into(), by_slot: by_slot.into() }
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

    /// Whether this slot's parameters are those of the other's slot.
    pub(super) fn same<M>(&self, slot: u32, other: &Policies<M>, other_slot: u32) -> bool {
        self.texts[self.number(slot)] == other.texts[other.number(other_slot)]
    }
}
