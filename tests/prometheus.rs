//! The exporter of `examples/prometheus`, against a strict reader of the format.

#[path = "exposition/mod.rs"]
mod exposition;
#[path = "../examples/prometheus/registry.rs"]
mod registry;

use std::collections::BTreeMap;

use exposition::parse;
use registry::Registry;
use stationmaster::service::{Observer, metrics};

#[test]
fn every_metric_is_described_before_it_has_a_value() {
    let page = parse(&Registry::default().render()).unwrap();
    let all: BTreeMap<String, String> =
        metrics::ALL.iter().map(|metric| (metric.name.into(), metric.kind.into())).collect();
    assert_eq!(page.kinds(), &all);
}

#[test]
fn values_add_up_and_labels_are_escaped() {
    let registry = Registry::default();
    registry.counter(&metrics::GRANTED, &[], 3);
    registry.counter(&metrics::GRANTED, &[], 4);
    registry.gauge(&metrics::SHARDS, &[], 7.0);
    registry.gauge(&metrics::SHARDS, &[], 5.0);
    let outcomes = [("kind", "a\\b\"c\nd,e=\"}"), ("outcome", "landed")];
    registry.counter(&metrics::POKES, &outcomes, 1);
    for measured in [0.0, 0.01, 0.010_001, 5.0, 1e9] {
        registry.histogram(&metrics::WAIT_SECONDS, &[], measured);
    }
    registry.histogram(&metrics::TICK_SECONDS, &[("service", "poker")], 0.02);
    let page = parse(&registry.render()).unwrap();
    let value = |series: &str| page.value(series).unwrap_or_else(|| panic!("no {series} in {page:?}"));
    assert_eq!((value("stationmaster_granted_total"), value("stationmaster_shards")), (7.0, 5.0));
    let pokes = r#"stationmaster_pokes_total{kind="a\\b\"c\nd,e=\"}",outcome="landed"}"#;
    assert_eq!(value(pokes), 1.0);
    let bucket = |le: &str| value(&format!("stationmaster_wait_seconds_bucket{{le=\"{le}\"}}"));
    assert_eq!(["0.01", "0.1", "2.5", "5", "86400", "+Inf"].map(bucket), [2.0, 3.0, 3.0, 4.0, 4.0, 5.0]);
    assert_eq!(value("stationmaster_wait_seconds_count"), 5.0);
    assert_eq!(value("stationmaster_wait_seconds_sum"), 1e9 + 5.020_001);
    let ticks = r#"stationmaster_tick_duration_seconds_bucket{le="0.025",service="poker"}"#;
    assert_eq!(value(ticks), 1.0);
}

#[test]
fn the_reader_refuses_what_is_wrong() {
    let good = "# HELP a_total x\n# TYPE a_total counter\na_total{b=\"c\"} 1\n";
    assert_eq!(parse(good).unwrap().value("a_total{b=\"c\"}"), Some(1.0));
    for bad in [
        "a_total 1\n",
        "# TYPE a_total counter\na_total 1",
        "# TYPE a_total counter\na_total -1\n",
        "# TYPE a_total counter\na_total{b=\"c} 1\n",
        "# TYPE a_total counter\na_total{b=\"\\q\"} 1\n",
        "# TYPE a_total counter\na_total 1\na_total 2\n",
        "# TYPE a_total counter\n# TYPE b_total counter\nb_total 1\na_total 1\n",
        "# TYPE a counter\na 1\n",
        "# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
        "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n",
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n",
        "# TYPE h histogram\nh 1\n",
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}
