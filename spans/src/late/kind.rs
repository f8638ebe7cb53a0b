//! The kind of a trace's call tree, for its stratum.

use std::collections::HashMap;

use astracer_samplers::Template;
use astracer_samplers::strata::Kind;
use opentelemetry::SpanId;

use crate::record::TraceView;

/// Linear in the spans. A span whose parent is missing has the depth 0, as the root has.
pub(super) fn of(trace: TraceView<'_>) -> u64 {
    let template = Template::default();
    let records = trace.records;
    let places: HashMap<SpanId, usize> =
        records.iter().enumerate().map(|(at, record)| (record.span_id, at)).collect();
    let mut depths: Vec<Option<usize>> = vec![None; records.len()];
    let mut kind = Kind::default();
    let (mut path, mut folded) = (Vec::new(), String::new());
    for (start, span) in trace.spans().enumerate() {
        // Up to the first span whose depth is known, then down again, without recursion. A span is
        // its own ancestor only if ids are duplicated; the bound on the path ends that.
        let mut at = Some(start);
        let mut depth = None;
        while let Some(place) = at.filter(|_| path.len() <= records.len()) {
            depth = depths[place];
            if depth.is_some() {
                break;
            }
            path.push(place);
            at = places.get(&records[place].parent).copied();
        }
        while let Some(place) = path.pop() {
            depth = Some(depth.map_or(0, |above| above + 1));
            depths[place] = depth;
        }
        let name = span.name(trace.memory);
        folded.clear();
        let is_folded = template.fold(name, &mut folded);
        kind.add(if is_folded { &folded } else { name }, depths[start].unwrap_or_default());
    }
    kind.take()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::record::{Buffer, Header, Record};
    use crate::test_callsite::METADATA;

    #[test]
    fn depths_count_from_the_root_and_duplicated_ids_end() {
        let span = |id: u64, parent: u64| {
            Record::new(&METADATA, (SpanId::from(id), SpanId::from(parent)), (1, 2), None, 1)
        };
        let of = |spans: &[(u64, u64)]| {
            let mut buffer = Buffer::default();
            spans.iter().for_each(|(id, parent)| buffer.append(span(*id, *parent), None));
            of(buffer.view(&Header::default()))
        };
        let three = of(&[(3, 2), (2, 1), (1, 0)]);
        assert_eq!(three, of(&[(4, 2), (3, 2), (5, 1), (2, 1), (1, 9)]));
        assert_ne!(three, of(&[(3, 1), (2, 1), (1, 0)]));
        of(&[(1, 1), (2, 3), (3, 2), (2, 3)]);
    }
}
