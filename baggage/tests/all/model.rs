//! Random programs against a slow model: sets of triples of namespace, key and value.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use astracer_baggage::{Baggage, Limits, Namespace, Registry};
use astracer_testing::{SplitMix, number, size};

type Triple = (Vec<u8>, Vec<u8>, Vec<u8>);
type Set = BTreeSet<Triple>;
type Values<'a> = BTreeSet<&'a [u8]>;

const MARK: &[u8] = b"astracer.trimmed";

#[derive(Clone, Default, Debug)]
struct Model {
    triples: Set,
    incomplete: BTreeSet<Vec<u8>>,
}

/// The message, by the letter of the format, one field after the other.
fn encode(model: &Model) -> Vec<u8> {
    fn field(tag: u8, content: &[u8], out: &mut Vec<u8>) {
        out.push(tag);
        let mut length = content.len();
        while length > 127 {
            out.push((length % 128 + 128) as u8);
            length /= 128;
        }
        out.push(length as u8);
        out.extend(content);
    }
    let mut nested: BTreeMap<&[u8], BTreeMap<&[u8], Values<'_>>> = BTreeMap::new();
    for (name, key, value) in &model.triples {
        nested.entry(name).or_default().entry(key).or_default().insert(value);
    }
    for name in &model.incomplete {
        nested.entry(MARK).or_default().entry(b"names").or_default().insert(name);
    }
    let mut out = Vec::new();
    for (name, slots) in nested {
        let mut namespace = Vec::new();
        field(0x0a, name, &mut namespace);
        for (key, values) in slots {
            let mut slot = Vec::new();
            field(0x0a, key, &mut slot);
            values.iter().for_each(|value| field(0x12, value, &mut slot));
            field(0x12, &slot, &mut namespace);
        }
        field(0x0a, &namespace, &mut out);
    }
    out
}

fn alone(triple: &Triple) -> usize {
    encode(&Model { triples: Set::from([triple.clone()]), incomplete: BTreeSet::new() }).len()
}

impl Model {
    fn trim(&mut self, limit: usize, priority: &dyn Fn(&[u8]) -> i8) {
        if encode(self).len() <= limit {
            return;
        }
        for triple in self.triples.clone() {
            if alone(&triple) > limit - limit / 4 {
                self.lose(&triple);
            }
        }
        self.trim_least(limit, priority);
    }

    fn trim_least(&mut self, limit: usize, priority: &dyn Fn(&[u8]) -> i8) {
        while encode(self).len() > limit {
            let rank = |triple: &Triple| (Reverse(priority(&triple.0)), triple.clone());
            let Some((_, last)) = self.triples.iter().map(rank).max() else { return };
            self.lose(&last);
        }
    }

    fn lose(&mut self, triple: &Triple) {
        self.triples.remove(triple);
        self.incomplete.insert(triple.0.clone());
    }

    fn add(&mut self, triple: Triple, limit: usize, priority: &dyn Fn(&[u8]) -> i8) {
        if alone(&triple) > limit - limit / 4 {
            self.lose_new(&triple);
        } else {
            self.triples.insert(triple);
        }
        self.trim_least(limit, priority);
    }

    fn lose_new(&mut self, triple: &Triple) {
        self.incomplete.insert(triple.0.clone());
    }
}

fn word(random: &mut SplitMix, lengths: &[usize]) -> Vec<u8> {
    let length = random.one_of(lengths);
    (0..length).map(|_| random.one_of(b"ab\xff")).collect()
}

