//! Warnings about settings without an effect.

use crate::{Scratch, TWO_TRACES, run, success, unwrapped};

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
