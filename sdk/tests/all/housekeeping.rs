//! The watched parameters file and the snapshots: what is loaded, and what is ignored. The tests
//! trigger each check themselves.

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use astracer_samplers::{Nanos, Probability};
use astracer_sdk::{Budget, FetchParameters, KeyStats, OnFault, Override, ParametersSource};
use astracer_testing::OnEvent;
use tracing::Event;
use tracing::field::Field;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::delivery::Gate;
use crate::support::{TIMEOUT, World, sampling, world};

/// Makes roots. Returns how many of them were kept.
fn roots(world: &World, name: &str, count: usize) -> u64 {
    let before = world.handle.stats().roots_kept;
    world.roots(name, count);
    world.handle.stats().roots_kept - before
}

/// A path in a folder of its own, in which nothing is yet.
fn path() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("astracer.toml");
    (folder, path)
}

fn file(capacity: u32) -> String {
    format!("version = 3\n[bucket]\ncapacity = {capacity}.0\nrate = 0.001\n")
}

fn file_with_policies(capacity: u32, policies: &str) -> String {
    format!(
        "version = 4\n[bucket]\ncapacity = {capacity}.0\nrate = 1.0\n[tail]\npolicies = [\"{policies}\"]\n"
    )
}

fn watching(path: &Path) -> World {
    fs::write(path, file(3)).unwrap();
    world(|builder| builder.with_watched_parameters_file(path))
}

fn config(world: &World) -> String {
    world.handle.sampler_config().unwrap().to_string()
}

#[test]
fn a_file_that_changes_is_taken_over() {
    let (_folder, path) = path();
    let world = watching(&path);
    assert_eq!((config(&world).as_str(), roots(&world, "a", 5)), ("bucket:capacity=3,rate=0.001", 3));
    fs::write(&path, file(50)).unwrap();
    world.handle.look_at_parameters();
    assert_eq!((config(&world).as_str(), roots(&world, "a", 100)), ("bucket:capacity=50,rate=0.001", 47));
    assert_eq!(world.handle.keys()[0].seen, 105);
    assert_eq!(world.handle.parameters_fault(), None);
}

/// The file changes between the builder's read and the start, as in a rollout. The service must
/// compare with the text that the builder read.
#[test]
fn a_file_that_changed_before_the_service_was_built_is_taken_over() {
    let (_folder, path) = path();
    fs::write(&path, file(3)).unwrap();
    let world = world(|builder| {
        let builder = builder.with_watched_parameters_file(&path);
        fs::write(&path, file(50)).unwrap();
        builder
    });
    // The service's own thread may have looked before.
    world.handle.look_at_parameters();
    assert_eq!(config(&world), "bucket:capacity=50,rate=0.001");
    assert_eq!(world.handle.parameters_fault(), None);
}

/// The default sampler decides then, not the file's.
#[test]
fn a_file_that_is_wrong_from_the_start_is_a_fault() {
    let (_folder, path) = path();
    fs::write(&path, "version = 3\n[bucket]\ncapacity = 0.5\nrate = 1.0\n").unwrap();
    let world =
        world(|builder| builder.with_on_fault(OnFault::UseDefault).with_watched_parameters_file(&path));
    (0..2).for_each(|_| world.handle.look_at_parameters());
    let fault = world.handle.parameters_fault().unwrap();
    assert!(fault.contains("line 3") && fault.contains("capacity=0.5"), "{fault}");
    fs::write(&path, file(50)).unwrap();
    world.handle.look_at_parameters();
    assert_eq!(world.handle.parameters_fault(), None);
    assert_eq!(config(&world), "bucket:capacity=50,rate=0.001");
}

