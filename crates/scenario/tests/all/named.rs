//! Networks by name: the scenario that results, and the messages for unknown or invalid networks.

use std::path::{Path, PathBuf};
use steadycast_scenario::{Document, EventKind, FlowKind, Loaded, Problems, RateSpec, network};
use steadycast_units::{Rate, Span};

use crate::scenarios::root;

const FLOW: &str = "[[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"fixed\"\n";

fn networks() -> PathBuf {
    root().join("scenarios/networks")
}

fn read(text: &str, sets: &[&str]) -> Result<Loaded, Problems> {
    let mut document = Document::parse(text, Path::new("test.toml"))?.with_networks(&networks());
    for set in sets {
        document.set(set).map_err(|problem| Problems(vec![problem]))?;
    }
    document.check()
}

fn fail(text: &str) -> String {
    match read(&format!("duration = \"30s\"\n{text}\n{FLOW}"), &[]) {
        Ok(_) => panic!("nothing wrong found in\n{text}"),
        Err(problems) => problems.to_string(),
    }
}

/// Writes a network's file into a folder of this test.
fn file(name: &str, text: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("named");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file can be written");
    path
}

#[test]
fn what_is_wrong_with_a_name_is_told_with_its_line_and_what_was_meant() {
    for (said, told) in [
        ("cabel-5", "test.toml:2: network: no network is called \"cabel-5\"; did you mean \"cable-5\"?"),
        ("sets", "test.toml:2: network: no network is called \"sets\"; there are: 3g-fast"),
        ("", "test.toml:2: network: no network is called \"\"; there are: 3g-fast"),
        ("cable-5+cubik", "test.toml:2: network: no traffic is called \"cubik\"; did you mean \"cubic\"?"),
        ("cable-5+", "test.toml:2: network: no traffic is called \"\"; there are: cubic, newreno, bbr, web"),
        ("cable-5+0cubic", "test.toml:2: network: \"0\" flows of cubic; from 1 to 99: +2cubic"),
        ("cable-5+100web", "test.toml:2: network: \"100\" flows of web; from 1 to 99: +2web"),
        ("./mine.toml", "test.toml:2: network: there is no file \"./mine.toml\"; name a network's file"),
    ] {
        let problems = fail(&format!("network = \"{said}\""));
        assert!(problems.contains(told) && !problems.contains('\n'), "{said}: {problems}");
    }
    assert!(fail("network = 5").starts_with("test.toml:2: network: 5 is not a text"), "{}", fail("network = 5"));
}

#[test]
fn a_mistake_in_a_network_s_file_is_told_with_its_own_place() {
    let good = "[topology]\nshape = \"dumbbell\"\nbottleneck = { rate = \"1Mbps\" }\n";
    for (name, text, told) in [
        ("key.toml", "colour = 1", "key.toml:1: colour: no such key; there are: about, source, licence, kind"),
        ("kind.toml", "kind = \"guess\"", "kind.toml:1: kind: "),
        ("flow.toml", "flow = []", "flow.toml:1: flow: no such key"),
        ("shape.toml", "[topology]\nshape = \"star\"", "shape.toml:2: topology.shape: a network is a dumbbell"),
        ("none.toml", "about = \"x\"", "none.toml:1: topology.shape: a network is a dumbbell"),
        ("toml.toml", "about =", "toml.toml:1: not TOML"),
        ("mahimahi.toml", "0\n4\n4\n9\n", "mahimahi.toml:1: this is a trace of a link, not a network; write --set"),
        ("table.toml", "t_s,mbps\n0,1\n1,2\n", "table.toml:1: this is a trace of a link, not a network"),
        (
            "rate.toml",
            "[topology]\nshape = \"dumbbell\"\nbottleneck = { rate = \"1\" }",
            "rate.toml:3: topology.bottleneck.rate: ",
        ),
        (
            "trace.toml",
            "[topology]\nshape = \"dumbbell\"\n[topology.bottleneck]\ntrace = \"x\"",
            "trace.toml:4: topology.bottleneck.trace: the trace \"x\" does not exist",
        ),
        (
            "link.toml",
            &format!("{good}[[event]]\nat = \"1s\"\nset = {{ link = \"x\", rate = \"1Mbps\" }}"),
            "link.toml:6: ",
        ),
    ] {
        let path = file(name, text);
        let problems = fail(&format!("network = \"{}\"", path.display()));
        let first = problems.lines().next().unwrap_or_default();
        assert!(first.contains(told) && first.contains("; "), "{name}: {problems}");
        assert!(network(&path.display().to_string(), Path::new(""), &networks()).is_err(), "{name}");
    }
}

