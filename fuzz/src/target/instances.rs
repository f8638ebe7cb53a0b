//! The guarantees of comparisons on any file of instances: a fault is named with its line, all
//! numbers of a result are finite, and the order of instances changes nothing.

use astracer_compare::comparison::{Comparison, Options, compare};
use astracer_compare::file::InstancesFile;
use astracer_compare::instances::{Class, Source as _};
use astracer_recording::stop::Pulse;

/// Instances and variables that are compared; the reader is tested with more.
const INSTANCES_MAX: usize = 200;
const VARIABLES_MAX: usize = 50;

pub(super) fn check(data: &[u8]) {
    let Some(instances) = read(data) else { return };
    let count = |class| instances.heads().iter().filter(|head| head.class == class).count();
    if count(Class::Good) < 2 || count(Class::Bad) < 2 || instances.heads().len() > INSTANCES_MAX {
        return;
    }
    for paper in [true, false] {
        let result = compared(&instances, paper);
        let numbers = result.tests.iter().flat_map(|row| {
            let test = row.test;
            [test.means[0], test.means[1], test.t, test.df, test.p]
        });
        numbers
            .chain(result.ranked.iter().flat_map(|row| [row.difference, row.error_95, row.ranked.score]))
            .for_each(|number| assert!(number.is_finite(), "{number} in a result"));
        assert!(result.tests.iter().all(|row| (0.0..=1.0).contains(&row.test.p)));
    }
}

fn read(data: &[u8]) -> Option<InstancesFile> {
    let mut instances = InstancesFile::default();
    match instances.read(data, 0) {
        Ok(()) => {
            instances.sort();
            Some(instances)
        }
        Err(error) => {
            assert!(error.line > 0 && !error.reason.is_empty(), "{error}");
            None
        }
    }
}

fn compared(instances: &InstancesFile, paper: bool) -> Comparison {
    let options = Options {
        paper,
        variables_max: VARIABLES_MAX,
        networks: Some(Default::default()),
        details: true,
        ..Options::default()
    };
    compare(instances, &options, &mut Pulse::never()).expect("nobody stops it")
}
