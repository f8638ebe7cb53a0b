//! Grouped rows of a bag: equal ones counted, with their aggregates.

use std::collections::BTreeMap;

use crate::advice::{Keep, Shape};
use crate::aggregate::State;
use crate::value::Value;
use crate::wire::{Reader, Writer};

/// The columns of a group. Rows of two weights are two groups, unless they are an answer's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) weight: u64,
    pub(crate) values: Vec<Value>,
}

/// The rows of a group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) count: i128,
    /// The weight of its rarest row.
    pub(crate) weight: f64,
    pub(crate) states: Vec<State>,
}

pub(crate) type Groups = BTreeMap<Key, Group>;

impl Group {
    pub(crate) fn merge(&mut self, other: &Group) {
        self.count = self.count.saturating_add(other.count);
        self.weight = self.weight.max(other.weight);
        for (state, more) in self.states.iter_mut().zip(&other.states) {
            state.merge(more, 1);
        }
    }
}

pub(crate) fn group_size(key: &Key, group: &Group) -> usize {
    4 + key.values.iter().map(Value::size).sum::<usize>()
        + group.states.iter().map(State::size).sum::<usize>()
}

pub(crate) fn encode_weight(weight: f64, out: &mut Writer) {
    out.byte(u8::from(weight != 1.0));
    if weight != 1.0 {
        out.float(weight);
    }
}

pub(crate) fn decode_weight(from: &mut Reader<'_>) -> Option<f64> {
    if from.flag()? { from.float().filter(|weight| (0.0..=1e18).contains(weight)) } else { Some(1.0) }
}

/// A number of equal rows, which is at least 1.
pub(crate) fn decode_count(from: &mut Reader<'_>) -> Option<i128> {
    from.signed().filter(|&count| count > 0)
}

pub(crate) fn encode_groups(groups: &Groups, out: &mut Writer) {
    out.number(groups.len() as u64);
    for (key, group) in groups {
        encode_weight(group.weight, out);
        out.signed(group.count);
        key.values.iter().for_each(|value| out.value(value));
        group.states.iter().for_each(|state| state.encode(out));
    }
}

pub(crate) fn decode_groups(shape: &Shape, from: &mut Reader<'_>, limit: usize) -> Option<Groups> {
    let mut groups = Groups::new();
    for _ in 0..from.count(limit as u64)? {
        let weight = decode_weight(from)?;
        let count = decode_count(from)?;
        let values = (0..shape.columns).map(|_| from.value()).collect::<Option<Vec<_>>>()?;
        let states = shape.functions.iter().map(|&function| State::decode(function, from));
        let states = states.collect::<Option<Vec<_>>>()?;
        let weight_key = if shape.keep == Keep::Answer { 0 } else { weight.to_bits() };
        if groups.insert(Key { weight: weight_key, values }, Group { count, weight, states }).is_some() {
            return None;
        }
    }
    Some(groups)
}
