//! Files of experiments: what is read, drawn and refused.

use serde_json::{Value, json};
use steadycast_scenario::{Redraw, experiment};

const SMALL: &str = r#"
    question = "Does a longer path cost a share?"
    seeds = "1-3"
    [[scenario]]
    name = "home"
    file = "home"
    [[axis]]
    name = "RTT"
    path = "topology.bottleneck.delay"
    values = ["10ms", "100ms"]
    [[variant]]
    name = "steady"
    set = { "flow.video.controller" = "steady" }
    [[measure]]
    name = "share"
    value = "flows.video.share_of_fair"
    [[bound]]
    measure = "share"
    min = 0.5
    at = { RTT = "100ms" }
    why = "half of the share"
"#;

fn problems(text: &str) -> Vec<String> {
    experiment(text, "e.toml", Redraw::default())
        .err()
        .map_or_else(Vec::new, |all| all.0.iter().map(ToString::to_string).collect())
}

#[test]
fn a_small_file_is_read_with_its_defaults() {
    let read = experiment(SMALL, "e.toml", Redraw::default()).unwrap();
    assert_eq!(read["seeds"], json!([1, 2, 3]));
    assert_eq!(read["variants"][0]["sets"], json!(["flow.video.controller=steady"]));
    assert_eq!(read["bounds"][0]["over"], "mean");
    assert_eq!(read["bounds"][0]["variants"], json!(["steady"]));
    assert_eq!(read["bounds"][0]["at"], json!({ "RTT": ["100ms"] }));
}

#[test]
fn a_wrong_name_has_its_line_and_the_nearest_one() {
    for (old, new, line, near) in [
        ("measure = \"share\"", "measure = \"shape\"", 18, "share"),
        ("at = { RTT = \"100ms\" }", "at = { RT = \"100ms\" }", 20, "RTT"),
        ("at = { RTT = \"100ms\" }", "at = { RTT = \"100s\" }", 20, "100ms"),
        ("why =", "reason =", 21, "why"),
    ] {
        let found = problems(&SMALL.replace(old, new));
        assert!(
            found.iter().any(|one| one.contains(&format!("e.toml:{line}")) && one.contains(near)),
            "{new}: {found:?}"
        );
    }
}

#[test]
fn a_bound_needs_a_limit_and_a_reason() {
    assert!(problems(&SMALL.replace("min = 0.5", ""))[0].contains("it bounds nothing"));
    assert!(problems(&SMALL.replace("min = 0.5", "min = 2\n    max = 1"))[0].contains("max 1 is below min 2"));
    assert!(problems(&SMALL.replace("why = \"half of the share\"", ""))[0].contains("why"));
}

#[test]
fn a_draw_is_the_same_whatever_else_is_drawn() {
    let drawn = |values: &str| {
        let text = format!("{SMALL}\n[draw]\ncount = 200\nseed = 7\n[draw.values]\n{values}");
        experiment(&text, "e.toml", Redraw::default()).unwrap()["draws"].clone()
    };
    let rate = "\"topology.bottleneck.rate\" = { from = \"1Mbps\", to = \"100Mbps\", scale = \"log\" }";
    let alone = drawn(rate);
    let both = drawn(&format!("\"seed_of\" = {{ from = 1, to = 3 }}\n{rate}"));
    assert_eq!(alone.as_array().unwrap().len(), 200);
    for (one, other) in alone.as_array().unwrap().iter().zip(both.as_array().unwrap()) {
        assert_eq!(one["sets"][0], other["sets"][1]);
    }
    // About half of the draws from a logarithmic range are below its geometric mean. A range of whole numbers
    // yields each of them.
    let rates: Vec<f64> = alone.as_array().unwrap().iter().map(|one| number(&one["sets"][0])).collect();
    let low = rates.iter().filter(|rate| **rate < 1e7).count();
    assert!((70..=130).contains(&low), "{low} of 200 below 10 Mb/s");
    assert!(rates.iter().all(|rate| (1e6..=1e8).contains(rate)));
    for value in ["1", "2", "3"] {
        assert!(both.as_array().unwrap().iter().any(|one| one["sets"][0] == format!("seed_of={value}")), "{value}");
    }
}

#[test]
fn cards_come_as_often_as_their_weights_in_each_deal() {
    let values = "\"queue\" = { among = [\"a\", \"b\", \"c\"], weights = [3, 1, 2] }";
    let text = format!("{SMALL}\n[draw]\ncount = 60\nseed = 7\n[draw.variables]\n{values}");
    let read = experiment(&text, "e.toml", Redraw::default()).unwrap();
    let drawn: Vec<&str> =
        read["draws"].as_array().unwrap().iter().map(|one| one["variables"]["queue"].as_str().unwrap()).collect();
    for deal in drawn.chunks(6) {
        let count = |card| deal.iter().filter(|one| **one == card).count();
        assert_eq!((count("a"), count("b"), count("c")), (3, 1, 2), "{deal:?}");
    }
    assert!(drawn.chunks(6).any(|deal| deal != &drawn[..6]), "each deal is shuffled");
    assert!(!problems(&text.replace("[3, 1, 2]", "[3, 1]")).is_empty());
}

const DECK: &str = r#"
    [draw]
    count = 40
    seed = 7
    [draw.variables]
    rate = { from = 1.0, to = 9.0 }
    [[draw.deck]]
    columns = ["queue", "deep"]
    rows = [["deep", 1], ["codel", 0]]
    weights = [3, 1]
"#;

#[test]
fn the_values_of_a_card_stay_together_and_another_seed_draws_others() {
    let text = format!("{SMALL}{DECK}");
    let drawn = |seed, count| {
        let read = experiment(&text, "e.toml", Redraw { seed, count }).unwrap();
        read["draws"].as_array().unwrap().iter().map(|one| one["variables"].clone()).collect::<Vec<_>>()
    };
    let own = drawn(None, None);
    for deal in own.chunks(4) {
        assert_eq!(deal.iter().filter(|one| one["queue"] == "deep").count(), 3, "{deal:?}");
        assert!(deal.iter().all(|one| (one["queue"] == "deep") == (one["deep"] == "1")), "{deal:?}");
    }
    assert_eq!(drawn(Some(7), None), own);
    assert_eq!(drawn(None, Some(60))[..40], own);
    assert_ne!(drawn(Some(8), None), own);
    let none = experiment(SMALL, "e.toml", Redraw { seed: Some(8), count: None }).unwrap_err();
    assert!(none.0[0].to_string().contains("--draw"), "{none:?}");
    for (old, new) in [
        ("[3, 1]", "[3]"),
        ("[\"queue\", \"deep\"]", "[\"queue\"]"),
        ("\"deep\"]", "\"rate\"]"),
        ("rows =", "row ="),
        ("count = 40", "count = 0"),
    ] {
        assert!(!problems(&text.replacen(old, new, 1)).is_empty(), "{new}");
    }
}

fn number(change: &Value) -> f64 {
    let (_, rate) = change.as_str().and_then(|text| text.split_once('=')).expect("a path and a value");
    rate.trim_end_matches("bps").parse().expect("a number")
}

#[test]
fn ranges_that_are_none_are_refused() {
    for wrong in [
        "{ from = \"1Mbps\", to = \"10ms\" }",
        "{ from = 3, to = 1 }",
        "{ from = 0, to = 1, scale = \"log\" }",
        "{ from = 1 }",
        "{ among = [] }",
        "{}",
    ] {
        let text = format!("{SMALL}\n[draw]\ncount = 2\n[draw.values]\n\"x\" = {wrong}");
        assert!(!problems(&text).is_empty(), "{wrong}");
    }
}
