use std::collections::BTreeSet;

use super::*;
use crate::random::Random;
use crate::testing::synthetic;

/// Compares a table with sets of what each trace has: the number of its entries, and their bytes.
#[test]
fn a_table_has_an_entry_for_each_key_and_bin_with_something_in_it() {
    let workload = synthetic(2000, 6);
    let stop = Stop::never();
    let length = NonZeroU64::new(3_000_000_000).expect("not zero");
    let counting = Counting::Decaying;
    let by_key = ByKey::new(&workload, &mut Pulse::never()).expect("not stopped");
    let pivots = Pivots::new(&workload, stop).expect("not stopped");
    let trees = SharedTrees::new(&workload, &mut Pulse::never()).expect("not stopped");
    let of_tree = |tree: u32| workload.arrivals().iter().filter(|arrival| arrival.call_tree == tree).count();
    assert!(trees.len() > 1 && trees.len() < workload.call_trees() as usize);
    let counts = counts_before(&workload, counting, length, 0.0, &mut Pulse::never());
    let counts = counts.expect("not stopped");
    for extras in [Extras::default(), Extras::ALL] {
        let design = (counting, &[length][..], 0.0);
        let tables = Table::of_lengths((&workload, &by_key, &trees), &pivots, design, extras, stop);
        let [table] = &tables.expect("not stopped")[..] else { panic!("one length, one table") };
        let mut bytes = (workload.keys().len() + 1) * size_of::<Firsts>();
        assert_eq!(table.len(), workload.keys().len());
        for key in 0..table.len() {
            // The ids of sizes, functions, trees, latencies and paths, each with its bins.
            let mut entries: [BTreeSet<(u32, usize)>; 5] = Default::default();
            let (mut pivot_count, mut lone) = (0, BTreeSet::new());
            for (index, arrival) in workload.arrivals().iter().enumerate() {
                if arrival.key as usize != key {
                    continue;
                }
                let bin = Bins::of(counting).bin(counts[index]);
                entries[0].insert((0, bin));
                for calls in workload.calls(index) {
                    if pivots.of_arrival(index as u32).place(calls.function).is_some() {
                        pivot_count += 1;
                    } else {
                        entries[1].insert((calls.function, bin));
                    }
                }
                match of_tree(arrival.call_tree) {
                    1 => drop(lone.insert(bin)),
                    _ => drop(entries[2].insert((arrival.call_tree, bin))),
                }
                if extras.latencies {
                    entries[3].extend(workload.latencies(index).iter().map(|calls| (calls.cell, bin)));
                }
                if extras.paths {
                    entries[4].insert((arrival.path_kind, bin));
                }
            }
            let cells: usize = entries.iter().map(BTreeSet::len).sum();
            assert_eq!(table.key(key).cells(), cells + lone.len() + pivot_count, "key {key}");
            bytes += lone.len() * size_of::<TreeCell>();
            let sizes =
                [size_of::<SizeCell>(), size_of::<Cell>(), size_of::<TreeCell>(), size_of::<LatencyBin>()];
            for (entries, size) in entries.iter().zip([sizes[0], sizes[1], sizes[2], sizes[3], sizes[2]]) {
                bytes += entries.len() * size;
            }
            for entries in &entries[1..] {
                let ids: BTreeSet<u32> = entries.iter().map(|&(id, _)| id).collect();
                bytes += ids.len() * size_of::<(u32, u32)>();
            }
            bytes += pivot_count * size_of::<(u32, u32)>();
        }
        assert_eq!(table.bytes(), bytes, "{extras:?}");
    }
}

/// Compares with a vector for each id: the sums must be the same to the last bit.
#[test]
fn cells_are_gathered_by_id_and_summed_from_the_last() {
    let mut random = Random::new(4, 0);
    let (mut gathered, mut groups) = (Gathered::new(50), Groups::default());
    for key in 0..20 {
        let mut plain: std::collections::BTreeMap<u32, Vec<LatencyBin>> = std::collections::BTreeMap::new();
        for bin in 0..key * 3 {
            for _ in 0..random.below(9) {
                let (id, squares) = (random.below(50), random.uniform());
                let add = |last: &mut LatencyBin| {
                    let is_same = last.bin == bin;
                    last.squares += if is_same { squares } else { 0.0 };
                    is_same
                };
                gathered.add(id, add, || LatencyBin { bin, squares });
                let cells = plain.entry(id).or_default();
                match cells.last_mut() {
                    Some(last) if last.bin == bin => last.squares += squares,
                    _ => cells.push(LatencyBin { bin, squares }),
                }
            }
        }
        let first = groups.groups.len() as u32;
        gathered.finish(&mut groups, |cell, later| cell.squares += later.squares);
        let found: Vec<(u32, Vec<(u32, f64)>)> = groups
            .slices(first..groups.groups.len() as u32)
            .map(|(id, cells)| (id as u32, cells.iter().map(|cell| (cell.bin, cell.squares)).collect()))
            .collect();
        for cells in plain.values_mut() {
            for cell in (1..cells.len()).rev() {
                cells[cell - 1].squares += cells[cell].squares;
            }
        }
        let expected: Vec<(u32, Vec<(u32, f64)>)> = plain
            .iter()
            .map(|(&id, cells)| (id, cells.iter().map(|cell| (cell.bin, cell.squares)).collect()))
            .collect();
        assert_eq!(found, expected, "key {key}");
    }
}

/// Compares with the standard library's stable sort, for few arrivals and for many.
#[test]
fn arrivals_are_sorted_by_bin_and_stay_in_order_within_one() {
    let (mut random, mut sorting) = (Random::new(5, 0), Sorting::default());
    for len in [0, 1, 7, 30, 31, 500, 29, 2000] {
        let arrivals: Vec<(u32, u32)> = (0..len).map(|index| (random.below(30), index)).collect();
        let mut expected = arrivals.clone();
        expected.sort_by_key(|&(bin, _)| bin);
        let sorted = sorting.sorted(arrivals.into_iter(), 30, &mut Pulse::never());
        assert_eq!(sorted, Some(&expected[..]));
    }
}
