//! Trees of spans: the example of docs/critical-path.md, random trees compared with a slow
//! reference, and malformed ones.

use std::collections::BTreeMap;

use astracer_critical_path::place::Placed;
use astracer_critical_path::retime::Retimer;
use astracer_critical_path::tree::{NO_HOST, NONE, Node, Side};
use astracer_critical_path::{Amounts, CriticalPath, Rule, Skew, SpanPaths, Tree};
use astracer_model::SpanKind;
use astracer_recording::intern::Symbol;
use astracer_recording::stop::Pulse;
use astracer_testing::SplitMix;

/// A span with its side and its host.
type Given = (Node, Side, Symbol);

fn node(name: u32, service: u32, parent: u32, start: u64, end: u64) -> Given {
    let (name, service) = (Symbol(name), Symbol(service));
    (Node { start, end, parent, order: 0, name, service }, Side::default(), NO_HOST)
}

fn of_kind(kind: SpanKind, (node, side, host): Given) -> Given {
    (node, Side { kind, ..side }, host)
}

fn tree(nodes: &[Given]) -> Tree {
    let ordered = |(order, &(node, side, host)): (u32, &Given)| (Node { order, ..node }, side, host);
    let nodes: Vec<Given> = (0u32..).zip(nodes).map(ordered).collect();
    let mut tree = Tree::default();
    tree.fill(&nodes, 0);
    tree
}

fn path(tree: &Tree, rule: Rule, skew: Skew) -> CriticalPath {
    let mut path = CriticalPath::default();
    assert!(SpanPaths::default().find(tree, rule, skew, &mut path, &mut Pulse::never()));
    path
}

/// A path's segments, with the names of their spans.
fn segments(tree: &Tree, path: &CriticalPath) -> Vec<(u32, u64, u64)> {
    let name = |node: u32| tree.nodes()[node as usize].name.0;
    path.segments.iter().map(|segment| (name(segment.node), segment.start, segment.end)).collect()
}

fn amounts(tree: &Tree, amounts: &Amounts) -> BTreeMap<u32, u64> {
    amounts.iter().map(|amount| (tree.nodes()[amount.node as usize].name.0, amount.ns)).collect()
}

const REQUEST: u32 = 0;
const AUTH: u32 = 1;
const DB: u32 = 2;
const CACHE: u32 = 3;
const RENDER: u32 = 4;

/// The trace of docs/critical-path.md.
fn example() -> Tree {
    tree(&[
        node(REQUEST, 0, NONE, 0, 100),
        node(AUTH, 0, 0, 5, 25),
        node(DB, 0, 0, 30, 70),
        node(CACHE, 0, 0, 30, 55),
        node(RENDER, 0, 0, 75, 95),
    ])
}

#[test]
fn the_example_has_the_path_that_was_worked_out_by_hand() {
    let tree = example();
    let path = path(&tree, Rule::Last, Skew::Shift);
    let expected = [
        (REQUEST, 0, 5),
        (AUTH, 5, 25),
        (REQUEST, 25, 30),
        (DB, 30, 70),
        (REQUEST, 70, 75),
        (RENDER, 75, 95),
        (REQUEST, 95, 100),
    ];
    assert_eq!(segments(&tree, &path), expected);
    let drag = amounts(&tree, &path.drag);
    assert_eq!(drag, BTreeMap::from([(REQUEST, 100), (AUTH, 20), (DB, 15), (RENDER, 20)]));
    assert_eq!(amounts(&tree, &path.slack), BTreeMap::from([(CACHE, 15)]));
}

fn retimed(tree: &Tree, factor: impl Fn(Symbol) -> f64) -> f64 {
    let mut placed = Placed::default();
    placed.place(tree, Skew::Shift, &mut Pulse::never());
    Retimer::default().retime(tree, &placed, factor)
}

