//! Parses the answers of a program. Any sequence of bytes is either a valid answer or an error.

use crate::half::Decided;
use crate::one_line;
use serde_json::{Map, Value};
use steadycast_control::FeedbackFormat;
use steadycast_settings::nearest;
use steadycast_units::{Bytes, Rate, Span, Time};

/// Version of the protocol between this program and an external one.
pub(crate) const VERSION: u64 = 1;
/// Maximum length of a decision's reason, in characters.
const LONGEST_WHY: usize = 200;

/// An error in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong with the answer.
    pub problem: String,
    /// What the program's author should do about it.
    pub remedy: &'static str,
}

fn wrong<T>(problem: impl Into<String>, remedy: &'static str) -> Result<T, Wrong> {
    Err(Wrong { problem: problem.into(), remedy })
}

/// What a program declares in its answer to `hello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Interval of reports in the format [`FeedbackFormat::Own`], which the protocol calls "echo".
    pub every: Span,
    /// Format of the reports that the controller wants to receive.
    pub feedback: FeedbackFormat,
    /// Whether reports and timers should list the packets that were sent.
    pub sent: bool,
    /// Whether the controller decides again after each packet that was sent.
    pub each: bool,
}

/// The values that a program may give for `feedback`.
const FEEDBACK: [(&str, FeedbackFormat); 4] = [
    ("echo", FeedbackFormat::Own),
    ("packets", FeedbackFormat::Rfc8888),
    ("stats", FeedbackFormat::Stats),
    ("rr", FeedbackFormat::Blocks),
];

/// Parses the answer to `hello`.
///
/// # Errors
/// The answer is not an object, has another version, or has an invalid value.
pub fn hello(line: &[u8]) -> Result<Hello, Wrong> {
    let table = object(line)?;
    match table.get("v").map(Value::as_u64) {
        Some(Some(VERSION)) => {}
        Some(_) => {
            let theirs = shown(&table["v"]);
            return wrong(format!("it speaks version {theirs}, this program version {VERSION}"), "make them the same");
        }
        None => return wrong("its hello has no \"v\"", "answer {\"v\":1}: the version of the protocol"),
    }
    let every = match number(&table, "every", "nanoseconds from 1000000 to 60000000000")? {
        // The default is the same as for Python classes.
        None => Span::millis(100),
        // Shorter intervals would flood the path. Longer intervals are too slow for any control loop.
        Some(ns) if (1e6..=6e10).contains(&ns) => Span::nanos(ns as u64),
        Some(ns) => return wrong(format!("its \"every\" is {ns}"), "give nanoseconds from 1000000 to 60000000000"),
    };
    let feedback = match table.get("feedback") {
        None | Some(Value::Null) => FeedbackFormat::Own,
        Some(value) => {
            let word = value.as_str().unwrap_or_default();
            let Some((_, found)) = FEEDBACK.iter().find(|(name, _)| *name == word) else {
                let near = nearest(word, &FEEDBACK.map(|(name, _)| name));
                let hint = near.map_or_else(String::new, |near| format!(" (did you mean \"{near}\"?)"));
                let problem = format!("its \"feedback\" is {}{hint}", shown(value));
                return wrong(problem, "choose from: echo, packets, stats, rr");
            };
            *found
        }
    };
    let remedy = "write \"events\":[\"sent\"], or leave it out";
    let sent = match table.get("events") {
        None | Some(Value::Null) => false,
        Some(Value::Array(all)) => match all.iter().find(|each| each.as_str() != Some("sent")) {
            Some(other) => return wrong(format!("there is no event {}", shown(other)), remedy),
            None => !all.is_empty(),
        },
        Some(other) => return wrong(format!("its \"events\" are {}", shown(other)), remedy),
    };
    let each = match table.get("each") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(each)) => *each,
        Some(other) => return wrong(format!("its \"each\" is {}", shown(other)), "write true or false"),
    };
    Ok(Hello { every, feedback, sent, each })
}

