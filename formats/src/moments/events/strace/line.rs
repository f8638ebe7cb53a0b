//! The parts of a line: thread, time, and a call, a result or an end.

/// The parts before a line's body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'t> {
    pub(super) pid: Option<u64>,
    pub(super) time: Option<Time>,
    /// Nanoseconds that the last digit of the time stands for.
    pub(super) unit: u64,
    pub(super) body: &'t str,
}

/// A time as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// Nanoseconds since 1970 (`-ttt`).
    Absolute(u64),
    /// Nanoseconds since midnight (`-t`, `-tt`).
    OfDay(u64),
    /// Nanoseconds since the line before (`-r`).
    Since(u64),
}

impl<'t> Head<'t> {
    /// Splits a line; `None` if it has neither a thread nor a time.
    pub(super) fn of(line: &'t str) -> Option<Self> {
        let mut rest = line.trim_start();
        let mut pid = None;
        if let Some(inside) = rest.strip_prefix("[pid") {
            let (number, behind) = inside.split_once(']')?;
            pid = Some(leading(number.trim_start())?.0);
            rest = behind.trim_start();
        } else if let Some((number, behind)) = leading(rest) {
            // With -Y, the name of the program stands behind the number.
            let behind = match behind.strip_prefix('<') {
                Some(named) => named.split_once('>').map_or(behind, |(_, behind)| behind),
                None => behind,
            };
            if behind.starts_with(' ') {
                pid = Some(number);
                rest = behind.trim_start();
            }
        }
        let timed = rest.split_once(' ').and_then(|(word, body)| Some((time(word)?, unit(word), body)));
        let (time, unit, body) = match timed {
            Some((time, unit, body)) => (Some(time), unit, body.trim_start()),
            None => (None, 0, rest),
        };
        (pid.is_some() || time.is_some()).then_some(Self { pid, time, unit, body })
    }
}

/// Nanoseconds that the last digit of a time stands for.
fn unit(word: &str) -> u64 {
    let digits = word.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    10u64.pow(9u32.saturating_sub(digits as u32))
}

/// The number at the start of a text, and the text behind it.
fn leading(text: &str) -> Option<(u64, &str)> {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    Some((text.get(..len)?.parse().ok()?, &text[len..]))
}

/// A time as written: of the clock, of the day, or a length.
pub(super) fn time(word: &str) -> Option<Time> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) || fraction.len() > 9 {
        return None;
    }
    let nanos = match fraction.len() {
        0 => 0,
        len => fraction.parse::<u64>().ok()?.checked_mul(10u64.pow(9 - len as u32))?,
    };
    let mut parts = whole.split(':').map(|part| {
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<u64>().ok().filter(|_| is_number)
    });
    let first = parts.next()??;
    let seconds = |seconds: u64| seconds.checked_mul(1_000_000_000)?.checked_add(nanos);
    let Some(minutes) = parts.next() else {
        // Both forms have a fraction of six digits; a relative time is short.
        let is_relative = first < 100_000_000;
        let nanos = seconds(first).filter(|_| !fraction.is_empty())?;
        return Some(if is_relative { Time::Since(nanos) } else { Time::Absolute(nanos) });
    };
    let (minutes, last) = (minutes?, parts.next()??);
    let fits = first < 24 && minutes < 60 && last <= 60 && parts.next().is_none();
    fits.then(|| seconds(first * 3600 + minutes * 60 + last)).flatten().map(Time::OfDay)
}

/// Makes times of one kind of all lines.
#[derive(Debug, Default)]
pub(super) struct Clock {
    days: u64,
    last: u64,
}

const DAY: u64 = 86_400_000_000_000;

impl Clock {
    pub(super) fn read(&mut self, time: Time) -> u64 {
        match time {
            Time::Absolute(nanos) => nanos,
            Time::OfDay(nanos) => {
                // Half a day back is midnight, less is a clock that was set.
                if nanos + DAY / 2 < self.last {
                    self.days += 1;
                }
                self.last = nanos;
                nanos.saturating_add(self.days.saturating_mul(DAY))
            }
            Time::Since(nanos) => {
                self.last = self.last.saturating_add(nanos);
                self.last
            }
        }
    }
}

/// The body of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body<'t> {
    /// A whole call.
    Call(&'t str),
    /// The entry of a call, whose result follows.
    Unfinished(&'t str),
    /// The name of a call, and its rest with the result.
    Resumed(&'t str, &'t str),
    /// The end of a thread.
    Exited,
    /// A signal.
    Signal,
    /// Something else.
    Other,
}

impl<'t> Body<'t> {
    pub(super) fn of(body: &'t str) -> Self {
        if body.starts_with("+++ ") {
            let is_end = body.starts_with("+++ exited") || body.starts_with("+++ killed");
            return if is_end { Self::Exited } else { Self::Other };
        }
        if body.starts_with("--- ") {
            return Self::Signal;
        }
        if let Some(resumed) = body.strip_prefix("<... ") {
            return match resumed.split_once(" resumed>") {
                Some((name, rest)) => Self::Resumed(name, rest),
                None => Self::Other,
            };
        }
        let name = body.bytes().take_while(|&byte| byte.is_ascii_alphanumeric() || byte == b'_').count();
        if name == 0 || body.as_bytes().get(name) != Some(&b'(') {
            return Self::Other;
        }
        match body.strip_suffix("<unfinished ...>") {
            Some(entry) => Self::Unfinished(entry.trim_end()),
            None => Self::Call(body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forms are those of strace's manual page.
    #[test]
    fn heads_are_read_in_all_forms() {
        for (line, pid, time, body) in [
            (
                "17 1795222618.102260 read(3, \"\", 1) = 0",
                Some(17),
                Some(Time::Absolute(1_795_222_618_102_260_000)),
                "read(3, \"\", 1) = 0",
            ),
            (
                "[pid    17] 01:00:01.5 close(3) = 0",
                Some(17),
                Some(Time::OfDay(3_601_500_000_000)),
                "close(3) = 0",
            ),
            ("     0.000012 close(3) = 0", None, Some(Time::Since(12_000)), "close(3) = 0"),
            (
                "17<java> 10:00:00 +++ exited with 0 +++",
                Some(17),
                Some(Time::OfDay(36_000_000_000_000)),
                "+++ exited with 0 +++",
            ),
        ] {
            let head = Head::of(line).expect("a head");
            assert_eq!((head.pid, head.time, head.body), (pid, time, body), "{line}");
        }
        assert!(Head::of("close(3) = 0").is_none() && Head::of("strace: Process 5 attached").is_none());
        assert_eq!(Body::of("accept(3<TCP:[x]>,  <unfinished ...>"), Body::Unfinished("accept(3<TCP:[x]>,"));
        assert_eq!(Body::of("<... accept resumed>) = 5"), Body::Resumed("accept", ") = 5"));
        assert_eq!(Body::of("2026-11-21 INFO (x) = 1"), Body::Other);
    }
}