/// Half-written, invalid, a folder, missing: the last good parameters stay in force, and the fault
/// is reported once it has been seen twice.
#[test]
fn a_file_that_cannot_be_used_changes_nothing() {
    let (_folder, path) = path();
    let world = watching(&path);
    let whole = file(50);
    let half = &whole[..30];
    let wrong = "version = 3\n[bucket]\ncapacity = 0.5\nrate = 1.0\n";
    let large = format!("{}#{}", file(51), " ".repeat(3 << 20));
    let look = || {
        world.handle.look_at_parameters();
        assert_eq!(config(&world), "bucket:capacity=3,rate=0.001");
        world.handle.parameters_fault()
    };
    type Replace<'a> = Box<dyn Fn(&Path) + 'a>;
    let write = |text: &str| -> Replace<'_> {
        let text = text.to_owned();
        Box::new(move |path| fs::write(path, &text).unwrap())
    };
    let cases: [(Replace<'_>, &str); 5] = [
        (write(half), "line"),
        (write(wrong), "line 3"),
        (write(&large), "bytes"),
        (Box::new(|path: &Path| fs::create_dir(path).unwrap()), "astracer.toml"),
        (Box::new(|_: &Path| ()), "astracer.toml"),
    ];
    for (replace, expected) in cases {
        let _ = fs::remove_file(&path);
        replace(&path);
        assert_eq!(look(), None, "reported at the second check only: {expected}");
        let fault = look().unwrap();
        assert!(fault.contains(expected) && fault.ends_with("the last parameters stay in force"), "{fault}");
        assert_eq!(look(), Some(fault));
        let _ = fs::remove_dir(&path);
        fs::write(&path, file(3)).unwrap();
        assert_eq!(look(), None);
    }
    fs::write(&path, whole).unwrap();
    world.handle.look_at_parameters();
    assert_eq!(config(&world), "bucket:capacity=50,rate=0.001");
}

/// Policies determine what is recorded, which cannot change while a service runs. If the code sets
/// policies after the file's, a later file may have those of the first file or those in force.
#[test]
fn a_file_with_other_policies_is_refused() {
    let (_folder, path) = path();
    for in_code in [None, Some("error,attr:code>=500")] {
        fs::write(&path, file_with_policies(3, "error")).unwrap();
        let world = world(|builder| {
            let builder = builder.with_watched_parameters_file(&path);
            in_code.iter().fold(builder, |builder, tail| builder.with_tail(tail.parse().unwrap()))
        });
        let in_force = if in_code.is_some() { "error\", \"attr:code>=500" } else { "error" };
        for (capacity, policies) in [(50, "error"), (51, in_force), (52, "error")] {
            fs::write(&path, file_with_policies(capacity, policies)).unwrap();
            world.handle.look_at_parameters();
            assert_eq!(world.handle.parameters_fault(), None);
            assert_eq!(config(&world), format!("bucket:capacity={capacity},rate=1"));
        }
        fs::write(&path, file_with_policies(53, "odd")).unwrap();
        (0..2).for_each(|_| world.handle.look_at_parameters());
        assert_eq!(config(&world), "bucket:capacity=52,rate=1");
        assert!(world.handle.parameters_fault().unwrap().contains("restart it to change policies"));
    }
}

/// The default of `OTEL_TRACES_SAMPLER=astracer_file`. Changes under load lose no root, and each is
/// one event.
#[test]
fn a_file_of_the_environment_is_followed() {
    let (_folder, path) = path();
    let events = |follows: Option<&str>, expected: &str| {
        fs::write(&path, file(3)).unwrap();
        let world = world(|builder| {
            builder.with_variables(|name| match name {
                "OTEL_TRACES_SAMPLER" => Some("astracer_file".to_owned()),
                "OTEL_TRACES_SAMPLER_ARG" => path.to_str().map(str::to_owned),
                "ASTRACER_PARAMETERS_WATCH" => follows.map(str::to_owned),
                _ => None,
            })
        });
        let texts = Arc::new(Mutex::new(Vec::new()));
        let own = texts.clone();
        let layer = OnEvent(move |event: &Event<'_>| {
            let mut text = event.metadata().level().to_string();
            event.record(&mut |_: &Field, value: &dyn std::fmt::Debug| text.push_str(&format!(" {value:?}")));
            own.lock().unwrap().push(text);
        });
        std::thread::scope(|scope| {
            let made = scope.spawn(|| roots(&world, "a", 2_000));
            fs::write(&path, file(50)).unwrap();
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                (0..3).for_each(|_| world.handle.look_at_parameters());
            });
            made.join().unwrap();
        });
        assert_eq!(config(&world), expected);
        let stats = world.handle.stats();
        assert_eq!(stats.roots_kept + stats.roots_dropped, 2_000);
        let texts = texts.lock().unwrap();
        texts.clone()
    };
    // The poller's own thread looks each second. If it is first, its event is not seen here.
    let followed = "bucket:capacity=50,rate=0.001";
    let seen = (0..5).map(|_| events(None, followed)).find(|texts| !texts.is_empty());
    let text = format!("INFO new parameters: {followed}; before: bucket:capacity=3,rate=0.001");
    assert_eq!(seen, Some(vec![text]));
    assert!(events(Some("false"), "bucket:capacity=3,rate=0.001").is_empty());
}

