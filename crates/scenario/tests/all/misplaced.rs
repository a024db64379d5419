//! A key in a table that does not have it: each table of the schema is given each key of all others, and the test
//! follows the remedy of the message.

use serde_json::{Map, Value as Json, json};
use std::collections::BTreeSet;
use std::path::Path;
use steadycast_scenario::{Problem, Scenario, schema};
use steadycast_settings::{Findings, tree};

/// Scenarios that together have each table of the schema.
const FILES: [&str; 3] = [
    r#"duration = "9s"
nodes = ["s", "a", "r"]
link = [{ between = ["s", "a"], name = "mid", rate = "4Mbps", delay = "5ms", queue = { limit = "50p" },
    loss = { kind = "bernoulli", p = 0.02 }, jitter = { mean = "2ms" }, arq = { tries = 7, per_try = "1ms" },
    reorder = { p = 0.1, by = "2ms" }, policer = { rate = "4Mbps", burst = "30kB" },
    shaper = { rate = "2Mbps", burst = "30kB" }, back = { rate = "1Mbps" } },
    { between = ["a", "r"] }]
flow = [{ name = "v", kind = "video", controller = "fixed", from = "s", to = "r", encode = { size = "cif" },
    table2 = { vary = 0.1 }, map001 = {}, rfc8593 = {}, playout = { kind = "adaptive", most = "800ms" },
    buffer = { size = "16KiB" }, rtcp = {}, clock = { drift = 1.0 }, rtp = {} },
    { name = "t", kind = "tcp", from = "s", to = "r", rate = "1Mbps", on = { mean = "5s" }, off = { mean = "5s" } },
    { name = "c", kind = "cbr", from = "s", to = "r", rate = "1Mbps", start = { uniform = ["0s", "1s"] } }]
event = [{ at = "5s", set = { link = "mid", rate = "1Mbps", jitter = { mean = "1ms" }, loss = { kind = "none" },
    reorder = { p = 0 } } }, { at = "6s", stop = "c" }]
record = {}
expect = [{ that = "flows.t.share_of_fair", min = 0.0 }]
"#,
    r#"duration = "9s"
topology = { shape = "dumbbell", bottleneck = { rate = "1Mbps" }, access = { delay = "1ms" } }
flow = [{ name = "a", kind = "video", controller = "tfmcc", receivers = 2 },
    { name = "b", kind = "video", controller = "tfmcc", receivers = 2, floor = "300kbps" },
    { name = "n", kind = "onoff", rate = "1Mbps", on = { mean = "5s" }, off = { mean = "5s" } }]
"#,
    r#"duration = "9s"
topology = { shape = "tree", levels = [{ fanout = 2, rate = "1Mbps" }] }
flow = [{ name = "t", kind = "tcp", to = "leaf1" }]
"#,
];

/// Texts of messages that refuse a key or its value. Messages on other keys, files and names are not counted.
const REFUSED: [&str; 6] = ["no such key", "not a key", "is not a", "is neither", "has no unit", "has no number"];

/// Each table is given every 32nd key, starting at a different key each. All keys in all tables take a minute.
const STEP: usize = 32;

/// Returns a value that matches a schema.
fn sample(schema: &Json) -> Json {
    if let Some(value) =
        [&schema["examples"][0], &schema["default"], &schema["enum"][0]].into_iter().find(|v| !v.is_null())
    {
        return value.clone();
    }
    if let Some(any) = schema["anyOf"].as_array() {
        return sample(any.last().expect("a schema names one kind at least"));
    }
    match schema["type"].as_str() {
        Some("boolean") => true.into(),
        Some("integer") => 1.into(),
        Some("number") => 0.5.into(),
        Some("string") => "mid".into(),
        Some("array") => json!([sample(&schema["items"])]),
        _ => json!({}),
    }
}

/// Collects the keys of a schema's tables with a valid value each; parameters of controllers are left out.
fn keys(schema: &Json, all: &mut Vec<(String, Json)>) {
    for (key, below) in schema["properties"].as_object().into_iter().flatten().filter(|(key, _)| *key != "params") {
        if !all.iter().any(|(known, value)| known == key && *value == sample(below)) {
            all.push((key.clone(), sample(below)));
        }
        for table in [below, &below["items"]].into_iter().chain(below["anyOf"].as_array().into_iter().flatten()) {
            keys(table, all);
        }
    }
}

/// Collects the tables of a scenario as JSON pointers.
fn tables(value: &Json, at: &str, all: &mut Vec<String>) {
    let below: Vec<_> = match value {
        Json::Object(table) => table.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Json::Array(list) => list.iter().enumerate().map(|(i, value)| (i.to_string(), value)).collect(),
        _ => return,
    };
    if value.is_object() {
        all.push(at.to_owned());
    }
    below.into_iter().for_each(|(key, value)| tables(value, &format!("{at}/{key}"), all));
}

