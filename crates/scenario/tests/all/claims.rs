//! The guarantees of the scenario format.

use std::path::{Path, PathBuf};
use steadycast_control::{FeedbackFormat, registry};
use steadycast_link::{BernoulliLoss, Policer, Shaper};
use steadycast_media::{Bucket, PerFrame, Vbr};
use steadycast_scenario::{
    Buffer, Cast, CoDel, Congestion, Document, EventKind, FirstNumbers, FlowIx, FlowKind, Fps, FqCoDel, JitterDist,
    KERNEL_JITTER, Limit, Loaded, Loss, Media, Pareto, PeriodDist, Periods, Problems, Quantizers, Queue, RateSpec,
    Repair, Reports, Scenario, Size, Start, Workload, schema,
};
use steadycast_units::{Bytes, Ecn, Rate, Span, Time};

use crate::scenarios::{all, known, root};

const NET: &str = r#"
duration = "10s"
[topology]
shape = "dumbbell"
bottleneck = { rate = "4Mbps", delay = "10ms" }
"#;

fn load(text: &str) -> Loaded {
    Scenario::parse(text, Path::new("test.toml")).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

fn fail(text: &str) -> String {
    match Scenario::parse(text, Path::new("test.toml")) {
        Ok(_) => panic!("nothing wrong found in\n{text}"),
        Err(problems) => problems.to_string(),
    }
}

fn set(text: &str, assignments: &[&str]) -> Result<Loaded, Problems> {
    let mut document = Document::parse(text, Path::new("test.toml"))?;
    for assignment in assignments {
        document.set(assignment).map_err(|problem| Problems(vec![problem]))?;
    }
    document.check()
}

#[test]
fn every_scenario_of_the_house_is_good() {
    let files = all();
    assert!(files.len() >= 52, "5 scenarios, 7 of family K, 8 of M, 12 of H, 8 of C and 12 of B: {}", files.len());
    for path in files {
        let loaded = Scenario::parse(&known(&std::fs::read_to_string(&path).unwrap()), &path)
            .unwrap_or_else(|problems| panic!("{problems}"));
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        assert_eq!(loaded.scenario.name, path.file_stem().unwrap().to_str().unwrap());
    }
}

#[test]
fn the_contracts_example_is_read_whole() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("contract");
    std::fs::create_dir_all(&folder).unwrap();
    for clip in ["a.mkv", "b.mkv"] {
        std::fs::write(folder.join(clip), "not empty").unwrap();
    }
    let text = std::fs::read_to_string(root().join("crates/scenario/tests/data/contract.toml")).unwrap();
    let loaded = Scenario::parse(&known(&text), &folder.join("contract.toml")).unwrap_or_else(|p| panic!("{p}"));
    let s = &loaded.scenario;
    assert_eq!(s.flows.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["video", "tcp", "noise"]);
    assert_eq!(s.flows[0].to.len(), 45);
    assert_eq!(s.node_name(s.flows[0].to[4]), "video.dst5");
    assert_eq!(s.starts_outside(FlowIx(0)), [4], "dst5 has a join event");
    let air: Vec<_> = s.links.iter().filter(|l| l.name.starts_with("air-")).collect();
    assert_eq!(air.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(), ["air-r1", "air-r2", "air-r3"]);
    assert_eq!(air[0].forward.loss, Loss::Bernoulli(BernoulliLoss { p: 0.02 }));
    assert_eq!(air[0].back.loss, Loss::None, "loss is forward unless told otherwise");
    assert_eq!(air[0].back.rate, RateSpec::Constant(Rate::mbps(10)));
    assert_eq!(air[0].back.delay, Span::millis(10), "back differs only in what it says");
    let FlowKind::Video(video) = &s.flows[0].kind else { panic!("{:?}", s.flows[0].kind) };
    assert_eq!(video.media, Media::Clip { paths: vec![folder.join("a.mkv"), folder.join("b.mkv")] });
    assert_eq!(video.buffer.as_ref().and_then(|b| b.consume), Some(Rate::kbps(8)));
    assert_eq!(video.encode.size, Size::Pixels { width: 352, height: 288 });
    let FlowKind::Tcp(tcp) = &s.flows[1].kind else { panic!("{:?}", s.flows[1].kind) };
    assert_eq!((tcp.config.window, tcp.config.packet, tcp.config.sack), (20, Bytes::new(1040), false));
    assert_eq!((tcp.config.congestion, &tcp.source), (Congestion::NewReno, &Workload::File(Bytes::new(1_000_000))));
    assert_eq!(s.expect[0].min, Some(0.8));
}

#[test]
fn an_example_needs_no_format_number_and_no_preset() {
    let loaded = load(&known(
        &std::fs::read_to_string(root().join("scenarios/dumbbell.toml")).unwrap().replace("format = 1\n", ""),
    ));
    let s = &loaded.scenario;
    assert_eq!(s.nodes.len(), 2 + 46 + 2);
    assert_eq!(s.links.len(), 1 + 46 + 2);
    assert_eq!(s.flows[0].cast, Cast::Multicast, "more than one receiver is a group");
    assert_eq!(s.links[0].forward.mtu, Bytes::new(1500));
    let names: Vec<_> = s.links.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(&names[..3], ["bottleneck", "video.src-left", "right-video.dst1"]);
}

#[test]
fn a_kernels_tcp_takes_its_time_to_answer_unless_the_scenario_says_how_long() {
    let text = format!(
        "{NET}[[flow]]\nname = \"tcp\"\nkind = \"tcp\"\n[[flow]]\nname = \"cbr\"\nkind = \"cbr\"\nrate = \"1Mbps\"\n"
    );
    let jitter = |sets: &[&str]| -> Vec<Span> {
        let scenario = set(&text, sets).unwrap_or_else(|p| panic!("{p}")).scenario;
        scenario.flows.iter().map(|flow| flow.send_jitter).collect()
    };
    assert_eq!(jitter(&[]), [KERNEL_JITTER, Span::ZERO]);
    assert_eq!(jitter(&["flow.tcp.preset=ns2"])[0], Span::ZERO);
    assert_eq!(jitter(&["flow.tcp.send_jitter=0ms"])[0], Span::ZERO);
    assert_eq!(jitter(&["flow.tcp.send_jitter=1ms"])[0], Span::millis(1));
}

