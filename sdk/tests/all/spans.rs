//! What is recorded of a kept trace.

use std::time::Duration;

use tracing::{info, info_span};

use crate::support::{draw, one, start, world};

#[track_caller]
fn check(f: impl FnOnce(), expected: &str) {
    let spans = world(|builder| builder).run(f);
    assert_eq!(draw(&spans), expected);
}

#[test]
fn a_tree_of_spans_leaves_whole() {
    check(
        || {
            let _root = info_span!("root").entered();
            {
                let _a = info_span!("a", n = 1).entered();
                info_span!("b").in_scope(|| info!(answer = 42, "hello"));
            }
            info_span!("c").in_scope(|| ());
        },
        "\
root
  a n=1
    b
      * hello level=\"INFO\" target=\"all::spans\" answer=42
  c
",
    );
}

#[test]
fn spans_begin_when_they_are_made_and_end_when_they_are_last_left() {
    let world = world(|builder| builder);
    let spans = world.run(|| {
        let root = info_span!("root");
        world.clock.advance(Duration::from_millis(5));
        root.in_scope(|| world.clock.advance(Duration::from_millis(7)));
        root.in_scope(|| world.clock.advance(Duration::from_millis(11)));
        world.clock.advance(Duration::from_millis(13));
    });
    let root = one(&spans, "root");
    assert_eq!(root.start_time, start());
    assert_eq!(root.end_time, start() + Duration::from_millis(23));
}
