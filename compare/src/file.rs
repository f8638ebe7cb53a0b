//! Reads files of instances: DISTALYZER's middle form, into which a short script can turn any log.
//!
//! Each line is a JSON object:
//!
//! | member | meaning |
//! |---|---|
//! | `id` | the instance's name; its place in the file if missing |
//! | `cls` | 0 for good and 1 for bad |
//! | `dur` | the length of the run, ms |
//! | `us` | the metric P that is to be explained; `dur` if missing |
//! | `type` | the type of request; all are of one type if missing |
//! | `weight` | the number of runs it stands for; 1 if missing |
//! | `ev` | an object of events: name, list of times (ms since the start) |
//! | `st` | an object of states: name, list of (time, value) pairs |

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead};
use std::marker::PhantomData;

use rapidhash::fast::RandomState;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::features::Kind;
use super::instances::{Class, Head, Observed, Source, Variables};

/// The longest line that is read.
const LINE_MAX: u64 = 256 << 20;

/// Instances read from files. After the last file, [`InstancesFile::sort`] makes their order
/// independent of the order of files.
#[derive(Debug, Default)]
pub struct InstancesFile {
    heads: Vec<Head>,
    types: Vec<String>,
    numbers: HashMap<String, u32>,
    rows: Vec<Row>,
    /// The class of each stated id.
    classes: HashMap<String, Class, RandomState>,
    /// Lines that are no instances, and the first of each file.
    unreadable: u64,
    examples: Vec<(u32, FileError)>,
}

#[derive(Debug, PartialEq, PartialOrd)]
struct Row {
    events: Pairs<Vec<f64>>,
    states: Pairs<Vec<(f64, f64)>>,
}

/// A line of a file of instances that could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub struct FileError {
    /// The line's number, from 1.
    pub line: u64,
    /// The fault in it.
    pub reason: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for FileError {}

#[derive(Deserialize)]
struct Line {
    id: Option<String>,
    cls: u8,
    dur: f64,
    us: Option<f64>,
    r#type: Option<String>,
    weight: Option<f64>,
    #[serde(default)]
    ev: Pairs<Vec<Number>>,
    #[serde(default)]
    st: Pairs<Vec<(Number, Number)>>,
}

/// A time or value. What is `null` becomes NaN, which is counted and left out where values are
/// summed.
#[derive(Deserialize)]
struct Number(Option<f64>);

impl Number {
    fn value(&self) -> f64 {
        self.0.unwrap_or(f64::NAN)
    }
}

/// The members of an object, in order. A repeated name stays twice.
#[derive(Debug, PartialEq, PartialOrd)]
struct Pairs<T>(Vec<(Box<str>, T)>);

impl<T> Default for Pairs<T> {
    fn default() -> Self {
        Pairs(Vec::new())
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: DeserializeOwned> Visitor<'de> for Members<T> {
            type Value = Pairs<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of lists")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, T>()? {
                    members.push((name.into_boxed_str(), value));
                }
                Ok(Pairs(members))
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

impl InstancesFile {
    /// True if a text begins like a file of instances.
    pub fn is_one(beginning: &[u8]) -> bool {
        let line = beginning.split(|&byte| byte == b'\n').next().unwrap_or_default();
        line.trim_ascii_start().starts_with(b"{") && memchr::memmem::find(line, b"\"cls\"").is_some()
    }

    /// Adds the instances of a file, all of which belong to run number `run`. Empty lines are
    /// skipped, and lines that are not JSON, such as a torn last one, are counted.
    ///
    /// # Errors
    ///
    /// If the input cannot be read, if a line is JSON but no instance, or if an id is in both
    /// classes.
    pub fn read(&mut self, mut input: impl BufRead, run: u32) -> Result<(), FileError> {
        let mut text = Vec::new();
        for line in 1.. {
            text.clear();
            let wrong = |reason: String| FileError { line, reason };
            let read = io::Read::take(&mut input, LINE_MAX + 1).read_until(b'\n', &mut text);
            if read.map_err(|error| wrong(error.to_string()))? == 0 {
                break;
            }
            if text.len() as u64 > LINE_MAX {
                return Err(wrong(format!("the line is longer than {LINE_MAX} bytes")));
            }
            if text.trim_ascii().is_empty() {
                continue;
            }
            let row: Line =
                match serde_json::from_slice(&text).or_else(|error| without_nan(&text).ok_or(error)) {
                    Ok(row) => row,
                    Err(error) if error.is_data() => return Err(wrong(error.to_string())),
                    Err(error) => {
                        self.unreadable += 1;
                        if self.examples.last().is_none_or(|&(of, _)| of != run) {
                            self.examples.push((run, wrong(error.to_string())));
                        }
                        continue;
                    }
                };
            self.add(row, run, line).map_err(wrong)?;
        }
        Ok(())
    }

