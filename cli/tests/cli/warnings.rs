//! Warnings about settings without an effect.

use crate::{Scratch, TWO_TRACES, run, success, unwrapped};

/// A tuned file may have windows or not, so --phase is accepted, with a warning if it has no
/// effect.
#[test]
fn a_phase_without_windows_is_reported() {
    let input = Scratch::new("phase.json", TWO_TRACES);
    let told = |sampler: &str, phase: &str| {
        let args = ["evaluate", input.path(), "--seeds", "1", "--sampler", sampler, "--phase", phase];
        success(&run(&args)).contains("warning: --phase has no effect")
    };
    assert!(told("ratio:0.5", "0.3") && told("bump:lambda=3,min=0.1,count=decaying,tau=1s", "0.3"));
    assert!(!told("bump:lambda=3,min=0.1,window=1s", "0.3") && !told("ratio:0.5", "0"));
}

/// In a service a budget changes the probabilities, which a replay does not model.
#[test]
fn a_budget_that_is_not_replayed_is_reported() {
    let input = Scratch::new("budget.json", TWO_TRACES);
    let text = "version = 4\n[ratio]\nprobability = 0.5\n[budget]\nbytes = 100.0\n";
    let parameters = Scratch::new("budget.toml", text);
    let args = ["evaluate", input.path(), "--seeds", "1", "--parameters", parameters.path()];
    let printed = unwrapped(&success(&run(&args)));
    assert!(printed.contains("warning: the budget of ") && printed.contains("is not replayed"), "{printed}");
    let json = success(&run(&[&args[..], &["--json"]].concat()));
    assert!(json.contains("is not replayed"), "{json}");
}
