//! The trace state of a trace, in a form that its spans share.
//!
//! OpenTelemetry's `TraceState` is a list of pairs of texts. Copying it allocates the list and each
//! text. Most traces begin here and carry only a weight: two numbers, whose text is made when it is
//! first read.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use astracer_samplers::tracestate::OtMember;
use astracer_samplers::{Randomness, Threshold};
use opentelemetry::trace::TraceState;

const OT: &str = "ot";

/// A member of our own, sent along with a trace that is not sampled: the process with its root
/// records it, and decides later by its stratum whether to keep it. Processes that also have strata
/// record their parts, and those without pass the member on.
const RECORDED: (&str, &str) = ("astracer", "recorded");

thread_local! {
    /// The state of traces kept with probability 1. Of a thread, because a count of copies that all
    /// threads share would be contended.
    static CERTAIN: State = State::new(Some(Threshold::ALWAYS), None);
}

/// The trace state of a trace. A single pointer, because each open span holds one.
#[derive(Clone, Debug, Default)]
pub struct State(Option<Arc<Repr>>);

#[derive(Debug)]
enum Repr {
    /// Only OpenTelemetry's member, with only `th` and `rv`.
    Weight(Weight),
    List(TraceState),
}

#[derive(Debug)]
struct Weight {
    threshold: Option<Threshold>,
    randomness: Option<Randomness>,
    /// Made when first read. Each context of a span holds a copy, which costs half as much as
    /// making it.
    list: OnceLock<TraceState>,
}

impl State {
    pub const EMPTY: State = State(None);

    /// The received state, unchanged.
    pub fn of(state: &TraceState) -> Self {
        if *state == TraceState::NONE { State::EMPTY } else { Repr::List(state.clone()).into() }
    }

    /// A state with only a weight.
    pub fn of_numbers(threshold: Option<Threshold>, randomness: Option<Randomness>) -> Self {
        match (threshold, randomness) {
            (None, None) => State::EMPTY,
            (Some(Threshold::ALWAYS), None) => {
                CERTAIN.try_with(State::clone).unwrap_or_else(|_| State::new(threshold, randomness))
            }
            _ => State::new(threshold, randomness),
        }
    }

    fn new(threshold: Option<Threshold>, randomness: Option<Randomness>) -> Self {
        Repr::Weight(Weight { threshold, randomness, list: OnceLock::new() }).into()
    }

