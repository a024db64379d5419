//! What receivers report: whether a controller does the same on reports of single packets as on its own.

mod lab;

use lab::{num, run};

/// Mean rate and loss over five seeds.
fn means(controller: &str, feedback: &str, beside: bool) -> (f64, f64) {
    let tcp = if beside { "[[flow]]\nname = \"tcp\"\nkind = \"tcp\"\n" } else { "" };
    let runs: Vec<_> = (1..=5)
        .map(|seed| {
            let run = run(&format!(
                "duration = \"120s\"\nwarmup = \"20s\"\nseed = {seed}\n[topology]\nshape = \"dumbbell\"\n\
                 bottleneck = {{ rate = \"4Mbps\", delay = \"20ms\", queue = {{ limit = \"50p\" }} }}\n\
                 [[flow]]\nname = \"video\"\nkind = \"video\"\nmedia = \"greedy\"\ncontroller = \"{controller}\"\n\
                 feedback = \"{feedback}\"\n{tcp}"
            ));
            let receiver = run.receiver("video", "video.dst1");
            eprintln!("{controller} {feedback} rtt {} fb {}", run.flow("video")["rtt_ms"], run.flow("video")["feedback_packets"]);
            (num(&run.flow("video")["throughput_bps"]), num(&receiver["loss_frac"]))
        })
        .collect();
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    (mean(&|run| run.0), mean(&|run| run.1))
}

#[test]
fn rate_and_loss_are_those_of_the_controllers_own_reports() {
    for controller in ["tfrc", "asmp"] {
        for beside in [true, false] {
            let own = means(controller, "own", beside);
            for feedback in ["rfc8888", "twcc"] {
                let other = means(controller, feedback, beside);
                eprintln!("{controller} {beside} {feedback}: {own:?} {other:?}");
            }
        }
    }
}
