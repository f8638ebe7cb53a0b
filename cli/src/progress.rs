//! Progress of long work: a bar on a terminal, a line every ten seconds elsewhere.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use astracer_recording::source;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// The time between two lines where standard error is not a terminal.
const EVERY: Duration = Duration::from_secs(10);

/// The display of one piece of work, on standard error.
pub(crate) struct Progress {
    bar: ProgressBar,
    is_bytes: bool,
    /// The time of the last line, or of the start before the first line; `None` on a terminal.
    printed: Option<Mutex<Instant>>,
}

impl Progress {
    /// Counts the bytes read from these files. The total is unknown if one of them is a pipe.
    pub(crate) fn reading(paths: &[PathBuf]) -> Self {
        let sizes: Option<Vec<u64>> = paths.iter().map(|path| source::stored_size(path)).collect();
        let total = sizes.map(|sizes| sizes.iter().sum());
        let template = match total {
            Some(_) => "{msg} {bar:30} {bytes}/{total_bytes} {eta}",
            None => "{msg} {spinner} {bytes}",
        };
        Self::new("reading", total, template, true)
    }

    /// Counts the steps of some work.
    pub(crate) fn steps(what: &'static str, steps: u64) -> Self {
        Self::new(what, Some(steps), "{msg} {bar:30} {pos}/{len} {eta}", false)
    }

    /// Shows only a message, and only on a terminal: work that runs until it is stopped would fill
    /// a log.
    pub(crate) fn message() -> ProgressBar {
        if std::io::stderr().is_terminal() {
            styled(ProgressBar::new_spinner(), "{spinner} {msg}")
        } else {
            ProgressBar::hidden()
        }
    }

    fn new(what: &'static str, total: Option<u64>, template: &str, is_bytes: bool) -> Self {
        let printed = (!std::io::stderr().is_terminal()).then(|| Mutex::new(Instant::now()));
        let bar = match total {
            Some(total) if printed.is_none() => ProgressBar::new(total),
            None if printed.is_none() => ProgressBar::new_spinner(),
            total => {
                let bar = ProgressBar::hidden();
                total.into_iter().for_each(|total| bar.set_length(total));
                bar
            }
        };
        Self { bar: styled(bar, template).with_message(what), is_bytes, printed }
    }

    /// Adds steps or bytes that are done.
    pub(crate) fn inc(&self, done: u64) {
        self.bar.inc(done);
        self.print();
    }

    /// Replaces the message, the number of steps done, and the total.
    pub(crate) fn set(&self, message: String, done: u64, all: u64) {
        self.bar.set_length(all);
        self.bar.set_position(done);
        self.bar.set_message(message);
        self.print();
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn print(&self) {
        // Another thread that holds the lock is printing a line.
        let Some(Ok(mut printed)) = self.printed.as_ref().map(Mutex::try_lock) else { return };
        if printed.elapsed() < EVERY {
            return;
        }
        *printed = Instant::now();
        output::note(&line(&self.bar.message(), self.bar.position(), self.bar.length(), self.is_bytes));
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// One line: "reading: 1.2 MB of 11.6 MB (10%)".
fn line(message: &str, done: u64, all: Option<u64>, is_bytes: bool) -> String {
    let number = |number| if is_bytes { output::bytes(number) } else { output::count(number) };
    match all.filter(|&all| all > 0) {
        Some(all) => {
            let percent = done.min(all) as f64 / all as f64 * 100.0;
            format!("progress: {message}: {} of {} ({percent:.0}%)", number(done.min(all)), number(all))
        }
        None => format!("progress: {message}: {}", number(done)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_is_done() {
        assert_eq!(
            line("reading", 1_200_000, Some(11_600_000), true),
            "progress: reading: 1.2 MB of 11.6 MB (10%)"
        );
        assert_eq!(line("reading", 1_500, None, true), "progress: reading: 1.5 kB");
        assert_eq!(
            line("searching, best 6.611", 500, Some(2_000), false),
            "progress: searching, best 6.611: 500 of 2,000 (25%)"
        );
        assert_eq!(line("searching", 0, Some(0), false), "progress: searching: 0");
    }

    /// Tests have no terminal: the counts are kept, and nothing is printed at once.
    #[test]
    fn a_hidden_bar_counts() {
        let progress = Progress::steps("replaying", 8);
        progress.inc(3);
        assert_eq!((progress.bar.position(), progress.bar.length()), (3, Some(8)));
        progress.set("checking".to_owned(), 1, 2);
        assert_eq!((progress.bar.position(), progress.bar.length()), (1, Some(2)));
        progress.finish();
    }
}
