//! Tables: weights, threads, bounds.

use astracer_queries::{
    Edge, Output, OutputLimits, OutputOptions, Plan, Point, Program, Rewrite, Table, Value, Variable,
};

struct Row {
    weight: f64,
    fields: [(&'static str, Value); 2],
}

impl Point for Row {
    fn tracepoint(&self) -> &str {
        "t"
    }
    fn edge(&self) -> Edge {
        Edge::Event
    }
    fn variable(&self, variable: &Variable) -> Value {
        let found = self.fields.iter().find(|(name, _)| *name == variable.name());
        found.map_or(Value::Null, |(_, value)| value.clone())
    }
    fn weight(&self) -> f64 {
        self.weight
    }
}

fn plan(text: &str) -> Plan {
    Program::parse(text).unwrap_or_else(|faults| panic!("{}", faults[0])).plan(Rewrite::ALL).unwrap()
}

fn row(weight: f64, key: impl Into<Value>, value: impl Into<Value>) -> Row {
    Row { weight, fields: [("k", key.into()), ("v", value.into())] }
}

/// Runs traces of rows.
fn table(plan: &Plan, options: OutputOptions, traces: &[Vec<Row>]) -> Table {
    let mut output = Output::new(plan, options);
    for trace in traces {
        let mut bag = output.begin();
        for row in trace {
            plan.visit(&mut bag, plan.select("t", None), row, &mut output);
        }
        output.end_trace();
    }
    output.finish()
}

/// By hand: traces of weight 4 and 1, with y = 3 + 5 and 7. The estimates are 4 * 8 + 7 = 39 and
/// 4 * 2 + 1 = 9; their variances 4 * 3 * 8^2 = 768 and 4 * 3 * 2^2 = 48.
#[test]
fn sums_of_sampled_traces_are_estimates_with_errors() {
    let plan = plan("From e In t Select COUNT, SUM(e.v), AVERAGE(e.v), MAX(e.v)");
    let traces = [
        vec![row(4.0, "a", 3_i64), row(4.0, "a", 5_i64)],
        vec![row(1.0, "a", 7_i64)],
        vec![row(0.0, "a", 100_i64)],
    ];
    let options = OutputOptions { weights: true, ..OutputOptions::default() };
    let answer = table(&plan, options, &traces);
    let numbers = [9.0, 39.0, 39.0 / 9.0].map(Value::Float);
    assert_eq!(answer.rows, [[&numbers[..], &[Value::Int(100)]].concat()]);
    // The average by its residual: 8 - 2 * 13 / 3 = -2 / 3, so 4 * 3 * (2 / 3)^2 / 9^2.
    let errors = [48.0, 768.0, 16.0 / 243.0].map(|variance: f64| Some(variance.sqrt()));
    let found = &answer.estimates.expect("weights")[0];
    let found: Vec<Option<f64>> =
        found.iter().map(|estimate| estimate.and_then(|estimate| estimate.error)).collect();
    assert_eq!(found[..2], errors[..2]);
    assert!((found[2].unwrap() - errors[2].unwrap()).abs() < 1e-12 && found[3].is_none(), "{found:?}");
    assert_eq!(answer.ratios, [false, false, true, false]);
    let plain = table(&plan, OutputOptions::default(), &traces);
    assert_eq!((plain.rows[0][0].clone(), plain.estimates), (Value::Int(4), None));
}

/// Rows of one trace with weights 2 and 4: the rarer was kept only if the other was. By hand
/// (2 - 1) 2 y1^2 + 2 (8 - 4) y1 y2 + (4 - 1) 4 y2^2 with y1 = 1, y2 = 10.
#[test]
fn a_row_counts_by_its_rarest_tuple() {
    let joined = plan("From e In t Join b In t On b -> e Select COUNT, SUM(e.v)");
    let options = OutputOptions { weights: true, ..OutputOptions::default() };
    let trace = [vec![row(2.0, 0_i64, 0_i64), row(4.0, 0_i64, 1_i64)]];
    assert_eq!(table(&joined, options, &trace).rows, [[Value::Float(4.0), Value::Float(4.0)]]);
    let single = plan("From e In t Select SUM(e.v)");
    let trace = [vec![row(2.0, 0_i64, 1_i64), row(4.0, 0_i64, 10_i64)]];
    let answer = table(&single, options, &trace);
    let variance: f64 = 2.0 + 2.0 * 4.0 * 10.0 + 12.0 * 100.0;
    assert_eq!(answer.rows, [[Value::Float(42.0)]]);
    let estimate = answer.estimates.expect("weights")[0][0].expect("a sum");
    assert!((estimate.error.unwrap() - variance.sqrt()).abs() < 1e-9, "{estimate:?}");
}

/// A table of a unique id: the smallest groups stay, and the sums over all rows are exact, in
/// every order and with any number of threads.
#[test]
fn a_table_of_unique_ids_is_bounded_and_exact() {
    let plan = plan("From e In t GroupBy e.k Select e.k, COUNT, SUM(e.v)");
    let limits = OutputLimits { groups: 10, ..OutputLimits::default() };
    for weights in [false, true] {
        let options = OutputOptions { weights, limits, ..OutputOptions::default() };
        let rows = || (0..1000_i64).map(|id| vec![row(1.0, id, id)]).collect::<Vec<_>>();
        let forward = table(&plan, options, &rows());
        let mut reversed = rows();
        reversed.reverse();
        assert_eq!(table(&plan, options, &reversed).rows, forward.rows);
        let mut threads = Output::new(&plan, options);
        for part in rows().chunks(7) {
            let mut output = Output::new(&plan, options);
            for trace in part {
                let mut bag = output.begin();
                plan.visit(&mut bag, plan.select("t", None), &trace[0], &mut output);
                output.end_trace();
            }
            threads.merge(output);
        }
        assert_eq!(threads.finish().rows, forward.rows);
        assert_eq!((forward.rows.len(), forward.other, forward.traces), (11, true, 1000));
        // 0 + ... + 9 = 45 of 499,500 are in groups of their own.
        let other = vec![Value::from("(other)"), Value::Int(990), Value::Int(499_455)];
        assert!(forward.rows.contains(&other), "{:?}", forward.rows);
    }
}

#[test]
fn listings_are_bounded_and_say_how_much_is_left_out() {
    let plan = plan("From e In t Select e.k");
    let limits = OutputLimits { groups: 5, rows: 8, ..OutputLimits::default() };
    let options = OutputOptions { limits, ..OutputOptions::default() };
    let rows: Vec<Row> = (0..100_i64).map(|id| row(1.0, id / 2, 0_i64)).collect();
    let answer = table(&plan, options, &[rows]);
    assert_eq!((answer.rows.len(), answer.left_out, answer.emitted), (8, 92, 100));
    assert_eq!(answer.rows[7], [Value::Int(3)]);
}

#[test]
fn nulls_text_and_impossible_operations() {
    let plan = plan("From e In t Where e.v != 3 GroupBy e.k Select e.k, COUNT, SUM(e.v), MAX(e.v - 1) As m");
    let rows = vec![
        row(1.0, Value::Null, 5_i64),
        row(1.0, Value::Null, "x"),
        row(1.0, "a", "7"),
        row(1.0, "a", Value::Null),
        row(1.0, 18.0, 3.0),
        row(1.0, 18.0, 4_i64),
        row(1.0, 18_i64, 4_i64),
    ];
    let answer = table(&plan, OutputOptions::default(), &[rows]);
    let expected = [
        vec![Value::from("a"), Value::Int(1), Value::Int(7), Value::Int(6)],
        vec![Value::Int(18), Value::Int(2), Value::Int(8), Value::Int(3)],
        vec![Value::Null, Value::Int(2), Value::Int(5), Value::Int(4)],
    ];
    assert_eq!(answer.rows, expected);
    // `x - 1` and the sum of `x`.
    assert_eq!(answer.impossible, 2);
    assert_eq!(answer.columns, ["e.k", "COUNT", "SUM(e.v)", "m"]);
}

/// By hand, over 1, 7 and 25.
#[test]
fn small_words_are_the_ones_often_asked_for() {
    let traces = || -> Vec<Vec<Row>> {
        [("b", 1_i64), ("a", 7), ("a", 25)].map(|(key, value)| vec![row(1.0, key, value)]).into()
    };
    let answer = |text: &str| table(&plan(text), OutputOptions::default(), &traces()).rows;
    let text =
        "From e In t Select COUNT(e.v > 5), COUNT(e.v), AVERAGE(e.v > 5), COUNT DISTINCT e.k, EXAMPLE(e.k)";
    let [two, three] = [2, 3].map(Value::Int);
    assert_eq!(answer(text), [[two.clone(), three, Value::Float(2.0 / 3.0), two, Value::from("a")]]);
    let binned = answer("From e In t GroupBy BIN(e.v, 10) Select BIN(e.v, 10), COUNT(e.v > 5)");
    assert_eq!(binned, [[Value::Int(0), Value::Int(1)], [Value::Int(20), Value::Int(1)]]);
    let floors = answer("From e In t Where e.v > 5 Select FLOOR(e.v / 2), FLOOR(0 - e.v, 10), FLOOR(e.v, 0)");
    let floor = |one: f64, two: i128| vec![Value::Float(one), Value::Int(two), Value::Null];
    assert_eq!(floors, [floor(12.0, -30), floor(3.0, -10)]);
    // A count of nothing is 0; no group of nothing has a row.
    let none = vec![Value::Int(0); 2];
    assert_eq!(answer("From e In t Where e.v > 99 Select COUNT, COUNT DISTINCT e.v"), [none]);
    assert!(answer("From e In t Where e.v > 99 GroupBy e.k Select e.k, COUNT").is_empty());
}

/// The truth is the sorted list; between two values it is interpolated, as `inspect` does.
#[test]
fn quantiles_bear_infinities_and_huge_values() {
    let quantile = |values: &[f64], share: f64| {
        let traces: Vec<Vec<Row>> =
            values.iter().map(|&value| vec![row(1.0, "a", Value::Float(value))]).collect();
        let plan = plan(&format!("From e In t Select QUANTILE(e.v, {share})"));
        match table(&plan, OutputOptions::default(), &traces).rows[0][0] {
            Value::Float(found) => found,
            ref other => panic!("{other:?}"),
        }
    };
    for (values, share, truth) in [
        (&[40.0, 250.0][..], 0.99, 40.0 + 0.99 * 210.0),
        (&[1.0, 2.0, 3.0, f64::INFINITY], 0.5, 2.5),
        (&[1.0, 2.0, 3.0, 1e300], 0.5, 2.5),
        (&[f64::NEG_INFINITY, 1.0, 2.0], 1.0, 2.0),
    ] {
        let found = quantile(values, share);
        assert!((found - truth).abs() <= 0.011 * truth, "{found} for {truth}");
    }
    assert_eq!(quantile(&[1.0, 2.0, f64::INFINITY], 1.0), f64::INFINITY);
    assert_eq!(quantile(&[f64::NEG_INFINITY, 2.0, 3.0], 0.0), f64::NEG_INFINITY);
}

#[test]
fn different_values_are_counted_up_to_a_bound() {
    let plan = plan("From e In t Select COUNT DISTINCT e.v");
    let rows = |count: i64| (0..count).map(|value| row(1.0, "a", value % 10_001)).collect::<Vec<_>>();
    for (count, counted, cut) in [(10_000, 10_000, 0), (10_001, 10_000, 1), (30_000, 10_000, 1)] {
        let answer = table(&plan, OutputOptions::default(), &[rows(count)]);
        assert_eq!((answer.rows, answer.cut_counts), (vec![vec![Value::Int(counted)]], cut));
    }
}

/// Traces kept late have weight 0: how many there were is unknown, and not 0.
#[test]
fn groups_without_weights_say_what_was_seen() {
    let plan = plan("From e In t GroupBy e.k Select e.k, COUNT, MAX(e.v)");
    let options = OutputOptions { weights: true, ..OutputOptions::default() };
    let late = |value: i64| vec![row(0.0, "late", value), row(0.0, "late", value + 1)];
    let answer = table(&plan, options, &[late(1), late(5), vec![row(2.0, "known", 3_i64)]]);
    let known = [Value::from("known"), Value::Float(2.0), Value::Int(3)];
    assert_eq!(answer.rows, [known, [Value::from("late"), Value::Null, Value::Int(6)]]);
    assert_eq!(answer.seen, [None, Some(4)]);
    assert_eq!(answer.estimates.map(|rows| rows[1].clone()), Some(vec![None, None, None]));
    let answer = table(&plan, OutputOptions::default(), &[late(1)]);
    assert_eq!((answer.rows[0][1].clone(), answer.seen), (Value::Int(2), Vec::new()));
}
