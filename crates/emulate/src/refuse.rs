//! Checks that a scenario can be emulated.

use std::collections::BTreeMap;
use steadycast_scenario::{self as sc, FlowKind, Loaded, Problem};
use steadycast_tcp::{Config, Hystart, LINUX_WINDOW};
use steadycast_units::{Bytes, Span};

/// Size of the smallest packet: IP and UDP headers, sequence number, and send time.
const MIN_PLAIN_PACKET: Bytes = Bytes::new(48);

/// Returns a problem for each part of the scenario that the emulation can't reproduce. Each problem has its place in
/// the file.
pub fn refusals(loaded: &Loaded) -> Vec<Problem> {
    let scenario = &loaded.scenario;
    let places = loaded.places();
    let mut all = Vec::new();
    let mut refuse = |flow: &sc::Flow, key: &str, what: String, remedy: &str| {
        let path = format!("flow.{}.{key}", flow.name);
        // If the key is not in the file, one of these keys has set its value. The problem then refers to the line of
        // that key.
        let others = ["preset", "congestion", "kind"].map(|other| format!("flow.{}.{other}", flow.name));
        let at = [path.clone()].into_iter().chain(others).find(|p| places.contains_key(p)).unwrap_or(path);
        all.push(loaded.problem(&at, &what, remedy));
    };
    let mut hosts = BTreeMap::new();
    for flow in &scenario.flows {
        if flow.to.contains(&flow.from) {
            refuse(flow, "to", "a host that sends to itself uses no link here".into(), "take two hosts");
        }
        match &flow.kind {
            FlowKind::Tcp(spec) => {
                for (key, what) in kernel_tcp(spec) {
                    refuse(flow, key, what, "take preset = \"linux\" and leave the key out, or give --approximate");
                }
                let Config { sack, timestamps, ecn, .. } = spec.config;
                let wanted = [("sack", "SACK", sack), ("timestamps", "timestamps", timestamps), ("ecn", "ECN", ecn)];
                for host in flow.to.iter().chain([&flow.from]) {
                    // Compare the settings of all flows of a host. Linux sets them per network namespace, and each host
                    // is a namespace.
                    let (first, other) = *hosts.entry(*host).or_insert((wanted, &flow.name));
                    for (key, name, _) in wanted.into_iter().filter(|one| !first.contains(one)) {
                        let what = format!("a host has {name} for all its TCP or for none; flow.{other} differs");
                        refuse(flow, key, what, "give the flows hosts of their own, or the same keys");
                    }
                }
            }
            FlowKind::Cbr(sc::Cbr { packet, .. }) | FlowKind::OnOff(sc::OnOff { packet, .. })
                if *packet < MIN_PLAIN_PACKET =>
            {
                refuse(
                    flow,
                    "packet",
                    format!("a packet of {packet} has no room for its number and time"),
                    "take 48B at least",
                );
            }
            FlowKind::Video(video) => {
                if let sc::Media::Greedy { bytes: Some(_) } = video.media {
                    refuse(
                        flow,
                        "media",
                        "an emulated video can't end after an amount of data".into(),
                        "leave bytes out",
                    );
                }
            }
            _ => {}
        }
    }
    for simulcast in &scenario.simulcasts {
        let at = format!("simulcast.{}.flows", simulcast.name);
        let what = "receivers don't go from group to group here";
        all.push(loaded.problem(&at, what, "simulate it, or give --approximate: all stay in the lowest group"));
    }
    if scenario.duration > Span::secs(24 * 3600) {
        all.push(loaded.problem("duration", "it runs in real time, and this is more than a day", "take a shorter one"));
    }
    all
}

