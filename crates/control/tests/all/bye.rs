//! After the BYE of the only receiver the old rate does not continue for long.
//!
//! `asmp` and `lda-plus`, whose no-feedback timers take seconds, halve immediately ([`SenderHalf::on_leave`]). All
//! other controllers treat a BYE like any departure: their own timers expire within seconds, and earlier at shorter
//! round trips.
//!
//! [`SenderHalf::on_leave`]: steadycast_control::SenderHalf::on_leave

#![allow(clippy::unwrap_used, reason = "a test may stop")]

use crate::harness;

use harness::{Path, Plan, s};
use steadycast_control::registry::{ALL, Controller, Values};
use steadycast_control::{Limit, Mode};
use steadycast_units::{Rate, Span};

/// Controllers that do not react to missing feedback by design.
const DEAF: [&str; 2] = ["fixed", "no-control"];

/// Controllers that halve at the last BYE. Without it their timers expire after 4 report intervals, and after 20 s.
const AT_ONCE: [&str; 2] = ["asmp", "lda-plus"];

/// Returns the seconds from the BYE of the only receiver until the rate is halved or at its floor, on a link of 2 Mb/s
/// with a round trip of 40 ms.
fn halved_after(controller: &'static str) -> f64 {
    let mut world = Plan::new(controller, Path::clean(Span::millis(40)).bottleneck(Rate::mbps(2), 50)).build();
    world.run_until(s(40.0));
    let before = world.target();
    world.leave(0, false);
    for tenth in 1..=100_u32 {
        world.run_for(Span::millis(100));
        if world.target() <= before.scale(0.5) || world.sender.decision().limit == Limit::Floor {
            return f64::from(tenth) / 10.0;
        }
    }
    f64::INFINITY
}

/// The bound of 3 s was set after the first results: 0.5 to 2.4 s.
#[test]
fn after_the_only_receivers_bye_the_rate_is_halved_at_once_or_by_the_controllers_own_silence() {
    // Controllers with per-packet feedback get none in this world; `packets_stand` tests their reaction to missing
    // feedback.
    let values = |c: &Controller| Values::resolve(c.params, Mode::Repaired, &[]).unwrap();
    for controller in ALL.iter().filter(|c| (c.needs)(&values(c)).is_empty() && !DEAF.contains(&c.name)) {
        let after = halved_after(controller.name);
        let most = if AT_ONCE.contains(&controller.name) { 0.1 } else { 3.0 };
        assert!(after <= most, "{}: {after} s", controller.name);
    }
}
