use proptest::prelude::*;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use steadycast_control::registry::Factory;
use steadycast_control::{FeedbackFormat, Need, SenderHalf, Sent, Setup};
use steadycast_external::{Fault, FaultSlot, LOG_BYTES, Program, Timeouts};
use steadycast_units::{Bytes, Rate, Seed, Span, Time};

fn setup() -> Setup {
    Setup::unicast(Rate::kbps(100), Rate::mbps(2), Seed(1).part("half"))
}

/// Starts a shell script as the program.
fn start(script: &str, fault: &FaultSlot) -> Result<Program, Fault> {
    start_within(Timeouts::default(), script, fault)
}

fn start_within(timeouts: Timeouts, script: &str, fault: &FaultSlot) -> Result<Program, Fault> {
    let words = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    Program::start(timeouts, "video", "exec:sh", words, FeedbackFormat::Own, fault.clone())
}

/// Returns the program's sender half after one sent packet and two expired timers.
fn driven(program: &Program) -> Box<dyn SenderHalf> {
    let mut half = program.sender(&setup());
    let at = Time::ZERO + Span::millis(431);
    half.on_sent(&Sent { at, left: at, number: 4, seq: 9, size: Bytes::new(1_200), data_limited: true });
    half.on_timer(at);
    half.on_timer(at + Span::millis(100));
    half
}

/// Returns the fault of a run with this script.
fn fault(script: &str) -> String {
    fault_within(Timeouts::default(), script)
}

fn fault_within(timeouts: Timeouts, script: &str) -> String {
    let slot = FaultSlot::default();
    let found = start_within(timeouts, script, &slot).map(|program| {
        driven(&program);
        slot.take().expect("a fault")
    });
    match found.unwrap_or_else(|fault| fault) {
        Fault::Wrong { place, problem, remedy } => {
            assert!(place == "flow.video: exec:sh" && !remedy.is_empty());
            problem
        }
        Fault::Interrupted => unreachable!("nobody interrupts"),
    }
}

const HELLO: &str = "read -r _; echo '{\"v\":1}'; ";
const RATE: &str = "read -r _; echo '{\"rate\":300000,\"why\":\"so\"}'; ";

#[test]
fn a_program_decides_from_its_setup_on_and_what_it_writes_to_stderr_is_kept() {
    let slot = FaultSlot::default();
    let script = format!("{HELLO}{RATE}{RATE}echo seen >&2; {RATE}read -r _");
    let program = start(&script, &slot).unwrap();
    let half = driven(&program);
    let told = half.decision();
    assert_eq!((told.target, &*told.why.rule), (Rate::kbps(300), "so"));
    drop(half);
    assert_eq!((slot.take(), program.log()), (None, b"seen\n".to_vec()));
}

#[test]
fn a_log_keeps_its_beginning_and_says_how_much_more_there_was() {
    let slot = FaultSlot::default();
    // The program writes 3 MiB to stderr before each of three answers.
    let flood = "head -c 3145728 /dev/zero >&2; ";
    let script = format!("{HELLO}{flood}{RATE}{flood}{RATE}{flood}{RATE}read -r _");
    let program = start(&script, &slot).unwrap();
    drop(driven(&program));
    let log = program.log();
    let last = String::from_utf8_lossy(&log[LOG_BYTES as usize..]).into_owned();
    let left_out = 3 * 3_145_728 - LOG_BYTES;
    assert_eq!((slot.take(), last), (None, format!("\n{left_out} bytes more were left out\n")));
}

#[test]
fn what_it_is_told_are_lines_of_json_with_the_packets_that_have_left_if_it_asks_for_them() {
    let slot = FaultSlot::default();
    let script = "while read -r line; do echo \"$line\" >&2; echo '{\"v\":1,\"events\":[\"sent\"],\"rate\":7}'; done";
    let program = start(script, &slot).unwrap();
    drop(driven(&program));
    let log = String::from_utf8(program.log()).unwrap();
    let lines: Vec<_> = log.lines().collect();
    assert!(lines[0].starts_with("{\"m\":\"hello\",\"v\":1,\"program\":\"steadycast "), "{log}");
    assert!(lines[1].starts_with("{\"m\":\"setup\",\"packet\":"), "{log}");
    assert!(lines[1].contains(",\"floor\":100000,\"cap\":2000000,\"session\":"), "{log}");
    let sent = ["[4,431000000,1200,1]", ""].map(|rows| format!("\"sent\":[{rows}]}}"));
    assert_eq!(lines[2], format!("{{\"m\":\"timer\",\"t\":431000000,{}", sent[0]));
    assert_eq!(lines[3], format!("{{\"m\":\"timer\",\"t\":531000000,{}", sent[1]));
    assert_eq!((lines[4], lines.len()), ("{\"m\":\"end\"}", 5));
}

