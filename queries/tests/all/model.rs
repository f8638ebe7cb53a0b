//! Random queries over random executions, against a slow model that is obviously right: it joins
//! every event with every one that precedes it, or is below it.

use std::collections::BTreeMap;
use std::fmt::Write;

use astracer_queries::{Edge, Nest, OutputOptions, Program, Value};
use astracer_testing::{SplitMix, size};

use crate::run::{CARRIES, Event, multiset, run};

const POINTS: [&str; 4] = ["p", "q", "r", "s"];

/// A variable: its tracepoints, how many events it chooses, and the variable after it.
struct Variable {
    points: Vec<&'static str>,
    choice: Option<(bool, usize)>,
    relation: Relation,
    later: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Before,
    Below,
    Child,
}

impl Relation {
    fn random(random: &mut SplitMix) -> Self {
        random.one_of(&[Relation::Before, Relation::Before, Relation::Below, Relation::Child])
    }

    fn clause(self, variable: &str, later: &str) -> String {
        match self {
            Relation::Before => format!("On {variable} -> {later}"),
            Relation::Below => format!("Below {later}"),
            Relation::Child => format!("Child Of {later}"),
        }
    }
}

struct Query {
    variables: Vec<Variable>,
    /// The field `v` of a variable, below a number or equal to that of another variable.
    filters: Vec<(usize, Result<i64, usize>)>,
    keys: Vec<usize>,
    /// Whether the last variable is one of `Without`.
    absent: bool,
    /// Functions over a variable's `v`; without any, the keys are listed.
    folds: Vec<(&'static str, usize)>,
}

impl Query {
    fn is_absent(&self, variable: usize) -> bool {
        self.absent && variable + 1 == self.variables.len()
    }