#[test]
fn the_example_is_retimed_as_by_hand() {
    let tree = example();
    let with = |name: u32, factor: f64| retimed(&tree, |own| if own.0 == name { factor } else { 1.0 });
    assert_eq!(retimed(&tree, |_| 1.0), 100.0);
    assert_eq!(retimed(&tree, |_| 0.5), 50.0);
    assert_eq!(retimed(&tree, |_| 0.0), 0.0);
    // The cache delays the rest until 55: 15 are gained, as the drag says.
    assert_eq!(with(DB, 0.5), 85.0);
    assert_eq!(with(DB, 0.0), 85.0);
    assert_eq!(with(CACHE, 0.0), 100.0);
    // A slack of 15: 50 instead of 25 is 10 too long.
    assert_eq!(with(CACHE, 2.0), 110.0);
    // Four stretches of 5 each.
    assert_eq!(with(REQUEST, 0.0), 80.0);
    assert_eq!(with(RENDER, 2.0), 120.0);
}

#[test]
fn a_child_of_another_clock_is_moved_by_the_least_amount() {
    let spans = |service: u32| {
        tree(&[
            node(0, 0, NONE, 100, 140),
            node(1, service, 0, 150, 160),
            node(2, service, 0, 165, 170),
            node(3, service, 1, 152, 158),
        ])
    };
    let shifted = spans(1);
    let path_of = |tree: &Tree, skew| path(tree, Rule::Last, skew);
    let found = path_of(&shifted, Skew::Shift);
    // One clock is 30 late for both children, which keep their distance.
    let expected = [(0, 100, 120), (1, 120, 122), (3, 122, 128), (1, 128, 130), (0, 130, 135), (2, 135, 140)];
    assert_eq!(segments(&shifted, &found), expected);
    assert_eq!((found.adjusted.shifted_spans, found.shifted_ns), (2, 15));
    // Without a shift, or if all spans have one clock, they are outside.
    for (tree, skew) in [(&shifted, Skew::Clip), (&spans(0), Skew::Shift)] {
        let found = path_of(tree, skew);
        assert_eq!(segments(tree, &found), [(0, 100, 140)]);
        assert_eq!((found.adjusted.dropped_spans, found.adjusted.dropped_ns), (3, 21));
    }
}

/// A child of another service, half outside its parent: shifted inside if the parent waits for it,
/// otherwise clipped.
#[test]
fn messages_and_what_only_follows_are_not_moved() {
    use SpanKind::{Client, Consumer, Internal, Producer, Server};
    let pair = |parent: SpanKind, child: SpanKind, service: u32, follows: bool| {
        let root = of_kind(parent, node(0, 0, NONE, 100, 140));
        let (own, _, host) = node(1, service, 0, 130, 150);
        tree(&[root, (own, Side { kind: child, follows }, host)])
    };
    for (parent, child, service, follows, moved) in [
        (Internal, Internal, 1, false, true),
        (Internal, Internal, 0, false, false),
        (Internal, Internal, 1, true, false),
        (Producer, Internal, 1, false, false),
        (Internal, Consumer, 1, false, false),
        // The two sides of a call from one service to itself.
        (Client, Server, 0, false, true),
        (Server, Client, 0, false, false),
        (Client, Server, 0, true, false),
    ] {
        let tree = pair(parent, child, service, follows);
        let found = path(&tree, Rule::Last, Skew::Shift);
        let expected = if moved { [(0, 100, 120), (1, 120, 140)] } else { [(0, 100, 130), (1, 130, 140)] };
        assert_eq!(segments(&tree, &found), expected, "{parent:?} {child:?} {service} {follows}");
        assert_eq!(found.adjusted.shifted_spans, u64::from(moved));
    }
}

/// Spans that touch their parent from outside have no time in it, by any rule. With Jaeger's rule
/// this affects the path: if such a span were taken first, it would exclude a sibling that ends at
/// the very end.
#[test]
fn spans_that_touch_their_parent_from_outside_are_left_out() {
    let tree = tree(&[
        node(0, 0, NONE, 100, 200),
        node(1, 0, 0, 200, 210),
        node(2, 0, 0, 90, 100),
        node(3, 0, 0, 150, 200),
        node(4, 0, 1, 205, 206),
    ]);
    for rule in [Rule::Last, Rule::Jaeger] {
        let found = path(&tree, rule, Skew::Clip);
        assert_eq!(segments(&tree, &found), [(0, 100, 150), (3, 150, 200)], "{rule}");
        assert_eq!((found.adjusted.dropped_spans, found.adjusted.dropped_ns), (3, 21), "{rule}");
        assert_eq!(found.adjusted.clipped_spans, 0, "{rule}");
    }
}