#[test]
fn random_programs_agree_with_sets() {
    let seed = number("ASTRACER_SEED").unwrap_or(55);
    println!("seed {seed}");
    let mut random = SplitMix::new(seed);
    for round in 0..size(400, 20_000) {
        // Names of two bytes at most, so that the mark holds each of them: 9 names take 63 bytes.
        let flow = random.one_of(&[400, 700, 16 << 10]);
        let registry = Registry::new(Limits::default().with_flow(flow));
        let names: [(&[u8], i8); 6] = [(b"", 0), (b"a", 3), (b"b", -2), (b"ba", 3), (b"c", 0), (b"\xff", 0)];
        let tokens: Vec<Namespace> =
            names.iter().map(|(name, priority)| registry.register(name, *priority).unwrap()).collect();
        let priority =
            |name: &[u8]| names.iter().find(|(known, _)| *known == name).map_or(0, |known| known.1);
        let mut pairs = vec![(Baggage::new(), Model::default())];
        for step in 0..60 {
            let count = pairs.len();
            let index = random.index(count);
            let place = random.index(tokens.len());
            let (token, name) = (&tokens[place], names[place].0.to_vec());
            let key = word(&mut random, &[0, 1, 1, 2]);
            let (baggage, model) = &mut pairs[index];
            let operation = random.below(14);
            match operation {
                0..=4 => {
                    let value = word(&mut random, &[0, 1, 1, 2, 9, 130, 390, 620]);
                    baggage.add(token, &key, &value);
                    model.add((name, key, value), flow, &priority);
                }
                5 => {
                    let values: Vec<_> =
                        (0..random.below(4)).map(|_| word(&mut random, &[0, 1, 2, 50])).collect();
                    baggage.replace(token, &key, values.iter().map(|value| &**value));
                    model.triples.retain(|triple| (&triple.0, &triple.1) != (&name, &key));
                    for value in values {
                        model.add((name.clone(), key.clone(), value), flow, &priority);
                    }
                }
                6 => {
                    baggage.remove(token, &key);
                    model.triples.retain(|triple| (&triple.0, &triple.1) != (&name, &key));
                }
                7 => {
                    baggage.clear(token);
                    model.triples.retain(|triple| triple.0 != name);
                }
                8 => {
                    let to = random.index(tokens.len());
                    baggage.move_to(token, &tokens[to]);
                    let to = names[to].0.to_vec();
                    let moved = model.triples.iter().any(|triple| triple.0 == name);
                    if moved && to != name && model.incomplete.contains(&name) {
                        model.incomplete.insert(to.clone());
                    }
                    model.triples = std::mem::take(&mut model.triples)
                        .into_iter()
                        .map(
                            |triple| if triple.0 == name { (to.clone(), triple.1, triple.2) } else { triple },
                        )
                        .collect();
                    model.trim(flow, &priority);
                }
                9 | 10 if count < 5 => {
                    let copy = (pairs[index].0.split(), pairs[index].1.clone());
                    pairs.push(copy);
                }
                11 if count > 1 => {
                    let (other, other_model) = pairs.swap_remove(index);
                    let into = random.index(pairs.len());
                    let (baggage, model) = &mut pairs[into];
                    baggage.merge(other, &registry);
                    model.triples.extend(other_model.triples);
                    model.incomplete.extend(other_model.incomplete);
                    model.trim(flow, &priority);
                }
                12 => {
                    // To another process and back, sometimes in a short message.
                    let limit = random.one_of(&[usize::MAX, 300, 500]);
                    let message = baggage.serialize(limit, &registry);
                    let mut sent = model.clone();
                    sent.trim(limit, &priority);
                    assert_eq!(message, encode(&sent), "seed {seed}, round {round}, step {step}");
                    *baggage = Baggage::deserialize(&message, &registry).unwrap();
                    *model = sent;
                }
                _ => {
                    let has = model.triples.iter().any(|triple| (&triple.0, &triple.1) == (&name, &key));
                    assert_eq!(baggage.has(token, &key), has);
                }
            }
            for (baggage, model) in &pairs {
                let found: Set = tokens
                    .iter()
                    .flat_map(|token| baggage.keys(token).map(move |key| (token, key)))
                    .flat_map(|(token, key)| baggage.get(token, key).map(move |value| (token, key, value)))
                    .map(|(token, key, value)| (token.name().to_vec(), key.to_vec(), value.to_vec()))
                    .collect();
                let place = format!("seed {seed}, round {round}, step {step}, operation {operation}");
                assert_eq!(found, model.triples, "{place}");
                assert_eq!(baggage.is_complete(), model.incomplete.is_empty(), "{place}");
                let noted: BTreeSet<Vec<u8>> = baggage.trimmed().map(<[u8]>::to_vec).collect();
                assert_eq!(noted, model.incomplete, "{place}");
                assert_eq!(baggage.serialize(usize::MAX, &registry), encode(model), "{place}");
                assert!(encode(model).len() <= flow, "{place}");
            }
        }
    }
}
