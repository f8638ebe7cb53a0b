//! Which attributes of spans are variables, and with which values.

use std::collections::{HashMap, HashSet};

use astracer_recording::intern::Symbol;
use astracer_recording::recording::Kept;
use astracer_recording::stop::Pulse;
use rapidhash::fast::RandomState;

use super::Chosen;

/// The most distinct values of an attribute that are all variables. With more, such as customers,
/// only the most frequent ones are.
pub const VALUES_MAX: usize = 50;
/// The most frequent values of such an attribute that are variables, if this many traces have them.
const FREQUENT_MAX: usize = 20;
const FREQUENT_TRACES_MIN: u32 = 5;
/// Stands for the other values of such an attribute.
pub(crate) const OTHERS: &str = "(others)";
/// The values of an attribute that are counted; later new ones are not.
const COUNTED_MAX: usize = 20_000;

/// The number of a run, and the symbols of a service and of a key in its recording.
type Key = (u32, Symbol, Symbol);
/// Each value of an attribute with the number of traces, and the last of them.
type Counted<V> = HashMap<V, (u32, usize), RandomState>;

/// The attributes that are variables.
#[derive(Debug, Default)]
pub(super) struct Named {
    keys: HashMap<Key, usize, RandomState>,
    /// The values that are variables of their own; `None` stands for all.
    allowed: Vec<Option<HashSet<String>>>,
}

impl Named {
    /// The attributes with two values or more, and of those with many the most frequent values.
    /// Classes play no part, or chance would be underestimated. `None` if `pulse` stopped the work.
    pub(super) fn new(chosen: &[Chosen<'_>], pulse: &mut Pulse<'_>) -> Option<Self> {
        let mut of_keys: HashMap<Key, Counted<Kept>, RandomState> = HashMap::default();
        for (at, one) in chosen.iter().enumerate() {
            for span in one.trace.spans() {
                let Some(content) = span.content() else { continue };
                for &(key, value) in content.attributes.iter().chain(content.resource_attributes) {
                    let known = of_keys.entry((one.run, span.service_symbol(), key)).or_default();
                    if matches!(value, Kept::Double(_) | Kept::Other) {
                        continue;
                    }
                    if let Some((traces, last)) = known.get_mut(&value) {
                        *traces += u32::from(*last != at);
                        *last = at;
                    } else if known.len() < COUNTED_MAX {
                        known.insert(value, (1, at));
                    }
                }
                if pulse.stopped() {
                    return None;
                }
            }
        }
        // The same attribute of several runs, by its text.
        let runs: HashMap<u32, &Chosen<'_>> = chosen.iter().map(|one| (one.run, one)).collect();
        let mut numbers: HashMap<(&str, &str), usize> = HashMap::new();
        let mut counted: Vec<Counted<String>> = Vec::new();
        let mut keys: HashMap<Key, usize, RandomState> = HashMap::default();
        for (key, values) in of_keys {
            let recording = runs[&key.0].recording;
            let texts = recording.content_texts();
            let next = counted.len();
            let name = (recording.services().name(key.1), texts.name(key.2));
            let number = *numbers.entry(name).or_insert(next);
            if number == next {
                counted.push(Counted::default());
            }
            keys.insert(key, number);
            for (value, (traces, last)) in values {
                let Some(text) = value.text(texts) else { continue };
                counted[number].entry(text.into_owned()).or_insert((0, last)).0 += traces;
            }
        }
        let allowed: Vec<Option<Option<HashSet<String>>>> = counted
            .into_iter()
            .map(|values| match values.len() {
                0 | 1 => None,
                2..=VALUES_MAX => Some(None),
                _ => frequent(values).map(Some),
            })
            .collect();
        keys.retain(|_, number| allowed[*number].is_some());
        Some(Self { keys, allowed: allowed.into_iter().map(Option::flatten).collect() })
    }

    /// True if this attribute has values that are variables.
    pub(super) fn has(&self, run: u32, service: Symbol, key: Symbol) -> bool {
        self.keys.contains_key(&(run, service, key))
    }

    /// The text under which a value of this attribute is a variable.
    pub(super) fn value<'t>(&self, run: u32, service: Symbol, key: Symbol, text: &'t str) -> &'t str {
        let number = self.keys.get(&(run, service, key));
        let allowed = number.and_then(|&number| self.allowed[number].as_ref());
        if allowed.is_none_or(|allowed| allowed.contains(text)) { text } else { OTHERS }
    }
}

/// The most frequent of these values; `None` if none is frequent.
fn frequent(values: Counted<String>) -> Option<HashSet<String>> {
    let mut of: Vec<(u32, String)> = values
        .into_iter()
        .map(|(text, (traces, _))| (traces, text))
        .filter(|&(traces, _)| traces >= FREQUENT_TRACES_MIN)
        .collect();
    of.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    of.truncate(FREQUENT_MAX);
    let found: HashSet<String> = of.into_iter().map(|(_, text)| text).collect();
    (!found.is_empty()).then_some(found)
}