/// The parent is moved 20 earlier, to 130..140. Its child, which a third clock timed 15 late, is
/// moved by 15 more than that.
#[test]
fn a_child_is_moved_with_its_parent_and_by_its_own_clock() {
    let tree = tree(&[node(0, 0, NONE, 100, 140), node(1, 1, 0, 150, 160), node(2, 2, 1, 170, 175)]);
    let found = path(&tree, Rule::Last, Skew::Shift);
    assert_eq!(segments(&tree, &found), [(0, 100, 130), (1, 130, 135), (2, 135, 140)]);
    assert_eq!((found.adjusted.shifted_spans, found.adjusted.dropped_spans), (2, 0));
}

/// After clipping, both children end with their parent. Jaeger considers first the one whose
/// recorded end is later.
#[test]
fn jaeger_sorts_by_ends_as_recorded() {
    let tree = tree(&[node(0, 0, NONE, 100, 140), node(1, 0, 0, 105, 140), node(2, 0, 0, 110, 150)]);
    let found = path(&tree, Rule::Jaeger, Skew::Clip);
    assert_eq!(segments(&tree, &found), [(0, 100, 110), (2, 110, 140)]);
}

/// CRISP's tool lets siblings overlap by less than 1 % of their parent, here 100 of 10,000, if no
/// other sibling begins or ends in the overlap.
#[test]
fn crisp_lets_siblings_overlap_a_little() {
    let first_is_on_path = |first_end: u64, third: Option<(u64, u64)>| {
        let third = third.map(|(start, end)| node(3, 0, 0, start, end));
        let spans = [node(0, 0, NONE, 0, 10_000), node(1, 0, 0, 0, first_end), node(2, 0, 0, 5_000, 10_000)];
        let tree = tree(&spans.into_iter().chain(third).collect::<Vec<_>>());
        let found = path(&tree, Rule::Crisp, Skew::Clip);
        segments(&tree, &found).iter().any(|&(name, ..)| name == 1)
    };
    for (first_end, third, expected) in [
        (4_999, None, true),
        (5_050, None, true),
        (5_099, None, true),
        (5_100, None, false),
        (5_150, None, false),
        (5_050, Some((4_000, 4_900)), true),
        (5_050, Some((5_020, 5_030)), false),
        (5_050, Some((4_900, 5_030)), false),
    ] {
        assert_eq!(first_is_on_path(first_end, third), expected, "{first_end} {third:?}");
    }
}

#[test]
fn crisp_takes_the_last_written_of_equal_ends() {
    let tree = tree(&[node(0, 0, NONE, 0, 100), node(1, 0, 0, 10, 90), node(2, 0, 0, 20, 90)]);
    let found = path(&tree, Rule::Crisp, Skew::Clip);
    assert_eq!(segments(&tree, &found), [(0, 0, 20), (2, 20, 90), (0, 90, 100)]);
}

/// The time of a client's span is its length less its server's. The server's span is not clipped if
/// the call is clean: it is the only child, and at most 1 % longer than the client's.
#[test]
fn crisp_does_not_clip_the_server_of_a_clean_call() {
    use SpanKind::{Client, Server, Unspecified};
    let host = |host: u32, (node, side, _): Given| (node, side, Symbol(host));
    // The time of node 1, whose child 2 reaches outside it.
    let own = |root: SpanKind, parent: Given, child: Given, more: &[Given]| {
        let root = of_kind(root, node(0, 0, NONE, 0, 10_000));
        let tree = tree(&[&[root, parent, child][..], more].concat());
        let times = amounts(&tree, &path(&tree, Rule::Crisp, Skew::Clip).exclusive);
        // The server's own time is at most its client's.
        assert!(times[&2] <= 1_000, "{times:?}");
        times[&1]
    };
    let (parent, child) = (node(1, 0, 0, 2_000, 3_000), node(2, 0, 1, 2_005, 3_010));
    let (client, server) = (of_kind(Client, parent), of_kind(Server, child));
    // At most as long as the client's span: nothing is left. If clipped, 5 before it are left.
    assert_eq!(own(Unspecified, client, server, &[]), 0);
    assert_eq!(own(Unspecified, parent, child, &[]), 5);
    // 1.1 % longer.
    assert_eq!(own(Unspecified, client, of_kind(Server, node(2, 0, 1, 2_005, 3_016)), &[]), 5);
    // With another child, which ended before.
    assert_eq!(own(Unspecified, client, server, &[node(3, 0, 1, 2_001, 2_002)]), 4);
    // A call whose client side is not marked, below a server; and a child on another host.
    assert_eq!(own(Server, parent, server, &[]), 0);
    assert_eq!(own(Unspecified, parent, server, &[]), 5);
    assert_eq!(own(Unspecified, host(1, parent), host(2, child), &[]), 0);
    assert_eq!(own(Unspecified, host(1, parent), host(1, child), &[]), 5);
}

