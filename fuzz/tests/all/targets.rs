//! One test per target, so that they run in parallel and a failure names its target.

use std::path::{Path, PathBuf};

use astracer_fuzz::replay::{Options, replay};
use astracer_fuzz::target;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds")
}

#[track_caller]
fn check(name: &str) {
    let options = Options::from_env(Path::new(env!("CARGO_TARGET_TMPDIR")));
    match replay(name, target::named(name).run, &folder().join(name), &options) {
        Ok(runs) => println!("{runs} inputs; seed {}", options.seed),
        Err(failure) => panic!(
            "{}\ninput: {}\n\
             to run it alone: cargo run -p astracer-fuzz --bin {name} -- {}\n\
             once it is fixed, add the file to fuzz/seeds/{name}",
            failure.message,
            failure.origin,
            failure.file.display()
        ),
    }
}

macro_rules! replays {
    ($($name:ident,)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        const REPLAYED: &[&str] = &[$(stringify!($name),)*];
    };
}

replays! {
    otlp_json,
    otlp_proto,
    jaeger_json,
    zipkin_json,
    htrace,
    nezha_csv,
    log_lines,
    otlp_logs,
    log_csv,
    xtrace_json,
    strace,
    falcon_json,
    vector_clocks,
    source,
    joining,
    parameters,
    baseline,
    sampler_config,
    tracestate,
    name_template,
    instances,
    query_language,
    query_advice,
    query_bag,
    baggage_message,
    cpath_note,
    baggage_header,
    w3c_baggage,
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let stems = entries.filter(|path| path.file_stem().is_some_and(|stem| stem != "README"));
    let mut names: Vec<String> =
        stems.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn each_target_has_a_test_a_program_and_seeds() {
    let sorted = |names: &[&str]| {
        let mut names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        names.sort();
        names
    };
    let targets: Vec<&str> = target::ALL.iter().map(|target| target.name).collect();
    let targets = sorted(&targets);
    assert_eq!(sorted(REPLAYED), targets);
    assert_eq!(names_in(&folder()), targets);
    assert_eq!(names_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin")), targets);
}
