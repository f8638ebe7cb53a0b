//! The guarantees of critical paths on notes of other processes: whatever a callee says, the way of
//! the caller has the length that its own clock tells, and what is sent on is within the bounds.

use astracer_baggage::critical_path::{CriticalPath, Measure, Note, zone};

/// The bytes of a note.
const LIMIT: usize = 1_024;

pub(super) fn check_note(data: &[u8]) {
    for measure in [Measure::Wall, Measure::Productive] {
        let paths = CriticalPath::new(measure);
        paths.experiment("faster", zone("load"), 0.5).expect("an experiment");
        let mut caller = Note::start(&paths, 5, "request");
        caller.come_from(&paths, data);
        let mut call = caller.fork(&paths, 15);
        call.end_call(&paths, 115, &[data.to_vec()]);
        caller.join(&paths, 125, call, true);
        let sent = caller.response(&paths, 130, LIMIT);
        assert!(!sent.is_empty() && sent.len() <= LIMIT, "{} bytes", sent.len());
        caller.end(&paths, 130);
        let ways = caller.longest(&paths);
        let longest = &ways[0];
        assert_eq!(longest.functions.iter().map(|part| part.nanos).sum::<u64>(), longest.total_ns);
        assert!(longest.segments.len() <= 32 && ways.len() <= 8);
        if measure == Measure::Wall {
            assert_eq!(longest.total_ns, 125);
        } else {
            assert!(longest.total_ns <= 125);
        }
        for experiment in caller.experiments(&paths, 130) {
            assert!((0.0..=1e9).contains(&experiment.nanos), "{experiment:?}");
        }
        // Another process reads the same way.
        let mut next = Note::start(&paths, 0, "next");
        let mut call = next.fork(&paths, 0);
        call.end_call(&paths, 1_000, &[sent]);
        let refused = paths.stats().refused;
        next.join(&paths, 1_000, call, true);
        assert!(refused <= 2, "our own note was refused");
        next.end(&paths, 1_000);
        assert_eq!(
            next.longest(&paths)[0].total_ns,
            if measure == Measure::Wall { 1_000 } else { longest.total_ns }
        );
    }
}
