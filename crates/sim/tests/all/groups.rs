//! Groups that are too large for members to receive all reports of each other.

use crate::lab;

use lab::{between, num, run};

/// `receivers` of one source behind routers of fifty each, with a loss rate of 1 % on each last link.
fn tree(receivers: u32, lines: &str, reports: &str) -> String {
    format!(
        "duration = \"40s\"\n[topology]\nshape = \"tree\"\nlevels \
         = [{{ fanout = {}, rate = \"10Mbps\", delay = \"10ms\" }}, \
         {{ fanout = 50, rate = \"10Mbps\", delay = \"5ms\", loss = {{ kind = \"bernoulli\", p = 0.01 }} }}]\n\
         [[flow]]\nname = \"video\"\nkind = \"video\"\nreceivers = {receivers}\nmedia = \"greedy\"\n{lines}\n\
         rtcp = {{ profile = \"asmp\", reports = \"{reports}\" }}\n",
        receivers.div_ceil(50)
    )
}

#[test]
fn five_hundred_receivers_that_report_to_the_source_alone_share_five_percent_as_if_they_heard_each_other() {
    let fixed = "controller = \"fixed\"\nparams.fixed = { rate = \"300kbps\" }";
    let to_source = run(&tree(500, fixed, "source"));
    let to_group = run(&tree(500, fixed, "group"));
    let (to_source, to_group) = (to_source.flow("video"), to_group.flow("video"));
    for flow in [to_source, to_group] {
        // Three quarters of 5 % of 2 Mb/s, apart from the start, when the group's size is not yet known.
        between(num(&flow["feedback_bps"]), 60e3, 90e3);
    }
    between(num(&to_source["feedback_bps"]) / num(&to_group["feedback_bps"]), 0.8, 1.25);
}

#[test]
fn a_group_that_appears_at_once_is_told_its_size_before_all_have_spoken() {
    let fixed = "controller = \"fixed\"\nparams.fixed = { rate = \"300kbps\" }";
    let text = tree(2_000, fixed, "source").replace("duration = \"40s\"", "duration = \"3s\"");
    let run = run(&text);
    // Members that did not know the size of the group would have used the interval of a lone member, and all 2,000
    // would have reported in the 3 s. With the interval of a group of 2,000, one in forty reports.
    between(num(&run.flow("video")["feedback_packets"]), 100.0, 700.0);
}

#[test]
fn one_receiver_behind_a_narrow_link_is_heard_among_hundreds_that_do_not_hear_each_other() {
    let asmp = "controller = \"asmp\"";
    let text = tree(400, asmp, "source").replace("40s", "60s");
    let wide = run(&text);
    let narrow =
        run(&format!("{text}\n[[event]]\nat = \"0s\"\nset = {{ link = \"t1.1-leaf7\", rate = \"50kbps\" }}\n"));
    let rate = |run: &lab::Run| num(&run.flow("video")["throughput_bps"]);
    between(rate(&narrow), 15e3, 60e3);
    assert!(rate(&wide) > 1.6 * rate(&narrow), "{} without the narrow link", rate(&wide));
}

#[test]
fn whether_receivers_are_told_at_once_or_later_shows_nowhere() {
    // Batched packets are delivered at each step of the series; with the short step this is before the next packet
    // arrives.
    let text = tree(100, "controller = \"asmp\"", "source").replace("40s", "15s");
    let stepped = |interval: &str| run(&format!("{text}[record]\ninterval = \"{interval}\"\npackets = [\"video\"]\n"));
    let (later, soon) = (stepped("1s"), stepped("5ms"));
    assert_eq!(later.summary["record_sha256"], soon.summary["record_sha256"]);
    let rows = |run: &lab::Run| {
        let arrived = run.arrived("video", "leaf59");
        assert!(arrived.is_sorted_by(|one, next| one.at < next.at));
        arrived.into_iter().map(|row| (row.at.to_bits(), row.seq, row.delay_ms.to_bits())).collect::<Vec<_>>()
    };
    assert_eq!(rows(&later), rows(&soon));
    between(rows(&later).len() as f64, 300.0, 20_000.0);
}