fn kernel_tcp(spec: &sc::Tcp) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    let mut say = |wrong: bool, key: &'static str, what: String| {
        if wrong {
            all.push((key, what));
        }
    };
    say(!spec.config.tick.is_zero(), "tick", format!("the kernel's TCP has no clock of {}", spec.config.tick));
    // Linux begins with ten packets (RFC 6928).
    say(
        spec.config.initial_window != 10,
        "initial_window",
        format!("the kernel's TCP begins with 10 packets, not {}", spec.config.initial_window),
    );
    // Linux begins with a timeout of 1 s (RFC 6298, section 2).
    say(
        spec.config.init_rto != Span::secs(1),
        "init_rto",
        format!("the kernel's first time-out is 1 s, not {}", spec.config.init_rto),
    );
    say(
        !(Span::secs(1)..=Span::secs(120)).contains(&spec.config.max_rto),
        "max_rto",
        format!("the kernel's largest time-out is 1 to 120 s, not {}", spec.config.max_rto),
    );
    say(
        spec.config.window > LINUX_WINDOW,
        "window",
        format!("the kernel opens {LINUX_WINDOW} packets at most, not {}", spec.config.window),
    );
    say(
        spec.config.congestion == sc::Congestion::Cubic && spec.config.hystart != Hystart::Classic,
        "hystart",
        "HyStart can be switched off for the whole machine only".into(),
    );
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use steadycast_scenario::Scenario;

    fn refused(keys: &str) -> Vec<String> {
        let text = format!(
            "duration = \"1s\"\n[topology]\nshape = \"dumbbell\"\n\
             bottleneck = {{ rate = \"1Mbps\", delay = \"1ms\" }}\n\
             [[flow]]\nname = \"tcp\"\nkind = \"tcp\"\n{keys}\n"
        );
        let loaded = Scenario::parse(&text, Path::new("test.toml")).unwrap_or_else(|p| panic!("{p}"));
        refusals(&loaded).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn todays_tcp_is_taken_as_it_is_with_the_windows_and_time_outs_that_a_socket_takes() {
        for keys in
            ["", "congestion = \"reno\"\nwindow = \"20p\"\nmin_rto = \"1s\"", "congestion = \"bbr\"\nsack = false"]
        {
            assert_eq!(refused(keys), [""; 0], "{keys}");
        }
    }

    #[test]
    fn a_tick_is_refused_with_its_line_and_one_from_a_preset_with_the_presets() {
        let own = refused("tick = \"10ms\"");
        assert_eq!(own.len(), 1, "{own:?}");
        assert!(own[0].starts_with("test.toml:8: flow.tcp.tick: the kernel's TCP has no clock of 10ms"), "{own:?}");
        let preset = refused("congestion = \"reno\"\npreset = \"ns2\"");
        assert!(
            preset.iter().any(|p| p.starts_with("test.toml:9: flow.tcp.preset: the kernel's TCP has no clock")),
            "{preset:?}"
        );
    }

    #[test]
    fn a_simulcast_is_refused_with_its_line() {
        let flow = |name: &str, rate: &str| {
            format!(
                "[[flow]]\nname = '{name}'\nkind = 'video'\ncontroller = 'asmp'\nmedia = 'greedy'\ncast = 'multicast'\n\
                 from = 'a'\nto = ['b']\n{rate} = '1Mbps'\n"
            )
        };
        let text = format!(
            "duration = '1s'\nnodes = ['a', 'b']\n[[link]]\nbetween = ['a', 'b']\n{}{}[[simulcast]]\nname = 'layers'\n\
             flows = ['low', 'high']\n",
            flow("low", "cap"),
            flow("high", "floor")
        );
        let loaded = Scenario::parse(&text, Path::new("test.toml")).unwrap_or_else(|p| panic!("{p}"));
        let all: Vec<String> = refusals(&loaded).iter().map(ToString::to_string).collect();
        assert!(matches!(&all[..], [one] if one.contains("simulcast.layers.flows: receivers don't go")), "{all:?}");
    }

    #[test]
    fn two_flows_with_different_tcp_settings_on_one_host_are_rejected() {
        let text = "duration = '1s'\nnodes = ['a', 'b']\n[[link]]\nbetween = ['a', 'b']\nrate = '1Mbps'\n\
                    [[flow]]\nname = 'x'\nkind = 'tcp'\nfrom = 'a'\nto = ['b']\n\
                    [[flow]]\nname = 'y'\nkind = 'tcp'\nfrom = 'a'\nto = ['b']\nsack = false\n";
        let loaded = Scenario::parse(text, Path::new("test.toml")).unwrap_or_else(|p| panic!("{p}"));
        let all = refusals(&loaded);
        assert!(all.iter().all(|p| p.key == "flow.y.sack" && p.line == Some(16)), "{all:?}");
        assert_eq!(all.len(), 2, "one for each host");
    }

    #[test]
    fn flows_with_and_without_ecn_on_one_host_are_rejected() {
        let refused = |x: &str, y: &str| -> Vec<_> {
            let text = format!(
                "duration = '1s'\nnodes = ['a', 'b', 'c']\n[[link]]\nbetween = ['a', 'b']\n[[link]]\n\
                 between = ['a', 'c']\n\
                 [[flow]]\nname = 'x'\nkind = 'tcp'\nfrom = 'a'\nto = ['b']\n{x}\n\
                 [[flow]]\nname = 'y'\nkind = 'tcp'\nfrom = 'a'\nto = ['c']\n{y}\n"
            );
            let loaded = Scenario::parse(&text, Path::new("test.toml")).unwrap_or_else(|p| panic!("{p}"));
            refusals(&loaded).into_iter().map(|p| (p.key.clone(), p.to_string().contains("ECN for all"))).collect()
        };
        let at = |key: &str| vec![(key.to_owned(), true)];
        assert_eq!(refused("congestion = 'reno'", "congestion = 'reno'\necn = true"), at("flow.y.ecn"));
        assert_eq!(refused("congestion = 'reno'", "congestion = 'dctcp'"), at("flow.y.congestion"));
        assert_eq!(refused("congestion = 'prague'", ""), at("flow.y.kind"));
        assert_eq!(refused("ecn = true", "congestion = 'dctcp'"), []);
    }
}