#[test]
fn what_a_link_does_not_say_has_the_contracts_defaults() {
    let loaded = load(
        "duration = \"1s\"\nnodes = [\"a\", \"b\"]\nlink = [{ between = [\"a\", \"b\"] }]\nflow = [{ name = \"c\", \
            kind = \"cbr\", rate = \"1kbps\", from = \"a\", to = \"b\" }]",
    );
    let d = &loaded.scenario.links[0].forward;
    assert_eq!((&d.rate, d.delay, &d.loss), (&RateSpec::Unlimited, Span::ZERO, &Loss::None));
    assert_eq!((d.mtu, &d.queue), (Bytes::new(1500), &Queue::drop_tail(Limit::Packets(50))));
    assert_eq!(loaded.scenario.links[0].name, "a-b");
}

#[test]
fn shapes_name_their_nodes_and_links() {
    let shape = |topology: &str, flow: &str| {
        let text = format!(
            "duration = \"1s\"\n[topology]\n{topology}\n[[flow]]\nname = \"c\"\nkind = \"cbr\"\nrate = \
                \"1Mbps\"\n{flow}\n"
        );
        let loaded = load(&text);
        let s = &loaded.scenario;
        let to: Vec<_> = s.flows[0].to.iter().map(|n| s.node_name(*n).to_owned()).collect();
        let links: Vec<_> = s.links.iter().map(|l| l.name.clone()).collect();
        format!("{} | {} | {} -> {}", s.nodes.join(" "), links.join(" "), s.node_name(s.flows[0].from), to.join(" "))
    };
    assert_eq!(
        shape(
            "shape = \"star\"\nlegs = [{ rate = \"1Mbps\", count = 2 }, { name = \"far\", delay = \"100ms\" }]",
            "receivers = 3"
        ),
        "hub leg1 leg2 far | hub-leg1 hub-leg2 hub-far | hub -> leg1 leg2 far"
    );
    assert_eq!(
        shape("shape = \"parking-lot\"\nhops = [{ rate = \"1Mbps\", count = 3 }]", ""),
        "n0 n1 n2 n3 | n0-n1 n1-n2 n2-n3 | n0 -> n3"
    );
    assert_eq!(
        shape("shape = \"tree\"\nlevels = [{ fanout = 2 }, { fanout = 2, delay = \"5ms\" }]", "to = [\"leaf[1-3]\"]"),
        "root t1.1 t1.2 leaf1 leaf2 leaf3 leaf4 | root-t1.1 root-t1.2 t1.1-leaf1 t1.1-leaf2 t1.2-leaf3 t1.2-leaf4 | \
         root -> leaf1 leaf2 leaf3"
    );
}

#[test]
fn links_add_to_a_shape_and_change_it() {
    let text = format!(
        "{NET}access = {{ rate = \"10Mbps\" }}\n\
         [[link]]\nname = \"right-v.dst5\"\nrate = \"300kbps\"\n\
         [[link]]\nname = \"right-v.dst[1-2]\"\nqueue = {{ kind = \"red\", preset = \"classic\" }}\n\
         [[flow]]\nname = \"v\"\nkind = \"cbr\"\nrate = \"1Mbps\"\nreceivers = 5\n"
    );
    let s = load(&text).scenario;
    let link = |name: &str| &s.links[s.link(name).unwrap().0 as usize];
    assert_eq!(link("right-v.dst5").forward.rate, RateSpec::Constant(Rate::kbps(300)));
    assert_eq!(link("right-v.dst4").forward.rate, RateSpec::Constant(Rate::mbps(10)));
    for name in ["right-v.dst1", "right-v.dst2"] {
        let Queue::Red(red) = &link(name).forward.queue else { panic!("{name}") };
        assert_eq!((red.min, red.max, red.weight), (Limit::Packets(5), Limit::Packets(15), 0.002));
        assert_eq!(link(name).forward.rate, RateSpec::Constant(Rate::mbps(10)), "the rest stays");
    }
}

#[test]
fn reds_ns2_preset_follows_the_links_own_rate() {
    let with = |assignments: &[&str]| {
        let text = format!("{NET}[[flow]]\nname = \"v\"\nkind = \"cbr\"\nrate = \"1Mbps\"\n");
        let s = set(&text, assignments).unwrap_or_else(|p| panic!("{p}")).scenario;
        match &s.links[0].forward.queue {
            Queue::Red(red) => *red,
            other => panic!("{other:?}"),
        }
    };
    let slow = with(&["link.bottleneck.queue.kind=red", "link.bottleneck.rate=500kbps", "link.bottleneck.delay=20ms"]);
    assert!((slow.weight - 0.00797).abs() < 5e-6, "{}", slow.weight);
    assert_eq!((slow.min, slow.max), (Limit::Bytes(Bytes::new(2500)), Limit::Bytes(Bytes::new(7500))));
    let fast = with(&["topology.bottleneck.queue.kind=red", "topology.bottleneck.rate=16Mbps"]);
    assert_eq!(fast.min, Limit::Bytes(Bytes::new(5000)));
    assert_eq!((fast.max_p, fast.gentle, fast.ecn, fast.limit), (0.1, true, false, Limit::Packets(50)));
}

#[test]
fn a_queue_of_another_kind_keeps_its_length() {
    let text = NET.replace("\"10ms\" }", "\"10ms\", queue = { kind = \"droptail\", limit = \"60p\" } }");
    let text = format!("{text}[[flow]]\nname = \"v\"\nkind = \"cbr\"\nrate = \"1Mbps\"\n");
    for path in ["topology.bottleneck", "link.bottleneck"] {
        let s = set(&text, &[&format!("{path}.queue.kind=red")]).unwrap_or_else(|p| panic!("{p}")).scenario;
        let Queue::Red(red) = &s.links[0].forward.queue else { panic!("{path}") };
        assert_eq!(red.limit, Limit::Packets(60), "{path}");
    }
}

