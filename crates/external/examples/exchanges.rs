//! Measures how long it takes to exchange messages with a program. `exchanges COUNT PROGRAM ARGUMENTS` sends COUNT
//! reports to the program. If no program is given, lines go through two pipes to `cat` and back.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use steadycast_control::registry::Factory;
use steadycast_control::{FeedbackFormat, ReceiverId, Report, Setup};
use steadycast_external::{FaultSlot, Program, Timeouts};
use steadycast_units::{Rate, Seed, Span, Time};

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let count: u64 = words.remove(0).parse().expect("a count");
    if words.is_empty() {
        return pipes(count);
    }
    let fault = FaultSlot::default();
    let (timeouts, feedback) = (Timeouts::default(), FeedbackFormat::Own);
    let program = Program::start(timeouts, "video", "exec", words, feedback, fault.clone()).expect("a program");
    let mut half = program.sender(&Setup::unicast(Rate::kbps(100), Rate::mbps(20), Seed(1).part("half")));
    for n in 0..count {
        let (at, rtt) = (Time::ZERO + Span::millis(10 * n), Some(Span::millis(50)));
        let from = ReceiverId(2);
        half.on_report(&Report { at, from, rtt, reception: None, body: None, packets: &[], members: 1 });
    }
    assert_eq!(fault.take(), None);
}

/// Sends `count` lines to `cat` and reads them back. A line is as long as a report.
fn pipes(count: u64) {
    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat");
    let (mut input, mut output) = cat.stdin.take().zip(cat.stdout.take()).expect("pipes");
    let mut line = [b'\n'; 160];
    for _ in 0..count {
        input.write_all(&line).expect("it reads");
        output.read_exact(&mut line).expect("it writes");
    }
    drop(input);
    cat.wait().expect("it ends");
}
