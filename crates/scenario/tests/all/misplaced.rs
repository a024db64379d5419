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
    if let Some(list) = remedy.strip_prefix("write [[").and_then(|rest| rest.strip_suffix("]], once per entry")) {
        let entries = value.as_array().expect("a list of tables");
        let all = file.pointer_mut(table)?.as_object_mut()?.entry(list).or_insert_with(|| json!([]));
        all.as_array_mut()?.extend(entries.iter().cloned());
        return Some(format!("{own}{list}"));
    }
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

/// Each key of a link beside the links of a shape names the links that may have it, whether or not one has it already.
#[test]
fn a_links_key_beside_the_links_of_a_shape_names_these_links() {
    let mut keys_of_links = Vec::new();
    keys(&schema()["properties"]["topology"]["properties"]["bottleneck"], &mut keys_of_links);
    let top = ["rate", "delay", "queue", "loss", "jitter", "mtu", "trace", "arq", "duplicate", "bleach"];
    for (key, value) in keys_of_links.iter().filter(|(key, _)| top.contains(&&**key)) {
        for (shape, parts) in [
            ("dumbbell", json!({ "bottleneck": { "rate": "1Mbps" } })),
            ("dumbbell", json!({ "bottleneck": { "rate": "1Mbps", key: value } })),
            ("dumbbell", json!({ "bottleneck": { key: value }, "access": { "rate": "9Mbps" } })),
            ("dumbbell", json!({ "bottleneck": { "mtu": "1400B" }, "access": { "mtu": "1400B" } })),
            ("star", json!({ "legs": [{ "rate": "1Mbps" }] })),
            ("chain", json!({ "hops": [{ "rate": "1Mbps" }] })),
            ("tree", json!({ "levels": [{ "fanout": 2, "rate": "1Mbps" }] })),
            ("dumbbell", json!({})),
            ("star", json!({})),
        ] {
            let mut topology = parts.clone();
            topology["shape"] = shape.into();
            topology[key] = value.clone();
            let file = json!({ "duration": "9s", "topology": topology,
                "flow": [{ "name": "v", "kind": "video", "controller": "fixed" }] });
            let problems = check(&file);
            let of_key = problems.iter().find(|problem| problem.what == "no such key" && problem.key.ends_with(key));
            let remedy = &of_key.unwrap_or_else(|| panic!("{shape} {key}: {problems:?}")).remedy;
            let links = ["bottleneck", "access", "legs", "hops", "levels"];
            let named: Vec<_> = links.into_iter().filter(|link| remedy.contains(link)).collect();
            let there: Vec<_> = links.into_iter().filter(|link| parts.get(link).is_some()).collect();
            let set = there.iter().any(|link| parts[link].get(key).is_some());
            match (shape, &there[..]) {
                ("dumbbell", []) => assert_eq!(named, ["bottleneck", "access"], "{remedy}"),
                ("star", []) => assert_eq!(named, ["legs"], "{remedy}"),
                _ if set => assert!(remedy.starts_with("leave it out: bottleneck.") || there.len() > 1, "{remedy}"),
                _ => assert_eq!(named, there, "{remedy}"),
            }
        }
    }
}

/// A misspelled header of a list keeps what stands below it, whether or not the list has other entries.
#[test]
fn a_list_of_tables_with_another_name_is_to_be_written_as_further_entries() {
    let entries = [
        ("flow", "name = \"t\"\nkind = \"tcp\""),
        ("event", "at = \"5s\"\nstop = \"v\""),
        ("expect", "that = \"flows.v.throughput_bps\"\nmin = 0"),
        ("link", "name = \"bottleneck\"\nmtu = \"1400B\""),
    ];
    let head = "duration = \"9s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = { rate = \"1Mbps\" }\n\
                [[flow]]\nname = \"v\"\nkind = \"video\"\ncontroller = \"fixed\"\n";
    for (list, entry) in entries {
        let capital = format!("{}{}", list[..1].to_uppercase(), &list[1..]);
        for wrong in [format!("{list}s"), capital, list.to_uppercase()] {
            for before in [String::new(), format!("[[{list}]]\n{entry}\n")] {
                let text = format!("{head}{before}[[{wrong}]]\n{}\n", entry.replace("\"t\"", "\"u\""));
                let file = tree::from_toml(&text, &mut Findings::new("made.toml")).value.to_json();
                let problems = check(&file);
                let of_key = problems.iter().find(|problem| problem.key == wrong);
                let remedy = &of_key.unwrap_or_else(|| panic!("{wrong}: {problems:?}")).remedy;
                assert_eq!(*remedy, format!("write [[{list}]], once per entry"));
                let value = file[&wrong].clone();
                let mut right = file.clone();
                follow(&mut right, "", &wrong, &value, of_key.unwrap());
                assert_eq!(check(&right), Vec::new(), "{right}");
            }
        }
    }
}

/// A key that several kinds of flows have, with different types, is refused by its own kind only.
#[test]
fn a_wrong_value_of_a_flows_key_has_one_problem() {
    for (kind, right) in [("tcp", json!(true)), ("video", json!("ect0"))] {
        for value in [json!("true"), json!("on"), json!(1), json!("yes"), json!("ect2"), json!([]), right.clone()] {
            let mut flow = json!({ "name": "f", "kind": kind, "ecn": value });
            if kind == "video" {
                flow["controller"] = "scream".into();
            }
            let file = json!({ "duration": "9s",
                "topology": { "shape": "dumbbell", "bottleneck": { "rate": "1Mbps" } }, "flow": [flow] });
            let problems: Vec<_> = check(&file).into_iter().filter(|problem| problem.key == "flow.f.ecn").collect();
            assert_eq!(problems.len(), usize::from(value != right), "{kind} {value}: {problems:?}");
        }
    }
}