#[test]
fn codel_is_as_its_rfcs_have_it_unless_it_is_told_otherwise() {
    let with = |queue: &str| {
        let text = NET.replace("\"10ms\" }", &format!("\"10ms\", queue = {{ {queue} }} }}"));
        let loaded = load(&format!("{text}[[flow]]\nname = \"v\"\nkind = \"cbr\"\nrate = \"1Mbps\"\n"));
        let read = |loaded: &Loaded| loaded.scenario.links[0].forward.queue.clone();
        let queue = read(&loaded);
        assert_eq!(read(&load(&loaded.resolved_toml())), queue, "resolved, it says the same");
        queue
    };
    let codel = |limit, target, interval, ecn| CoDel {
        limit: Limit::Packets(limit),
        target: Span::millis(target),
        interval: Span::millis(interval),
        ecn,
        ..CoDel::RFC
    };
    assert_eq!(with("kind = \"codel\""), Queue::CoDel(codel(1000, 5, 100, false)));
    let told = "limit = \"60p\", target = \"10ms\", interval = \"200ms\", ecn = true";
    assert_eq!(with(&format!("kind = \"codel\", {told}")), Queue::CoDel(codel(60, 10, 200, true)));
    let fair = |codel, flows, quantum| Queue::FqCoDel(FqCoDel { codel, flows, quantum: Bytes::new(quantum) });
    assert_eq!(with("kind = \"fq-codel\""), fair(codel(10_240, 5, 100, false), 1024, 1514));
    let told = format!("kind = \"fq-codel\", {told}, flows = 64, quantum = \"300B\"");
    assert_eq!(with(&told), fair(codel(60, 10, 200, true), 64, 300));
}

#[test]
fn a_policer_or_a_shaper_is_of_both_directions_unless_one_says_otherwise_and_reads_back() {
    let of = |keys: &str| {
        let text = format!("duration = \"1s\"\nnodes = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\n{keys}\n");
        let loaded = load(&format!(
            "{text}[[flow]]\nname = \"v\"\nkind = \"cbr\"\nrate = \"1Mbps\"\nfrom = \"a\"\nto = \"b\"\n"
        ));
        let read = |loaded: &Loaded| {
            let link = &loaded.scenario.links[0];
            let bucket = |d: &steadycast_scenario::Direction| {
                let policer = d.policer.map(|Policer { rate, burst }| (rate, burst));
                (policer, d.shaper.map(|Shaper { rate, burst }| (rate, burst)))
            };
            (bucket(&link.forward), bucket(&link.back))
        };
        let both = read(&loaded);
        assert_eq!(read(&load(&loaded.resolved_toml())), both, "resolved, it says the same");
        both
    };
    let bucket = Some((Rate::mbps(4), Bytes::new(30_000)));
    assert_eq!(of(""), ((None, None), (None, None)));
    for key in ["policer", "shaper"] {
        let one = if key == "policer" { (bucket, None) } else { (None, bucket) };
        let said = format!("{key} = {{ rate = \"4Mbps\", burst = \"30kB\" }}");
        assert_eq!(of(&said), (one, one));
        assert_eq!(of(&format!("{said}\nback = {{ {key} = \"none\" }}")), (one, (None, None)));
        assert_eq!(of(&format!("back = {{ {said} }}")), ((None, None), one));
        assert_eq!(of(&format!("{key} = \"none\"")), ((None, None), (None, None)));
    }
}

#[test]
fn a_link_that_clears_the_ecn_field_does_so_in_the_directions_that_say_so_and_reads_back() {
    let of = |keys: &str| {
        let text = format!("duration = \"1s\"\nnodes = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\n{keys}\n");
        let loaded = load(&format!(
            "{text}[[flow]]\nname = \"v\"\nkind = \"cbr\"\nrate = \"1Mbps\"\nfrom = \"a\"\nto = \"b\"\n"
        ));
        let read = |loaded: &Loaded| (loaded.scenario.links[0].forward.bleach, loaded.scenario.links[0].back.bleach);
        let both = read(&loaded);
        assert_eq!(read(&load(&loaded.resolved_toml())), both, "resolved, it says the same");
        both
    };
    assert_eq!(of(""), (false, false));
    assert_eq!(of("bleach = true"), (true, true));
    assert_eq!(of("bleach = true\nback = { bleach = false }"), (true, false));
    assert_eq!(of("back = { bleach = true }"), (false, true));
}

#[test]
fn probes_are_filled_up_where_there_are_retransmissions_and_it_reads_back() {
    let of = |keys: &str| {
        let loaded = load(&format!("{NET}[[flow]]\nname = \"v\"\nkind = \"video\"\ncontroller = \"gcc\"\n{keys}\n"));
        let padding = |loaded: &Loaded| {
            let FlowKind::Video(video) = &loaded.scenario.flows[0].kind else { panic!("no video") };
            video.padding
        };
        assert_eq!(padding(&load(&loaded.resolved_toml())), padding(&loaded), "{keys}");
        padding(&loaded)
    };
    let avpf = "rtcp = { profile = \"avpf\" }\n";
    assert!(of(&format!("{avpf}repair = \"rtx\"\npadding = true")));
    assert!(of(&format!("{avpf}repair = \"auto\"\npadding = true")));
    assert!(!of(&format!("{avpf}repair = \"rtx\"\npadding = false")) && !of(""));
}

#[test]
fn a_video_s_settings_read_back_with_their_defaults_filled_in() {
    let of = |keys: &str| {
        let loaded = load(&format!("{NET}[[flow]]\nname = \"v\"\nkind = \"video\"\ncontroller = \"fixed\"\n{keys}\n"));
        again(&loaded);
        let FlowKind::Video(video) = loaded.scenario.flows[0].kind.clone() else { panic!("no video") };
        video
    };
    let quantizers = |codec: &str| of(&format!("encode = {{ codec = \"{codec}\" }}")).encode.q;
    for (codec, best, worst) in [("mpeg2", 2, 31), ("h263", 2, 31), ("h265", 18, 47), ("vp9", 10, 63), ("av1", 10, 63)]
    {
        assert_eq!(quantizers(codec), Quantizers(best, worst), "{codec}");
    }
    let encode =
        of("encode = { codec = \"h264\", fps = \"clip\", size = \"clip\", gop = 2, q = 30 }\nclip = \"Cargo.toml\"")
            .encode;
    assert_eq!((encode.fps, encode.size, encode.bframes, encode.q), (Fps::Clip, Size::Clip, 1, Quantizers(30, 30)));
    assert_eq!(of("").vbr, Vbr::Bucket(Bucket { bucket: 1.5 }));
    assert_eq!(of("bucket = 3").vbr, Vbr::Bucket(Bucket { bucket: 3.0 }));
    assert_eq!(of("vbr = \"ladder\"").vbr, Vbr::Ladder);
    let frame = Vbr::Frame(PerFrame { wait: Span::millis(50), room: 2.5 });
    assert_eq!(of("vbr = \"frame\"\nwait = \"50ms\"").vbr, frame);
    let (plain, said) = (of(""), of("buffer = { size = \"16KiB\" }\nrtcp = { t_min = \"1s\", reports = \"source\" }"));
    assert_eq!((plain.buffer, plain.rtcp.t_min, plain.rtcp.reports), (None, None, Reports::Group));
    assert_eq!(said.buffer, Some(Buffer { size: Bytes::new(16 << 10), consume: None }));
    assert_eq!((said.rtcp.t_min, said.rtcp.reports), (Some(Span::secs(1)), Reports::Source));
    assert_eq!(of("rtp = { seq = 65535 }").first, FirstNumbers { seq: Some(u16::MAX), timestamp: None });
}