fn check(file: &Json) -> Vec<Problem> {
    Scenario::from_json(file, Path::new("made.toml")).map_or_else(|problems| problems.0, |_| Vec::new())
}

/// Applies a remedy to the table that had the key. Returns the new place of the key or of its replacement.
fn follow(file: &mut Json, table: &str, key: &str, value: &Json, problem: &Problem) -> Option<String> {
    let own = problem.key.strip_suffix(key)?;
    file.pointer_mut(table)?.as_object_mut()?.remove(key);
    let read = |line: &str| {
        let line =
            line.replace("= …", &format!("= {}", tree::from_json(value, 0, &mut Findings::new("")).value.to_toml()));
        tree::from_toml(&line, &mut Findings::new("")).value.to_json()
    };
    let put = |file: &mut Json, pointer: &str, added: &Json| {
        let there = file.pointer_mut(pointer).and_then(Json::as_object_mut).expect(pointer);
        let (key, value) = added.as_object()?.iter().next()?;
        // A link's two directions are read separately: reading one does not know that the other has "back".
        assert!(!there.contains_key(key) || key == "back", "{key} is there already: {problem}");
        there.insert(key.clone(), value.clone());
        Some(key.clone())
    };
    let moved = json!({ key: value });
    let remedy = &*problem.remedy;
    if remedy.starts_with("leave it out") {
        return Some("nowhere".to_owned());
    }
    if let Some(near) = remedy.strip_prefix("did you mean ").and_then(|near| near.strip_suffix('?')) {
        let added =
            near.strip_prefix('"').map_or_else(|| read(near), |near| json!({ near.trim_end_matches('"'): value }));
        return Some(format!("{own}{}", put(file, table, &added)?));
    }
    if remedy.starts_with("write it at the head") {
        return put(file, "", &moved);
    }
    if let Some(inner) = remedy.strip_prefix("write it beside ").and_then(|rest| rest.strip_suffix(", not in it")) {
        let mut outer = table.to_owned();
        // Removes the keys by which the table's path is longer than the place in the message.
        let mut path = own.trim_end_matches('.').to_owned();
        while path != inner {
            outer.truncate(outer.rfind('/')?);
            path.truncate(path.rfind('.').unwrap_or_else(|| panic!("{problem}")));
        }
        outer.truncate(outer.rfind('/')?);
        while !file.pointer(&outer)?.is_object() {
            outer.truncate(outer.rfind('/')?);
        }
        let around = path.rfind('.').map_or(String::new(), |end| path[..=end].to_owned());
        return Some(format!("{around}{}", put(file, &outer, &moved)?));
    }
    let rest = remedy.strip_prefix("write ")?;
    if let Some(inner) = rest.strip_suffix(", not beside it").and_then(|rest| rest.rsplit(" in ").next()) {
        put(file, &format!("{table}/{inner}"), &moved)?;
        return Some(format!("{own}{inner}.{key}"));
    }
    Some(format!("{own}{}", put(file, table, &read(rest))?))
}

#[test]
fn what_is_said_of_a_key_in_a_wrong_table_can_be_done() {
    let schema = schema();
    let mut all = Vec::new();
    keys(&schema, &mut all);
    let (mut followed, mut listed, mut beside, mut wrong) = (0, 0, 0, BTreeSet::new());
    let mut number = 0;
    for text in FILES {
        let mut out = Findings::new("made.toml");
        let file = tree::from_toml(text, &mut out).value.to_json();
        assert_eq!((out.problems.len(), check(&file)), (0, Vec::new()));
        let mut places = Vec::new();
        tables(&file, "", &mut places);
        for place in places {
            let table: Map<_, _> = file.pointer(&place).unwrap().as_object().unwrap().clone();
            number += 1;
            for (key, value) in all.iter().skip(number % STEP).step_by(STEP).filter(|(key, _)| !table.contains_key(key))
            {
                let mut bad = file.clone();
                bad.pointer_mut(&place).unwrap()[key] = value.clone();
                let problems = check(&bad);
                let Some(first) = problems
                    .iter()
                    .find(|problem| problem.what == "no such key" && problem.key.rsplit('.').next() == Some(key))
                else {
                    continue;
                };
                let Some(at) = follow(&mut bad, &place, key, value, first) else {
                    listed += 1;
                    continue;
                };
                followed += 1;
                beside += usize::from(first.remedy.contains("beside"));
                let contradicts = |problem: &&Problem| {
                    let there = problem.key == at || problem.key.starts_with(&format!("{at}."));
                    there && REFUSED.iter().any(|words| problem.what.contains(words))
                };
                if let Some(second) = check(&bad).iter().find(contradicts) {
                    wrong.insert(format!("{place} {key} = {value}\n    {first}\n    {second}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {followed}:\n{}", wrong.len(), Vec::from_iter(wrong).join("\n"));
    assert!(followed > 15 && listed > 50 && beside > 5, "{followed} {listed} {beside}");
}