    fn is_of_absent(&self, (of, bound): &(usize, Result<i64, usize>)) -> bool {
        self.is_absent(*of) || bound.is_err_and(|other| self.is_absent(other))
    }
}

fn query(random: &mut SplitMix) -> Query {
    let mut variables = Vec::new();
    for index in 0..1 + random.index(4) {
        let points = (0..1 + random.index(2)).map(|_| random.one_of(&POINTS)).collect();
        let choice = (index > 0 && !random.one_in(2)).then(|| (random.one_in(2), 1 + random.index(3)));
        let relation = Relation::random(random);
        let choice = choice.filter(|_| relation == Relation::Before);
        variables.push(Variable { points, choice, relation, later: random.index(index.max(1)) });
    }
    let count = variables.len();
    let absent = count > 1 && random.one_in(3);
    if absent {
        variables[count - 1].choice = None;
    }
    // The condition of an absence may involve the variable that it joins to.
    let later = variables[count - 1].later;
    let filters = (0..random.index(3)).map(|_| {
        let of = random.index(count);
        let other = if absent && of == count - 1 { later } else { random.index(count) };
        let other = if absent && other == count - 1 && of != later { later } else { other };
        (of, if random.one_in(2) { Ok(random.below(6) as i64) } else { Err(other) })
    });
    let filters = filters.collect();
    // Only its conditions may name what is not there.
    let count = count - usize::from(absent);
    let folds = if random.one_in(3) { 0 } else { 1 + random.index(3) };
    let functions = ["COUNT", "SUM", "MIN", "MAX", "AVERAGE"];
    Query {
        variables,
        filters,
        absent,
        keys: (0..random.index(3).max(usize::from(folds == 0))).map(|_| random.index(count)).collect(),
        folds: (0..folds).map(|_| (random.one_of(&functions), random.index(count))).collect(),
    }
}

fn text(query: &Query, label: bool) -> String {
    let mut text = String::new();
    for (index, variable) in query.variables.iter().enumerate() {
        let points = variable.points.join(", ");
        let source = match variable.choice {
            None => points,
            Some((true, n)) => format!("FirstN({n}, {points})"),
            Some((false, n)) => format!("MostRecentN({n}, {points})"),
        };
        match index {
            0 => write!(text, "From x0 In {source}").unwrap(),
            _ => {
                let without = if query.is_absent(index) { "Without " } else { "" };
                let clause = variable.relation.clause(&format!("x{index}"), &format!("x{}", variable.later));
                write!(text, "\nJoin {without}x{index} In {source} {clause}").unwrap();
            }
        }
    }
    for (of, bound) in &query.filters {
        match bound {
            Ok(number) => write!(text, "\nWhere x{of}.v < {number}").unwrap(),
            Err(other) => write!(text, "\nWhere x{of}.v = x{other}.v").unwrap(),
        }
    }
    let keys: Vec<String> = query.keys.iter().map(|key| format!("x{key}.v")).collect();
    if !query.folds.is_empty() && !keys.is_empty() {
        write!(text, "\nGroupBy {}", keys.join(", ")).unwrap();
    }
    let mut items = keys;
    let folds = query.folds.iter().enumerate().map(|(index, (function, of))| {
        let alias = if label { format!(" As f{index}") } else { String::new() };
        if *function == "COUNT" { format!("COUNT{alias}") } else { format!("{function}(x{of}.v){alias}") }
    });
    items.extend(folds);
    write!(text, "\nSelect {}", items.join(", ")).unwrap();
    text
}

/// An execution of several requests with forks and joins.
fn execution(random: &mut SplitMix) -> Vec<Event> {
    let mut events = Vec::new();
    for request in 0..1 + random.index(2) {
        // Spans in preorder: the path to the last one, and of each its parent.
        let mut path = vec![0];
        let mut above = vec![None];
        for span in 1..1 + random.index(6) {
            path.truncate(1 + random.index(path.len()));
            above.push(path.last().copied());
            path.push(span);
        }
        let mut flows: Vec<usize> = Vec::new();
        for _ in 0..2 + random.index(14) {
            let index = events.len();
            let mut parents = Vec::new();
            if !flows.is_empty() {
                let at = random.index(flows.len());
                parents.push(if random.one_in(3) { flows[at] } else { flows.swap_remove(at) });
                while !flows.is_empty() && random.one_in(4) {
                    let other = random.index(flows.len());
                    parents.push(flows.swap_remove(other));
                }
                parents.sort_unstable();
                parents.dedup();
            }
            flows.push(index);
            let value = if random.one_in(10) { Value::Null } else { Value::from(random.below(6) as i64) };
            events.push(Event {
                tracepoint: random.one_of(&POINTS).to_owned(),
                request,
                parents,
                fields: [("v".to_owned(), value)].into(),
                ..in_tree(random, &above)
            });
        }
    }
    events
}

/// An event of a random span of a tree, or outside of all.
fn in_tree(random: &mut SplitMix, above: &[Option<usize>]) -> Event {
    if random.one_in(6) {
        return Event::default();
    }
    let span = random.index(above.len());
    if random.one_in(3) {
        return Event { nest: Nest { within: Some(span as u32), spans: None }, ..Event::default() };
    }
    let is_within = |&other: &usize| ancestors(above, other).any(|known| known == span);
    let end = (span..above.len()).take_while(is_within).count() + span;
    let within = above[span].map(|parent| parent as u32);
    let nest = Nest { within, spans: Some(span as u32..end as u32) };
    Event { edge: Edge::Start, nest, ..Event::default() }
}

/// A span and those above it.
fn ancestors(above: &[Option<usize>], span: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(span), |&span| above[span])
}

/// For each event and each other one, whether that one has each of the relations to it.
struct Related(Vec<Vec<bool>>, Vec<Vec<(bool, bool)>>);

impl Related {
    fn new(events: &[Event]) -> Self {
        let below = |of: &Event, event: &Event| {
            let (Some(spans), Some(within)) = (&of.nest.spans, event.nest.within) else {
                return (false, false);
            };
            let is_same = of.request == event.request;
            (is_same && spans.contains(&within), is_same && within == spans.start)
        };
        let all = events.iter().map(|of| events.iter().map(|event| below(of, event)).collect());
        Related(precedes(events), all.collect())
    }

