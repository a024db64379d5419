use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use steadycast_remote::{Bounds, Bytes, FrameEdge, Packet, PacketResult, PeerTime, Rate, Remote, Stream, Time};
use steadycast_sender::{
    Departure, FrameRole, MediaPacket, MediaSender, MediaSettings, Output, RepairSettings, StreamSettings,
};

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const MS: u64 = 1_000_000;

/// Returns the path of a library that cargo has built into the folder of this test's program.
fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join(name)
}

/// Returns a folder into which the library is installed as docs/embedding.md describes it.
fn installed(name: &str) -> PathBuf {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let here = Path::new(HERE);
    for (from, to) in [("include/steadycast.h", "include"), ("steadycast.pc", "lib/pkgconfig")] {
        let (from, to) = (here.join(from), prefix.join(to));
        std::fs::create_dir_all(&to).unwrap();
        std::fs::copy(&from, to.join(from.file_name().unwrap())).unwrap();
    }
    let static_library = library("libsteadycast.a");
    let linked = Command::new("sh").arg(here.join("link.sh")).args([&static_library, &prefix.join("lib")]).output();
    let linked = linked.unwrap();
    assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
    prefix
}

/// Returns the output of a program of binutils, for example `nm`. binutils are installed with a C compiler.
fn inspected(tool: &str, option: &[&str], file: &Path) -> String {
    String::from_utf8(Command::new(tool).args(option).arg(file).output().unwrap().stdout).unwrap()
}

#[test]
fn the_shared_library_has_a_soname_and_exports_the_functions_of_the_header_with_their_versions_alone() {
    let library = installed("inspected").join("lib/libsteadycast.so");
    let (major_minor, _) = env!("CARGO_PKG_VERSION").rsplit_once('.').unwrap();
    let dynamic = inspected("readelf", &["-dW"], &library);
    assert!(dynamic.contains(&format!("Library soname: [libsteadycast.so.{major_minor}]")), "{dynamic}");
    let exported = inspected("nm", &["-D", "--defined-only", "--with-symbol-versions"], &library);
    let exported: BTreeSet<&str> = exported.lines().filter(|line| line.contains(" T ")).filter_map(last_word).collect();
    let header = std::fs::read_to_string(Path::new(HERE).join("include/steadycast.h")).unwrap();
    let declared = header.split(|c: char| !(c.is_ascii_lowercase() || "_(".contains(c)));
    let declared: BTreeSet<String> = declared
        .filter_map(|word| word.split_once('(')?.0.strip_prefix("steadycast_"))
        .map(|name| format!("steadycast_{name}@@STEADYCAST_0.1"))
        .collect();
    assert!(declared.len() > 10, "{declared:?}");
    assert_eq!(exported, declared.iter().map(String::as_str).collect());
}

fn last_word(line: &str) -> Option<&str> {
    line.split_whitespace().next_back()
}

/// Returns the output of pkg-config for the library that is installed in `prefix`.
fn packaged(prefix: &Path, options: &[&str]) -> Vec<String> {
    let folder = prefix.join("lib/pkgconfig");
    let output = Command::new("pkg-config").args(options).arg("steadycast").env("PKG_CONFIG_PATH", folder).output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    output.split_whitespace().map(String::from).collect()
}