/// A child as long as its parent fits inside; one that is already inside does not count as moved.
#[test]
fn a_child_as_long_as_its_parent_is_moved_and_one_inside_is_not_counted() {
    let tree = tree(&[node(0, 0, NONE, 100, 140), node(1, 1, 0, 110, 150), node(2, 2, 0, 110, 120)]);
    let found = path(&tree, Rule::Last, Skew::Shift);
    assert_eq!(segments(&tree, &found), [(1, 100, 140)]);
    assert_eq!((found.adjusted.shifted_spans, found.adjusted.clipped_spans), (1, 0));
}

#[test]
fn a_span_of_another_clock_that_is_too_long_is_clipped() {
    let tree = tree(&[node(0, 0, NONE, 100, 140), node(1, 1, 0, 90, 131)]);
    let found = path(&tree, Rule::Last, Skew::Shift);
    assert_eq!(segments(&tree, &found), [(1, 100, 131), (0, 131, 140)]);
    assert_eq!((found.adjusted.clipped_spans, found.adjusted.clipped_ns), (1, 10));
}

/// A tree with many equal times, and with children that are often outside their parents.
fn random_tree(random: &mut SplitMix) -> Tree {
    let base = [0, 1_000, u64::MAX - 80][random.index(3)];
    let count = 1 + random.below(24) as u32;
    let nodes: Vec<Given> = (0..count)
        .map(|at| {
            let start = base + random.below(60);
            let parent = if at == 0 { NONE } else { random.below(u64::from(at)) as u32 };
            let kinds = [SpanKind::Unspecified, SpanKind::Client, SpanKind::Server, SpanKind::Producer];
            let side = Side { kind: kinds[random.index(4)], follows: random.one_in(12) };
            let host = Symbol(random.below(2) as u32);
            let (node, ..) = node(at, random.below(3) as u32, parent, start, start + random.below(21));
            (node, side, host)
        })
        .collect();
    tree(&nodes)
}

#[test]
fn segments_tile_the_root_whatever_the_rule() {
    for seed in 1..=3_000 {
        let tree = random_tree(&mut SplitMix::new(seed));
        let root = tree.nodes()[0];
        for rule in Rule::ALL {
            for skew in [Skew::Shift, Skew::Clip] {
                let path = path(&tree, rule, skew);
                assert!(
                    path.tiles(root.start, root.end),
                    "seed {seed}, {rule}, {skew:?}: {path:?} of {tree:?}"
                );
                assert_eq!(path.length(), root.length());
            }
        }
    }
}

/// The rule `last` directly from its definition, by recursion and search: which span caused the
/// delay until `instant`?
fn reference(tree: &Tree, placed: &Placed, node: u32, mut instant: u64, found: &mut Vec<(u32, u64, u64)>) {
    let start = placed.interval(tree, node).unwrap().start;
    loop {
        let ended = tree.children(node).filter_map(|child| {
            let own = placed.interval(tree, child)?;
            (own.length() > 0 && own.end <= instant).then_some((
                own.end,
                std::cmp::Reverse(own.start),
                std::cmp::Reverse(child),
            ))
        });
        let Some((end, std::cmp::Reverse(child_start), std::cmp::Reverse(child))) = ended.max() else {
            break;
        };
        found.push((node, end, instant));
        reference(tree, placed, child, end, found);
        instant = child_start;
    }
    found.push((node, start, instant));
}

