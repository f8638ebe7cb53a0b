//! Values of a type of their own: a query's bag, which is not `Clone`.

use std::sync::Arc;

use astracer_baggage::{Baggage, Registry, Typed};
use astracer_queries::{
    Bag, Edge, Limits, Output, OutputOptions, Plan, Point, Program, Rewrite, Value, Variable,
};

struct Tuples {
    bag: Bag,
    plan: Arc<Plan>,
}

impl Typed for Tuples {
    fn split(&mut self) -> Self {
        Tuples { bag: self.bag.split(), plan: self.plan.clone() }
    }

    fn merge(&mut self, other: Self) {
        self.bag.merge(other.bag);
    }

    fn read(&mut self, bytes: &[u8]) -> bool {
        Bag::decode(bytes, &self.plan, Limits::LIVE).map(|bag| self.bag.merge(bag)).is_ok()
    }

    fn write(&self, limit: usize) -> Vec<u8> {
        self.bag.encode(limit)
    }
}

struct At(&'static str);

impl Point for At {
    fn tracepoint(&self) -> &str {
        self.0
    }
    fn edge(&self) -> Edge {
        Edge::Event
    }
    fn variable(&self, _: &Variable) -> Value {
        Value::Null
    }
}

/// Two branches pack one tuple each. The join sees both, also if one of them was in another
/// process.
#[test]
fn a_bag_splits_merges_and_travels() {
    let program = Program::parse("From d In done Join p In packed On p -> d Select COUNT").unwrap();
    let plan = Arc::new(program.plan(Rewrite::ALL).unwrap());
    for is_remote in [false, true] {
        let mut output = Output::new(&plan, OutputOptions::default());
        let registry = Registry::default();
        let token = registry.register("query", 0).unwrap();
        let begin = || Tuples { bag: Bag::begin(Limits::LIVE), plan: plan.clone() };
        let mut visit = |baggage: &mut Baggage, at: &'static str| {
            baggage.with_typed(&token, begin, |tuples| {
                plan.visit(&mut tuples.bag, plan.select(at, None), &At(at), &mut output);
            });
        };
        let mut flow = Baggage::new();
        visit(&mut flow, "other");
        let mut branch = flow.split();
        visit(&mut flow, "packed");
        visit(&mut branch, "packed");
        if is_remote {
            let message = branch.serialize(3_000, &registry);
            branch = Baggage::deserialize(&message, &registry).unwrap();
        }
        flow.merge(branch, &registry);
        visit(&mut flow, "done");
        output.end_trace();
        assert_eq!(output.finish().rows, [[Value::Int(2)]], "{is_remote}");
        assert_eq!(flow.namespaces().collect::<Vec<_>>(), [b"query"]);
    }
}

/// A set of numbers that panics at 13, and is written as its numbers.
struct Numbers(Vec<u8>);

impl Typed for Numbers {
    fn split(&mut self) -> Self {
        assert!(!self.0.contains(&13));
        Numbers(self.0.clone())
    }

    fn merge(&mut self, other: Self) {
        assert!(!self.0.contains(&14));
        self.0.extend(other.0);
    }

    fn read(&mut self, bytes: &[u8]) -> bool {
        assert_ne!(bytes, [15]);
        self.0.extend(bytes);
        bytes != [16]
    }

    fn write(&self, _: usize) -> Vec<u8> {
        assert!(!self.0.contains(&17));
        self.0.clone()
    }
}

/// A number that reads and writes like [`Numbers`].
struct Number(u8);

impl Typed for Number {
    fn split(&mut self) -> Self {
        Number(self.0)
    }
    fn merge(&mut self, other: Self) {
        self.0 += other.0;
    }
    fn read(&mut self, bytes: &[u8]) -> bool {
        self.0 += bytes.iter().sum::<u8>();
        true
    }
    fn write(&self, _: usize) -> Vec<u8> {
        vec![self.0]
    }
}

#[test]
fn a_panic_is_counted_and_removes_the_value() {
    let registry = Registry::default();
    let token = registry.register("n", 0).unwrap();
    let put = |baggage: &mut Baggage, number: u8| {
        baggage.with_typed(&token, || Numbers(Vec::new()), |numbers| numbers.0.push(number));
    };
    let mut baggage = Baggage::new();
    put(&mut baggage, 13);
    assert!(baggage.split().is_empty() && baggage.is_empty());
    assert_eq!(registry.losses().panics, 1);

    put(&mut baggage, 14);
    let mut other = Baggage::new();
    put(&mut other, 1);
    baggage.merge(other, &registry);
    assert!(baggage.is_empty());
    assert_eq!(registry.losses().panics, 2);

    let mut arrived = Baggage::new();
    arrived.add(&token, b"", &[15]);
    arrived.add(&token, b"k", b"v");
    put(&mut baggage, 1);
    baggage.merge(arrived, &registry);
    assert!(baggage.is_empty());
    assert_eq!(registry.losses().panics, 3);

    put(&mut baggage, 17);
    assert!(baggage.serialize(usize::MAX, &registry).is_empty());
    assert_eq!(registry.losses().panics, 4);
}

#[test]
fn bytes_without_meaning_are_a_counted_loss() {
    let registry = Registry::default();
    let token = registry.register("n", 0).unwrap();
    let mut baggage = Baggage::new();
    baggage.add(&token, b"", &[16]);
    baggage.with_typed(&token, || Numbers(Vec::new()), |_| ());
    assert!(!baggage.is_complete());
    assert_eq!(registry.losses().values, 1);
}

#[test]
fn typed_values_move_and_clear_with_their_namespace() {
    let registry = Registry::default();
    let (from, to) = (registry.register("a", 0).unwrap(), registry.register("b", 0).unwrap());
    let mut baggage = Baggage::new();
    baggage.with_typed(&from, || Number(0), |number| number.0 = 2);
    baggage.with_typed(&to, || Number(0), |number| number.0 = 3);
    baggage.move_to(&from, &to);
    assert_eq!(baggage.namespaces().collect::<Vec<_>>(), [b"b"]);
    assert_eq!(baggage.with_typed(&to, || Number(0), |number| number.0), 5);
    // Another type reads its bytes.
    baggage.with_typed(&from, || Numbers(vec![4]), |_| ());
    baggage.move_to(&from, &to);
    assert_eq!(baggage.with_typed(&to, || Number(0), |number| number.0), 9);
    baggage.clear(&to);
    assert!(baggage.is_empty());
}

/// Registers a namespace while it is written, as code that first notes something then does.
struct Registers(Registry);

impl Typed for Registers {
    fn split(&mut self) -> Self {
        Registers(self.0.clone())
    }

    fn merge(&mut self, _: Self) {}

    fn read(&mut self, _: &[u8]) -> bool {
        true
    }

    fn write(&self, _: usize) -> Vec<u8> {
        self.0.register_local("late", 0).unwrap();
        vec![1]
    }
}

#[test]
fn no_lock_is_held_while_values_are_written() {
    let registry = Registry::default();
    let token = registry.register("registers", 0).unwrap();
    let mut flow = Baggage::new();
    flow.with_typed(&token, || Registers(registry.clone()), |_| {});
    assert!(!flow.serialize(3_000, &registry).is_empty());
    assert!(registry.register("late", 0).is_err(), "the value was written");
}
