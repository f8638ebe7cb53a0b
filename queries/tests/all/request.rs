//! Several queries with one request: one bound for all, and queries that a process does not know.

use astracer_queries::{
    BagError, Edge, Limits, Output, OutputOptions, Plan, Point, Program, REQUEST_BYTES, Request, Rewrite,
    Value, Variable,
};
use astracer_testing::SplitMix;

struct Named<'a>(&'a str, i64);

impl Point for Named<'_> {
    fn tracepoint(&self) -> &str {
        self.0
    }

    fn edge(&self) -> Edge {
        Edge::Event
    }

    fn variable(&self, _: &Variable) -> Value {
        Value::from(&*format!("{:030}", self.1))
    }
}

fn plans() -> Vec<Plan> {
    let texts = [
        "From a In a Join b In b On b -> a Select b.v",
        "From a In a Join b In MostRecentN(9, b) On b -> a Select b.v",
        "From a In a Join b In b On b -> a GroupBy b.v Select b.v, COUNT",
    ];
    texts.map(|text| Program::parse(text).unwrap().plan(Rewrite::ALL).unwrap()).into()
}

fn outputs(plans: &[Plan]) -> Vec<Output> {
    let options = OutputOptions { bags: Limits::LIVE, ..OutputOptions::default() };
    plans.iter().map(|plan| Output::new(plan, options)).collect()
}

fn begin(outputs: &[Output]) -> Request {
    let mut request = Request::default();
    for (query, output) in (10..).zip(outputs) {
        request.insert(query, output.begin());
    }
    request
}

fn visit(request: &mut Request, plans: &[Plan], outputs: &mut [Output], point: &Named<'_>) {
    for ((query, plan), output) in (10..).zip(plans).zip(outputs) {
        let bag = request.bag(query).expect("all bags have room");
        plan.visit(bag, plan.select(point.0, None), point, output);
    }
}

/// Flows that fork and join, in memory and as messages, give the same answers while the bags fit.
/// The middle process knows only some of the queries.
#[test]
fn messages_carry_what_fits() {
    let plans = plans();
    for seed in 0..20 {
        let mut random = SplitMix::new(seed);
        let steps: Vec<(u64, u64)> = (0..24).map(|_| (random.below(4), random.below(1000))).collect();
        let answer = |as_bytes: bool| {
            let mut outputs = outputs(&plans);
            let mut flows = vec![begin(&outputs)];
            for &(step, draw) in &steps {
                let at = draw as usize % flows.len();
                match step {
                    0 if flows.len() < 4 => {
                        let flow = flows[at].split();
                        flows.push(flow);
                    }
                    1 if flows.len() > 1 => {
                        let flow = flows.swap_remove(at);
                        flows[0].merge(flow);
                    }
                    _ => {
                        let name = if draw % 3 == 0 { "a" } else { "b" };
                        visit(&mut flows[at], &plans, &mut outputs, &Named(name, (draw % 7) as i64));
                    }
                }
                if as_bytes {
                    let first = |query: u64| plans.get(query as usize - 10).filter(|_| query == 10);
                    let all = |query: u64| plans.get(query as usize - 10);
                    for flow in &mut flows {
                        let middle = Request::decode(&flow.encode(), first, Limits::LIVE).unwrap();
                        *flow = Request::decode(&middle.encode(), all, Limits::LIVE).unwrap();
                    }
                }
            }
            let tables = outputs.into_iter().map(|output| {
                let table = output.finish();
                (table.rows, table.incomplete_rows)
            });
            tables.collect::<Vec<_>>()
        };
        assert_eq!(answer(true), answer(false), "seed {seed}");
    }
}

/// The largest bag goes first, and says so; the others stay whole.
#[test]
fn a_request_has_one_bound() {
    let plans = plans();
    let mut outputs = outputs(&plans);
    let mut request = begin(&outputs);
    for value in 0..64 {
        visit(&mut request, &plans, &mut outputs, &Named("b", value));
    }
    let bytes = request.encode();
    assert!(bytes.len() <= REQUEST_BYTES, "{}", bytes.len());
    let mut read = Request::decode(&bytes, |query| plans.get(query as usize - 10), Limits::LIVE).unwrap();
    let incomplete: Vec<bool> = (10..13).map(|query| read.bag(query).unwrap().is_incomplete()).collect();
    assert!(incomplete.contains(&true) && !incomplete[1], "{incomplete:?}");
    assert!((10..13).all(|query| read.bag(query).unwrap().is_marked()));
    let mut many = Request::default();
    for query in 0..10_000 {
        many.insert(query, outputs[0].begin());
    }
    let bytes = many.encode();
    assert!(bytes.len() <= REQUEST_BYTES && bytes.len() > REQUEST_BYTES - 10, "{}", bytes.len());
    let mut read = Request::decode(&bytes, |_| Some(&plans[0]), Limits::LIVE).unwrap();
    assert!(read.bag(0).is_some() && read.bag(9_999).is_none());
}

#[test]
fn damaged_messages_are_refused_or_harmless() {
    let plans = plans();
    let mut outputs = outputs(&plans);
    let mut request = begin(&outputs);
    visit(&mut request, &plans, &mut outputs, &Named("b", 5));
    let bytes = request.encode();
    let plan = |query: u64| query.checked_sub(10).and_then(|at| plans.get(at as usize));
    for at in 0..bytes.len() {
        assert!(Request::decode(&bytes[..at], plan, Limits::LIVE).is_err());
        for change in [1, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= change;
            if let Ok(read) = Request::decode(&damaged, plan, Limits::LIVE) {
                assert!(read.encode().len() <= REQUEST_BYTES);
            }
        }
    }
    assert_eq!(Request::decode(&[7], plan, Limits::LIVE).unwrap_err(), BagError::Version(7));
    assert!(Request::decode(&vec![1; 5000], plan, Limits::LIVE).is_err());
}