#[test]
fn periods_read_back_with_the_shape_of_those_that_have_one() {
    let of = |off: &str| {
        let on = "on = { mean = \"1s\" }";
        let flow = format!("[[flow]]\nname = \"v\"\nkind = \"onoff\"\nrate = \"1Mbps\"\n{on}\noff = {{ {off} }}\n");
        let loaded = load(&format!("{NET}{flow}"));
        again(&loaded);
        let FlowKind::OnOff(onoff) = &loaded.scenario.flows[0].kind else { panic!("not onoff") };
        assert_eq!(onoff.packet, Bytes::new(1000));
        onoff.off
    };
    let mean = Span::secs(5);
    assert_eq!(of("mean = \"5s\""), Periods { dist: PeriodDist::Exponential, mean });
    assert_eq!(of("dist = \"constant\", mean = \"5s\""), Periods { dist: PeriodDist::Constant, mean });
    let pareto = |shape| Periods { dist: PeriodDist::Pareto(Pareto { shape }), mean };
    assert_eq!(of("dist = \"pareto\", mean = \"5s\""), pareto(1.5));
    assert_eq!(of("dist = \"pareto\", mean = \"5s\", shape = 1.2"), pareto(1.2));
}

#[test]
fn a_video_has_the_codepoint_and_the_feedback_that_it_says_and_reads_back() {
    let of = |keys: &str| {
        let loaded = load(&format!("{NET}[[flow]]\nname = \"v\"\nkind = \"video\"\ncontroller = \"fixed\"\n{keys}\n"));
        let read = |loaded: &Loaded| {
            let FlowKind::Video(video) = &loaded.scenario.flows[0].kind else { panic!("no video") };
            (video.ecn, video.feedback)
        };
        let both = read(&loaded);
        assert_eq!(read(&load(&loaded.resolved_toml())), both, "resolved, it says the same");
        both
    };
    let own = FeedbackFormat::Own;
    assert_eq!(of(""), (Ecn::NotEct, own));
    assert_eq!((of("ecn = false"), of("ecn = \"off\"")), ((Ecn::NotEct, own), (Ecn::NotEct, own)));
    assert_eq!((of("ecn = true"), of("ecn = \"ect0\"")), ((Ecn::Ect0, own), (Ecn::Ect0, own)));
    assert_eq!(of("ecn = \"ect1\"\nfeedback = \"rfc8888\""), (Ecn::Ect1, FeedbackFormat::Rfc8888));
    assert_eq!(
        of("feedback = \"twcc\"\nreceivers = 3\ncast = \"unicast\""),
        (Ecn::NotEct, FeedbackFormat::TransportWide)
    );
}

#[test]
fn set_reaches_every_kind_of_key() {
    let text = format!(
        "{NET}[[flow]]\nname = \"a.b\"\nkind = \"cbr\"\nrate = \"1Mbps\"\n[[flow]]\nname = \"tcp\"\nkind = \
            \"tcp\"\ncount = 2\n"
    );
    let s = set(
        &text,
        &[
            "seed=7",
            "duration=20s",
            "flow.a.b.rate=2Mbps",
            "flow.a.b.start.uniform=[\"1s\", \"2s\"]",
            "flow.tcp.count=3",
            "flow.tcp.preset=ns2",
            "link.right-a.b.dst1.back.rate=64kbps",
            "topology.access.delay=3ms",
            "record.interval=100ms",
        ],
    )
    .unwrap_or_else(|p| panic!("{p}"))
    .scenario;
    assert_eq!((s.seed.0, s.duration, s.flows.len()), (7, Span::secs(20), 4));
    let FlowKind::Cbr(cbr) = &s.flows[0].kind else { panic!() };
    assert_eq!(cbr.rate, Rate::mbps(2));
    assert_eq!(s.flows[0].start, Start::Uniform(Time::from_nanos(1_000_000_000), Time::from_nanos(2_000_000_000)));
    let FlowKind::Tcp(tcp) = &s.flows[3].kind else { panic!() };
    assert_eq!((tcp.config.window, s.flows[3].name.as_str()), (20, "tcp3"));
    let link = &s.links[s.link("right-a.b.dst1").unwrap().0 as usize];
    assert_eq!(link.back.rate, RateSpec::Constant(Rate::kbps(64)));
    assert_eq!(link.forward.delay, Span::millis(3));
    assert_eq!(s.record.interval, Span::millis(100));
}

#[test]
fn a_file_that_is_set_may_lie_where_the_command_is_typed() {
    let text = format!("{NET}[[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"tfrc\"\nmedia = \"clip\"\n");
    let clips = |name: &str| {
        let loaded = set(&text, &[&format!("flow.video.clip=[{name:?}]")]).unwrap_or_else(|p| panic!("{p}"));
        format!("{:?}", loaded.scenario.flows[0])
    };
    // Tests run in the crate's folder, which contains no scenario.
    let here = std::path::absolute("src/tree.rs").unwrap();
    assert!(clips("src/tree.rs").contains(&format!("{}", here.display())));
    let missing = set(&text, &["flow.video.clip=absent.mkv"]).unwrap_err();
    assert!(format!("{missing}").contains("or to the current folder"));
}

