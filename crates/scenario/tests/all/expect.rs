//! Valid paths of expectations: every number that a run's summary can have, and no others.

use std::path::Path;
use steadycast_record::{FIGURES, Figure, Of, Parts, When};
use steadycast_scenario::Scenario;

const SCENARIO: &str = r#"duration = "10s"
nodes = ["s", "r.1"]
[[link]]
name = "mid.dle"
between = ["s", "r.1"]
rate = "1Mbps"
[[flow]]
name = "vi.deo"
kind = "video"
controller = "asmp"
from = "s"
to = "r.1"
media = "synthetic"
repair = "rtx"
padding = true
audio = "48kbps"
ecn = "ect0"
[[flow]]
name = "tcp"
kind = "tcp"
bytes = "1MB"
from = "s"
to = "r.1"
"#;

fn problem(that: &str) -> Option<String> {
    let text = format!("{SCENARIO}[[expect]]\nthat = \"{that}\"\nmin = 0\n");
    Scenario::parse(&text, Path::new("expect.toml")).err().map(|problems| problems.to_string())
}

/// Returns the path to a figure of the scenario above; `None` if the scenario does not have it.
fn path(figure: &Figure) -> Option<String> {
    let key = match figure.parts {
        Parts::One => figure.key.to_owned(),
        Parts::Quantiles => format!("{}.p95", figure.key),
        Parts::Grades => format!("{}.5", figure.key),
        Parts::Flows => return None,
    };
    let flow = if let When::Tcp | When::Transfers | When::Pauses = figure.when { "tcp" } else { "vi.deo" };
    match figure.of {
        Of::Run => Some(key),
        Of::Flow => Some(format!("flows.{flow}.{key}")),
        Of::Receiver => Some(format!("flows.{flow}.receivers.r.1.{key}")),
        Of::Link => Some(format!("links.mid.dle.back.{key}")),
        Of::Invariant => Some(format!("invariants.steady.delay-never-rises.{key}")),
        Of::Simulcast | Of::Viewer | Of::Expectation | Of::Cost => None,
    }
}

#[test]
fn every_number_in_the_list_may_be_expected_and_nothing_that_is_none() {
    for figure in FIGURES {
        let Some(path) = path(figure) else { continue };
        let allowed = figure.unit.is_number() && figure.when != When::Live;
        match problem(&path) {
            None => assert!(allowed, "{path} was taken"),
            Some(said) => assert!(!allowed, "{said}"),
        }
    }
}

#[test]
fn an_unknown_figure_is_an_error_with_its_line_and_a_remedy() {
    let said = |that: &str| problem(that).unwrap_or_default();
    assert_eq!(
        said("flows.tcp.share_of_fiar"),
        "expect.toml:25: expect[1].that: a flow has no \"share_of_fiar\"; did you mean \"share_of_fair\"?"
    );
    assert_eq!(
        said("flows.vi.deo.receivers.r.2.loss_frac"),
        "expect.toml:25: expect[1].that: no receiver is called \"r.2\"; did you mean \"r.1\"?"
    );
    assert_eq!(
        said("invariants.steady.delay-never-rise.broken"),
        "expect.toml:25: expect[1].that: no promise is called \"steady.delay-never-rise\"; \
         did you mean \"steady.delay-never-rises\"?"
    );
    for that in ["flows.tcp.limited_by_frac.network", "flows.tcp.receivers.r.1.psnr_db.raw.y", "flows.vi.deo.timeouts"]
    {
        assert!(said(that).contains("that is a figure of "), "{}", said(that));
    }
}
