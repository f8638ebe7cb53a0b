//! Templates of log messages: one name for the messages that one statement writes.
//!
//! Numbers and ids in a message are folded before. Words that vary remain: users, paths, hosts.
//! Messages of one logger with as many words and the same first word are compared word by word, and
//! join a template if half of its words are equal, as in Drain (P. He, J. Zhu, Z. Zheng and M. Lyu,
//! "Drain: An Online Log Parsing Approach with Fixed Depth Tree", ICWS 2017).
//!
//! Drain loses a word that tells two statements apart ("cache hit for", "cache miss for"). So a
//! word varies here only if it has more than [`KEPT_WORDS_MAX`] values. Messages are seen in the
//! order of their text, so that templates don't depend on the order of records.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use astracer_recording::intern::Symbol;
use astracer_recording::recording::Recording;
use rapidhash::fast::RandomState;

/// The share of equal words with which a message joins a template, as in the paper.
const SIMILARITY_MIN: f64 = 0.5;
/// The most values of a word that remain apart.
const KEPT_WORDS_MAX: usize = 8;
/// The most different first words of messages of one length; with more, the first word varies, too.
const FIRST_WORDS_MAX: usize = 100;
/// The most templates of messages of one logger, length and first word. Later messages join the
/// most similar one.
const TEMPLATES_MAX: usize = 200;
/// Stands for a word that varies.
const ANY: &str = "*";

/// The names of the events of several recordings' log records, with templates for messages.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    /// The name of each event whose message joined others.
    names: HashMap<String, String, RandomState>,
}

/// Messages that may have a template in common: the logger's part of their names, the number of
/// words, and the first word.
type Leaf<'m> = (&'m str, usize, &'m str);

/// Messages that share a template.
#[derive(Default)]
struct Cluster<'m> {
    /// The words; `None` where they vary.
    words: Vec<Option<&'m str>>,
    /// The name of each event, and the words of its message.
    messages: Vec<(&'m str, Vec<&'m str>)>,
}

impl Templates {
    /// Finds the templates of the messages in these recordings.
    pub(crate) fn new<'r>(recordings: impl Iterator<Item = &'r Recording>) -> Self {
        let mut messages: BTreeSet<(&str, usize)> = BTreeSet::new();
        for recording in recordings {
            for event in (0..recording.log_names().len() as u32).map(Symbol) {
                if let Some(place) = recording.log_message_place(event) {
                    messages.insert((recording.log_names().name(event), place));
                }
            }
        }
        Self::of(messages.iter().copied())
    }

    /// Names of events in the order of their text, each with the place of its message.
    fn of<'m>(messages: impl Iterator<Item = (&'m str, usize)> + Clone) -> Self {
        let mut first_words: HashMap<(&str, usize), BTreeSet<&str>> = HashMap::new();
        let split = |(name, place): (&'m str, usize)| {
            let words: Vec<&str> = name[place..].split_whitespace().collect();
            (name, &name[..place], words)
        };
        for (_, logger, words) in messages.clone().map(split) {
            let Some(&first) = words.first() else { continue };
            let own = first_words.entry((logger, words.len())).or_default();
            if own.len() <= FIRST_WORDS_MAX {
                own.insert(first);
            }
        }
        let mut leaves: BTreeMap<Leaf<'_>, Vec<Cluster<'_>>> = BTreeMap::new();
        for (name, logger, words) in messages.map(split) {
            let Some(&first) = words.first() else { continue };
            let varies = first_words[&(logger, words.len())].len() > FIRST_WORDS_MAX;
            let first = if varies { ANY } else { first };
            let clusters = leaves.entry((logger, words.len(), first)).or_default();
            join(clusters, name, words);
        }
        let mut names = HashMap::default();
        for ((logger, ..), clusters) in &leaves {
            clusters.iter().for_each(|cluster| cluster.name(logger, &mut names));
        }
        Self { names }
    }

    /// The name of an event: with the template of its message, if that joined others.
    pub(crate) fn name<'n>(&'n self, event: &'n str) -> &'n str {
        self.names.get(event).map_or(event, String::as_str)
    }
}

fn join<'m>(clusters: &mut Vec<Cluster<'m>>, name: &'m str, words: Vec<&'m str>) {
    let equal = |cluster: &Cluster<'_>| {
        cluster.words.iter().zip(&words).filter(|(own, word)| own.as_deref() == Some(**word)).count()
    };
    let best = (0..clusters.len()).max_by_key(|&at| (equal(&clusters[at]), std::cmp::Reverse(at)));
    let least = match clusters.len() < TEMPLATES_MAX {
        true => SIMILARITY_MIN * words.len() as f64,
        false => 0.0,
    };
    let at = best.filter(|&at| equal(&clusters[at]) as f64 >= least).unwrap_or_else(|| {
        clusters
            .push(Cluster { words: words.iter().map(|&word| Some(word)).collect(), messages: Vec::new() });
        clusters.len() - 1
    });
    let cluster = &mut clusters[at];
    for (own, &word) in cluster.words.iter_mut().zip(&words) {
        *own = own.filter(|&own| own == word);
    }
    cluster.messages.push((name, words));
}

impl Cluster<'_> {
    /// Names the messages of this cluster. Words with few values remain as they are.
    fn name(&self, logger: &str, names: &mut HashMap<String, String, RandomState>) {
        let varies = |at: usize| {
            let mut values: BTreeSet<&str> = BTreeSet::new();
            self.words[at].is_none()
                && self.messages.iter().any(|(_, words)| {
                    values.insert(words[at]);
                    values.len() > KEPT_WORDS_MAX
                })
        };
        let varying: Vec<bool> = (0..self.words.len()).map(varies).collect();
        if !varying.contains(&true) {
            return;
        }
        for (name, words) in &self.messages {
            let shown = words.iter().zip(&varying).map(|(word, &varies)| if varies { ANY } else { word });
            let template = shown.collect::<Vec<_>>().join(" ");
            names.insert((*name).to_owned(), format!("{logger}{template}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(messages: &[String]) -> Vec<String> {
        let mut all: Vec<(&str, usize)> = messages.iter().map(|text| (text.as_str(), 4)).collect();
        all.sort_unstable();
        let templates = Templates::of(all.into_iter());
        messages.iter().map(|text| templates.name(text).to_owned()).collect()
    }

    #[test]
    fn a_word_with_many_values_varies_and_one_with_few_does_not() {
        let users = (b'a'..=b'p').map(|letter| {
            format!("log login {} by user {}", ["failed", "worked"][usize::from(letter % 2)], letter as char)
        });
        let found: BTreeSet<String> = names(&users.collect::<Vec<_>>()).into_iter().collect();
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["log login failed by user *", "log login worked by user *"]
        );
    }

    #[test]
    fn messages_of_other_lengths_or_first_words_stay_apart() {
        let all: Vec<String> = (b'a'..=b'p')
            .flat_map(|letter| {
                let letter = letter as char;
                [
                    format!("log open file {letter}"),
                    format!("log close file {letter}"),
                    format!("log open the file {letter}"),
                ]
            })
            .collect();
        let found: BTreeSet<String> = names(&all).into_iter().collect();
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["log close file *", "log open file *", "log open the file *"]
        );
    }

    #[test]
    fn a_first_word_with_many_values_varies() {
        let all: Vec<String> =
            (0..200).map(|user| format!("log user{}x logged in", "ab".repeat(user))).collect();
        assert!(names(&all).iter().all(|name| name == "log * logged in"));
    }
}