#[test]
fn set_names_what_it_cannot_find() {
    let text = format!("{NET}[[flow]]\nname = \"video\"\nkind = \"cbr\"\nrate = \"1Mbps\"\n");
    let error = |assignment: &str| set(&text, &[assignment]).map(|_| ()).unwrap_err().to_string();
    assert_eq!(error("flow.vidoe.rate=1Mbps"), "--set: flow.vidoe.rate: no such flow; did you mean \"video\"?");
    assert_eq!(error("flow.video.rat=1Mbps"), "--set: flow.video.rat: no such key; did you mean \"rate\"?");
    assert_eq!(
        error("flow.video.rate=0.5"),
        "--set: flow.video.rate: 0.5 is not a rate; write its unit, as \"0.5Mbps\" or \"0.5kbps\""
    );
    assert!(error("link.botleneck.rate=1Mbps").contains("did you mean \"bottleneck\"?"));
    assert!(error("link.bottleneck.rat=1Mbps").contains("did you mean \"rate\"?"));
    assert!(error("topolgy.bottleneck.rate=1Mbps").contains("did you mean \"topology\"?"));
    assert!(error("seed").contains("PATH=VALUE"));
}

#[test]
fn count_zero_leaves_a_flow_out_and_its_name_still_means_something() {
    let text = format!(
        "{NET}[[flow]]\nname = \"v\"\nkind = \"cbr\"\nrate = \"1Mbps\"\n[[flow]]\nname = \"tcp\"\ncount = 8\nkind = \
            \"tcp\"\n\
         [record]\npackets = [\"tcp\"]\n"
    );
    assert_eq!(load(&text).scenario.record.packets.len(), 8);
    let none = set(&text, &["flow.tcp.count=0"]).unwrap_or_else(|p| panic!("{p}"));
    assert_eq!((none.scenario.flows.len(), none.scenario.record.packets.len()), (1, 0));
    again(&none);
}

#[test]
fn events_are_sorted_and_ranges_written_out() {
    let text = format!(
        "{NET}[[flow]]\nname = \"v\"\nkind = \"cbr\"\nrate = \"1Mbps\"\nreceivers = 9\n\
         [[flow]]\nname = \"late\"\nkind = \"cbr\"\nrate = \"1Mbps\"\n\
         [[event]]\nat = \"5s\"\nleave = \"v.dst[8-9]\"\n\
         [[event]]\nat = \"2s\"\njoin = [\"v.dst[7-8]\", \"v.v.dst9\"]\n\
         [[event]]\nat = \"1s\"\nstart = \"late\"\n\
         [[event]]\nat = \"3s\"\nset = {{ link = \"bottleneck\", rate = \"1Mbps\", loss = {{ kind = \"none\" }} }}\n\
         [[event]]\nat = \"6s\"\nset = {{ link = \"bottleneck\", jitter = {{ mean = \"7ms\", dist = \"wifi\" }} }}\n\
         [[event]]\nat = \"7s\"\nset = {{ link = \"bottleneck\", jitter = \"0ms\" }}\n"
    );
    let loaded = load(&text);
    again(&loaded);
    let s = loaded.scenario;
    let at: Vec<_> = s.events.iter().map(|e| e.at.as_secs_f64()).collect();
    assert_eq!(at, [1.0, 2.0, 2.0, 2.0, 3.0, 5.0, 5.0, 6.0, 7.0]);
    let jitter = |event: &steadycast_scenario::Event| match &event.kind {
        EventKind::Set(change) => change.jitter.map(|jitter| (jitter.mean, jitter.dist)),
        _ => None,
    };
    let jitters: Vec<_> = s.events.iter().filter_map(jitter).collect();
    assert_eq!(jitters, [(Span::millis(7), JitterDist::Wifi), (Span::ZERO, JitterDist::Exponential)]);
    assert_eq!(s.starts_outside(FlowIx(0)), [6, 7, 8]);
    assert_eq!(s.flows[1].start, Start::Event, "a flow with a start event waits for it");
    let EventKind::Set(change) = &s.events[4].kind else { panic!("{:?}", s.events[4]) };
    assert!(change.rate.is_some() && change.delay.is_none() && change.loss == Some(Loss::None), "{change:?}");
}

#[test]
fn a_unicast_controller_is_refused_for_a_group_and_taken_for_a_session_each() {
    let controller = registry::ALL.iter().find(|c| c.receivers == registry::Receivers::One).expect("one of them");
    let text =
        format!("{NET}[[flow]]\nname = \"v\"\nkind = \"video\"\ncontroller = \"{}\"\nreceivers = 3\n", controller.name);
    let said = fail(&text);
    assert!(said.contains("test.toml:10: flow.v.receivers:") && said.contains("cast = \"unicast\""), "{said}");
    assert_eq!(load(&format!("{text}cast = \"unicast\"\n")).scenario.flows[0].cast, Cast::UnicastEach);
}

#[test]
fn repair_is_automatic_where_one_receiver_may_ask_for_packets_and_none_elsewhere() {
    let repair = |keys: &str| {
        let text = format!("{NET}[[flow]]\nname = \"v\"\nkind = \"video\"\ncontroller = \"asmp\"\n{keys}\n");
        let loaded = load(&text);
        again(&loaded);
        let FlowKind::Video(video) = &loaded.scenario.flows[0].kind else { panic!() };
        video.repair
    };
    assert_eq!(repair(""), Repair::None);
    assert_eq!(repair("repair = \"none\""), Repair::None);
    assert_eq!(repair("repair = \"auto\""), Repair::Auto);
    assert_eq!(repair("receivers = 2\ncast = \"unicast\"\nrepair = \"rtx\""), Repair::Rtx);
    assert_eq!(repair("receivers = 2\nrepair = \"auto\""), Repair::Auto);
    assert_eq!(repair("rtcp = { profile = \"rfc3550\" }\nrepair = \"auto\""), Repair::Auto);
    assert_eq!(repair("receivers = 2\nrepair = \"parity\""), Repair::Parity);
}