    fn has(&self, relation: Relation, at: usize, event: usize) -> bool {
        match relation {
            Relation::Before => self.0[at][event],
            Relation::Below => self.1[at][event].0,
            Relation::Child => self.1[at][event].1,
        }
    }
}

/// For each event, whether each other one precedes it.
fn precedes(events: &[Event]) -> Vec<Vec<bool>> {
    let mut all: Vec<Vec<bool>> = Vec::new();
    for event in events {
        let mut before = vec![false; events.len()];
        for &parent in &event.parents {
            before[parent] = true;
            for (index, known) in all[parent].iter().enumerate() {
                before[index] |= known;
            }
        }
        all.push(before);
    }
    all
}

/// The rows of variable values below an event, for a variable and those that join to it.
fn rows(
    query: &Query,
    events: &[Event],
    related: &Related,
    variable: usize,
    at: usize,
) -> Vec<Vec<Option<usize>>> {
    let mut row = vec![None; query.variables.len()];
    row[variable] = Some(at);
    let mut rows_so_far = vec![row];
    for (index, joined) in query.variables.iter().enumerate().skip(1) {
        if joined.later != variable || index == variable {
            continue;
        }
        if query.is_absent(index) {
            let is_there = (0..events.len()).any(|event| {
                let is_one = related.has(joined.relation, at, event)
                    && joined.points.contains(&&*events[event].tracepoint);
                let mut row = vec![None; query.variables.len()];
                (row[variable], row[index]) = (Some(at), Some(event));
                is_one
                    && query
                        .filters
                        .iter()
                        .filter(|filter| query.is_of_absent(filter))
                        .all(|f| holds(f, &row, events))
            });
            if is_there {
                return Vec::new();
            }
            continue;
        }
        let candidates: Vec<usize> = (0..events.len())
            .filter(|&event| {
                related.has(joined.relation, at, event) && joined.points.contains(&&*events[event].tracepoint)
            })
            .collect();
        let chosen = candidates.iter().filter(|&&event| match joined.choice {
            None => true,
            Some((true, n)) => candidates.iter().filter(|&&other| related.0[event][other]).count() < n,
            Some((false, n)) => candidates.iter().filter(|&&other| related.0[other][event]).count() < n,
        });
        let mut next = Vec::new();
        for &event in chosen {
            for inner in rows(query, events, related, index, event) {
                for row in &rows_so_far {
                    next.push(row.iter().zip(&inner).map(|(one, two)| one.or(*two)).collect());
                }
            }
        }
        rows_so_far = next;
    }
    rows_so_far
}

fn number(value: &Value) -> Option<i128> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// Whether a row fulfils a condition.
fn holds((of, bound): &(usize, Result<i64, usize>), row: &[Option<usize>], events: &[Event]) -> bool {
    let value = |of: usize| row[of].and_then(|event| number(&events[event].fields["v"]));
    match bound {
        Ok(bound) => value(*of).is_some_and(|left| left < i128::from(*bound)),
        Err(other) => value(*of).is_some() && value(*of) == value(*other),
    }
}

