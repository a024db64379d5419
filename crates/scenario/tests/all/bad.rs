//! Invalid files and their messages: the table is in `tests/data/bad.txt`. A new case is a line there, such as
//! `kind = "tcp" → type = "tcp"`; `UPDATE_SNAPSHOTS=1` writes the message below it.

use std::path::Path;
use steadycast_control::registry;
use steadycast_scenario::{Document, Problems, Scenario};

/// The heading of the part of the table whose mistakes are answered in one line each.
const IN_ONE_LINE: &str = "# Answered in one line each:";

/// A valid scenario. In each case of the table the lines on the right replace those on the left.
const GOOD: &str = r#"duration = "80s"
nodes = ["s", "a", "b", "r[1-3]", "alone"]
[[link]]
name = "mid"
between = ["a", "b"]
rate = "4Mbps"
queue = { limit = "50p" }
loss = { kind = "bernoulli", p = 0.02 }
jitter = { mean = "2ms" }
arq = { tries = 7, per_try = "1ms" }
[[link]]
between = ["s", "a"]
[[link]]
between = ["b", "r[1-3]"]
[[flow]]
name = "video"
kind = "video"
controller = "fixed"
from = "s"
to = ["r[1-3]"]
encode = { size = "cif" }
[[flow]]
name = "tcp"
kind = "tcp"
from = "s"
to = "r1"
[[flow]]
name = "noise"
kind = "onoff"
rate = "400kbps"
on = { dist = "pareto", mean = "5s" }
off = { mean = "5s" }
from = "s"
to = "r1"
[[event]]
at = "50s"
join = "video.r2"
[[expect]]
that = "flows.tcp.share_of_fair"
min = 0.8
"#;

/// Short forms that users try first: the line they replace, the short form, and the long form that it stands for.
const SHORT: &[(&str, &str, &str)] = &[
    ("encode = { size = \"cif\" }", "encode = { size = \"720p\" }", "encode = { size = \"1280x720\" }"),
    ("loss = { kind = \"bernoulli\", p = 0.02 }", "loss = 0.01", "loss = { kind = \"bernoulli\", p = 0.01 }"),
    ("loss = { kind = \"bernoulli\", p = 0.02 }", "loss = \"1%\"", "loss = { kind = \"bernoulli\", p = 0.01 }"),
    ("loss = { kind = \"bernoulli\", p = 0.02 }", "loss = \"0.5 %\"", "loss = { kind = \"bernoulli\", p = 0.005 }"),
    ("loss = { kind = \"bernoulli\", p = 0.02 }", "loss = \"none\"", "loss = { kind = \"none\" }"),
    ("jitter = { mean = \"2ms\" }", "jitter = \"5ms\"", "jitter = { mean = \"5ms\" }"),
    ("queue = { limit = \"50p\" }", "queue = \"fq-codel\"", "queue = { kind = \"fq-codel\" }"),
    ("queue = { limit = \"50p\" }", "queue = \"codel\"", "queue = { kind = \"codel\" }"),
    ("queue = { limit = \"50p\" }", "queue = \"100ms\"", "queue = { limit = \"100ms\" }"),
    ("queue = { limit = \"50p\" }", "queue = \"64kB\"", "queue = { limit = \"64kB\" }"),
    ("off = { mean = \"5s\" }", "off = \"5s\"", "off = { mean = \"5s\" }"),
    (
        "at = \"50s\"\njoin = \"video.r2\"",
        "at = \"50s\"\nset = { link = \"mid\", loss = \"3%\" }",
        "at = \"50s\"\nset = { link = \"mid\", loss = { kind = \"bernoulli\", p = 0.03 } }",
    ),
];

#[test]
fn a_short_form_is_what_its_long_form_is() {
    let read = |good: &str, other: &str| {
        assert!(GOOD.contains(good), "{good}");
        Scenario::parse(&GOOD.replacen(good, other, 1), Path::new("bad.toml"))
            .unwrap_or_else(|p| panic!("{other}: {p}"))
    };
    for (good, short, long) in SHORT {
        let (short, long) = (read(good, short), read(good, long));
        assert_eq!(short.scenario, long.scenario, "{good}");
        let again = Scenario::parse(&short.resolved_toml(), Path::new("bad.toml")).unwrap_or_else(|p| panic!("{p}"));
        assert_eq!(again.scenario, long.scenario, "{good}");
    }
}