#[test]
fn a_class_of_ones_own_is_left_to_those_who_can_load_it() {
    let text = format!(
        "{NET}[[flow]]\nname = \"v\"\nkind = \"video\"\ncontroller = \
            \"mine/ctl.py:Aimd\"\nparams.\"mine/ctl.py:Aimd\" = {{ step = 3 }}\n"
    );
    let loaded = load(&text);
    let FlowKind::Video(video) = &loaded.scenario.flows[0].kind else { panic!() };
    assert_eq!(video.given().len(), 1);
    again(&loaded);
    for wrong in ["mine.py:", ".py:A", "a.py:9x", "a.py:A B"] {
        assert!(fail(&text.replacen("mine/ctl.py:Aimd", wrong, 1)).contains("no such controller"), "{wrong}");
    }
}

#[test]
fn all_problems_are_found_at_once_and_by_line() {
    let said = fail(
        "duration = \"0s\"\nwramup = \"1s\"\nnodes = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"c\"]\nrate = \
            \"fast\"\n\
         [[flow]]\nname = \"tcp\"\nkind = \"tcp\"\nfrom = \"a\"\nto = \"b\"\nwindow = 20\n",
    );
    let lines: Vec<_> = said.lines().map(|l| l.split(": ").take(2).collect::<Vec<_>>().join(": ")).collect();
    assert_eq!(
        lines,
        [
            "test.toml:1: duration",
            "test.toml:2: wramup",
            "test.toml:5: link.a-c.between",
            "test.toml:6: link.a-c.rate",
            "test.toml:12: flow.tcp.window"
        ]
    );
}

#[test]
fn json_gets_the_same_checks_by_key() {
    let json = serde_json::json!({
        "duration": "10s",
        "topology": { "shape": "dumbbell", "bottleneck": { "rate": "4Mbps" }, "access": null },
        "flow": [{ "name": "v", "kind": "cbr", "rate": "1Mbps", "receivers": 2 }],
    });
    let loaded = Scenario::from_json(&json, Path::new("Scenario(...)")).unwrap_or_else(|p| panic!("{p}"));
    assert_eq!(loaded.scenario.flows[0].to.len(), 2);
    again(&loaded);
    let mut bad = json;
    bad["flow"][0]["rate"] = serde_json::json!(1e6);
    let said = Scenario::from_json(&bad, Path::new("Scenario(...)")).unwrap_err().to_string();
    assert_eq!(said, "Scenario(...): flow.v.rate: 1000000 is not a rate; write for example \"4Mbps\"");
}

#[test]
fn a_hundred_thousand_receivers_share_their_links_text() {
    let text = format!("{NET}[[flow]]\nname = \"v\"\nkind = \"cbr\"\nrate = \"1Mbps\"\nreceivers = 100000\n");
    let s = load(&text).scenario;
    assert_eq!((s.nodes.len(), s.links.len()), (100_003, 100_002));
    assert!(std::sync::Arc::ptr_eq(&s.links[5].forward, &s.links[100_000].back));
}

#[test]
fn a_trace_is_a_list_of_opportunities() {
    let path = root().join("scenarios/lte.toml");
    let text = known(&std::fs::read_to_string(&path).unwrap());
    let s = Scenario::parse(&text, &path).unwrap_or_else(|p| panic!("{p}")).scenario;
    let RateSpec::Trace(trace, _) = &s.links[1].forward.rate else { panic!() };
    assert_eq!((trace.at.last(), trace.looped), (Some(&Span::secs(30)), true));
    assert!(trace.at.windows(2).all(|w| w[0] <= w[1]));
    let rate = trace.mean_rate().unwrap_or_default();
    assert!(rate > Rate::kbps(4000) && rate < Rate::kbps(5000), "{rate}");
}

#[test]
fn files_that_are_no_traces_are_refused_with_their_line() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("traces");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, content, said) in [
        ("empty", "", "is empty"),
        ("blank", "\n\n", "has no line"),
        ("words", "1\n2\nthree\n", "words:3: \"three\" is not a time in whole milliseconds"),
        ("back", "1\n5\n4\n", "back:3: 4 ms comes after 5 ms"),
        ("zero", "0\n0\n", "takes no time"),
        ("bytes", "1\n\u{0}\u{1}\n", "bytes:2:"),
        ("huge", "99999999999999\n", "huge:1: 99999999999999 ms is more than 30 days"),
        ("epoch", "1764400000000\n1764400000012\n", "from the beginning of the trace"),
    ] {
        std::fs::write(folder.join(name), content).unwrap();
        let text = format!(
            "{NET}[[link]]\nname = \"bottleneck\"\ntrace = \"{name}\"\n[[flow]]\nname = \"v\"\nkind = \"cbr\"\nrate \
                = \"1Mbps\"\n"
        );
        let problems = Scenario::parse(&text, &folder.join("t.toml")).map(|_| ()).unwrap_err().to_string();
        assert!(problems.contains("t.toml:8: link.bottleneck.trace:") && problems.contains(said), "{name}: {problems}");
    }
}

