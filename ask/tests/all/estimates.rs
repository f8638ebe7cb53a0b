//! Estimates from sampled recordings: the same recording, of which a ratio sampler keeps a tenth of
//! the traces, 200 times.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use astracer_ask::{self as points, Question};
use astracer_causality::rules::Options;
use astracer_model::problem::Problem;
use astracer_model::sink::{Content, Record, Sink};
use astracer_model::span::Span;
use astracer_queries::{Estimate, Plan, Program, Rewrite, Table, Value};
use astracer_recording::recording::{Intake, Keep};
use astracer_recording::source;
use astracer_testing::{SplitMix, size};

/// The columns after the first: a count, a sum, an average and a quantile.
const QUERIES: [&str; 3] = [
    "From dn In OpReadBlockProto GroupBy dn.host Select dn.host, COUNT",
    "From dn In OpReadBlockProto Join op In First(\"client:*\") On op -> dn
     GroupBy op.name Select op.name, COUNT",
    "From nn In \"org.apache.hadoop.hdfs.protocol.ClientProtocol.*\"@end
     Join op In First(\"client:*\") On op -> nn
     GroupBy op.name Select op.name, COUNT, SUM(nn.duration / 1ms), AVERAGE(nn.duration / 1ms), QUANTILE(nn.duration / 1ms, 0.5)",
];
/// Rows that are compared have exact counts above this.
const LEAST: f64 = 300.0;
/// 56 bits of randomness; a trace is kept if its number is at least the threshold.
const RANGE: u64 = 1 << 56;

/// The spans of a recording, with the file of each.
#[derive(Default)]
struct All {
    files: Vec<(Arc<str>, Content)>,
    spans: Vec<(usize, Span<'static>)>,
    /// The trace of each span. Some spans of HDFS state another trace than their parents.
    traces: Vec<u128>,
}

impl All {
    fn read(path: &Path) -> Self {
        let mut all = Self::default();
        source::read(path, &source::Options::default(), &mut all).expect("a recording");
        let mut intake = Intake::new(Keep::default());
        source::read(path, &source::Options::default(), &mut intake).expect("a recording");
        let recording = intake.finish();
        all.traces = all.spans.iter().map(|(_, span)| span.trace_id.0).collect();
        for trace in recording.traces() {
            trace.spans().for_each(|span| all.traces[span.index() as usize] = trace.id().0);
        }
        all
    }
}

impl Sink for All {
    fn span(&mut self, span: Span<'_>, _: Record<'_>) {
        self.spans.push((self.files.len() - 1, span.into_owned()));
    }

    fn file(&mut self, file: &Arc<str>, content: Content) {
        self.files.push((Arc::clone(file), content));
    }

    fn problem(&mut self, problem: Problem) {
        panic!("{problem}");
    }

    fn skipped(&mut self, _: &Arc<str>, _: &str) {}
}

/// The answer from the traces whose random number, by `draw`, reaches the threshold.
fn ask(all: &All, plan: &Arc<Plan>, sample: Option<(&dyn Fn(u128) -> u64, u64)>) -> Table {
    let keep = Keep { points: Some(points::keep(plan)), trace_states: true, ..Keep::default() };
    let mut intake = Intake::new(keep);
    let state =
        sample.map(|(_, threshold)| format!("ot=th:{}", format!("{threshold:014x}").trim_end_matches('0')));
    let mut last = None;
    for ((file, span), &trace) in all.spans.iter().zip(&all.traces) {
        if sample.is_some_and(|(draw, threshold)| draw(trace) < threshold) {
            continue;
        }
        let (name, format) = &all.files[*file];
        if last.replace(*file) != Some(*file) {
            intake.file(name, *format);
        }
        let mut span = span.clone();
        if let Some(state) = &state {
            span.trace_state = state.as_str().into();
        }
        let place = astracer_model::problem::Place { file: Arc::clone(name), line: 1, byte: 0 };
        intake.span(span, Record { bytes: &[], place: &place });
    }
    let recording = intake.finish();
    let question = Question { plan, rules: Options::default(), weights: sample.is_some(), traces: false };
    let answer = points::ask(&recording, question, || false).expect("not stopped");
    assert_eq!(answer.unweighted_traces, 0);
    answer.table
}

fn number(value: &Value) -> f64 {
    value.to_string().parse().expect("a number")
}

/// The mean over the seeds of counts and sums is within three of its standard errors of the exact
/// value, and the 95 % intervals hold it in 90 to 99 % of the seeds, or say that one trace makes up
/// much of them. The quick test has 20 seeds, of which at least 15 hold it: fewer have a chance of
/// 0.0003 if 95 % do.
#[test]
fn estimates_agree_with_the_whole_recording() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/hdfs_client_ops.tar.xz");
    let all = All::read(&path);
    let seeds = size(20, 200);
    let (least, most) = if seeds < 200 { (0.75, 1.0) } else { (0.90, 0.99) };
    // ratio:0.1 drops nine of ten.
    let threshold = RANGE - RANGE / 10;
    let mut compared = 0;
    for text in QUERIES {
        let plan = Arc::new(Program::parse(text).unwrap().plan(Rewrite::ALL).unwrap());
        let exact = ask(&all, &plan, None);
        // For each row and column: the estimates, and how many intervals held the exact value.
        let mut found: BTreeMap<(String, usize), (Vec<f64>, usize)> = BTreeMap::new();
        let wanted: BTreeMap<(String, usize), f64> = exact
            .rows
            .iter()
            .filter(|row| number(&row[1]) > LEAST)
            .flat_map(|row| (1..row.len()).map(|column| ((row[0].to_string(), column), number(&row[column]))))
            .collect();
        for seed in 0..seeds {
            // The number of a trace depends on its id and the seed only.
            let draw = |id: u128| {
                let word =
                    (id as u64) ^ (id >> 64) as u64 ^ u64::wrapping_mul(seed + 1, 0x9e37_79b9_7f4a_7c15);
                SplitMix::new(SplitMix::new(word).below(u64::MAX)).below(RANGE)
            };
            let table = ask(&all, &plan, Some((&draw, threshold)));
            let all = table.estimates.as_ref().expect("weights give errors");
            let rows: BTreeMap<String, usize> =
                (0..).zip(&table.rows).map(|(at, row)| (row[0].to_string(), at)).collect();
            for (key, &exact) in &wanted {
                let row = rows.get(&key.0);
                let estimate = row.map_or(0.0, |&at| number(&table.rows[at][key.1]));
                let error = row.and_then(|&at| all[at][key.1]);
                let (estimates, held) = found.entry(key.clone()).or_default();
                estimates.push(estimate);
                let is_held = |error: Estimate| {
                    error.is_of_one
                        || error.low.is_none_or(|low| low <= exact)
                            && error.high.is_none_or(|high| exact <= high)
                };
                *held += usize::from(error.is_some_and(is_held));
            }
        }
        for (key, (estimates, held)) in found {
            let (n, exact) = (estimates.len() as f64, wanted[&key]);
            let mean = estimates.iter().sum::<f64>() / n;
            let variance = estimates.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (n - 1.0);
            let off = (mean - exact) / (variance / n).sqrt();
            let share = held as f64 / n;
            println!("{key:?}: exact {exact}, mean {mean:.1} ({off:+.2} errors), held {share:.3}");
            // Ratios and quantiles are biased for few traces.
            assert!(off.abs() <= 3.0 || key.1 > 2, "{key:?}: {mean} is {off} errors from {exact}");
            assert!(share >= least, "{key:?}: {share} of the intervals hold {exact}");
            // Values of whole ms repeat, so that ends of quantiles' intervals are held more often.
            assert!(share <= most || key.1 != 1, "{key:?}: {share} of the intervals hold {exact}");
            compared += 1;
        }
    }
    assert!(compared >= 6, "{compared}");
}