#[test]
fn a_subscriber_may_use_the_handle_during_a_warning() {
    let (_folder, path) = path();
    let world = watching(&path);
    fs::remove_file(&path).unwrap();
    let faults = Arc::new(Mutex::new(Vec::new()));
    let (handle, own) = (world.handle.clone(), faults.clone());
    let asks = OnEvent(move |_: &Event<'_>| {
        let (_, _) = (handle.heartbeat_spans(), handle.snapshot_fault());
        own.lock().unwrap().push(handle.parameters_fault());
    });
    tracing::subscriber::with_default(tracing_subscriber::registry().with(asks), || {
        (0..3).for_each(|_| world.handle.look_at_parameters());
    });
    let faults = faults.lock().unwrap();
    assert_eq!(*faults, [world.handle.parameters_fault()]);
    assert!(faults[0].as_ref().unwrap().contains("astracer.toml"));
}

/// A check by hand is not a tick of the thread, so it does not bring a heartbeat forward.
#[test]
fn a_look_at_the_parameters_exports_nothing() {
    let world = world(|builder| builder.with_heartbeat(std::time::Duration::from_secs(30)));
    (0..100).for_each(|_| world.handle.look_at_parameters());
    assert_eq!(world.handle.heartbeat_spans(), (0, 0));
}

/// A hundred changes with a check after each, some of them truncated. Roots are decided all the
/// while on four threads, and every one is counted.
#[test]
fn a_file_that_changes_all_the_time_loses_no_count() {
    let (_folder, path) = path();
    let world = watching(&path);
    std::thread::scope(|scope| {
        for name in ["a", "b", "a", "b"] {
            let world = &world;
            scope.spawn(move || world.roots(name, 2_000));
        }
        for change in 0..100 {
            let text = match change % 5 {
                0 => "version = 3\n[bump]\nlambda = 5.0\n".to_owned(),
                1 => file(change + 1),
                2 => file(change + 1)[..25].to_owned(),
                3 => "version = 3\n[bump]\nlambda = 1.0\ncount = \"decaying\"\ntau = \"1s\"\n".to_owned(),
                _ => "version = 3\n[ratio]\nprobability = 0.5\n[cap]\nkey_traces = 5.0\n".to_owned(),
            };
            fs::write(&path, text).unwrap();
            world.handle.look_at_parameters();
        }
    });
    let (keys, stats) = (world.handle.keys(), world.handle.stats());
    let sum = |of: fn(&KeyStats) -> u64| keys.iter().map(of).sum::<u64>();
    assert_eq!((sum(|key| key.seen), sum(|key| key.kept)), (8_000, stats.roots_kept));
    assert_eq!(stats.roots_kept + stats.roots_dropped, 8_000);
}

#[test]
fn a_warm_start_goes_on_where_the_last_process_was() {
    let (_folder, path) = path();
    let start = |config: &str| sampling(config, |builder| builder.with_snapshot_file(&path));
    let bucket = "bucket:capacity=3,rate=0.001";
    let first = start(bucket);
    assert_eq!((roots(&first, "a", 2), roots(&first, "b", 5)), (2, 3));
    first.handle.shutdown(TIMEOUT).unwrap();
    assert_eq!(first.handle.snapshot_fault(), None);
    let second = start(bucket);
    assert_eq!((roots(&second, "a", 5), roots(&second, "b", 5), roots(&second, "c", 5)), (1, 0, 3));
    // Snapshots of another sampler, truncated ones, and foreign files are ignored.
    assert_eq!(roots(&start("bucket:capacity=4,rate=0.001"), "b", 9), 4);
    let image = fs::read(&path).unwrap();
    fs::write(&path, &image[..image.len() - 9]).unwrap();
    assert_eq!(roots(&start(bucket), "b", 9), 3);
    fs::write(&path, "anything").unwrap();
    assert_eq!(roots(&start(bucket), "b", 9), 3);
}