#[test]
fn the_drawn_film_has_720_lines_where_a_share_is_more_than_it_can_use_in_cif() {
    let (cif, hd) = (Size::Pixels { width: 352, height: 288 }, Size::Pixels { width: 1280, height: 720 });
    let sizes = |rate: &str, flows: &str| {
        let text = format!(
            "format = 1\nduration = \"9s\"\n[topology]\nshape = \"dumbbell\"\naccess = {{ rate = \"1Gbps\" }}\n\
             bottleneck = {{ rate = \"{rate}\", delay = \"9ms\" }}\n{flows}"
        );
        let loaded = load(&text);
        again(&loaded);
        let size = |flow: &steadycast_scenario::Flow| match &flow.kind {
            FlowKind::Video(video) => Some(video.encode.size),
            _ => None,
        };
        loaded.scenario.flows.iter().filter_map(size).collect::<Vec<_>>()
    };
    let video = "[[flow]]\nname = \"v\"\nkind = \"video\"\ncontroller = \"steady\"\n";
    let tcp = "[[flow]]\nname = \"t\"\nkind = \"tcp\"\n";
    assert_eq!(sizes("2Mbps", video), [cif], "a share of 2 Mb/s is what CIF asks for");
    assert_eq!(sizes("2001kbps", video), [hd]);
    assert_eq!(sizes("4Mbps", &format!("{video}{tcp}")), [cif]);
    assert_eq!(sizes("4002kbps", &format!("{video}{tcp}")), [hd]);
    assert_eq!(sizes("7Mbps", &format!("{video}count = 3\n{tcp}")), [cif; 3]);
    assert_eq!(sizes("9Mbps", &format!("{video}count = 3\n{tcp}")), [hd; 3]);
    assert_eq!(sizes("4002kbps", &format!("{video}{tcp}bytes = \"1MB\"\n")), [hd], "a download that ends");
    let named = |said: &str| sizes("9Mbps", &format!("{video}encode = {{ {said} }}\n"));
    assert_eq!(named("size = \"cif\""), [cif]);
    assert_eq!(named("codec = \"h263\""), [cif]);
    assert_eq!(named("codec = \"h264\""), [hd]);
    assert_eq!(named("gop = 24"), [hd]);
    assert_eq!(sizes("9Mbps", &format!("{video}media = \"greedy\"\n")), [cif]);
    let back = "[[flow]]\nname = \"u\"\nkind = \"tcp\"\nfrom = \"v.dst1\"\nto = \"v.src\"\n";
    assert_eq!(sizes("3Mbps", &format!("{video}{back}")), [hd], "an upload takes nothing from a symmetric link");
    for hops in 1..5 {
        let links: String = (0..hops)
            .map(|n| format!("[[link]]\nbetween = [\"n{n}\", \"n{}\"]\nrate = \"3Mbps\"\ndelay = \"5ms\"\n", n + 1))
            .collect();
        let nodes: Vec<String> = (0..=hops).map(|n| format!("\"n{n}\"")).collect();
        let head = format!("format = 1\nduration = \"9s\"\nnodes = [{}]\n", nodes.join(", "));
        let loaded = load(&format!("{head}{links}{video}from = \"n0\"\nto = \"n{hops}\"\n"));
        let FlowKind::Video(video) = &loaded.scenario.flows[0].kind else { panic!() };
        assert_eq!(video.encode.size, hd, "{hops} equal links in a row are used by one flow each");
    }
}

#[test]
fn a_clip_is_shown_as_it_is_wherever_it_is_named_unless_a_change_says_otherwise() {
    let clip = "clip=Cargo.toml";
    let shown = |keys: &str, sets: &[&str]| {
        let text = format!(
            "{NET}[[flow]]\nname = \"v\"\nkind = \"video\"\ncontroller = \"fixed\"\n{keys}\n[[flow]]\n\
                     name = \"t\"\nkind = \"tcp\"\n"
        );
        let mut document = Document::parse(&text, &root().join("t.toml")).unwrap();
        sets.iter().for_each(|set| document.set(set).unwrap());
        let FlowKind::Video(video) = document.check().unwrap().scenario.flows[0].kind.clone() else { panic!() };
        assert!(matches!(video.media, Media::Clip { .. }), "{keys} {sets:?}");
        (video.encode.size, video.encode.fps)
    };
    let cif = Size::Pixels { width: 352, height: 288 };
    let of_synthetic = "media = \"synthetic\"\nencode = { codec = \"h264\", size = \"cif\", fps = 25 }";
    let of_clip = "clip = \"README.md\"\nencode = { size = \"cif\", fps = 25 }";
    for (keys, size, fps) in [
        ("", Size::Auto, Fps::Auto),
        ("clip = \"README.md\"", Size::Auto, Fps::Auto),
        // The size and rate of another medium are dropped, those of a clip are kept.
        (of_synthetic, Size::Auto, Fps::Auto),
        (of_clip, cif, Fps::PerSecond(25.0)),
    ] {
        assert_eq!(shown(keys, &[clip]), (size, fps), "{keys}");
        for (change, size, fps) in [
            ("flow.v.encode.size=clip", Size::Clip, fps),
            ("flow.v.encode.size=cif", cif, fps),
            ("flow.v.encode.fps=clip", size, Fps::Clip),
            ("flow.v.encode.fps=10", size, Fps::PerSecond(10.0)),
        ] {
            assert_eq!(shown(keys, &[clip, change]), (size, fps), "{keys} {change}");
            assert_eq!(shown(keys, &[change, clip]), (size, fps), "{keys} {change}, before the clip");
        }
    }
    let no_video = load(&format!("{NET}[[flow]]\nname = \"t\"\nkind = \"tcp\"\n"));
    let mut document = Document::parse(&no_video.resolved_toml(), &root().join("t.toml")).unwrap();
    assert!(document.set(clip).unwrap_err().to_string().contains("this scenario has no video"));
}

#[test]
fn the_schema_has_each_short_form_that_is_taken() {
    let schema = schema();
    let link = &schema["properties"]["link"]["items"]["properties"];
    let flow = &schema["properties"]["flow"]["items"]["properties"];
    for (forms, types) in [
        (&link["loss"], &["object", "string", "number"][..]),
        (&link["jitter"], &["object", "string"]),
        (&link["queue"], &["object", "string"]),
        (&flow["on"], &["object", "string"]),
        (&flow["encode"], &["object"]),
    ] {
        let told: Vec<_> = forms["type"].as_array().map_or_else(|| vec![&forms["type"]], |all| all.iter().collect());
        assert_eq!(told, types);
    }
}

#[test]
fn the_schema_knows_every_key_and_every_controllers_parameters() {
    let schema = schema();
    let flow = &schema["properties"]["flow"]["items"]["properties"];
    assert!(flow["send_jitter"]["description"].as_str().unwrap().contains("synchronising"));
    for controller in registry::ALL {
        for param in controller.params {
            let entry = &flow["params"]["properties"][controller.name]["properties"][param.name];
            assert!(entry["description"].is_string(), "{}.{}", controller.name, param.name);
        }
    }
    fn described(at: &str, schema: &serde_json::Value) {
        for (key, below) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{at}.{key}");
            assert!(below["description"].as_str().is_some_and(|d| d.len() > 5), "{path} has no description");
            described(&path, below);
            described(&path, &below["items"]);
        }
    }
    described("", &schema);
}

fn again(loaded: &Loaded) {
    let text = loaded.resolved_toml();
    let back = Scenario::parse(&text, Path::new("/elsewhere/again.toml")).unwrap_or_else(|p| panic!("{p}\n{text}"));
    assert_eq!(back.scenario, loaded.scenario, "{text}");
    assert_eq!(back.resolved_toml(), text, "resolving again changes nothing");
}