#[test]
fn the_walk_finds_what_the_definition_says() {
    for seed in 1..=3_000 {
        let tree = random_tree(&mut SplitMix::new(seed));
        let mut placed = Placed::default();
        placed.place(&tree, Skew::Shift, &mut Pulse::never());
        let mut expected = Vec::new();
        reference(&tree, &placed, 0, tree.nodes()[0].end, &mut expected);
        expected.retain(|(_, start, end)| start < end);
        expected.reverse();
        let path = path(&tree, Rule::Last, Skew::Shift);
        let mut found: Vec<_> = path.segments.iter().map(|own| (own.node, own.start, own.end)).collect();
        found.retain(|(_, start, end)| start < end);
        assert_eq!(found, expected, "seed {seed}: {tree:?}");
    }
}

/// The second child begins exactly when the first ends, so it waited for it: 100 and 50 more, even
/// if the parent takes no time.
#[test]
fn a_child_that_begins_at_anothers_end_waited_for_it() {
    let tree = tree(&[node(0, 0, NONE, 0, 100), node(1, 0, 0, 0, 50), node(2, 0, 0, 50, 100)]);
    for parent in [0.0, 1.0] {
        assert_eq!(retimed(&tree, |name| [parent, 2.0, 1.0][name.0 as usize]), 150.0);
    }
}

#[test]
fn retiming_by_one_changes_nothing_and_by_half_halves() {
    for seed in 1..=3_000 {
        let tree = random_tree(&mut SplitMix::new(seed));
        let length = tree.nodes()[0].length() as f64;
        assert_eq!(retimed(&tree, |_| 1.0), length, "seed {seed}: {tree:?}");
        assert_eq!(retimed(&tree, |_| 0.5), length / 2.0, "seed {seed}: {tree:?}");
        // Making a function slower never makes the trace faster.
        let slower = retimed(&tree, |name| if name.0 % 3 == 0 { 1.5 } else { 1.0 });
        assert!((length..=length * 1.5).contains(&slower), "seed {seed}: {slower} of {length}");
    }
}

#[test]
fn a_gain_by_a_shorter_child_of_the_root_is_at_most_its_drag() {
    for seed in 1..=3_000 {
        let tree = random_tree(&mut SplitMix::new(seed));
        let path = path(&tree, Rule::Last, Skew::Shift);
        let leaves = path.drag.iter().filter(|amount| {
            amount.node != 0
                && tree.nodes()[amount.node as usize].parent == 0
                && tree.children(amount.node).is_empty()
        });
        for amount in leaves {
            let name = tree.nodes()[amount.node as usize].name;
            let gain =
                tree.nodes()[0].length() as f64 - retimed(&tree, |own| if own == name { 0.0 } else { 1.0 });
            assert!(gain <= amount.ns as f64, "seed {seed}: gains {gain}, drag {} of {tree:?}", amount.ns);
        }
    }
}

#[test]
fn a_million_spans_deep_and_300_000_children_are_walked_without_recursion() {
    let deep: Vec<Given> = (0..1_000_000u32)
        .map(|at| node(at % 7, at % 3, at.wrapping_sub(1), u64::from(at), 4_000_000 - u64::from(at)))
        .collect();
    let wide: Vec<Given> = std::iter::once(node(0, 0, NONE, 0, 1_000_000))
        .chain((0..300_000u64).map(|at| node(1, at as u32 % 3, 0, at * 3, at * 3 + at % 9)))
        .collect();
    for nodes in [deep, wide] {
        let tree = tree(&nodes);
        for rule in [Rule::Last, Rule::Jaeger, Rule::Crisp] {
            let path = path(&tree, rule, Skew::Shift);
            assert!(path.tiles(nodes[0].0.start, nodes[0].0.end), "{rule}");
        }
        assert_eq!(retimed(&tree, |_| 1.0), nodes[0].0.length() as f64);
    }
}
