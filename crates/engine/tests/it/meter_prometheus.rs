//! The text of a scrape, and the rows that the program prints.

use std::sync::Arc;

use engine::meter::{
    CounterSet, Family, HistogramSpec, Histograms, Point, Registry, Source, Unit, Value, prometheus,
};

engine::counters! {
    /// Counters of a shop.
    enum Shop {
        Sold => Counter, "shop_sold", None, "Things sold.";
        Weight => Counter, "shop_sold_bytes", Bytes, "Bytes of things sold.";
        Customers => Gauge, "shop_customers", None, "Customers in the shop.";
    }
}

#[derive(Debug)]
struct Doors(&'static str, f64);

impl Source for Doors {
    fn collect(&self, families: &mut Vec<Family>) {
        families.push(Family {
            name: "shop_door",
            help: "How open a door is.",
            unit: Unit::None,
            points: vec![Point { labels: vec![("door", self.0.to_owned())], value: Value::Gauge(self.1) }],
        });
    }
}

fn shop() -> Registry {
    let counters = CounterSet::<Shop>::new(2);
    counters.core(0).add(Shop::Sold, 3);
    counters.core(1).add(Shop::Sold, 4);
    counters.core(1).add(Shop::Weight, 1 << 40);
    counters.core(0).add(Shop::Customers, 2);
    let spec = HistogramSpec { name: "shop_wait_seconds", help: "Time in the queue.", unit: Unit::Seconds };
    let waits = Histograms::new(spec, 2);
    let recorder = waits.core(1);
    // 1 µs equals a bound; 120 s is beyond the last bound.
    for ns in [1_000, 3_000, 40_000_000, 120_000_000_000] {
        recorder.record(ns);
    }
    let spec = HistogramSpec { name: "shop_thing_bytes", help: "Sizes of things.", unit: Unit::Bytes };
    let sizes = Histograms::new(spec, 1);
    let recorder = sizes.core(0);
    // 4,097 shares a bucket with 4,096 and counts as within that bound.
    [0, 4096, 4097, 5000].into_iter().for_each(|bytes| recorder.record(bytes));
    let mut registry = Registry::new();
    registry.register(counters);
    registry.register(Arc::new(Doors("front", 0.5)));
    registry.register(waits);
    registry.register(sizes);
    registry.register(Arc::new(Doors("with \"quotes\"\\\n", 1.0)));
    registry
}

#[test]
fn the_text_of_a_scrape() {
    let text = prometheus::encode(&shop());
    let lines: Vec<&str> = text.lines().collect();
    for expected in [
        "# HELP shop_sold Things sold.",
        "# TYPE shop_sold counter",
        "shop_sold_total 7",
        "# TYPE shop_sold_bytes counter",
        "# UNIT shop_sold_bytes bytes",
        "shop_sold_bytes_total 1099511627776",
        "# TYPE shop_customers gauge",
        "shop_customers 2.0",
        "# TYPE shop_door gauge",
        "shop_door{door=\"front\"} 0.5",
        "shop_door{door=\"with \\\"quotes\\\"\\\\\\n\"} 1.0",
        "# HELP shop_wait_seconds Time in the queue.",
        "# TYPE shop_wait_seconds histogram",
        "# UNIT shop_wait_seconds seconds",
        "shop_wait_seconds_count 4",
        "shop_wait_seconds_sum 120.040004",
        "shop_wait_seconds_bucket{le=\"0.000001\"} 1",
        "shop_wait_seconds_bucket{le=\"0.000002\"} 1",
        "shop_wait_seconds_bucket{le=\"0.000005\"} 2",
        "shop_wait_seconds_bucket{le=\"0.02\"} 2",
        "shop_wait_seconds_bucket{le=\"0.05\"} 3",
        "shop_wait_seconds_bucket{le=\"100.0\"} 3",
        "shop_wait_seconds_bucket{le=\"+Inf\"} 4",
        "shop_thing_bytes_bucket{le=\"1.0\"} 1",
        "shop_thing_bytes_bucket{le=\"4096.0\"} 3",
        "shop_thing_bytes_bucket{le=\"16384.0\"} 4",
        "shop_thing_bytes_sum 13193.0",
        "# EOF",
    ] {
        assert!(lines.contains(&expected), "no line {expected:?} in\n{text}");
    }
    assert_eq!(lines.last(), Some(&"# EOF"));
    assert_eq!(lines.iter().filter(|line| line.starts_with("# TYPE shop_door ")).count(), 1, "one family");
}

/// Every line follows the rules of the text format: `# KIND name …` or `name{labels} value`, each name under
/// its TYPE.
#[test]
fn every_line_is_well_formed() {
    let text = prometheus::encode(&shop());
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.split(' ');
            match words.next() {
                Some("TYPE") => {
                    family = words.next().unwrap().to_owned();
                    assert!(["counter", "gauge", "histogram"].contains(&words.next().unwrap()), "{line}");
                }
                Some("HELP" | "UNIT") => assert!(words.count() >= 2, "{line}"),
                other => assert_eq!(other, Some("EOF"), "{line}"),
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
        assert!(labels.ends_with('}'), "{line}");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
        let ending = name.strip_prefix(family.as_str()).unwrap_or_else(|| panic!("{line} under {family}"));
        assert!(["", "_total", "_sum", "_count", "_bucket"].contains(&ending), "{line}");
    }
}

#[test]
fn rows_for_json_and_tables() {
    let rows = shop().snapshot().rows();
    let value = |name: &str, labels: &[(&str, &str)]| {
        let row = rows.iter().find(|(n, l, _)| {
            n == name && l.iter().map(|(label, value)| (*label, value.as_str())).eq(labels.iter().copied())
        });
        row.unwrap_or_else(|| panic!("no row {name} {labels:?}")).2
    };
    assert_eq!(value("shop_sold_total", &[]), 7.0);
    assert_eq!(value("shop_customers", &[]), 2.0);
    assert_eq!(value("shop_door", &[("door", "front")]), 0.5);
    assert_eq!(value("shop_wait_seconds_count", &[]), 4.0);
    assert_eq!(value("shop_wait_seconds", &[("quantile", "1")]), 120.0);
    let median = value("shop_wait_seconds", &[("quantile", "0.5")]);
    assert!((3e-6..3.03e-6).contains(&median), "{median}");
    assert_eq!(shop().snapshot().family("shop_door").unwrap().points.len(), 2);
}