#[test]
fn each_mistake_is_told_with_time_and_what_it_was() {
    let cases: [(&str, &str); 12] = [
        ("exit 3", "at its flow's start, when \"hello\" was to be answered, it had ended with code 3"),
        ("echo why >&2; kill -9 $$", "it had ended with signal 9, its last words were: why"),
        ("printf 'cause\\n\\n  at\\n' >&2; exit 1", "it had ended with code 1, its last words were: cause | at"),
        ("read -r _; echo hi", "at its flow's start it answered \"hello\" with hi: that is no JSON: "),
        ("read -r _; echo '{\"v\":2}'; read -r _", "it speaks version 2, this program version 1"),
        (&format!("{HELLO}read -r _; echo '{{}}'"), "it answered \"setup\" with {}: it has no \"rate\""),
        (&format!("{HELLO}{RATE}read -r _; echo '{{\"rate\":NaN}}'"), "at 0.431 s of the run it answered \"timer\""),
        (&format!("{HELLO}{RATE}read -r _; echo '{{\"rate\":-1}}'"), "its \"rate\" is -1"),
        (&format!("{HELLO}{RATE}read -r _; echo '{{\"rate\":\"a\"}}'"), "its \"rate\" is \"a\""),
        (
            &format!("{HELLO}{RATE}read -r _; printf '%s\\n' '{{\"rate\":1}}' '{{\"rate\":2}}'"),
            "it had written a line more than it was asked for",
        ),
        (&format!("{HELLO}{RATE}read -r _; exec >&-; read -r _"), "at 0.431 s of the run, when \"timer\""),
        (
            &format!("{HELLO}{RATE}read -r _; cat /dev/zero"),
            "its answer to \"timer\" had no end of line after 1048576 bytes",
        ),
    ];
    for (script, says) in cases {
        let problem = fault(script);
        assert!(problem.contains(says), "{script}: {problem}");
    }
    let none = Program::start(
        Timeouts::default(),
        "a",
        "exec:./none",
        vec!["./none".into()],
        FeedbackFormat::Own,
        FaultSlot::default(),
    );
    assert!(matches!(none, Err(Fault::Wrong { problem, .. }) if problem.contains("it can't be started (No such file")));
}

#[test]
fn who_does_not_answer_in_time_is_told_so_with_the_limit_of_what_was_asked() {
    let Timeouts { start, answer } = Timeouts::default();
    assert_eq!((start, answer), (Duration::from_secs(10), Duration::from_secs(5)));
    let (short, long) = (Duration::from_millis(60), Duration::from_secs(600));
    let first = fault_within(Timeouts { start: short, answer: long }, "exec sleep 600");
    assert_eq!(first, "at its flow's start it did not answer \"hello\" in 0.06 s");
    let part = fault_within(Timeouts { start: short, answer: long }, "read -r _; printf '{\"v\":1}'; exec sleep 600");
    assert_eq!(part, format!("{first}: it wrote {{\"v\":1}} without an end of line"));
    let later = fault_within(Timeouts { start: long, answer: short }, &format!("{HELLO}exec sleep 600"));
    assert_eq!(later, "at its flow's start it did not answer \"setup\" in 0.06 s");
}

#[test]
fn the_scenario_s_feedback_goes_before_the_program_s() {
    let script = "read -r _; echo '{\"v\":1,\"feedback\":\"packets\"}'; read -r _";
    let words = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    for (said, needs) in [(FeedbackFormat::Own, &[Need::PacketReports][..]), (FeedbackFormat::Stats, &[])] {
        let program =
            Program::start(Timeouts::default(), "video", "exec:sh", words.clone(), said, FaultSlot::default()).unwrap();
        assert_eq!(program.terms().needs, needs);
    }
}

/// Returns whether a process exists and has not ended.
fn lives(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
#[allow(clippy::disallowed_methods, reason = "who is killed is gone when the kernel has come to it")]
fn nothing_that_a_program_has_started_outlives_its_half() {
    let slot = FaultSlot::default();
    // The script ignores both the request to end and the end of its input.
    let script = format!("sleep 1000 & echo $! $$ >&2; {HELLO}{RATE}{RATE}{RATE}exec >&-; sleep 1000");
    let program = start(&script, &slot).unwrap();
    let half = driven(&program);
    let log = String::from_utf8(program.log()).unwrap();
    let ids: Vec<_> = log.split_whitespace().collect();
    assert!(ids.len() == 2 && ids.iter().all(|id| lives(id)), "{log}");
    drop(half);
    let gone = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        !ids.iter().any(|id| lives(id))
    });
    assert!(gone, "{log}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_bytes_are_a_decision_or_a_fault_and_nothing_waits(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..3_000),
            "(\\{\"rate\":[0-9eE.+-]{1,6}\\}\r?\n?){0,3}".prop_map(String::into_bytes),
        ],
    ) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("steadycast-bytes-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::write(&path, &bytes).unwrap();
        let slot = FaultSlot::default();
        let program = start(&format!("{HELLO}read -r _; cat {}", path.display()), &slot).unwrap();
        let half = program.sender(&setup());
        let told = half.decision();
        prop_assert!(told.target >= Rate::kbps(100) && told.target <= Rate::mbps(2));
        let line = bytes.strip_suffix(b"\n").filter(|line| !line.contains(&b'\n'));
        let taken = line.is_some_and(|line| steadycast_external::decision(line).is_ok());
        prop_assert_eq!(slot.take().is_none(), taken);
        fs::remove_file(&path).unwrap();
    }
}
