//! Counts as OpenTelemetry metrics, which never fall, whatever reader collects them.

use std::collections::BTreeMap;
use std::time::Duration;

use astracer_operate::Operate as _;
use astracer_samplers::{Limits, Nanos};
use astracer_testing::{World, sampling};
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter, InMemoryMetricExporterBuilder, PeriodicReader, SdkMeterProvider, Temporality,
};

#[test]
fn counts_are_metrics() {
    let world = sampling("bucket:capacity=2,rate=1", |builder| {
        builder.with_cap("traces=1,burst=100,key_traces=1,key_burst=1".parse().unwrap())
    });
    let mut readers = Readers::of(&world);
    world.roots("a", 10);
    world.roots("b", 1);
    readers.collect();
    for found in &readers.found {
        assert_eq!(found["astracer.roots a kept sampler"], 1);
        assert_eq!(found["astracer.roots a cap_empty dropped"], 1);
        assert_eq!(found["astracer.roots a dropped sampler"], 8);
        assert_eq!(found["astracer.roots b kept sampler"], 1);
        assert_eq!(found["astracer.roots b dropped sampler"], 0);
        assert_eq!(found["astracer.keys.overflowed "], 0);
        assert!(found.contains_key("astracer.spans exported"));
    }
    // The meter does not keep the layer alive, and reports nothing once the layer is gone.
    drop(world);
    readers.collect();
}

/// A provider with one reader of each temporality.
struct Readers {
    provider: SdkMeterProvider,
    exporters: [InMemoryMetricExporter; 2],
    /// By name and attributes: the sum of all deltas, and the last cumulative value.
    found: [BTreeMap<String, u64>; 2],
}

impl Readers {
    fn of(world: &World) -> Self {
        let exporters = [Temporality::Delta, Temporality::Cumulative]
            .map(|temporality| InMemoryMetricExporterBuilder::new().with_temporality(temporality).build());
        let mut builder = SdkMeterProvider::builder();
        for exporter in &exporters {
            let reader = PeriodicReader::builder(exporter.clone());
            builder = builder.with_reader(reader.with_interval(Duration::from_secs(3_600)).build());
        }
        let provider = builder.build();
        world.handle.register_metrics(&provider.meter("test"));
        Readers { provider, exporters, found: Default::default() }
    }

    /// Collects and adds up. Fails the test if a value falls.
    fn collect(&mut self) {
        self.provider.force_flush().unwrap();
        for (place, (exporter, found)) in self.exporters.iter().zip(&mut self.found).enumerate() {
            let metrics = exporter.get_finished_metrics().unwrap();
            exporter.reset();
            let scopes = metrics.iter().flat_map(|all| all.scope_metrics());
            for metric in scopes.flat_map(|scope| scope.metrics()) {
                let AggregatedMetrics::U64(MetricData::Sum(sum)) = metric.data() else { continue };
                for point in sum.data_points() {
                    let mut attributes: Vec<_> =
                        point.attributes().map(|known| known.value.to_string()).collect();
                    attributes.sort_unstable();
                    let known =
                        found.entry(format!("{} {}", metric.name(), attributes.join(" "))).or_default();
                    assert!(point.value() < 1 << 40, "{} {attributes:?}: a negative delta", metric.name());
                    let value = if place == 0 { *known + point.value() } else { point.value() };
                    assert!(value >= *known, "{} {attributes:?}: {value} after {known}", metric.name());
                    *known = value;
                }
            }
        }
    }

    fn sum(&self, of: &str) -> [u64; 2] {
        let is_of = |(name, _): &(&String, &u64)| name.starts_with(of);
        [0, 1].map(|place| self.found[place].iter().filter(is_of).map(|(_, value)| value).sum())
    }

    /// The number of roots that each reader received.
    fn roots(&self) -> [u64; 2] {
        self.sum("astracer.roots ")
    }

    fn of_key(&self, key: &str) -> [u64; 2] {
        self.sum(&format!("astracer.roots {key} "))
    }
}

fn named(number: usize) -> String {
    let letter = |digit: usize| char::from(b'g' + (digit % 20) as u8);
    format!("key {}{}{}", letter(number / 400), letter(number / 20), letter(number))
}

/// Only the most frequent keys have a series of their own, and new keys overtake them. Each root is
/// reported once, in one series or the other.
#[test]
fn sums_of_keys_never_fall_when_others_overtake_them() {
    let world = sampling("bucket:capacity=2,rate=1", |builder| builder);
    let mut readers = Readers::of(&world);
    (0..400).for_each(|key| world.roots(&named(key), 1 + usize::from(key < 300)));
    readers.collect();
    assert_eq!(readers.roots(), [700; 2]);
    // The last hundred keys become the most frequent.
    (300..400).for_each(|key| world.roots(&named(key), 5));
    readers.collect();
    assert_eq!(readers.roots(), [1_200; 2]);
    (0..300).for_each(|key| world.roots(&named(key), 9));
    readers.collect();
    assert_eq!(readers.roots(), [3_900; 2]);
}

/// Keys lose their records to others, and return with counts from 0.
#[test]
fn sums_of_keys_never_fall_when_records_are_evicted() {
    let limits = Limits::default().with_keys(100).with_idle(Nanos::from_secs(60));
    let world = sampling("bucket:capacity=2,rate=1", |builder| builder.with_sampler_limits(limits));
    let mut readers = Readers::of(&world);
    let mut all = 0;
    for round in 0..5 {
        let of_a = 20 >> round;
        world.roots("a", of_a);
        (0..90).for_each(|key| world.roots(&named(90 * (round % 3) + key), 1));
        all += 90 + of_a as u64;
        readers.collect();
        assert_eq!(readers.roots(), [all; 2], "{round}");
        world.clock.advance(Duration::from_secs(3_600));
    }
    assert_eq!(readers.of_key("a"), [38; 2]);
}

/// A sampler of another kind has a new table.
#[test]
fn sums_never_fall_when_the_sampler_is_replaced() {
    let world = sampling("bucket:capacity=2,rate=1", |builder| builder);
    let mut readers = Readers::of(&world);
    // The last one does not count by key.
    let samplers = ["bump:lambda=1", "bucket:capacity=2,rate=1", "bump:lambda=1", "ratio:0.5"];
    for (sampler, round) in samplers.iter().zip(1..) {
        (0..2_000).for_each(|key| world.roots(&named(key), 1));
        readers.collect();
        assert_eq!(readers.roots(), [2_000 * round; 2]);
        world.handle.set_sampler(&sampler.parse().unwrap());
        readers.collect();
        assert_eq!(readers.roots(), [2_000 * round; 2], "to {sampler}");
    }
}

/// The series of a counter in seconds, and their sum, at the first collection.
pub(crate) fn seconds(world: &World, name: &str) -> (usize, f64) {
    let exporter = InMemoryMetricExporter::default();
    let reader = PeriodicReader::builder(exporter.clone()).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    world.handle.register_metrics(&provider.meter("astracer"));
    provider.force_flush().unwrap();
    let metrics = exporter.get_finished_metrics().unwrap();
    let all = metrics.iter().flat_map(|resource| resource.scope_metrics()).flat_map(|scope| scope.metrics());
    let metric = all.into_iter().find(|metric| metric.name() == name).unwrap();
    assert_eq!(metric.unit(), "s");
    let AggregatedMetrics::F64(MetricData::Sum(points)) = metric.data() else {
        panic!("a counter of seconds");
    };
    let values = points.data_points().map(|point| point.value());
    values.fold((0, 0.0), |(series, sum), value| (series + 1, sum + value))
}