/// Parses a decision. Fractions are truncated.
///
/// # Errors
/// The decision is not an object, has no rate, or has an invalid value.
pub fn decision(line: &[u8]) -> Result<Decided, Wrong> {
    let table = object(line)?;
    let rates = "bit/s: a finite number, 0 or more";
    let Some(rate) = number(&table, "rate", rates)? else {
        return wrong("it has no \"rate\"", "answer {\"rate\":N}: bit/s of IP packets");
    };
    let why = match table.get("why") {
        None | Some(Value::Null) => None,
        // Cut the reason, because it is stored with every decision.
        Some(Value::String(why)) => Some(why.chars().take(LONGEST_WHY).collect()),
        Some(other) => {
            return wrong(format!("its \"why\" is {}", shown(other)), "give a text: the reason in a few words");
        }
    };
    Ok(Decided {
        rate: Rate::bps(rate as u64),
        pacing: number(&table, "pacing", rates)?.map(|bps| Rate::bps(bps as u64)),
        window: number(&table, "window", "bytes: a finite number, 0 or more")?.map(|bytes| Bytes::new(bytes as u64)),
        wake: number(&table, "wake", "nanoseconds of the run: a finite number, 0 or more")?
            .map(|ns| Time::from_nanos(ns as u64)),
        why,
    })
}

/// Parses the answer of a switching rule that chooses between `rungs` rungs.
///
/// # Errors
/// The answer is not an object, or its number is not the number of a rung.
pub fn rung(line: &[u8], rungs: usize) -> Result<usize, Wrong> {
    let table = object(line)?;
    let remedy = "answer {\"rung\":N}: the number of a rung; 0 is the finest";
    let Some(value) = table.get("rung") else { return wrong("it has no \"rung\"", remedy) };
    // Accept a float such as 2.0, because a whole number may be written like this.
    let number = value.as_f64().filter(|n| *n >= 0.0 && *n < rungs as f64 && n.fract() == 0.0);
    let Some(number) = number else {
        let last = rungs.saturating_sub(1);
        return wrong(format!("its \"rung\" is {}; the rungs are 0 to {last}", shown(value)), remedy);
    };
    Ok(number as usize)
}

fn object(line: &[u8]) -> Result<Map<String, Value>, Wrong> {
    let remedy = "write one JSON object a line, and nothing else; what is for people goes to stderr";
    match serde_json::from_slice(line) {
        Ok(Value::Object(table)) => Ok(table),
        Ok(_) => wrong("that is no JSON object", remedy),
        Err(error) => wrong(format!("that is no JSON: {}", one_line(&error.to_string())), remedy),
    }
}

fn number(table: &Map<String, Value>, key: &str, what: &'static str) -> Result<Option<f64>, Wrong> {
    match table.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64().filter(|n| n.is_finite() && *n >= 0.0) {
            Some(n) => Ok(Some(n)),
            None => wrong(format!("its \"{key}\" is {}, which is not {what}", shown(value)), "mend this value"),
        },
    }
}

fn shown(value: &Value) -> String {
    shortened(&value.to_string())
}