#[test]
fn a_network_has_its_own_nodes_and_links_and_shape() {
    for text in [
        "nodes = [\"a\", \"b\"]",
        "nodes = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]",
        "[[link]]\nbetween = [\"left\", \"right\"]",
    ] {
        let problems = fail(&format!("network = \"cable-5\"\n{text}"));
        assert!(problems.contains("the network has its own nodes and links; leave it out"), "{problems}");
    }
    let problems = fail("network = \"cable-5\"\n[topology]\nshape = \"star\"");
    assert!(problems.starts_with("test.toml:4: topology.shape: the network is a dumbbell; "), "{problems}");
    let problems = fail("network = \"cable-5+cubic\"\n[[flow]]\nname = \"beside1\"\nkind = \"tcp\"");
    assert!(problems.contains("network: a flow of the scenario is called \"beside1\" as well; "), "{problems}");
}

#[test]
fn a_scenario_s_own_keys_win_and_its_flows_come_first() {
    let text = format!(
        "duration = \"60s\"\nnetwork = \"steps+2cubic+web\"\ntopology.bottleneck.delay = \"3ms\"\n{FLOW}\
         [[link]]\nname = \"right-video.dst1\"\ndelay = \"7ms\"\n\
         [[event]]\nat = \"5s\"\nset = {{ link = \"bottleneck\", delay = \"4ms\" }}\n"
    );
    let loaded = read(&text, &[]).unwrap_or_else(|problems| panic!("{problems}"));
    let scenario = &loaded.scenario;
    let names: Vec<_> = scenario.flows.iter().map(|flow| flow.name.as_str()).collect();
    assert_eq!(names, ["video", "beside1", "beside2", "beside3"]);
    let find = |name: &str| scenario.links.iter().find(|link| link.name == name).unwrap();
    assert_eq!(find("bottleneck").forward.delay, Span::millis(3));
    assert_eq!(find("bottleneck").forward.rate, RateSpec::Constant(Rate::mbps(1)));
    assert_eq!(find("right-video.dst1").forward.delay, Span::millis(7));
    let at: Vec<_> = scenario.events.iter().map(|event| event.at.as_secs_f64()).collect();
    assert_eq!(at, [5.0, 20.0, 30.0, 40.0]);
    // The resolved text of a run is complete and no longer refers to the network.
    let kept = loaded.resolved_toml();
    assert_eq!(kept.matches("network").count(), 1, "{kept}");
    assert!(kept.starts_with("# Over the network \"steps+2cubic+web\".\nformat = 1\n"), "{kept}");
    let again = Document::parse(&kept, Path::new("test.toml")).unwrap().check().unwrap();
    assert_eq!(again.scenario, *scenario);
    assert_ne!(loaded.sha256, read(&text.replace("steps", "steps-back"), &[]).unwrap().sha256);
}