    /// This state with OpenTelemetry's member replaced and moved to the front, or removed if
    /// `member` is empty. A decision was made, so the trace is no longer one that is only recorded.
    pub fn with_member(state: &TraceState, member: OtMember<'_>) -> Self {
        let is_alone = state.into_iter().all(|(key, _)| key == OT || key == RECORDED.0);
        if is_alone && !member.has_others() {
            return State::of_numbers(member.threshold, member.randomness);
        }
        // Joined header lines may contain the member more than once. The API changes only the
        // first, and the next one would then take its place, so remove the extra ones.
        let (given, mut state) = (state, Cow::Borrowed(state));
        if state.get(RECORDED.0).is_some() {
            state = Cow::Owned(state.delete(RECORDED.0).unwrap_or_default());
        }
        for _ in given.into_iter().filter(|(key, _)| *key == OT).skip(1) {
            state = Cow::Owned(state.delete(OT).unwrap_or_default());
        }
        let value = member.value();
        if !value.is_empty() {
            // The value follows the grammar, so this does not fail.
            return Repr::List(state.insert(OT, value).unwrap_or_default()).into();
        }
        match state.get(OT) {
            Some(_) => Repr::List(state.delete(OT).unwrap_or_default()).into(),
            None => State::of(&state),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The number of calls that a trace with this state represents: 1 without a threshold.
    pub fn calls(&self) -> f64 {
        self.threshold().map_or(1.0, Threshold::adjusted_count)
    }

    /// The threshold that kept the trace, if it has a weight.
    pub fn threshold(&self) -> Option<Threshold> {
        match &**self.0.as_ref()? {
            Repr::Weight(weight) => weight.threshold,
            Repr::List(state) => member(state).threshold,
        }
    }

    /// The randomness of the trace, if the state holds it.
    pub fn randomness(&self) -> Option<Randomness> {
        match &**self.0.as_ref()? {
            Repr::Weight(weight) => weight.randomness,
            Repr::List(state) => member(state).randomness,
        }
    }

    /// The state with this weight in place of any other. `None` is for a trace that was kept for
    /// its outcome and not at random.
    pub fn with_threshold(&self, threshold: Option<Threshold>) -> Self {
        match self.0.as_deref() {
            None => State::of_numbers(threshold, None),
            Some(Repr::Weight(weight)) => State::of_numbers(threshold, weight.randomness),
            Some(Repr::List(state)) => {
                let mut member = member(state);
                member.threshold = threshold;
                State::with_member(state, member)
            }
        }
    }

    /// The state with this threshold and randomness in place of any others.
    pub fn with_weight(&self, threshold: Threshold, randomness: Randomness) -> Self {
        match self.0.as_deref() {
            None | Some(Repr::Weight(_)) => State::of_numbers(Some(threshold), Some(randomness)),
            Some(Repr::List(state)) => {
                let mut member = member(state);
                (member.threshold, member.randomness) = (Some(threshold), Some(randomness));
                State::with_member(state, member)
            }
        }
    }

    pub fn header(&self) -> String {
        match self.0.as_deref() {
            None => String::new(),
            Some(Repr::Weight(weight)) => {
                let value = weight.value();
                if value.is_empty() { value } else { format!("{OT}={value}") }
            }
            Some(Repr::List(state)) => state.header(),
        }
    }

    pub fn to_api(&self) -> TraceState {
        match self.0.as_deref() {
            None => TraceState::NONE,
            Some(Repr::Weight(weight)) => {
                // The value follows the grammar, so this does not fail.
                let make = || TraceState::NONE.insert(OT, weight.value()).unwrap_or_default();
                weight.list.get_or_init(make).clone()
            }
            Some(Repr::List(state)) => state.clone(),
        }
    }
}

impl Weight {
    fn value(&self) -> String {
        OtMember::of_numbers(self.threshold, self.randomness).value()
    }
}

impl From<Repr> for State {
    fn from(held: Repr) -> Self {
        State(Some(Arc::new(held)))
    }
}

/// The trace state for processes that this one calls, of a trace that waits for its stratum's
/// decision.
pub fn recorded(state: TraceState) -> TraceState {
    if is_recorded(&state) { state } else { state.insert(RECORDED.0, RECORDED.1).unwrap_or(state) }
}

/// Whether the caller sent [`recorded`].
pub fn is_recorded(state: &TraceState) -> bool {
    state.get(RECORDED.0) == Some(RECORDED.1)
}

/// OpenTelemetry's member of a trace state. A member that violates the specification's grammar
/// reads as empty.
pub fn member(state: &TraceState) -> OtMember<'_> {
    state.get(OT).and_then(|member| OtMember::parse(member).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(state: &str, value: &str) -> State {
        let state: TraceState = state.parse().unwrap();
        State::with_member(&state, OtMember::parse(value).unwrap_or_default())
    }

    #[test]
    fn numbers_alone_are_written_as_the_specification_says() {
        for (state, value, header) in [
            ("", "th:fd70a", "ot=th:fd70a"),
            ("", "th:0", "ot=th:0"),
            ("", "rv:0000000000abcd", "ot=rv:0000000000abcd"),
            ("ot=th:8;k:1", "th:00000000000001;rv:ffffffffffffff", "ot=th:00000000000001;rv:ffffffffffffff"),
            ("ot=th:8", "", ""),
            ("ot=nonsense", "", ""),
            ("", "", ""),
        ] {
            let made = with(state, value);
            assert!(!matches!(made.0.as_deref(), Some(Repr::List(_))), "{state}, {value}");
            assert_eq!((made.header(), made.to_api().header()), (header.to_owned(), header.to_owned()));
            assert_eq!(made.is_empty(), header.is_empty());
        }
    }

    #[test]
    fn other_members_and_sub_keys_stay() {
        for (state, value, header) in [
            ("a=1", "th:8", "ot=th:8,a=1"),
            ("a=1,ot=th:8,b=2", "th:c;k:1", "ot=th:c;k:1,a=1,b=2"),
            ("a=1,ot=th:8", "", "a=1"),
            ("a=1", "", "a=1"),
            ("", "th:8;k:1", "ot=th:8;k:1"),
            // Joined header lines may each have the member; the first one counts.
            ("ot=th:8,a=1,ot=th:c", "", "a=1"),
            ("ot=th:8,a=1,ot=th:c,ot=th:d", "th:e", "ot=th:e,a=1"),
        ] {
            let made = with(state, value);
            assert_eq!(made.to_api().header(), header, "{state}, {value}");
            assert_eq!(made.threshold(), OtMember::of(header).unwrap().threshold);
        }
    }

    /// The mark of a trace that waits for its decision goes when it is decided.
    #[test]
    fn a_recorded_trace_is_marked_until_it_is_decided() {
        for (state, marked, weighed, refused) in [
            ("", "astracer=recorded", "ot=th:8;rv:c0000000000000", ""),
            ("a=1", "astracer=recorded,a=1", "ot=th:8;rv:c0000000000000,a=1", "a=1"),
            ("ot=rv:1", "astracer=recorded,ot=rv:1", "ot=th:8;rv:c0000000000000", ""),
            ("a=1,astracer=recorded", "a=1,astracer=recorded", "ot=th:8;rv:c0000000000000,a=1", "a=1"),
            ("astracer=x", "astracer=recorded", "ot=th:8;rv:c0000000000000", ""),
        ] {
            let before: TraceState = state.parse().unwrap();
            assert_eq!(is_recorded(&before), state.contains("recorded"));
            let after = recorded(before);
            assert!(is_recorded(&after) && after.header() == marked, "{}", after.header());
            let (threshold, randomness) =
                (Threshold::parse("8").unwrap(), Randomness::from_low_bits(0xc0_0000_0000_0000));
            let kept = State::of(&after).with_weight(threshold, randomness);
            assert_eq!(kept.to_api().header(), weighed);
            let refused_here = State::of(&after).with_threshold(None).to_api();
            assert_eq!(refused_here.header(), refused, "{state}");
        }
    }

    #[test]
    fn a_weight_goes_and_the_rest_stays() {
        for (state, value, header) in [
            ("", "th:8", ""),
            ("", "th:8;rv:00000000000001", "ot=rv:00000000000001"),
            ("a=1", "th:8;k:1", "ot=k:1,a=1"),
            ("a=1", "th:8", "a=1"),
        ] {
            let without = with(state, value).with_threshold(None);
            assert_eq!(without.to_api().header(), header);
            assert_eq!(without.threshold(), None);
        }
    }

    /// A received state is passed on verbatim, even if malformed.
    #[test]
    fn a_state_as_it_came_keeps_its_words() {
        for header in ["ot=rv:00000000000001;th:80", "ot=th:X", "a=1"] {
            assert_eq!(State::of(&header.parse().unwrap()).to_api().header(), header);
        }
        assert!(State::of(&TraceState::NONE).is_empty());
    }
}