pub(crate) fn shortened(text: &str) -> String {
    let line = one_line(text);
    if line.chars().count() <= 80 { line } else { line.chars().take(79).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_decision_has_what_its_line_says_with_fractions_cut() {
        let line = br#"{"rate":1200000.9,"pacing":3e6,"window":1500,"wake":2500000000,"why":"x","later":[1]}"#;
        let rates = (Rate::bps(1_200_000), Some(Rate::mbps(3)));
        let told = decision(line).unwrap();
        assert_eq!((told.rate, told.pacing), rates);
        assert_eq!((told.window, told.wake), (Some(Bytes::new(1500)), Some(Time::from_nanos(2_500_000_000))));
        assert_eq!(told.why.as_deref(), Some("x"));
        assert_eq!(
            decision(b"{\"rate\":7,\"wake\":null}\r").unwrap(),
            Decided { rate: Rate::bps(7), ..Decided::default() }
        );
    }

    #[test]
    fn a_hello_needs_a_version_alone() {
        let plain = Hello { every: Span::millis(100), feedback: FeedbackFormat::Own, sent: false, each: false };
        assert_eq!(hello(b"{\"v\":1}"), Ok(plain));
        let all = br#"{"v":1,"name":"mine","every":5e8,"feedback":"stats","events":["sent"],"each":true}"#;
        let (every, feedback) = (Span::millis(500), FeedbackFormat::Stats);
        assert_eq!(hello(all), Ok(Hello { every, feedback, sent: true, each: true }));
    }

    #[test]
    fn what_can_t_be_taken_is_said_with_its_value() {
        let cases: [(&[u8], &str); 10] = [
            (b"", "no JSON: EOF"),
            (b"rate 5", "no JSON: "),
            (b"[5]", "no JSON object"),
            (b"{}", "no \"rate\""),
            (b"{\"rate\":null}", "no \"rate\""),
            (b"{\"rate\":NaN}", "no JSON: "),
            (b"{\"rate\":-1}", "\"rate\" is -1"),
            (b"{\"rate\":\"fast\"}", "\"rate\" is \"fast\""),
            (b"{\"rate\":1,\"window\":true}", "\"window\" is true"),
            (b"{\"rate\":1,\"why\":3}", "\"why\" is 3"),
        ];
        for (line, says) in cases {
            let error = decision(line).unwrap_err();
            assert!(error.problem.contains(says), "{error:?}");
        }
        let cases: [(&[u8], &str); 7] = [
            (b"[1]", "no JSON object"),
            (b"{\"rate\":1}", "no \"rung\""),
            (b"{\"rung\":null}", "\"rung\" is null; the rungs are 0 to 3"),
            (b"{\"rung\":4}", "\"rung\" is 4; "),
            (b"{\"rung\":-1}", "\"rung\" is -1; "),
            (b"{\"rung\":1.5}", "\"rung\" is 1.5; "),
            (b"{\"rung\":\"fine\"}", "\"rung\" is \"fine\"; "),
        ];
        for (line, says) in cases {
            let error = rung(line, 4).unwrap_err();
            assert!(error.problem.contains(says), "{error:?}");
        }
        assert_eq!((rung(b"{\"rung\":3}", 4), rung(b"{\"rung\":0.0,\"why\":1}", 4)), (Ok(3), Ok(0)));
        let cases: [(&[u8], &str); 6] = [
            (b"{}", "no \"v\""),
            (b"{\"v\":2}", "it speaks version 2, this program version 1"),
            (b"{\"v\":1,\"every\":5}", "\"every\" is 5"),
            (b"{\"v\":1,\"feedback\":\"stat\"}", "did you mean \"stats\"?"),
            (b"{\"v\":1,\"events\":[\"lost\"]}", "no event \"lost\""),
            (b"{\"v\":1,\"each\":1}", "\"each\" is 1"),
        ];
        for (line, says) in cases {
            let error = hello(line).unwrap_err();
            assert!(error.problem.contains(says), "{error:?}");
        }
    }

    /// Generates lines that are almost valid, so that the tests reach each check.
    fn nearly() -> impl Strategy<Value = Vec<u8>> {
        let value = prop_oneof![
            any::<f64>().prop_map(|n| n.to_string()),
            any::<i64>().prop_map(|n| n.to_string()),
            "\\PC{0,6}".prop_map(|text| Value::from(text).to_string()),
            Just("null".to_owned()),
            Just("[1,[{}]]".to_owned()),
            "[0-9eE+.-]{0,8}",
        ];
        let key = prop::sample::select(vec![
            "v", "rate", "pacing", "window", "wake", "why", "every", "feedback", "each", "rung",
        ]);
        prop::collection::vec((key, value), 0..5).prop_map(|all| {
            let pairs: Vec<_> = all.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
            format!("{{{}}}", pairs.join(",")).into_bytes()
        })
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_a_mistake(
            line in prop_oneof![prop::collection::vec(any::<u8>(), 0..60), nearly()],
        ) {
            prop_assert!(rung(&line, 3).is_ok_and(|rung| rung < 3) || rung(&line, 3).is_err());
            for problem in [decision(&line).err(), hello(&line).err(), rung(&line, 3).err()].into_iter().flatten() {
                prop_assert!(!problem.problem.contains('\n') && problem.problem.chars().count() < 300);
            }
        }
    }
}