#[test]
fn a_network_that_is_set_comes_in_the_place_of_a_whole_one_and_below_keys_that_are_set() {
    let whole = format!(
        "duration = \"8s\"\n[topology]\nshape = \"dumbbell\"\n\
         bottleneck = {{ rate = \"3Mbps\", delay = \"99ms\" }}\n{FLOW}"
    );
    let bottleneck = |loaded: &Loaded| {
        let link = loaded.scenario.links.iter().find(|link| link.name == "bottleneck").unwrap();
        (link.forward.rate.mean().unwrap(), link.forward.delay)
    };
    let delay = "topology.bottleneck.delay=1ms";
    for (sets, expected) in [
        (&["network=cable-5"][..], (Rate::mbps(5), Span::millis(14))),
        (&["network=cable-5", delay], (Rate::mbps(5), Span::millis(1))),
        (&[delay, "network=cable-5"], (Rate::mbps(5), Span::millis(1))),
        (&["network=dsl-8", "network=cable-5"], (Rate::mbps(5), Span::millis(14))),
    ] {
        assert_eq!(bottleneck(&read(&whole, sets).unwrap_or_else(|p| panic!("{p}"))), expected, "{sets:?}");
    }
    // If the file itself names a network, its other topology keys change whichever network is used.
    let over = format!("duration = \"8s\"\nnetwork = \"dsl-8\"\ntopology.bottleneck.delay = \"99ms\"\n{FLOW}");
    let loaded = read(&over, &["network=cable-5"]).unwrap_or_else(|p| panic!("{p}"));
    assert_eq!(bottleneck(&loaded), (Rate::mbps(5), Span::millis(99)));
}

#[test]
fn tcp_of_no_given_size_has_packets_that_fit_through_its_way() {
    let tcp = "[[flow]]\nname = \"load\"\nkind = \"tcp\"\n";
    for (mtu, packet) in [("9000B", "1500B"), ("1400B", "1400B"), ("100B", "100B")] {
        for link in ["bottleneck = { mtu = \"M\" }", "access.back = { mtu = \"M\" }", "access.mtu = \"M\""] {
            let link = link.replace('M', mtu);
            let head = format!("duration = \"8s\"\nnetwork = \"clean-20+cubic\"\ntopology.{link}\n");
            let text = format!("{head}{tcp}preset = \"linux\"\n");
            let loaded = read(&text, &[]).unwrap_or_else(|p| panic!("{p}\n{text}"));
            let sizes = loaded.scenario.flows.iter().map(|flow| match &flow.kind {
                FlowKind::Tcp(tcp) => tcp.config.packet.to_string(),
                other => panic!("{other:?}"),
            });
            assert_eq!(sizes.collect::<Vec<_>>(), [packet, packet], "{text}");
        }
    }
    let said = format!("network = \"tunnel\"\n{tcp}packet = \"1300B\"");
    assert!(fail(&said).contains("flow.load.packet: a packet of 1300B does not fit through link"), "{}", fail(&said));
    let tiny = "network = \"clean-20+cubic\"\ntopology.bottleneck.mtu = \"99B\"";
    assert!(fail(tiny).contains("flow.beside1.packet: a packet of 1500B does not fit"), "{}", fail(tiny));
}

#[test]
fn an_event_comes_again_until_the_end() {
    let text = format!(
        "duration = \"10s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ rate = \"3Mbps\" }}\n{FLOW}\
         [[event]]\nat = \"1s\"\nevery = \"4s\"\nset = {{ link = \"bottleneck\", delay = \"4ms\" }}\n\
         [[event]]\nat = \"2s\"\nevery = \"8s\"\nset = {{ link = \"bottleneck\", delay = \"5ms\" }}\n"
    );
    let told = |text: &str| {
        let events = read(text, &[]).unwrap_or_else(|p| panic!("{p}")).scenario.events;
        let delay = |what: &EventKind| if let EventKind::Set(change) = what { change.delay } else { None };
        events.iter().map(|e| (e.at.as_secs_f64(), delay(&e.kind).map_or(0.0, Span::as_millis_f64))).collect::<Vec<_>>()
    };
    assert_eq!(told(&text), [(1.0, 4.0), (2.0, 5.0), (5.0, 4.0), (9.0, 4.0)], "none at the end itself");
    assert_eq!(told(&text.replace("\"10s\"", "\"11s\"")).len(), 5);
    let wrong = read(&text.replace("\"4s\"", "\"0s\""), &[]).unwrap_err().to_string();
    assert!(wrong.contains("event[1].every: again after 0ns; at least \"1ms\""), "{wrong}");
    let wrong = read(&text.replace("\"4s\"", "\"1ms\"").replace("\"10s\"", "\"2000s\""), &[]).unwrap_err().to_string();
    assert!(wrong.contains("event[1]: more than a million events"), "{wrong}");
}