#[test]
fn a_snapshot_that_cannot_be_written_is_reported() {
    let (folder, path) = path();
    let bucket = || "bucket:capacity=3,rate=1".parse().unwrap();
    let world = world(|builder| builder.with_sampler(bucket()).with_snapshot_file(&path));
    fs::create_dir_all(path.join("in the way")).unwrap();
    world.handle.shutdown(TIMEOUT).unwrap();
    assert!(world.handle.snapshot_fault().unwrap().contains("astracer.toml"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
}

/// With a budget of one byte per second every export exceeds it, so each interval halves the share,
/// down to the floor.
#[test]
fn a_budget_scales_the_sampler_of_a_running_service() {
    let floor = Probability::new(0.1).unwrap();
    let budget = Budget::new(1.0).unwrap().with_interval(Nanos::from_secs(1)).with_floor(floor);
    let world = sampling("ratio:0.8", |builder| builder.with_budget(budget));
    assert_eq!((config(&world).as_str(), world.handle.budget_factor()), ("ratio:0.8", Some(1.0)));
    for factor in [0.5, 0.25] {
        roots(&world, "a", 50);
        world.handle.flush(TIMEOUT).unwrap();
        world.clock.advance(Duration::from_secs(1));
        world.handle.look_at_parameters();
        assert_eq!(world.handle.budget_factor(), Some(factor));
        assert_eq!(config(&world), format!("ratio:{}", 0.8 * factor));
    }
    // Another sampler is scaled too, and setting a cap does not scale it a second time.
    world.handle.set_sampler(&"ratio:0.08".parse().unwrap());
    assert_eq!(config(&world), "ratio:0.08", "it is already below the floor");
    world.handle.set_sampler(&"always".parse().unwrap());
    assert_eq!(config(&world), "always");
    world.handle.set_sampler(&"ratio:1".parse().unwrap());
    assert_eq!(config(&world), "ratio:0.25");
    world.handle.set_cap(&"traces=100".parse().unwrap());
    assert_eq!(config(&world), "ratio:0.25");
    // A file without a budget keeps the current one.
    world.handle.set_parameters("version = 4\n[ratio]\nprobability = 0.5\n").unwrap();
    assert_eq!((config(&world).as_str(), world.handle.budget_factor()), ("ratio:0.125", Some(0.25)));
}

/// Nothing is exported while the exporter waits for its server. That does not mean that too little
/// was kept, so the factor stays.
#[test]
fn a_budgets_factor_does_not_rise_while_the_exporter_waits() {
    let gate = Gate::default();
    let budget = Budget::new(1e6).unwrap().with_interval(Nanos::from_secs(1));
    let world = sampling("ratio:0.01", |builder| {
        builder.with_budget(budget).with_batch_spans(1).with_exporter(gate.exporter())
    });
    world.handle.override_key("a", Override::Keep, Duration::from_secs(1_000)).unwrap();
    let interval = || {
        roots(&world, "a", 50);
        world.clock.advance(Duration::from_secs(1));
        world.handle.look_at_parameters();
        world.handle.budget_factor()
    };
    // In the first interval the exporter received something before it began to wait.
    assert_eq!(interval(), Some(2.0));
    assert_eq!([(); 10].map(|()| interval()), [Some(2.0); 10]);
    gate.open();
    world.handle.flush(TIMEOUT).unwrap();
    assert_eq!(interval(), Some(4.0));
}

#[test]
fn a_budget_begins_with_the_service() {
    let world = world(|builder| builder);
    let text = "version = 4\n[always]\n[budget]\nbytes = 1.0\n";
    let refused = world.handle.set_parameters(text).unwrap_err().to_string();
    assert!(refused.contains("restart"), "{refused}");
    assert_eq!(world.handle.budget_factor(), None);
}

/// A file without a cap or budget restores those of the code, which an earlier file had replaced.
#[test]
fn a_file_without_a_cap_leaves_that_of_the_code() {
    let (_folder, path) = path();
    let file = |lambda: u32, more: &str| format!("version = 4\n[bump]\nlambda = {lambda}.0\n{more}");
    let write = |lambda, more: &str| fs::write(&path, file(lambda, more)).unwrap();
    let (cap, budget) = ("[cap]\ntraces = 7.0\n", "[budget]\nbytes = 5.0\n");
    write(1, "");
    let budget_of_code = Budget::new(1e6).unwrap();
    let world = world(|builder| {
        let builder = builder.with_cap("traces=9".parse().unwrap()).with_budget(budget_of_code.clone());
        builder.with_watched_parameters_file(&path)
    });
    let cap_of = || world.handle.cap().unwrap().to_string();
    let looked = |lambda, more: &str| {
        write(lambda, more);
        world.handle.look_at_parameters();
        assert!(config(&world).starts_with(&format!("bump:lambda={lambda},")), "{}", config(&world));
        (cap_of(), world.handle.budget_factor().is_some())
    };
    let own = ("traces=9,burst=2.25".to_owned(), true);
    let brought = ("traces=7,burst=1.75".to_owned(), true);
    assert_eq!((cap_of(), world.handle.budget_factor()), ("traces=9,burst=2.25".to_owned(), Some(1.0)));
    assert_eq!(looked(2, ""), own);
    assert_eq!(looked(3, cap), brought);
    assert_eq!(looked(4, &format!("{cap}{budget}")), brought);
    assert_eq!(looked(5, ""), own);
    // The number of replicas set through the handle applies to it too.
    world.handle.set_replicas(NonZeroU32::new(3).unwrap());
    assert_eq!(looked(6, "").0, "traces=9,burst=2.25,replicas=3");
    // A cap set through the handle counts as the code's.
    assert_eq!(looked(7, cap), brought);
    world.handle.set_cap(&"traces=2".parse().unwrap());
    assert_eq!(looked(8, "").0, "traces=2,burst=1");
    assert_eq!(looked(9, cap), brought);
    world.handle.set_cap(&"".parse().unwrap());
    assert_eq!(looked(10, "").0, "");
}

/// The restored budget is the earlier one, with its floor and the factor that it had reached.
#[test]
fn a_file_without_a_budget_leaves_that_of_the_code() {
    let floor = Probability::new(0.1).unwrap();
    let budget = Budget::new(1.0).unwrap().with_interval(Nanos::from_secs(1)).with_floor(floor);
    let world = sampling("ratio:0.8", |builder| builder.with_budget(budget));
    let share = |text: &str, expected: &str| {
        world.handle.set_parameters(&format!("version = 4\n[ratio]\n{text}")).unwrap();
        assert_eq!(config(&world), expected);
    };
    let interval = || {
        roots(&world, "a", 50);
        world.handle.flush(TIMEOUT).unwrap();
        world.clock.advance(Duration::from_secs(1));
        world.handle.look_at_parameters();
    };
    interval();
    assert_eq!(config(&world), "ratio:0.4");
    share("probability = 0.6\n", "ratio:0.3");
    share("probability = 0.6\n[budget]\nbytes = 1.0\ninterval = \"1s\"\n", "ratio:0.3");
    (0..3).for_each(|_| interval());
    assert_eq!(config(&world), "ratio:0.0375");
    share("probability = 0.6\n", "ratio:0.1");
}

/// Answers with a file until a fault is set. The channel closes when the thread that polls ends.
#[derive(Clone)]
struct Source(Arc<Mutex<Option<String>>>, Sender<()>);

impl ParametersSource for Source {
    fn place(&self) -> String {
        "a place".to_owned()
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(3_600)
    }

    fn open(self) -> Result<FetchParameters, String> {
        let good = || Ok(Some("version = 2\n[ratio]\nprobability = 0.25\n".to_owned()));
        Ok(Box::new(move || {
            let _ = &self.1;
            self.0.lock().unwrap().clone().map_or_else(good, Err)
        }))
    }
}

#[test]
fn the_last_good_parameters_hold_while_a_source_fails() {
    let fault_of_source = Arc::default();
    let source = Source(Arc::clone(&fault_of_source), channel().0);
    let world = world(|builder| builder.with_polled_parameters(source));
    world.handle.look_at_parameters();
    assert_eq!(world.handle.parameters_fault(), None);
    *fault_of_source.lock().unwrap() = Some("it is closed".to_owned());
    world.handle.look_at_parameters();
    let fault = world.handle.parameters_fault();
    assert_eq!(fault.as_deref(), Some("a place: it is closed; the last parameters stay in force"));
    assert_eq!(world.handle.sampler_config().unwrap().to_string(), "ratio:0.25");
    let weak = world.handle.downgrade();
    assert_eq!(weak.upgrade().unwrap().parameters_fault(), fault);
    drop(world);
    assert!(weak.upgrade().is_none(), "neither a weak handle nor the poller keeps the layer alive");
}

/// The thread that polls holds the source, unless it has ended.
#[test]
fn the_poller_ends_with_a_shutdown_or_with_the_layer() {
    for shuts_down in [true, false] {
        let (held, ended) = channel();
        let world = world(|builder| builder.with_polled_parameters(Source(Arc::default(), held)));
        if shuts_down {
            world.handle.shutdown(TIMEOUT).unwrap();
        }
        drop(world);
        assert_eq!(ended.recv_timeout(TIMEOUT), Err(RecvTimeoutError::Disconnected), "{shuts_down}");
    }
}
