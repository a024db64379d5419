//! `[[simulcast]]`: its meaning, and the messages for an invalid one.

use std::path::Path;
use steadycast_scenario::{Document, FlowIx, Loaded, Problems, Scenario};
use steadycast_units::Span;

const GOOD: &str = r#"duration = "80s"
nodes = ["s", "r[1-2]", "other"]
[[link]]
between = ["s", "r[1-2]"]
[[link]]
between = ["s", "other"]
[[flow]]
name = "low"
kind = "video"
controller = "asmp"
cast = "multicast"
from = "s"
to = ["r[1-2]"]
cap = "500kbps"
[[flow]]
name = "high"
kind = "video"
controller = "tfmcc"
cast = "multicast"
from = "s"
to = ["r[1-2]"]
floor = "500kbps"
[[flow]]
name = "tcp"
kind = "tcp"
from = "s"
to = "other"
[[simulcast]]
name = "layers"
flows = ["low", "high"]
"#;

fn read(text: &str, sets: &[&str]) -> Result<Loaded, Problems> {
    let mut document = Document::parse(text, Path::new("test.toml"))?;
    for set in sets {
        document.set(set).unwrap_or_else(|problem| panic!("{problem}"));
    }
    document.check()
}

fn load(sets: &[&str]) -> Loaded {
    read(GOOD, sets).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn receivers_of_a_simulcast_start_in_its_lowest_group_and_nowhere_else() {
    let scenario = load(&[]).scenario;
    let simulcast = &scenario.simulcasts[0];
    assert_eq!((simulcast.name.as_str(), simulcast.up, simulcast.hold), ("layers", 1.2, Span::secs(10)));
    assert!(scenario.starts_outside(FlowIx(0)).is_empty());
    assert_eq!(scenario.starts_outside(FlowIx(1)), [0, 1]);
    assert_eq!([0, 1, 2].map(|n| scenario.group_of(FlowIx(n))), [Some((0, 0)), Some((0, 1)), None]);
}

#[test]
fn resolved_it_says_the_same_and_set_reaches_its_keys() {
    let loaded = load(&["simulcast.layers.up=1.5", "simulcast.layers.hold=3s"]);
    let simulcast = &loaded.scenario.simulcasts[0];
    assert_eq!((simulcast.up, simulcast.hold), (1.5, Span::secs(3)));
    let again = Scenario::parse(&loaded.resolved_toml(), Path::new("test.toml")).unwrap_or_else(|p| panic!("{p}"));
    assert_eq!(again.scenario.simulcasts, loaded.scenario.simulcasts);
}

#[test]
fn a_simulcast_of_no_flows_is_left_out() {
    assert!(load(&["simulcast.layers.flows=[]"]).scenario.simulcasts.is_empty());
}

#[test]
fn one_that_can_not_be_is_told_with_its_line_and_a_remedy() {
    let wrong: &[(&str, &str, &str)] = &[
        ("name = \"layers\"\n", "", "test.toml:28: simulcast[1].name: missing"),
        ("name = \"layers\"", "name = \"layer[1-2]\"", "a simulcast has one name; leave the range out"),
        ("flows = [\"low\", \"high\"]", "", "simulcast.layers.flows: missing"),
        ("[\"low\", \"high\"]", "[\"low\"]", "1 groups; name 2 to 8 flows"),
        ("[\"low\", \"high\"]", "[\"low\", \"hihg\"]", "no flow is called \"hihg\"; did you mean \"high\"?"),
        ("[\"low\", \"high\"]", "[\"low\", \"low\"]", "\"low\" is in a simulcast already; name each flow once"),
        ("[\"low\", \"high\"]", "[\"low\", \"tcp\"]", "\"tcp\" is no video; name flows with kind = \"video\""),
        ("[\"low\", \"high\"]", "[\"high\", \"low\"]", "\"low\" has no floor, so nobody would ever leave it"),
        (
            "cap = \"500kbps\"",
            "floor = \"500kbps\"",
            "\"high\" has a floor of 500kbps, no more than 500kbps of one below",
        ),
        ("cap = \"500kbps\"", "start = \"1s\"", "\"high\" and \"low\" do not start and stop together"),
        (
            "\"tfmcc\"",
            "\"pgmcc\"",
            "receivers of \"pgmcc\" know no rate of their own to choose by; take one of: asmp, tfmcc",
        ),
        (
            "cast = \"multicast\"",
            "cast = \"unicast\"",
            "\"low\" is no group; write cast = \"multicast\" in its [[flow]]",
        ),
        (
            "to = [\"r[1-2]\"]",
            "to = [\"r1\", \"other\"]",
            "\"high\" and \"low\" are not from one source to the same receivers",
        ),
        (
            "flows =",
            "up = 0.5\nflows =",
            "simulcast.layers.up: 0.5 is not between 1 and 10; write for example up = 1.2",
        ),
        ("flows =", "hold = \"2h\"\nflows =", "write for example hold = \"10s\""),
        (
            "[[simulcast]]",
            "[[event]]\nat = \"9s\"\njoin = \"high.r1\"\n[[simulcast]]",
            "an event joins, leaves, starts or stops",
        ),
        ("flows =", "flow =", "did you mean \"flows\"?"),
    ];
    for (good, bad, said) in wrong {
        assert!(GOOD.contains(good), "{good}");
        match read(&GOOD.replacen(good, bad, 1), &[]) {
            Ok(_) => panic!("nothing wrong found with {bad:?}"),
            Err(problems) => {
                assert!(problems.to_string().contains(said), "{bad:?}: {problems}");
                assert!(problems.0.iter().all(|p| p.line.is_some() && !p.remedy.is_empty()), "{problems}");
            }
        }
    }
}
