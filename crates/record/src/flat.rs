//! Extracts the numbers of a summary, with the paths that expectations use.

use serde_json::{Map, Value};

const NO_FIGURES: [&str; 7] = ["format", "scenario", "program", "world", "complete", "warnings", "record_sha256"];
/// The keys whose value can be the name of an element in a list. The first of them that an element has is used.
const NAMES: [&str; 3] = ["name", "id", "that"];
/// The key of the direction of a link. In a path, the direction follows the name of the link.
const DIRECTION: &str = "direction";

/// Returns each number of a summary with its path, for example `flows.video.receivers.video.dst1.delay_ms.p95` or
/// `links.bottleneck.back.drop_frac`. The direction `forward` is left out, as in `links.bottleneck.drop_frac`.
pub fn flat(summary: &Value) -> Map<String, Value> {
    let mut found = Map::new();
    for (key, value) in summary.as_object().into_iter().flatten() {
        if !NO_FIGURES.contains(&key.as_str()) {
            fill(&mut found, key, value);
        }
    }
    found
}

fn fill(found: &mut Map<String, Value>, path: &str, value: &Value) {
    match value {
        Value::Number(number) => {
            found.insert(path.to_owned(), number.as_f64().into());
        }
        Value::Object(inner) => {
            for (key, each) in inner {
                // Skip the keys whose values are already part of the path.
                if key != DIRECTION && !NAMES.contains(&key.as_str()) {
                    fill(found, &format!("{path}.{key}"), each);
                }
            }
        }
        Value::Array(rows) => {
            for row in rows.iter().filter(|row| row.is_object()) {
                let name = NAMES.iter().find_map(|key| row.get(key)).and_then(Value::as_str).unwrap_or_default();
                match row.get(DIRECTION).and_then(Value::as_str) {
                    None | Some("forward") => fill(found, &format!("{path}.{name}"), row),
                    Some(way) => fill(found, &format!("{path}.{name}.{way}"), row),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_stand_under_the_names_of_their_rows_and_nothing_else_does() {
        let summary = json!({
            "format": 1, "world": "simulated", "warnings": ["one"], "from_s": 5,
            "scenario": { "seed": 7 },
            "flows": [{ "name": "video", "loss_frac": 0.5, "ok": true, "why": null,
                        "receivers": [{ "name": "a.b", "delay_ms": { "p95": 3.5, "mean": null } }] }],
            "links": [{ "name": "wire", "direction": "forward", "drop_frac": 0.25 },
                      { "name": "wire", "direction": "back", "drop_frac": 0.0 }],
            "invariants": [{ "id": "floor", "broken": 2 }],
            "expect": [{ "that": "flows.video.loss_frac", "max": 0.1 }],
            "numbers": [1, 2],
        });
        let expected = json!({
            "from_s": 5.0, "flows.video.loss_frac": 0.5, "flows.video.receivers.a.b.delay_ms.p95": 3.5,
            "links.wire.drop_frac": 0.25, "links.wire.back.drop_frac": 0.0, "invariants.floor.broken": 2.0,
            "expect.flows.video.loss_frac.max": 0.1,
        });
        assert_eq!(Value::from(flat(&summary)), expected);
        assert_eq!(flat(&json!("nothing")), Map::new());
    }
}
