//! What `scream` claims.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

mod harness;

use harness::bench::{Bench, Link, Marking};
use harness::proof::bench_table;
use harness::{Path, Plan, s};
use steadycast_units::{Bytes, Ecn, Rate, Span, Time};

const STEP: Marking = Marking::Step(Span::millis(2));

#[test]
fn alone_on_a_link_it_uses_most_of_it_with_a_short_queue() {
    let none = Marking::Never;
    let rows = [
        (500, 40, Ecn::NotEct, none),
        (1_000, 50, Ecn::NotEct, none),
        (1_000, 200, Ecn::NotEct, none),
        (4_000, 20, Ecn::NotEct, none),
        (4_000, 50, Ecn::NotEct, none),
        (4_000, 100, Ecn::NotEct, none),
        (20_000, 50, Ecn::NotEct, none),
        (4_000, 50, Ecn::Ect0, Marking::Step(Span::millis(5))),
        (1_000, 50, Ecn::Ect1, STEP),
        (4_000, 20, Ecn::Ect1, STEP),
        (4_000, 50, Ecn::Ect1, STEP),
        (20_000, 25, Ecn::Ect1, STEP),
        (20_000, 25, Ecn::Ect1, Marking::Ramp(Span::millis(2), Span::millis(10))),
    ];
    for profile in ["draft", "code"] {
        let params = [("profile", steadycast_control::registry::Given::Text(profile.into()))];
        let table = bench_table("scream", &params, &rows, (20.0, 80.0), |_, _, _| {});
        println!("{profile}\n{table}");
    }
}