#[test]
fn a_resolved_text_gives_the_same_scenario() {
    for path in all() {
        let text = known(&std::fs::read_to_string(&path).unwrap());
        again(&Scenario::parse(&text, &path).unwrap_or_else(|p| panic!("{p}")));
    }
    let odd = format!(
        "{NET}access = {{ rate = \"10Mbps\", jitter = {{ mean = \"2ms\" }}, loss = {{ kind = \"gilbert\", p_bad = \
            0.01, p_good = 0.3, \
         direction = \"both\" }}, queue = {{ kind = \"red\" }}, back = {{ jitter = {{ mean = \"0ms\" }}, queue = {{ \
         kind = \
         \"droptail\" }} }} }}\n\
         [[link]]\nname = \"right-v.dst[1-2]\"\nqueue = {{ preset = \"classic\", kind = \"red\" }}\nrate = \"none\"\n\
         [[link]]\nname = \"right-v.dst2\"\nloss = {{ kind = \"run\", mean = \"12.5p\", direction = \"back\" }}\n\
         [[link]]\nname = \"right-v.dst3\"\nreorder = {{ p = 0.1, by = \"20ms\" }}\nduplicate = 0.2\n\
         back = {{ reorder = {{ p = 0 }} }}\n\
         [[flow]]\nname = \"v\"\nkind = \"cbr\"\nrate = \"1Mbps\"\nreceivers = 3\n\
         [[flow]]\nname = \"w\"\nkind = \"video\"\ncontroller = \"asmp\"\nmedia = \"greedy\"\ndefences = true\n\
         clock = {{ behind = \"60min\", drift = -100 }}\nrtp = {{ seq = 65000, timestamp = 4294967295 }}\n\
         [[flow]]\nname = \"t[1-2]\"\nkind = \"tcp\"\non = {{ mean = \"5s\", dist = \"pareto\" }}\noff = {{ mean = \
         \"5s\" }}\n\
         from = \"v.src\"\nto = \"v.dst[1-2]\"\n"
    );
    let loaded = load(&odd);
    let s = &loaded.scenario;
    assert_eq!(s.node_name(s.flows[3].to[0]), "v.dst2", "a bare range as long as the flow's own goes one by one");
    assert_eq!(s.links[2].back.jitter, None);
    again(&loaded);
}

#[test]
fn rtcp_takes_its_share_of_no_more_than_the_narrowest_link_on_the_way_carries() {
    let session = |bottleneck: &str, lines: &str| {
        let text = format!(
            "duration = \"10s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ {bottleneck} }}\n\
             access = {{ rate = \"10Mbps\" }}\n[[link]]\nname = \"right-other.dst1\"\nrate = \"10kbps\"\n\
             [[flow]]\nname = \"v\"\nkind = \"video\"\ncontroller = \"asmp\"\nmedia = \"greedy\"\n{lines}\n\
             [[flow]]\nname = \"other\"\nkind = \"tcp\"\n"
        );
        let loaded = load(&text);
        again(&loaded);
        match &loaded.scenario.flows[0].kind {
            FlowKind::Video(video) => video.rtcp.session_bw,
            other => panic!("{other:?}"),
        }
    };
    let narrow = "rate = \"800kbps\", back = { rate = \"300kbps\" }";
    assert_eq!(session(narrow, ""), Rate::kbps(800));
    assert_eq!(session("rate = \"4Mbps\"", ""), Rate::mbps(2));
    assert_eq!(session(narrow, "rtcp = { session_bw = \"3Mbps\" }"), Rate::mbps(3));
    assert_eq!(session(narrow, "rtcp = { reports = \"source\" }\nreceivers = 3\necn = true"), Rate::kbps(800));
}

#[test]
fn the_hash_tells_texts_and_sets_apart() {
    let text = format!("{NET}[[flow]]\nname = \"v\"\nkind = \"cbr\"\nrate = \"1Mbps\"\n");
    let hash = |sets: &[&str]| set(&text, sets).unwrap_or_else(|p| panic!("{p}")).sha256;
    assert_eq!(hash(&[]).len(), 64);
    assert_eq!(hash(&["seed=2"]), hash(&["seed=2"]));
    assert_ne!(hash(&[]), hash(&["seed=2"]));
}

#[test]
fn set_reaches_all_flows_that_a_pattern_or_a_groups_name_means() {
    let text = format!(
        "{NET}[[flow]]\nname = \"tcp-a\"\nkind = \"tcp\"\n[[flow]]\nname = \"tcp-b\"\nkind = \"tcp\"\n\
         [[flow]]\nname = \"web\"\nkind = \"tcp\"\ncount = 2\n[[flow]]\nname = \"bulk[1-3]\"\nkind = \"tcp\"\n"
    );
    let windows = |sets: &[&str]| -> Vec<u32> {
        let window = |flow: &steadycast_scenario::Flow| match &flow.kind {
            FlowKind::Tcp(tcp) => tcp.config.window,
            _ => 0,
        };
        let loaded = set(&text, sets).unwrap_or_else(|p| panic!("{p}"));
        loaded.scenario.flows.iter().map(window).collect()
    };
    assert_eq!(windows(&["flow.tcp*.window=7p"]), [7, 7, 4194, 4194, 4194, 4194, 4194]);
    assert_eq!(windows(&["flow.*-b.window=7p"]), [4194, 7, 4194, 4194, 4194, 4194, 4194]);
    assert_eq!(windows(&["flow.*.window=7p"]), [7; 7]);
    assert_eq!(windows(&["flow.web.window=7p"]), [4194, 4194, 7, 7, 4194, 4194, 4194]);
    assert_eq!(windows(&["flow.bulk.window=7p"]), [4194, 4194, 4194, 4194, 7, 7, 7]);
    assert_eq!(windows(&["flow.bulk[1-3].window=7p", "flow.b*k.window=8p"]), [4194, 4194, 4194, 4194, 8, 8, 8]);
    let refused = |path: &str| {
        let mut document = Document::parse(&text, Path::new("test.toml")).unwrap_or_else(|p| panic!("{p}"));
        document.set(path).expect_err(path).to_string()
    };
    let none = "no flow has a name like this; there are: tcp-a, tcp-b, web, bulk[1-3]";
    assert!(refused("flow.udp*.window=7p").ends_with(none), "{}", refused("flow.udp*.window=7p"));
    assert!(refused("flow.tcp-c.window=7p").ends_with("no such flow; did you mean \"tcp-a\"?"));
}