    /// The number of lines that are not JSON, and the first of each run that has one.
    pub fn unreadable(&self) -> (u64, &[(u32, FileError)]) {
        (self.unreadable, &self.examples)
    }

    /// Sorts all instances by their content, and types by name.
    pub fn sort(&mut self) {
        let mut types: Vec<(String, u32)> = std::mem::take(&mut self.types).into_iter().zip(0..).collect();
        types.sort();
        let mut numbers = vec![0; types.len()];
        for (new, (name, old)) in (0..).zip(types) {
            numbers[old as usize] = new;
            self.numbers.insert(name.clone(), new);
            self.types.push(name);
        }
        let heads = std::mem::take(&mut self.heads).into_iter();
        let mut all: Vec<(Head, Row)> = heads.zip(std::mem::take(&mut self.rows)).collect();
        all.iter_mut().for_each(|(head, _)| head.stratum = numbers[head.stratum as usize]);
        all.sort_by(|(a, of_a), (b, of_b)| {
            let key = |head: &Head| (head.class, head.stratum);
            a.id.cmp(&b.id)
                .then_with(|| key(a).cmp(&key(b)))
                .then_with(|| a.length_ms.total_cmp(&b.length_ms))
                .then_with(|| a.metric.total_cmp(&b.metric))
                .then_with(|| a.weight.partial_cmp(&b.weight).unwrap_or(Ordering::Equal))
                .then_with(|| of_a.partial_cmp(of_b).unwrap_or(Ordering::Equal))
        });
        (self.heads, self.rows) = all.into_iter().unzip();
    }

    fn add(&mut self, line: Line, run: u32, number: u64) -> Result<(), String> {
        let class = match line.cls {
            0 => Class::Good,
            1 => Class::Bad,
            other => return Err(format!("cls is {other}; use 0 for good and 1 for bad")),
        };
        if line.dur < 0.0 {
            return Err(format!("dur is {}; a run lasts 0 ms or more", line.dur));
        }
        if let Some(id) = &line.id
            && *self.classes.entry(id.clone()).or_insert(class) != class
        {
            return Err(format!("the id '{id}' is in both classes; an instance is good or bad"));
        }
        let of = line.r#type.unwrap_or_default();
        let types = &mut self.types;
        let stratum = *self.numbers.entry(of).or_insert_with_key(|of| {
            types.push(of.clone());
            types.len() as u32 - 1
        });
        self.heads.push(Head {
            id: line.id.unwrap_or_else(|| format!("line {number}")),
            class,
            run,
            stratum,
            weight: Some(line.weight.unwrap_or(1.0)),
            length_ms: line.dur,
            metric: line.us.unwrap_or(line.dur),
            start_ns: 0,
        });
        let events =
            line.ev.0.into_iter().map(|(name, times)| (name, times.iter().map(Number::value).collect()));
        let states = line.st.0.into_iter().map(|(name, points)| {
            (name, points.iter().map(|(time, value)| (time.value(), value.value())).collect())
        });
        self.rows.push(Row { events: Pairs(events.collect()), states: Pairs(states.collect()) });
        Ok(())
    }
}

/// Reads a line in which some program wrote NaN or Infinity, which JSON does not have, as `null`.
fn without_nan(text: &[u8]) -> Option<Line> {
    let text = std::str::from_utf8(text).ok()?;
    let mut out = String::with_capacity(text.len());
    let (mut is_in_string, mut rest) = (false, text);
    while let Some(next) = rest.chars().next() {
        let word = ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| rest.starts_with(word));
        if let Some(word) = word.filter(|_| !is_in_string) {
            out.push_str("null");
            rest = &rest[word.len()..];
            continue;
        }
        let len = match next {
            '\\' if is_in_string => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            '"' => {
                is_in_string = !is_in_string;
                1
            }
            other => other.len_utf8(),
        };
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    serde_json::from_str(&out).ok()
}

impl Source for InstancesFile {
    fn heads(&self) -> &[Head] {
        &self.heads
    }