#[test]
fn a_mistake_in_a_shape_s_scenario_is_answered_in_one_line() {
    let shape = "duration = \"9s\"\n[topology]\nshape = \"wifi\"\nbottleneck = { rate = \"1Mbps\" }\n\
                 [[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"fixed\"\n[[flow]]\nname = \"tcp\"\n\
         kind = \"tcp\"\n";
    for (text, expected) in [
        (shape.to_owned(), "topology.shape: \"wifi\" is not one of its values; choose from: dumbbell"),
        (shape.replace("\"wifi\"", "\"dumbbell\"").replace("\"tcp\"\nkind", "\"video\"\nkind"), "two flows are called"),
        (shape.replace("\"wifi\"", "\"dumbell\""), "did you mean \"dumbbell\"?"),
        (shape.replace("\"wifi\"", "\"dumbbell\"").replace("[[flow]]", "[flow]"), "write [[flow]] each time"),
    ] {
        let said = check(&text).expect_err(&text).to_string();
        assert!(said.lines().count() == 1 && said.contains(expected), "{text}\n    {said}");
    }
}

#[test]
fn a_clip_that_the_command_line_names_is_played_whatever_the_file_s_media_is() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clip-set");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("mine.mkv"), b"any").unwrap();
    let file = folder.join("a.toml");
    std::fs::write(&file, GOOD.replacen("controller = \"fixed\"", "controller = \"fixed\"\nmedia = \"synthetic\"", 1))
        .unwrap();
    let played = |sets: &[&str]| {
        let mut document = Document::read(&file).unwrap();
        for set in sets {
            document.set(set).unwrap();
        }
        document.check().map(|loaded| loaded.resolved_toml())
    };
    assert!(played(&["flow.video.clip=mine.mkv"]).unwrap().contains("mine.mkv"));
    let both = ["flow.video.clip=mine.mkv", "flow.video.media=synthetic"];
    assert!(played(&both).unwrap_err().to_string().contains("a clip beside media = \"synthetic\""));
}

fn check(text: &str) -> Result<(), Problems> {
    Document::parse(text, Path::new("bad.toml"))?.check().map(|_| ())
}

/// Returns the text of a cell of the table, which has a line's end as `⏎`.
fn cell(text: &str) -> String {
    text.split('⏎').map(str::trim).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_table_of_bad_files_says_where_what_and_what_instead() {
    assert!(check(GOOD).is_ok(), "{}", check(GOOD).unwrap_err());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bad.txt");
    let kept = std::fs::read_to_string(&path).unwrap();
    let folder = std::path::absolute(".").unwrap().display().to_string();
    let controllers: Vec<_> = registry::ALL.iter().map(|c| c.name).collect();
    let mut table = String::new();
    let (mut one_line, mut cases) = (false, 0);
    for heading in kept.lines().filter(|line| !line.starts_with(' ')) {
        table.push_str(&format!("{heading}\n"));
        let Some((good, bad)) = heading.split_once('→') else {
            assert_eq!(heading, IN_ONE_LINE);
            one_line = true;
            continue;
        };
        let (good, bad) = (cell(good), cell(bad));
        cases += 1;
        assert!(GOOD.contains(&good), "{heading}");
        let said = match check(&GOOD.replacen(&good, &bad, 1)) {
            Ok(()) => panic!("nothing wrong found with {heading}"),
            Err(problems) => problems,
        };
        for problem in &said.0 {
            let complete = problem.line.is_some() && !problem.what.is_empty() && !problem.remedy.is_empty();
            assert!(complete && (!problem.key.is_empty() || problem.what.starts_with("not TOML")), "{problem:?}");
        }
        // These texts differ between machines or grow with the registry.
        let said = said.to_string().replace(&folder, "FOLDER").replace(&controllers.join(", "), "CONTROLLERS");
        assert!(!one_line || said.lines().count() == 1 && said.starts_with("bad.toml:"), "{heading}: {said}");
        for line in said.lines() {
            table.push_str(&format!("    {line}\n"));
        }
    }
    assert!(one_line && cases >= 250, "{cases} cases");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let other = kept.lines().zip(table.lines()).find(|(kept, now)| kept != now);
    assert_eq!(other, None, "UPDATE_SNAPSHOTS=1 writes the table anew");
    assert_eq!(kept.lines().count(), table.lines().count());
}

#[test]
fn a_file_of_another_kind_is_refused_in_one_line() {
    for text in ["0\n4\n".repeat(500), "t_s,mbps\n0,1\n".repeat(50), "<p>some text</p>\n".repeat(90)] {
        let said = Scenario::parse(&text, Path::new("bad.toml")).unwrap_err().to_string();
        assert!(said.starts_with("bad.toml:1: not TOML: ") && !said.contains('\n'), "{said}");
        assert!(said.ends_with("; or name another file: many more of its lines are not TOML"), "{said}");
    }
}

#[test]
fn what_is_allowed_but_hardly_meant_is_a_warning() {
    let warned = |good: &str, other: &str| {
        let loaded = Scenario::parse(&GOOD.replacen(good, other, 1), Path::new("bad.toml"));
        loaded.unwrap_or_else(|p| panic!("{p}")).warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        warned("at = \"50s\"", "at = \"90s\""),
        ["bad.toml:36: event[1].at: after the end at 80s; it will never happen"]
    );
    assert_eq!(
        warned("flows.tcp.share_of_fair", "emulation.late_frac"),
        ["bad.toml:39: expect[1].that: only emulated runs have \"emulation.late_frac\"; it fails in others"]
    );
    assert_eq!(warned("min = 0.8", "min = 0.8").len(), 0);
    for (controller, warns) in [("gcc", 1), ("lda-plus", 1), ("tfrc", 0), ("steady", 0)] {
        let text = format!(
            "duration = \"9s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ rate = \"1Mbps\" }}\n\
             [[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"{controller}\"\necn = \"ect0\"\n"
        );
        let loaded = Scenario::parse(&text, Path::new("ecn.toml")).unwrap_or_else(|p| panic!("{p}"));
        let said: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), warns, "{controller}: {said:?}");
        assert!(said.iter().all(|warning| warning.starts_with("ecn.toml:9: flow.video.ecn")), "{said:?}");
    }
}

