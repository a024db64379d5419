//! A sender's circuit breaker acts the same in a simulated run as in a live one.

use crate::lab::{rules, run};

#[test]
fn with_defences_the_circuit_breaker_ends_a_rate_that_nobody_reports_on_and_without_them_no_run_shows_one() {
    let broken_at = |defences: bool| {
        let run = run(&format!(
            "duration = \"60s\"\n[topology]\nshape = \"dumbbell\"\n\
             bottleneck = {{ rate = \"2Mbps\", delay = \"20ms\" }}\n\
             [[flow]]\nname = \"video\"\nkind = \"video\"\nmedia = \"greedy\"\ncontroller = \"tfrc\"\n\
             floor = \"500kbps\"\ndefences = {defences}\n\
             [[event]]\nat = \"10s\"\nset = {{ link = \"bottleneck\", direction = \"back\", \
             loss = {{ kind = \"bernoulli\", p = 1.0 }} }}\n"
        ));
        rules(&run).into_iter().find(|(_, rule)| rule.starts_with("circuit breaker")).map(|(at, _)| at)
    };
    // RFC 8083, section 4.1: three reporting intervals of 5 s without a report, after the last one that arrived
    // before 10 s. There are ten reports per second.
    let broke = broken_at(true).expect("a breaker");
    assert!((24.5..26.0).contains(&broke), "{broke}");
    assert_eq!(broken_at(false), None);
}
