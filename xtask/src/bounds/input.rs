//! Recordings with many of one thing.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// The thing that an input has many of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Many {
    /// Traces of a root and a child.
    Traces,
    /// Spans, 20 in each trace.
    Spans,
    /// Names of spans below few roots.
    Names,
    /// Names of roots.
    Roots,
    /// Spans below one span.
    Children,
    /// Spans of one trace with branches of every length, each within its parent and next to others.
    Branches,
    /// Nested spans without start times, which are looked up in their ancestors.
    Depth,
    /// Parents of one span.
    Parents,
    /// Processes of one trace.
    Processes,
    /// Values of one attribute in one trace.
    Values,
    /// Lines that are not spans.
    Problems,
    /// Files in an archive.
    Members,
    /// Keys of a parameters file, each with a curve of its own.
    Keys,
}

impl Many {
    #[cfg(test)]
    pub(crate) const ALL: [Many; 13] = [
        Many::Traces,
        Many::Spans,
        Many::Names,
        Many::Roots,
        Many::Children,
        Many::Branches,
        Many::Depth,
        Many::Parents,
        Many::Processes,
        Many::Values,
        Many::Problems,
        Many::Members,
        Many::Keys,
    ];
}

/// Writes an input with `count` things into a folder: the file `in`, and for keys also
/// `parameters.toml`.
pub(crate) fn write(folder: &Path, many: Many, count: usize) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut lines = Lines::default();
    match many {
        Many::Traces => {
            (1..=count).for_each(|trace| lines.pair(trace, &format!("root {}", letters(trace % 5))))
        }
        Many::Spans => {
            for number in 0..count {
                let (trace, place) = (1 + number / 20, number % 20);
                let name = format!("call {}", letters(number % 13));
                let parents = if place == 0 { vec![] } else { vec![place.div_ceil(2)] };
                lines.span((trace, place + 1), &parents, &name, true);
            }
        }
        Many::Names => {
            for number in 0..count {
                let (trace, place) = (1 + number / 4, number % 4);
                let name = if place == 0 { "root".to_owned() } else { format!("call {}", letters(number)) };
                lines.span((trace, place + 1), if place == 0 { &[] } else { &[1] }, &name, true);
            }
        }
        Many::Roots => (1..=count).for_each(|trace| lines.pair(trace, &format!("root {}", letters(trace)))),
        Many::Children => {
            lines.span((1, 1), &[], "root", true);
            (2..=count)
                .for_each(|span| lines.span((1, span), &[1], &format!("call {}", letters(span % 7)), true));
        }
        Many::Branches => {
            let mut times = vec![(1_000u64, 1_000_000_000u64)];
            lines.timed((1, 1), &[], "root", times[0]);
            for place in 1..count {
                // Half of the spans begin below the previous one, the others anywhere.
                let parent = if place % 2 == 0 { place - 1 } else { place * 7919 % place.div_ceil(2) };
                let (start, end) = times[parent];
                let length = end - start;
                let own = (start + length * (place as u64 % 3) / 8, end - length * (place as u64 % 5) / 8);
                times.push(own);
                lines.timed((1, place + 1), &[parent + 1], &format!("call {}", letters(place % 7)), own);
            }
        }
        Many::Depth => {
            lines.span((1, 1), &[], "root", true);
            // The deepest first, so that each walk upwards would be long.
            (2..=count).rev().for_each(|span| lines.span((1, span), &[span - 1], "call", false));
        }
        Many::Parents => {
            (1..=count).for_each(|span| lines.span((1, span), &[], "call", true));
            let parents: Vec<usize> = (1..=count).rev().collect();
            lines.span((1, count + 1), &parents, "join", true);
        }
        Many::Processes => {
            for span in 1..=count {
                let parents = if span == 1 { vec![] } else { vec![1] };
                lines.of((1, span), &parents, "call", "\"b\":1000,\"e\":1005,", &letters(span));
            }
        }
        Many::Values => {
            lines.span((1, 1), &[], "root", true);
            for span in 2..=count {
                lines.line(
                    (1, span),
                    &[1],
                    "call",
                    &format!("\"b\":1000,\"e\":1005,\"n\":{{\"value\":\"{span}\"}},"),
                );
            }
        }
        Many::Problems => {
            lines.pair(1, "root");
            (0..count).for_each(|_| lines.0.push_str("{\"a\":\"no id\"}\n"));
        }
        Many::Members => {
            let mut archive = Vec::new();
            for trace in 1..=count {
                let mut one = Lines::default();
                one.pair(trace, "root");
                member(&mut archive, &format!("spans-{trace}.json"), one.0.as_bytes());
            }
            archive.extend([0; 1024]);
            return fs::write(folder.join("in"), archive);
        }
        Many::Keys => {
            lines.pair(1, "root");
            let mut text = "version = 1\n[bump]\nlambda = 2.0\nmin = 0.01\nwindow = \"1s\"\n".to_owned();
            for key in 0..count {
                let _ = writeln!(text, "[bump.root.\"key {}\"]\nlambda = {}.5", letters(key), key + 1);
            }
            fs::write(folder.join("parameters.toml"), text)?;
        }
    }
    fs::write(folder.join("in"), lines.0)
}

/// Lines of HTrace 4.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn span(&mut self, (trace, span): (usize, usize), parents: &[usize], name: &str, timed: bool) {
        let start = 1_000 + 10 * trace + span % 7;
        let times =
            if timed { format!("\"b\":{start},\"e\":{},", start + 5 + span % 11) } else { String::new() };
        self.line((trace, span), parents, name, &times);
    }

    /// A span with a start and an end in ms.
    fn timed(&mut self, place: (usize, usize), parents: &[usize], name: &str, (start, end): (u64, u64)) {
        self.line(place, parents, name, &format!("\"b\":{start},\"e\":{end},"));
    }

    fn line(&mut self, place: (usize, usize), parents: &[usize], name: &str, times: &str) {
        self.of(place, parents, name, times, "s");
    }

    /// A span of the given process.
    fn of(
        &mut self,
        (trace, span): (usize, usize),
        parents: &[usize],
        name: &str,
        times: &str,
        process: &str,
    ) {
        let id = |span: &usize| format!("{trace:016x}{span:016x}");
        let parents: Vec<String> = parents.iter().map(|parent| format!("\"{}\"", id(parent))).collect();
        let _ = writeln!(
            self.0,
            r#"{{"a":"{}",{times}"d":"{name}","r":"{process}","p":[{}]}}"#,
            id(&span),
            parents.join(",")
        );
    }

    /// A trace of a root and a child.
    fn pair(&mut self, trace: usize, root: &str) {
        self.span((trace, 1), &[], root, true);
        self.span((trace, 2), &[1], "call", true);
    }
}

/// A number written in letters, because names with digits are folded. Letters from g on, because
/// hexadecimal digits are folded too.
fn letters(mut number: usize) -> String {
    let mut text = String::new();
    loop {
        text.push(char::from(b'g' + (number % 20) as u8));
        number /= 20;
        if number == 0 {
            return text;
        }
    }
}

/// A file of a tar archive, in the format of POSIX.1-1988 (ustar).
fn member(archive: &mut Vec<u8>, name: &str, content: &[u8]) {
    let mut header = [0u8; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    // The checksum field counts as blanks.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    archive.extend(header);
    archive.extend(content);
    archive.resize(archive.len().next_multiple_of(512), 0);
}
