//! The guarantees of queries on any text and bytes: faults have a place, advice that is accepted
//! runs, and a bag that is accepted is one that could have been sent.

use std::sync::LazyLock;

use astracer_queries::{
    Bag, Edge, Limits, Output, OutputOptions, Plan, Point, Program, Request, Rewrite, Value, Variable,
};

/// Points at which a plan runs, one after the other.
const POINTS: [(&str, Edge); 5] =
    [("b", Edge::Event), ("b", Edge::Start), ("b", Edge::End), ("c", Edge::Event), ("a", Edge::Event)];
/// Queries whose bags have every kind of pack.
const PROGRAM: &str = "q: From d In b GroupBy d.v Select d.v, QUANTILE(d.v, 0.5), MAX(d.v), COUNT DISTINCT d.v
From a In a Join b In MostRecent(b) On b -> a Join s In q On s -> a Join c In FirstN(2, c) On c -> a
Join e In b On e -> a Join Without w In c On w -> b Where b.v > 0 And w.v = b.v GroupBy b.v Select b.v, MAX(s.d.v), SUM(e.v * 2), AVERAGE(e.v), COUNT";

static PLAN: LazyLock<Plan> = LazyLock::new(|| {
    let program = Program::parse(PROGRAM).expect("the program is valid");
    program.plan(Rewrite::ALL).expect("the program has a plan")
});

struct Any(&'static str, Edge);

impl Point for Any {
    fn tracepoint(&self) -> &str {
        self.0
    }

    fn edge(&self) -> Edge {
        self.1
    }

    fn variable(&self, variable: &Variable) -> Value {
        match variable.index() % 4 {
            0 => Value::from(variable.index() as u64),
            1 => Value::from("7"),
            2 => Value::from(0.5),
            _ => Value::Null,
        }
    }
}

/// A program is refused with places and carets, or its plan survives its bytes, whichever rules
/// rewrote it.
pub(super) fn check_language(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let program = match Program::parse(&text) {
        Ok(program) => program,
        Err(faults) => {
            assert!(!faults.is_empty());
            for fault in faults {
                assert!(fault.line > 0 && fault.column > 0 && fault.to_string().contains('^'), "{fault}");
            }
            return;
        }
    };
    for rewrite in [Rewrite::ALL, Rewrite::NONE] {
        if let Ok(plan) = program.plan(rewrite) {
            same_from_bytes(&plan);
            run(&plan);
        }
    }
}

/// Bytes that are accepted as advice are those that the plan is written as, and it runs.
pub(super) fn check_advice(data: &[u8]) {
    if let Ok(plan) = Plan::decode(data) {
        same_from_bytes(&plan);
        run(&plan);
    }
}

/// A bag that is accepted merges and runs, and its own bytes are accepted again.
pub(super) fn check_bag(data: &[u8]) {
    let Ok(mut bag) = Bag::decode(data, &PLAN, Limits::LIVE) else {
        if let Ok(request) = Request::decode(data, |query| (query < 2).then_some(&*PLAN), Limits::LIVE) {
            let bytes = request.encode();
            Request::decode(&bytes, |_| None, Limits::LIVE).expect("our own bytes");
        }
        return;
    };
    let bytes = bag.encode(usize::MAX);
    bag.merge(Bag::decode(&bytes, &PLAN, Limits::LIVE).expect("our own bytes"));
    let options = OutputOptions { bags: Limits::LIVE, ..OutputOptions::default() };
    visit(&PLAN, bag, Output::new(&PLAN, options));
}

/// Bytes that the targets accept.
pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let listing =
        Program::parse("From e In b Where e.v In (1, 'x') Or Not e.w > 0.5 Select e.v + 1, e.w Is Null");
    let listing = listing.expect("the program is valid").plan(Rewrite::NONE).expect("the program has a plan");
    let mut output = Output::new(&PLAN, OutputOptions::default());
    let mut bag = output.begin();
    let mut branch = bag.split();
    for (name, edge) in POINTS {
        PLAN.visit(&mut bag, PLAN.select(name, None), &Any(name, edge), &mut output);
        PLAN.visit(&mut branch, PLAN.select(name, None), &Any(name, edge), &mut output);
    }
    let one = bag.encode(usize::MAX);
    bag.merge(branch);
    let both = bag.encode(usize::MAX);
    let mut request = Request::default();
    request.insert(0, bag.split());
    request.insert(1, bag);
    vec![
        ("query_advice/joins.bin", PLAN.encode()),
        ("query_advice/listing.bin", listing.encode()),
        ("query_bag/one-branch.bin", one),
        ("query_bag/two-branches.bin", both),
        ("query_bag/two-queries.bin", request.encode()),
    ]
}

fn same_from_bytes(plan: &Plan) {
    let bytes = plan.encode();
    let again = Plan::decode(&bytes).expect("our own bytes");
    assert_eq!((again.encode(), again.to_string()), (bytes, plan.to_string()));
}

fn run(plan: &Plan) {
    let output = Output::new(plan, OutputOptions { bags: Limits::LIVE, ..OutputOptions::default() });
    let bag = output.begin();
    visit(plan, bag, output);
}

fn visit(plan: &Plan, mut bag: Bag, mut output: Output) {
    let mut branch = bag.split();
    for (name, edge) in POINTS {
        plan.visit(&mut branch, plan.select(name, None), &Any(name, edge), &mut output);
    }
    bag.merge(branch);
    for (name, edge) in POINTS {
        plan.visit(&mut bag, plan.select(name, None), &Any(name, edge), &mut output);
    }
    output.end_trace();
    let table = output.finish();
    let columns = table.columns.len();
    assert!(table.rows.iter().all(|row| row.len() == columns));
}
