//! Options that contradict each other, or that another one makes void, are refused.

use crate::run;

/// Options that have no effect or contradict each other are refused.
#[test]
fn an_option_without_effect_is_refused() {
    for (args, says) in [
        (&["tune", "x", "--sampler", "bucket", "--window", "1"][..], "has no window"),
        (
            &["tune", "x", "--sampler", "bucket", "--per-key", "always"],
            "--per-key always: only the sampler bump",
        ),
        (
            &["tune", "x", "--sampler", "bump-tumbling", "--min-kept", "5"],
            "--min-kept: only the sampler bump",
        ),
        (&["tune", "x", "--per-key", "never", "--min-kept", "5"], "--min-kept: with --per-key never"),
        (&["inspect", "x", "--names", "raw", "--fold", "uuid"], "--fold has no effect with --names raw"),
        (
            &["inspect", "x", "--weights", "--names", "raw", "--fold", "uuid"],
            "--fold has no effect with --names raw",
        ),
        (&["evaluate", "x", "--size", "5%"], "--baselines"),
        (&["tune", "x", "--key", "name:raw"], "--names raw"),
        (&["evaluate", "x", "--key", "name:digits=4+a"], "--fold"),
        (&["tune", "x", "--size-min", "50%"], "--size-min 50% is above --size-max 10%"),
        (&["tune", "x", "--size-min", "14%", "--size-max", "7%"], "--size-min 14% is above --size-max 7%;"),
        (&["inspect", "x", "--weights", "--sort", "max"], "--weights"),
        (
            &["receive", "--out", "x", "--forward", "otlp://127.0.0.1:4318"],
            "forward all spans to itself forever",
        ),
        (&["inspect", "-", "-"], "standard input can be read only once"),
        (&["inspect", "x", "--fold", "digits=1,digits=2"], "each at most once"),
        (&["critical-path", "x", "--trace", "1", "--compare", "y"], "cannot be used with"),
        (&["critical-path", "x", "--trace", "1", "--by", "path"], "--by has no effect with --trace"),
        (&["critical-path", "x", "--trace", "1", "--top", "3"], "--top has no effect with --trace"),
        (
            &["critical-path", "x", "--trace", "1", "--html", "y", "--by", "path", "--top", "3"],
            "--top has no effect with --trace",
        ),
        (
            &["critical-path", "x", "--trace", "1", "--speedup", "a=0.5", "--by", "path"],
            "--by has no effect with --trace",
        ),
        (
            &["critical-path", "x", "--trace", "1", "--speedup", "a=0.5", "--top", "3"],
            "--top has no effect with --trace",
        ),
        (&["events", "x", "--trace", "1", "--dot", "--top", "3"], "--top has no effect with --dot"),
        (&["critical-path", "x", "--skew", "clip", "--rule", "crisp"], "--skew: the rule crisp"),
        (&["critical-path", "x", "--speedup", "a=1", "--speedup", "a=2"], "'a' is given twice"),
        (&["tune", "-", "--validate", "-"], "standard input can be read only once"),
        (&["tune", "x", "--no-late", "--kinds", "never"], "'--no-late' cannot be used with '--kinds <WHEN>'"),
        (&["tune", "x", "--no-late", "--record", "3"], "'--no-late' cannot be used with '--record <TIMES>'"),
        (&["tune", "x", "--late", "--time", "1s"], "'--late' cannot be used with '--time <"),
        (&["tune", "x", "--late", "--tail", "error", "--report", "y"], "--late --report: the page"),
        (&["tune", "x", "--no-late", "--key", "name+end:a"], "only strata know a at the end"),
        (
            &["tune", "x", "--or-equal", "--split", "50%"],
            "'--or-equal' cannot be used with '--split <SHARE>'",
        ),
        (&["order", "x", "--json", "--level", "warn"], "'--json' cannot be used with '--level <SEVERITY>'"),
        (&["order", "x", "--json", "--grep", "a"], "'--json' cannot be used with '--grep <REGEX>'"),
        (&["order", "x", "--json", "--since", "1m"], "'--json' cannot be used with '--since <TIME>'"),
        (&["order", "x", "--json", "--until", "1m"], "'--json' cannot be used with '--until <TIME>'"),
        (&["order", "x", "--json", "--follow"], "'--json' cannot be used with '--follow'"),
        (&["compare", "x", "--explain", "1", "--at-least", "5ms"], "'--explain <TRACE>' cannot be used with"),
    ] {
        let output = run(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(says), "{args:?}: {error}");
    }
}
