//! The whole loop: a service runs under load and records; its recording is tuned; it runs again
//! with the tuned parameters.

use std::process::Command;

use super::e2e_setting;
use crate::repository;

/// The largest share of bytes to keep.
const SIZE_MAX: f64 = 0.05;
/// All routes of the shop. Reports are rare, and some orders fail.
const ROUTES: [&str; 5] =
    ["GET /products/{id}", "GET /reports/{month}", "POST /orders/{id}", "GET /search", "GET /categories"];

/// Runs the shop twice, the second time with the tuned parameters and this export target.
pub(super) fn record_tune_and_run(export: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (recorded, parameters) = (path("recorded"), path("astracer.toml"));
    let all = spans_exported(&["--sampler", "always", "--export", &format!("file={recorded}")]);
    run(
        &e2e_setting("CLI"),
        &["tune", &recorded, "--size-max", "5%", "--starts", "2", "--one-key", "--out", &parameters],
    );
    let kept = spans_exported(&["--parameters", &parameters, "--export", export]);
    // The limit is on bytes rather than spans, and a second run may be several times slower and
    // span more windows.
    assert!(kept > 0.0 && kept < 4.0 * SIZE_MAX * all, "{kept} of {all} spans");
}

/// Returns the missing routes as an error, unless the response names all of them.
pub(super) fn all_routes(answer: &str, spelled: fn(&str) -> String) -> Result<(), String> {
    let missing: Vec<_> = ROUTES.iter().filter(|route| !answer.contains(&spelled(route))).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} not in {answer}")) }
}

/// Runs the shop, checks that nothing is lost, and returns the number of exported spans.
fn spans_exported(options: &[&str]) -> f64 {
    let text = run(&e2e_setting("SHOP"), &[&["--requests", "10000", "--connections", "4"], options].concat());
    let before = |what: &str| {
        let end = text.find(what).unwrap_or_else(|| panic!("no {what:?} in {text}"));
        text[..end].rsplit([' ', '\n']).next().and_then(|number| number.parse::<f64>().ok())
    };
    assert_eq!(before(" lost"), Some(0.0), "{text}");
    before(" spans exported").unwrap_or_else(|| panic!("no number in {text}"))
}

fn run(program: &str, options: &[&str]) -> String {
    let output = Command::new(program)
        .args(options)
        .current_dir(repository("."))
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{options:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}