/// The answer over the rows that begin at these events of the query's first variable.
fn answer(query: &Query, events: &[Event], related: &Related, starts: &[usize]) -> Vec<Vec<Value>> {
    let all = starts.iter().flat_map(|&start| rows(query, events, related, 0, start));
    let value = |row: &[Option<usize>], of: usize| {
        row[of].map_or(Value::Null, |event| events[event].fields["v"].clone())
    };
    let mut groups: BTreeMap<Vec<Value>, Vec<Vec<Option<usize>>>> = BTreeMap::new();
    let mut listed = Vec::new();
    for row in all {
        let mut filters = query.filters.iter().filter(|filter| !query.is_of_absent(filter));
        if filters.all(|filter| holds(filter, &row, events)) {
            let key: Vec<Value> = query.keys.iter().map(|&of| value(&row, of)).collect();
            listed.push(key.clone());
            groups.entry(key).or_default().push(row);
        }
    }
    if query.folds.is_empty() {
        return listed;
    }
    let finish = |(mut key, rows): (Vec<Value>, Vec<Vec<Option<usize>>>)| {
        for (function, of) in &query.folds {
            let values: Vec<i128> = rows.iter().filter_map(|row| number(&value(row, *of))).collect();
            let sum: i128 = values.iter().sum();
            key.push(match *function {
                "COUNT" => Value::Int(rows.len() as i128),
                _ if values.is_empty() => Value::Null,
                "SUM" => Value::Int(sum),
                "MIN" => Value::Int(*values.iter().min().unwrap()),
                "MAX" => Value::Int(*values.iter().max().unwrap()),
                _ => Value::Float(sum as f64 / values.len() as f64),
            });
        }
        key
    };
    groups.into_iter().map(finish).collect()
}

fn starts(query: &Query, events: &[Event], among: impl Fn(usize) -> bool) -> Vec<usize> {
    let fits =
        |index: &usize| query.variables[0].points.contains(&&*events[*index].tracepoint) && among(*index);
    (0..events.len()).filter(fits).collect()
}

#[test]
fn random_queries_have_the_answers_of_the_model() {
    let seed = astracer_testing::number("SEED").unwrap_or(42);
    println!("seed {seed}");
    let mut random = SplitMix::new(seed);
    let mut filled = 0;
    for program in 0..size(1500, 60_000) {
        let query = query(&mut random);
        // A third of the programs ask another query about what precedes each event.
        let sub = random.one_in(3);
        let (top, how) = (random.one_of(&POINTS), Relation::random(&mut random));
        let written = if sub {
            let columns: Vec<String> = (0..query.folds.len()).map(|index| format!("s.f{index}")).collect();
            let keys = query.keys.iter().map(|key| format!("s.x{key}.v"));
            let columns: Vec<String> = keys.chain(columns).collect();
            format!(
                "Q: {}\n\nFrom e In {top} Join s In Q {} Select {}, e.v",
                text(&query, true),
                how.clause("s", "e"),
                columns.join(", ")
            )
        } else {
            text(&query, false)
        };
        let parsed = Program::parse(&written).unwrap_or_else(|faults| panic!("{written}\n{}", faults[0]));
        let rewrite =
            random.one_of(&["none", "all", "all", "columns", "filters", "groups", "filters,groups"]);
        let plan = parsed.plan(rewrite.parse().unwrap()).unwrap();
        let events = execution(&mut random);
        let related = Related::new(&events);
        let expected = if sub {
            let tops = (0..events.len()).filter(|&index| events[index].tracepoint == top);
            tops.flat_map(|index| {
                let mut rows = answer(
                    &query,
                    &events,
                    &related,
                    &starts(&query, &events, |at| related.has(how, index, at)),
                );
                rows.iter_mut().for_each(|row| row.push(events[index].fields["v"].clone()));
                rows
            })
            .collect()
        } else {
            let mut rows = answer(&query, &events, &related, &starts(&query, &events, |_| true));
            // A count of nothing is 0, and other aggregates of nothing have no row.
            let counts = query.folds.iter().all(|(function, _)| *function == "COUNT");
            if rows.is_empty() && query.keys.is_empty() && counts {
                rows.push(vec![Value::Int(0); query.folds.len()]);
            }
            rows
        };
        filled += usize::from(!expected.is_empty());
        let carry = random.one_of(&CARRIES);
        let table =
            run(&plan, &events, carry, OutputOptions { seed: Some(program), ..Default::default() }).finish();
        assert_eq!(
            multiset(&table.rows),
            multiset(&expected),
            "program {program} of seed {seed}, {rewrite}, {carry:?}\n{written}\n{plan}\n{events:#?}"
        );
    }
    assert!(filled > 300, "{filled}");
}