/// Compiles a program, with every warning an error, and links it to the library.
fn compiled(compiler: &str, flags: &[&str], source: &str, into: &str) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(into);
    let made = Command::new(compiler)
        .args(["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .args(flags)
        .arg(format!("-I{HERE}/include"))
        .arg(Path::new(HERE).join(source))
        .arg(library("libsteadycast.a"))
        .args(["-lm", "-lpthread", "-ldl", "-o"])
        .arg(&out)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    out
}

/// Returns the output of a program that contains the library.
fn output_of(program: &Path, controller: &str) -> String {
    output_with(Path::new(""), program, controller)
}

/// Returns the output of a program that loads the library installed in `prefix`.
fn output_with(prefix: &Path, program: &Path, controller: &str) -> String {
    let done = Command::new(program).arg(controller).env("LD_LIBRARY_PATH", prefix.join("lib")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Returns the output of examples/link.c, computed by the Rust library.
fn link_in_rust(controller: &str) -> String {
    let mut remote = Remote::new(controller, &[], &Bounds::new(Rate::kbps(100), Rate::mbps(10))).unwrap();
    let packet = Packet { size: Bytes::new(1_200), edge: FrameEdge::default(), data_limited: false };
    let span = |rate: u64| 1_200 * 8_000_000_000 / rate;
    let (mut idle, mut send, mut report) = (0, 0, 50 * MS);
    let (mut under_way, mut lines) = (VecDeque::new(), String::new());
    loop {
        let wake = remote.wake().map_or(u64::MAX, |wake| wake.at.as_nanos());
        let now = wake.min(send).min(report);
        let time = Time::from_nanos(now);
        if now >= 60_000 * MS {
            return lines;
        }
        if now == wake {
            remote.timer(time);
        } else if now == send {
            let number = remote.sent(time, &packet);
            if idle > now + 200 * MS {
                under_way.push_back((now + 20 * MS, PacketResult::missing(number)));
            } else {
                idle = idle.max(now) + span(2_000_000);
                let at = PeerTime::from_nanos((idle + 20 * MS) as i64);
                under_way.push_back((idle + 20 * MS, PacketResult::at(number, at)));
            }
            send = now + span(remote.decision().pacing.as_bps());
        } else {
            let ready = under_way.iter().take_while(|(at, _)| at + 20 * MS <= now).count();
            remote.feedback(time, under_way.drain(..ready).map(|(_, fate)| fate));
            let decision = remote.decision();
            let (target, pacing) = (decision.target.as_bps(), decision.pacing.as_bps());
            writeln!(lines, "{} {target} {pacing} {}", now / MS, decision.why.rule).unwrap();
            report = now + 50 * MS;
        }
    }
}

/// Returns the output of examples/sender.c, computed by the Rust library.
fn sender_in_rust(controller: &str) -> String {
    let settings = MediaSettings::new(Bounds::new(Rate::kbps(100), Rate::mbps(10)));
    let mut sender = MediaSender::new(controller, &[], settings).unwrap();
    let audio = sender.add_stream(StreamSettings::audio(2, Rate::kbps(40)));
    let mut video = StreamSettings::video(1);
    video.retransmission = Some(RepairSettings::default());
    let video = sender.add_stream(video);
    let packet =
        |size, seq, first, last| MediaPacket { id: 0, size: Bytes::new(size), edge: FrameEdge { first, last }, seq };
    let size_of = |left: &Departure| if left.stream == audio { 100 } else { 1_200 };
    let (mut sent, mut seqs, mut idle, mut carried) = (VecDeque::new(), [0_u16; 2], 0, 0);
    let (mut lines, mut count) = (String::new(), 0);
    for ms in 0..30_000 {
        let (now, at) = (ms * MS, Time::from_nanos(ms * MS));
        if ms % 20 == 0 {
            sender.push(at, audio, &packet(100, seqs[0], true, true));
            seqs[0] = seqs[0].wrapping_add(1);
            let plan = sender.encoder(at, video);
            let role = if plan.key_frame { FrameRole::Key } else { FrameRole::Reference };
            if !plan.skip && sender.frame(at, video, role) {
                let bytes = plan.rate.as_bps() / 400 + 60;
                let packets = bytes.div_ceil(1_200);
                for n in 0..packets {
                    sender.push(at, video, &packet(bytes / packets, seqs[1], n == 0, n + 1 == packets));
                    seqs[1] = seqs[1].wrapping_add(1);
                }
            }
        }
        loop {
            match sender.poll(at) {
                Output::Send(left) => {
                    idle = idle.max(now) + size_of(&left) * 4_000;
                    sent.push_back((left, (count % 100 != 99).then_some(idle + 25 * MS)));
                    count += 1;
                }
                Output::Dropped(..) => {}
                Output::Wait(_) => break,
            }
        }
        if ms % 50 == 0 {
            let (mut fates, mut lost) = (Vec::new(), Vec::new());
            let limit = now as i64 - 25 * MS as i64;
            let reported = |(_, arrives): &(_, Option<u64>)| arrives.map_or(0, |arrives| arrives as i64) <= limit;
            while sent.front().is_some_and(reported) {
                let Some((left, arrives)) = sent.pop_front() else { break };
                let number = left.number;
                if left.kind == Stream::Media {
                    let peer = |at: u64| PeerTime::from_nanos(at as i64);
                    fates.push(arrives.map_or(PacketResult::missing(number), |at| PacketResult::at(number, peer(at))));
                    carried += arrives.map_or(0, |_| size_of(&left));
                }
                lost.extend(arrives.is_none().then_some(left));
            }
            lost.iter().for_each(|left| {
                sender.resend(at, left.stream, left.seq);
            });
            sender.feedback(at, fates);
        }
        if ms % 1_000 == 0 {
            let decision = sender.decision();
            writeln!(lines, "{} {carried} {}", decision.target.as_bps(), decision.why.rule).unwrap();
        }
    }
    lines
}

#[test]
fn a_sender_in_c_sends_what_the_rust_library_sends() {
    let program = compiled("cc", &["-std=c11"], "examples/sender.c", "sender");
    for controller in ["tfrc", "steady", "gcc"] {
        let lines = output_of(&program, controller);
        assert_eq!(lines, sender_in_rust(controller), "{controller}");
        let carried: u64 = lines.lines().last().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        assert!(carried > 1_000_000, "{controller}: {carried} bytes in 30 s");
    }
}

#[test]
fn a_program_in_c_gets_the_decisions_of_the_rust_library() {
    let program = compiled("cc", &["-std=c11"], "examples/link.c", "link");
    for controller in ["tfrc", "steady", "scream"] {
        let lines = output_of(&program, controller);
        assert!(lines.lines().count() > 1_000);
        assert_eq!(lines, link_in_rust(controller), "{controller}");
    }
}

/// The sanitizers also check the memory of the library, because it uses the same `malloc`.
const SANITIZED: &[&str] = &["-std=c11", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

#[test]
#[ignore = "claim: the sanitizers' programs take seconds"]
fn no_call_reads_or_writes_what_is_not_its_own_or_leaves_memory_behind() {
    let link = compiled("cc", SANITIZED, "examples/link.c", "link-sanitized");
    assert_eq!(output_of(&link, "steady"), link_in_rust("steady"));
    let sender = compiled("cc", SANITIZED, "examples/sender.c", "sender-sanitized");
    assert_eq!(output_of(&sender, "steady"), sender_in_rust("steady"));
    let hostile = compiled("cc", SANITIZED, "tests/hostile.c", "hostile");
    assert_eq!(output_of(&hostile, ""), "");
    // The sanitizer detects a leak if there is one.
    let wrong = compiled("cc", SANITIZED, "tests/leak.c", "leak");
    assert!(!Command::new(wrong).output().unwrap().status.success());
}

#[test]
#[ignore = "needs g++ and pkg-config"]
fn programs_in_c_and_cpp_are_built_by_pkg_config_alone_and_get_the_decisions_of_the_rust_library() {
    let prefix = installed("packaged");
    assert_eq!(packaged(&prefix, &["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    for (compiler, standard, source) in [("cc", "-std=c11", "link.c"), ("g++", "-std=c++17", "link.cpp")] {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("packaged-{source}.out"));
        let made = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", standard])
            .arg(Path::new(HERE).join("examples").join(source))
            .args(packaged(&prefix, &["--cflags", "--libs"]))
            .arg("-o")
            .arg(&out)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        assert_eq!(output_with(&prefix, &out, "steady"), link_in_rust("steady"));
    }
}

#[test]
#[ignore = "needs go and pkg-config"]
fn a_program_in_go_gets_the_decisions_of_the_rust_library() {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go");
    let prefix = installed("go-packaged");
    let described = prefix.join("lib/pkgconfig");
    let program = place.join("link");
    let made = Command::new("go")
        .args(["build", "-o"])
        .args([program.as_os_str(), Path::new(HERE).join("examples/go/link.go").as_os_str()])
        .envs([("PKG_CONFIG_PATH", described.as_os_str()), ("GOCACHE", place.join("cache").as_os_str())])
        .envs([("CGO_ENABLED", "1"), ("GO111MODULE", "off"), ("GOFLAGS", "")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(output_with(&prefix, &program, "steady"), link_in_rust("steady"));
}

#[test]
fn a_name_that_is_none_ends_a_program_with_the_remedy() {
    let program = compiled("cc", &["-std=c11"], "examples/link.c", "link-wrong");
    let done = Command::new(program).arg("stedy").output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&done.stderr), "stedy: no such controller; did you mean \"steady\"?\n");
}

/// Returns the name and the number of parameters of each function.
fn functions(text: &str, begin: &str) -> Vec<(String, usize)> {
    let of = |(at, _): (usize, &str)| {
        let rest = &text[at + begin.len()..];
        let (name, rest) = rest.split_once('(').unwrap();
        let (values, _) = rest.split_once(')').unwrap();
        (format!("steadycast_{name}"), values.split(',').filter(|value| !value.trim().is_empty()).count())
    };
    let mut all: Vec<_> = text.match_indices(begin).map(of).collect();
    all.sort();
    all
}

#[test]
fn the_header_declares_each_function_with_as_many_values() {
    let read = |file| std::fs::read_to_string(Path::new(HERE).join(file)).unwrap();
    let source = read("src/lib.rs") + &read("src/sender.rs");
    let header = std::fs::read_to_string(Path::new(HERE).join("include/steadycast.h")).unwrap();
    let code: String =
        header.lines().filter(|line| !line.trim_start().starts_with("//")).fold(String::new(), |all, line| all + line);
    let there = functions(&source, "extern \"C\" fn steadycast_");
    assert!(there.len() > 10);
    assert_eq!(functions(&code, "steadycast_"), there);
}
