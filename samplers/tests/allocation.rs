//! Decisions about known keys, and about keys that find no free record, allocate nothing. Checked
//! by a counting allocator.

// A global allocator needs unsafe code; this one passes everything on to the system's.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use astracer_samplers::{Limits, Nanos, Request, Template};
use astracer_testing::SplitMix;

use crate::common::{Draw as _, limited, sampler};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// The bytes that this thread has allocated and not freed, and the maximum of that number since
    /// the last reset.
    static LIVE: Cell<[isize; 2]> = const { Cell::new([0; 2]) };
}

fn count(bytes: isize) {
    LIVE.with(|live| {
        let [now, most] = live.get();
        live.set([now + bytes, most.max(now + bytes)]);
    });
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed to the system allocator with the same arguments. Counting uses a
// thread-local that has no destructor and is initialised in place, so it neither allocates nor
// fails when a thread ends. The trait's other methods use their defaults, which call these.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        count(layout.size() as isize);
        // SAFETY: the caller's guarantees about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `pointer` came from `alloc` above, so from the system allocator, with this
        // layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The number of allocations that this thread makes in `work`.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn a_known_key_allocates_nothing() {
    let long = "GET /".repeat(40);
    let override_of_b = r#";"b":capacity=9"#;
    for config in [
        "always",
        "never",
        "ratio:0.1",
        "every:3",
        "bump:lambda=10,min=0.01",
        "bump:lambda=1000000,shift=on",
        "bucket:capacity=50,rate=2",
        &format!("bucket:capacity=50,rate=2{override_of_b}"),
    ] {
        let (sampler, mut random) = (sampler(config), SplitMix::new(1));
        let mut decide = |calls: u64| {
            for call in 0..calls {
                for key in ["a", "b", &long] {
                    let now = Nanos::new(call * 1_000_000);
                    let _ = sampler.decide(&Request::new(key, random.randomness(), now));
                }
            }
        };
        decide(1);
        // In this time windows end and buckets refill.
        assert_eq!(allocations(|| decide(10_000)), 0, "{config}");
    }
}

#[test]
fn a_known_key_allocates_nothing_on_another_thread() {
    let sampler = sampler("bump:lambda=10,min=0.01");
    let request = Request::new("a", SplitMix::new(1).randomness(), Nanos::ZERO);
    let _ = sampler.decide(&request);
    let on_another = || allocations(|| _ = sampler.decide(&request));
    assert_eq!(std::thread::scope(|scope| scope.spawn(on_another).join().unwrap()), 0);
}

#[test]
fn unique_names_allocate_nothing_once_the_table_is_full() {
    let sampler = limited("bump:lambda=10,min=0.01", Limits::default().with_keys(100));
    let names: Vec<String> = (0..100_000).map(|i| format!("GET /users/{i}")).collect();
    let mut random = SplitMix::new(1);
    let mut decide = |names: &[String]| {
        for name in names {
            let _ = sampler.decide(&Request::new(name, random.randomness(), Nanos::ZERO));
        }
    };
    // The hundred-and-first key looks for idle keys, once per sweep interval.
    decide(&names[..101]);
    assert_eq!(allocations(|| decide(&names[101..])), 0);
}

#[test]
fn folding_a_name_allocates_nothing_in_a_buffer_that_is_large_enough() {
    let mut buffer = String::with_capacity(64);
    let fold =
        || assert!(Template::default().fold("RemoteBlockReader2#readNextPacket(1073742055)", &mut buffer));
    assert_eq!(allocations(fold), 0);
}

/// The bytes that the result of `work` holds, and the maximum that `work` held at once.
#[cfg(feature = "parameters")]
fn bytes<T>(work: impl FnOnce() -> T) -> (T, [usize; 2]) {
    let before = LIVE.with(|live| {
        let [now, _] = live.get();
        live.set([now; 2]);
        now
    });
    let result = work();
    (result, LIVE.with(Cell::get).map(|bytes| (bytes - before) as usize))
}

/// The memory for a service's parameters stays within the numbers in the documentation of
/// `parameters`. Before curves were shared, 42 kB of TOML took 535 MB.
#[cfg(feature = "parameters")]
#[test]
fn parameters_take_the_memory_that_is_documented() {
    use astracer_samplers::Sampler;
    use astracer_samplers::parameters::Parameters;

    const KEYS: usize = 10_000;
    const TABLES: usize = 4 << 20;
    let limits = Limits::single_threaded().with_keys(10);
    // The first sampler builds the tables that all samplers of a process share.
    let (_, [plain, _]) = bytes(|| Sampler::with_limits(&"bump:lambda=1".parse().unwrap(), limits));
    let (_, [plain, _]) =
        (plain, bytes(|| Sampler::with_limits(&"bump:lambda=1".parse().unwrap(), limits)).1);
    let head = "version = 2\n[bump]\nlambda = 10.0\n";
    let table = |line: &dyn Fn(usize) -> String| (0..KEYS).map(line).collect::<String>();
    let roots = |lambda: &dyn Fn(usize) -> f64| {
        table(&|key| format!("[bump.root.\"GET /{key:06}\"]\nlambda = {:?}\nmin = 0.0\n", lambda(key)))
    };
    for (name, text, tables) in [
        ("equal", format!("{head}{}", roots(&|_| 1e6)), 64 << 10),
        ("different", format!("{head}{}", roots(&|key| key as f64)), TABLES + KEYS * 300),
        (
            "probabilities",
            format!(
                "{head}[bump.min_by_key]\n{}",
                table(&|key| format!("\"GET /{key:06}\" = {}\n", 1e-5 * key as f64))
            ),
            (32 << 10) + KEYS * 300,
        ),
    ] {
        let (parameters, [_, most]) = bytes(|| text.parse::<Parameters>().unwrap());
        assert!(most < 60 * text.len(), "{name}: {most} bytes to read {}", text.len());
        let (sampler, [kept, most]) = bytes(|| Sampler::with_limits(&parameters.config, limits));
        // The sampler's copy of the config, and the table's map: for each key a text, a slot and
        // the parameters.
        let keys = 2 * KEYS * ("GET /000000".len() + 100);
        assert!(kept - plain < keys + tables, "{name}: {} bytes", kept - plain);
        assert!(most - plain < 2 * (keys + tables), "{name}: {} bytes at once", most - plain);
        drop(sampler);
    }
}