#[test]
fn a_rate_that_nothing_limits_is_a_warning() {
    let said = |flow: &str| {
        let text = format!(
            "duration = \"9s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ rate = \"5Mbps\" }}\n\
             [[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"fixed\"\n{flow}\n"
        );
        let loaded = Scenario::parse(&text, Path::new("w.toml")).unwrap_or_else(|p| panic!("{p}"));
        loaded.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let cap = "w.toml:8: flow.video.controller: \"fixed\" of greedy media sends at 1Gbps, whatever arrives; \
               write for example cap = \"2Mbps\"";
    assert_eq!(said("media = \"greedy\""), [cap]);
    for limited in ["cap = \"1Mbps\"", "params.fixed = { rate = \"1Mbps\" }"] {
        assert_eq!(said(&format!("media = \"greedy\"\n{limited}")), [""; 0], "{limited}");
    }
    assert_eq!(said(""), [""; 0], "an encoder limits it");
}

#[test]
fn a_stop_before_the_start_that_an_event_makes_is_said_and_a_pause_is_not() {
    let warned = |start: &str| {
        let text = format!(
            "duration = \"20s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ rate = \"1Mbps\" }}\n\
             [[flow]]\nname = \"a\"\nkind = \"tcp\"\n{start}\n\
             [[event]]\nat = \"5s\"\nstop = \"a\"\n[[event]]\nat = \"10s\"\nstart = \"a\"\n"
        );
        let loaded = Scenario::parse(&text, Path::new("bad.toml")).unwrap_or_else(|p| panic!("{p}"));
        loaded.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        warned(""),
        ["bad.toml:9: event[1]: \"a\" is stopped before it runs: its first start is at 10s; \
          write start = \"0s\" in the flow, if it is to run, pause and go on"]
    );
    assert_eq!(warned("start = \"0s\"").len(), 0);
}

#[test]
fn a_number_and_a_key_of_any_length_are_answered_in_a_line() {
    let long = "7".repeat(5_000);
    let values =
        [long.clone(), format!("\"{long}s\""), format!("1e{long}")].map(|value| format!("duration = {value}\n"));
    for text in values.into_iter().chain([format!("[[flow]]\nname = \"{long}\"\n"), format!("{long} = 1\n")]) {
        let said = Scenario::parse(&text, Path::new("bad.toml")).unwrap_err().to_string();
        assert!(said.lines().all(|line| line.len() < 1_000), "{said}");
    }
}

#[test]
fn files_that_are_no_texts_are_refused() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-texts");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("latin1.toml");
    std::fs::write(&file, b"duration = \"1s\"\n# caf\xe9\n").unwrap();
    let said = |path: &Path| Scenario::read(path).map(|_| ()).unwrap_err().to_string();
    assert!(said(&file).ends_with("latin1.toml:2: not a text in UTF-8; save it as UTF-8"), "{}", said(&file));
    assert!(said(&folder).contains("is not a file"));
    assert!(said(&folder.join("none.toml")).contains("can't be read"));
    let large = folder.join("large.toml");
    std::fs::write(&large, "#".repeat((4 << 20) + 1)).unwrap();
    assert!(said(&large).contains("at most 4 MiB"));
}

#[test]
fn deep_and_long_texts_are_answered_and_not_died_of() {
    for text in [
        format!("{}a = 1", "a.".repeat(500_000)),
        format!("[{}a]", "a.".repeat(500_000)),
        format!("a = {}", "[".repeat(500_000)),
        format!("a = {}", "{a=".repeat(100_000)),
        "[[flow]]\n".repeat(20_000),
        format!("nodes = [{}]", "\"r[1-200000]\",".repeat(1000)),
    ] {
        let problems = check(&text).unwrap_err();
        assert!((1..=100).contains(&problems.0.len()));
    }
    let mut json = serde_json::json!({});
    for _ in 0..100 {
        json = serde_json::json!({ "a": json });
    }
    assert!(Scenario::from_json(&json, Path::new("j")).is_err());
}