    fn types(&self) -> &[String] {
        &self.types
    }

    fn observe(&self, at: usize, variables: &mut Variables, observed: &mut Observed) {
        let Row { events, states } = &self.rows[at];
        for (name, times) in &events.0 {
            if let Some(variable) = variables.number(Kind::Event, name) {
                observed.events.extend(times.iter().map(|&time| (variable, time)));
            }
        }
        for (name, points) in &states.0 {
            if let Some(variable) = variables.number(Kind::State, name) {
                observed.states.extend(points.iter().map(|&(time, value)| (variable, time, value)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<InstancesFile, FileError> {
        let mut file = InstancesFile::default();
        file.read(text.as_bytes(), 0).map(|()| file)
    }

    #[test]
    fn a_line_is_an_instance() {
        let line = r#"{"id":"a","cls":1,"dur":7.5,"us":9,"ev":{"x":[1,2]},"st":{"y":[[3,4]]}}"#;
        let file = read(&format!("{line}\n\n{{\"cls\":0,\"dur\":1,\"type\":\"t\"}}\n")).expect("instances");
        let [a, b] = file.heads() else { panic!("{file:?}") };
        assert_eq!(
            (a.id.as_str(), a.class, a.length_ms, a.metric, a.stratum),
            ("a", Class::Bad, 7.5, 9.0, 0)
        );
        assert_eq!((b.id.as_str(), b.class, b.metric, b.stratum), ("line 3", Class::Good, 1.0, 1));
        let (mut variables, mut observed) = (Variables::new(10), Observed::default());
        file.observe(0, &mut variables, &mut observed);
        assert_eq!(observed, Observed { events: vec![(0, 1.0), (0, 2.0)], states: vec![(1, 3.0, 4.0)] });
        assert_eq!((variables.get(0), variables.get(1)), ((Kind::Event, "x"), (Kind::State, "y")));
    }

    /// NaN, as Python writes it, and `null` are values that are not there. A torn last line costs
    /// that line.
    #[test]
    fn a_missing_value_or_a_torn_line_costs_no_more_than_itself() {
        let text = "{\"id\":\"NaN \\\" NaN\",\"cls\":1,\"dur\":7,\"ev\":{\"x\":[1,NaN,null]},\"st\":{\"y\":[[3,-Infinity]]}}\n{\"id\":\"b\",\"cl";
        let file = read(text).expect("instances");
        assert_eq!(file.heads().len(), 1);
        assert_eq!(file.heads()[0].id, "NaN \" NaN");
        let (mut variables, mut observed) = (Variables::new(10), Observed::default());
        file.observe(0, &mut variables, &mut observed);
        assert_eq!((observed.events.len(), observed.states.len()), (3, 1));
        assert!(
            observed.events[1].1.is_nan() && observed.events[2].1.is_nan() && observed.states[0].2.is_nan()
        );
        let (unreadable, examples) = file.unreadable();
        assert_eq!((unreadable, examples.len(), examples[0].1.line), (1, 1, 2));
    }

    #[test]
    fn the_line_of_a_fault_is_named() {
        for (text, reason) in [
            ("{\"cls\":0,\"dur\":1}\n{\"cls\":2,\"dur\":1}", "cls is 2"),
            ("{\"cls\":0,\"dur\":1}\n{\"cls\":0}", "missing field `dur`"),
            (
                "{\"id\":\"a\",\"cls\":0,\"dur\":1}\n{\"id\":\"a\",\"cls\":1,\"dur\":1}",
                "'a' is in both classes",
            ),
            ("{\"cls\":0,\"dur\":1}\n{\"cls\":0,\"dur\":-1}", "dur is -1"),
            ("\n{\"cls\":0,\"dur\":1,\"ev\":{\"a\":3}}", "invalid type"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.line == 2 && error.reason.contains(reason), "{text}: {error}");
        }
    }
}
