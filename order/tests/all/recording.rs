//! The project's own recording of two services under strace; see data/order/README.md.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use astracer_causality::intake::{Collected, Intake};
use astracer_order::{Options, Order};
use astracer_recording::source;
use astracer_recording::stop::Pulse;
use liblzma::read::XzDecoder;

fn order(collected: Collected, options: &Options) -> Order {
    astracer_order::order(collected, options, &mut Pulse::never()).expect("not stopped")
}

const FILES: [(&str, &str); 6] = [
    ("shop", "shop.strace"),
    ("shop", "shop.log"),
    ("shop", "shop-spans.jsonl"),
    ("load", "load.strace"),
    ("load", "load.log"),
    ("load", "load-spans.jsonl"),
];

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.xz"));
    let mut text = String::new();
    XzDecoder::new(std::fs::File::open(path).expect("a file")).read_to_string(&mut text).expect("text");
    text
}

/// The text with all stamps of 1795772... seconds set back by 50 ms.
fn set_back(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("1795772") {
        out.push_str(&rest[..at]);
        let digits: String = rest[at..].chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        rest = &rest[at + digits.len()..];
        let number: String = digits.chars().filter(char::is_ascii_digit).collect();
        // Microseconds in straces, nanoseconds elsewhere.
        let back = match number.len() {
            16 => 50_000,
            19 => 50_000_000,
            _ => 0,
        };
        let number = (number.parse::<u64>().expect("a number") - back).to_string();
        out.push_str(&number[..10]);
        if digits.contains('.') {
            out.push('.');
        }
        out.push_str(&number[10..]);
    }
    out + rest
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Reads the files of both hosts; those of the shop may be set back.
fn collected(test: &str, is_set_back: bool, keep: impl Fn(&str) -> bool) -> Collected {
    let folder = Folder(std::env::temp_dir().join(format!("astracer-order-{test}-{}", std::process::id())));
    let mut intake = Intake::new(3);
    for (host, name) in FILES.into_iter().filter(|(_, name)| keep(name)) {
        let path = folder.0.join(host).join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let mut text = text(name);
        if is_set_back && host == "shop" {
            text = set_back(&text);
        }
        std::fs::write(&path, text).expect("written");
        intake.set_host(host);
        source::read(&path, &source::Options::default(), &mut intake).expect("a source");
    }
    intake.finish()
}

/// Each event in order: its kind, its file's name and line.
fn lines(order: &Order) -> Vec<String> {
    let rows = order.events.rows();
    let show = |&event: &u32| {
        let row = &rows[event as usize];
        let place = order.events.place(row);
        format!("{} {}", row.kind, place.rsplit('/').next().unwrap_or_default())
    };
    order.sequence.iter().map(show).collect()
}

#[test]
fn spans_are_joined_and_a_late_clock_is_found() {
    let found = collected("right", false, |_| true);
    let joins = found.joins.clone();
    // 120 requests, counted in the files.
    assert_eq!((joins.calls, joins.write, joins.ids, joins.unknown_writes), (240, 240, 240, 0));
    assert!(joins.calls_by_bytes * 100 >= 99 * joins.calls, "{joins:?}");
    let right = order(found, &Options::default());
    assert!(right.exists());
    for (test, keep) in [("all", ""), ("spans", ".strace")] {
        let keep = |name: &str| keep.is_empty() || !name.ends_with(keep);
        let right = order(collected(test, false, keep), &Options::default());
        let late = order(collected(test, true, keep), &Options::default());
        let ahead = |order: &Order, name: &str| {
            let host = order.events.hosts().iter().position(|host| host == name).expect("the host");
            (order.host_clocks[host].ahead, order.host_clocks[host].within)
        };
        let between = |order: &Order| {
            let ((shop, one), (load, other)) = (ahead(order, "shop"), ahead(order, "load"));
            (load - shop, one.into_iter().chain(other).max().unwrap_or(0))
        };
        let ((before, error), (after, within)) = (between(&right), between(&late));
        // Messages show no difference, spans the middle of what they allow.
        assert!(before.unsigned_abs() <= error, "{test}: {before} {error}");
        // The fastest round trip bounds the error.
        assert!(after.abs_diff(50_000_000) <= within && within < 1_000_000, "{test}: {after} {within}");
        // With messages, the right clock is not corrected, and a few events of two hosts that
        // nothing orders may change their places.
        let (mut late, mut right) = (lines(&late), lines(&right));
        if test == "all" {
            late.sort_unstable();
            right.sort_unstable();
        }
        assert!(late == right, "{test}");
    }
}
