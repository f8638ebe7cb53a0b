//! Several records under way at a time, settled in any order, against a simple list.

use astracer_spool::testing::MemoryDisk;
use astracer_spool::{Record, Settings, Settlement, Spool, verify};
use astracer_testing::SplitMix;

use crate::support::{check_law, drain, number, open, payload, spans};

/// The state of a record of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    UnderWay,
    Ended,
}

/// Every record that was appended since the last restart, or that a restart found.
#[derive(Default)]
struct Model(Vec<(u64, State)>);

impl Model {
    /// The record that comes next: the first one that waits.
    fn next(&self) -> Option<u64> {
        self.0.iter().find(|(_, state)| *state == State::Waits).map(|(number, _)| *number)
    }

    fn set(&mut self, number: u64, state: State) {
        self.0.iter_mut().find(|(known, _)| *known == number).unwrap().1 = state;
    }

    /// Only ends without a gap before them survive the process.
    fn restart(&mut self) {
        let first = self.0.iter().position(|(_, state)| *state != State::Ended);
        self.0.drain(..first.unwrap_or(self.0.len()));
        self.0.iter_mut().for_each(|(_, state)| *state = State::Waits);
    }
}

fn run(seed: u64) {
    let mut random = SplitMix::new(seed);
    let disk = MemoryDisk::default();
    let settings = Settings::default().with_segment_bytes(80 + random.index(400) as u64);
    let mut spool = open(&disk, &settings);
    let (mut model, mut next, mut letters) = (Model::default(), 0, 0);
    let mut under_way: Vec<Record> = Vec::new();
    for _ in 0..300 {
        match random.below(20) {
            0..7 => {
                spool.append(0, 0, spans(next), &payload(next, random.index(40))).unwrap();
                model.0.push((next, State::Waits));
                next += 1;
            }
            7..13 => {
                let record = spool.take(0).unwrap();
                assert_eq!(record.as_ref().map(|record| number(&record.payload)), model.next());
                if let Some(record) = record {
                    model.set(number(&record.payload), State::UnderWay);
                    under_way.push(record);
                }
            }
            13..19 if !under_way.is_empty() => {
                // Some of them, in any order.
                let some = 1 + random.index(under_way.len().min(4));
                let some: Vec<Record> =
                    (0..some).map(|_| under_way.swap_remove(random.index(under_way.len()))).collect();
                let mut outcomes = Vec::new();
                for record in &some {
                    let (settlement, state) = match random.below(6) {
                        0 => (Settlement::Partly(0), State::Waits),
                        1 if record.spans - record.settled > 1 => {
                            (Settlement::Partly(record.settled + 1), State::Waits)
                        }
                        2 => {
                            letters += u64::from(record.spans - record.settled);
                            (Settlement::Rejected("no"), State::Ended)
                        }
                        _ => (Settlement::Delivered, State::Ended),
                    };
                    model.set(number(&record.payload), state);
                    outcomes.push((record, settlement));
                }
                spool.settle_all(outcomes);
            }
            19 => {
                drop(spool);
                under_way.clear();
                model.restart();
                let report = verify(&disk).unwrap();
                assert_eq!((report.pending_records, report.damage.len()), (model.0.len() as u64, 0));
                spool = open(&disk, &settings);
            }
            _ => {}
        }
        check_law(&spool.counts());
    }
    drop(spool);
    model.restart();
    let mut spool = open(&disk, &settings);
    assert_eq!(drain(&mut spool), model.0.iter().map(|(number, _)| *number).collect::<Vec<_>>());
    assert!(spool.counts().dead_letters <= letters);
}

#[test]
fn records_are_settled_in_any_order() {
    for seed in 0..200 {
        println!("seed {seed}");
        run(seed);
    }
}

/// A letter is stored when the position reaches its record: a process that is killed before that
/// sends the record again, and it must not be a dead letter twice.
#[test]
fn a_letter_waits_for_the_records_before_it() {
    let disk = MemoryDisk::default();
    let mut spool = open(&disk, &Settings::default());
    (0..3).for_each(|number| spool.append(0, 0, 1, &payload(number, 0)).unwrap());
    let take = |spool: &mut Spool| spool.take(0).unwrap().unwrap();
    let (first, second) = (take(&mut spool), take(&mut spool));
    spool.settle(&second, Settlement::Rejected("no"));
    assert_eq!((spool.counts().rejected, spool.counts().dead_letters), (1, 0));
    drop(spool.take(0).unwrap());
    let killed = disk.after_power_loss(|_, all| all);
    assert_eq!(verify(&killed).unwrap().pending_records, 3);
    spool.settle(&first, Settlement::Delivered);
    assert_eq!(spool.counts().dead_letters, 1);
    drop(spool);
    assert_eq!(verify(&disk).unwrap().pending_records, 1);
}
