//! Small recordings with the names that a test asks for, and the commands that make pages of them.

use std::fmt::Write as _;

/// The names in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// As in a usual service.
    Plain,
    /// 5,000 letters without a space, with HTML and an override of the direction of writing.
    Foreign,
    /// Empty.
    Missing,
}

/// Length of a foreign name, in letters.
const FOREIGN: usize = 5_000;

impl Names {
    pub(super) const ALL: [Names; 3] = [Names::Plain, Names::Foreign, Names::Missing];

    pub(super) fn label(self) -> &'static str {
        match self {
            Names::Plain => "plain",
            Names::Foreign => "foreign",
            Names::Missing => "nameless",
        }
    }

    /// The name of the n-th thing of a kind.
    pub(super) fn name(self, kind: &str, n: usize) -> String {
        match self {
            Names::Plain => format!("{kind}{n}"),
            Names::Foreign => {
                let begin = format!("<script>alert({n})</script>\u{202e}&\"'{kind}");
                begin.clone() + &"W".repeat(FOREIGN.saturating_sub(begin.chars().count()))
            }
            Names::Missing => String::new(),
        }
    }
}

/// HTrace's spans as JSON lines: 400 traces of four operations, of which a tenth retries and is
/// slow; on the second day a third. Trace ids begin at 1 or 1,001.
pub(super) fn spans(names: Names, is_second_day: bool) -> String {
    let mut text = String::new();
    let (first, every) = if is_second_day { (1_001, 3) } else { (1, 10) };
    for trace in first..first + 400u64 {
        let is_bad = trace % every == 0;
        let start = 1_500_000_000_000 + trace * 250;
        let jitter = trace * 7_919 % 13;
        let root = format!("{trace:016x}{:016x}", 1);
        let mut span = |id: u64, name: &str, service: &str, from: u64, to: u64| {
            let parents = if id == 1 { String::new() } else { format!("\"{root}\"") };
            let (name, service) = (serde_json::json!(name), serde_json::json!(service));
            let _ = writeln!(
                text,
                r#"{{"a":"{trace:016x}{id:016x}","b":{},"e":{},"d":{name},"r":{service},"p":[{parents}]}}"#,
                start + from,
                start + to
            );
        };
        let length = 20 + jitter + if is_bad { 60 } else { 0 };
        let (shop, cart, pay) = (names.name("shop", 0), names.name("cart", 0), names.name("pay", 0));
        span(1, &names.name("request", (trace % 4) as usize), &shop, 0, length);
        span(2, &names.name("read", 0), &cart, 1, 5 + jitter / 2);
        span(3, &names.name("charge", 0), &pay, 6 + jitter / 2, length - 1);
        if is_bad {
            span(4, &names.name("retry", 0), &pay, 30, length - 2);
        }
    }
    text
}

/// Falcon's events as JSON lines: two processes with four threads each that send messages and write
/// records.
pub(super) fn events(names: Names, count: usize) -> String {
    let mut text = String::new();
    let thread = |n: usize| {
        // Falcon's threads are PID@HOST, and its records are of a thread.
        let host = names.name("host", n / 4);
        format!("{}@{}", 100 + n, if host.is_empty() { " " } else { &host })
    };
    for n in 0..count {
        let (time, own) = (1_525_880_625_800 + n as u64, (n / 2) % 8);
        let event = match n % 4 {
            0 | 1 => {
                let (kind, thread) =
                    if n % 4 == 0 { ("SND", thread(own)) } else { ("RCV", thread((own + 4) % 8)) };
                serde_json::json!({
                    "type": kind, "timestamp": time, "thread": thread, "src": format!("10.0.0.{own}"), "src_port": n / 4 % 60_000 + 1,
                    "dst": "10.0.1.1", "dst_port": 80, "size": 9, "id": n,
                })
            }
            _ => {
                let level = ["INFO", "INFO", "INFO", "WARN", "ERROR"][n % 5];
                let message = format!("{level} step {n} of {}", names.name("record of the work done", n));
                serde_json::json!({ "type": "LOG", "timestamp": time, "thread": thread(own), "message": message, "id": n })
            }
        };
        let _ = writeln!(text, "{event}");
    }
    text
}
