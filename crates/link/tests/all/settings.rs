//! A link's settings as text: one declaration defines reading, writing and the schema.
use proptest::prelude::*;
use std::collections::BTreeSet;
use steadycast_link::{Arq, Jitter, Limit, LinkProperties, Loss, Queue, Reorder};
use steadycast_settings::{Declared, Findings, FromToml, ToToml, tree};
use steadycast_units::{Rate, Span};

const LINE: LinkProperties =
    LinkProperties { rate: Some(Rate::mbps(4)), delay: Span::millis(20), called: LinkProperties::LINK };

fn queue(text: &str, line: &LinkProperties) -> Result<Queue, String> {
    let mut out = Findings::new("queue.toml");
    let item = tree::from_toml(text, &mut out);
    let read = Queue::read(&item, line, &mut out);
    let problems: Vec<_> = out.problems.iter().map(|problem| format!("{}; {}", problem.what, problem.remedy)).collect();
    match read {
        Some(queue) if problems.is_empty() => Ok(queue),
        _ => Err(problems.join("\n")),
    }
}

fn text(value: &impl ToToml) -> String {
    let Some(tree::Value::Table(table)) = value.value() else { panic!("not a table") };
    table.iter().map(|(key, item)| format!("{key} = {}\n", item.value.to_toml())).collect()
}

/// Checks that a value survives writing and reading, and that the schema has each written key.
fn comes_back<T: FromToml + ToToml + PartialEq + std::fmt::Debug>(written: &str) {
    let mut out = Findings::new("link.toml");
    let first = T::read(&tree::from_toml(written, &mut out), &mut out).unwrap_or_else(|| panic!("{:?}", out.problems));
    let again = T::read(&tree::from_toml(&text(&first), &mut out), &mut out);
    assert_eq!(again.as_ref(), Some(&first), "{:?}", out.problems);
}

#[test]
fn each_queue_stands_in_the_schema_and_reads_back_as_it_was_written() {
    let schema = Queue::schema();
    let listed: Vec<_> = Queue::KINDS.iter().map(|kind| serde_json::json!(kind)).collect();
    assert_eq!(schema["properties"]["kind"]["enum"], serde_json::Value::from(listed));
    let known: BTreeSet<_> = schema["properties"].as_object().expect("keys").keys().map(String::as_str).collect();
    assert_eq!(known, Queue::keys().into_iter().collect());
    for kind in Queue::KINDS {
        let first = queue(&format!("kind = \"{kind}\""), &LINE).expect("every key has a default");
        assert_eq!(first.kind(), *kind);
        let written = text(&first);
        assert_eq!(queue(&written, &LINE).as_ref(), Ok(&first), "{written}");
        for line in written.lines() {
            let key = line.split(" = ").next().unwrap_or_default();
            assert!(known.contains(key), "{kind} writes {key}, which the schema has not");
        }
    }
}

#[test]
fn a_queues_defaults_stand_in_the_schema_where_all_kinds_share_them() {
    let schema = Queue::schema();
    let key = |name: &str| schema["properties"][name].clone();
    assert_eq!(key("interval")["default"], "100ms");
    let about = "codel, fq-codel: The time for which the queueing delay must exceed the target before the first packet \
                 is dropped.";
    assert_eq!(key("interval")["description"], about);
    assert_eq!(key("flows")["maximum"], 65_536);
    assert_eq!(key("limit").get("default"), None, "it differs from kind to kind");
    let limit = key("limit")["description"].as_str().unwrap_or_default().to_owned();
    assert!(
        limit.starts_with(&format!(
            "{}: The maximum length of the queue, in packets, bytes or time. Default \"50p\"; codel: \"1000p\"",
            Queue::KINDS.join(", ")
        )),
        "{limit}"
    );
    assert_eq!(key("min").get("default"), None, "it derives from the link");
}

#[test]
fn a_key_of_another_kind_is_refused_with_the_kinds_that_have_it() {
    let refused = |text| queue(text, &LINE).expect_err(text);
    assert_eq!(
        refused("interval = \"5ms\""),
        "not a key of a drop-tail queue; it has: limit; or write kind = \"codel\" or \"fq-codel\""
    );
    assert_eq!(
        refused("kind = \"codel\"\nflows = 64"),
        "not a key of a CoDel queue; it has: limit, target, interval, ecn, ce_threshold"
    );
    assert_eq!(
        refused("kind = \"cobble\""),
        format!("\"cobble\" is not one of its values; choose from: {}", Queue::KINDS.join(", "))
    );
}

#[test]
fn a_limit_in_time_needs_a_rate() {
    let unlimited = LinkProperties { rate: None, ..LINE };
    let timed = "limit = \"100ms\"";
    assert_eq!(queue(timed, &LINE), Ok(Queue::drop_tail(Limit::Time(Span::millis(100)))));
    let refused = queue(timed, &unlimited).expect_err("no rate");
    assert!(refused.starts_with("a limit in time needs the rate of the link, which has none, or 0; "), "{refused}");
    let red = "kind = \"red\"\npreset = \"classic\"\nmin = \"5ms\"\nmax = \"15ms\"";
    assert!(queue(red, &LINE).is_ok());
    assert_eq!(queue(red, &unlimited).expect_err("no rate").lines().count(), 2, "both thresholds are refused");
}

#[test]
fn losses_and_delays_read_back_as_they_were_written() {
    for loss in [
        "kind = \"none\"",
        "kind = \"bernoulli\"\np = 0.02",
        "kind = \"run\"\nmean = \"12.5p\"",
        "kind = \"gilbert\"\np_bad = 0.01\np_good = 0.3",
        "kind = \"list\"\npackets = [7, 1, 100]",
    ] {
        comes_back::<Loss>(loss);
    }
    comes_back::<Jitter>("mean = \"2ms\"\ndist = \"normal\"");
    comes_back::<Arq>("tries = 7\nper_try = \"1ms\"");
    comes_back::<Reorder>("p = 0.1\nby = \"20ms\"");
    comes_back::<Reorder>("p = 0");
}

proptest! {
    #[test]
    fn any_limit_reads_back_as_it_was_written(
        n in 1u32.., bytes in 1u64..999_999_999_999, nanos in 1u64..2_592_000_000_000_000,
    ) {
        let bytes = Limit::Bytes(steadycast_units::Bytes::new(bytes));
        for limit in [Limit::Packets(n), bytes, Limit::Time(Span::nanos(nanos))] {
            let written = limit.value().map(tree::Item::from).expect("a limit is written");
            let mut out = Findings::new("limit.toml");
            // A number of packets is read as a float, and one above 10⁹ is refused.
            if !matches!(limit, Limit::Packets(n) if n > 1_000_000_000) {
                prop_assert_eq!(Limit::read(&written, &mut out), Some(limit));
            }
        }
    }
}
