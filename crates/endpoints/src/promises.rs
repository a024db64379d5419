//! Checks of what controllers and sessions promise at every step. They are `invariants` in `summary.json`.

use crate::Record;
use steadycast_control::promise::RTCP_SHARE;
use steadycast_control::registry::FeedbackTiming;
use steadycast_control::{Check, FeedbackFormat};
use steadycast_record::{Figures, Of, invariant};
use steadycast_scenario::{self as sc, FlowKind};
use steadycast_units::counted;

/// Maximum share of RTCP in half a minute. It is the 5 % of the session bandwidth of RFC 3550, section 6.2, plus one
/// percentage point.
const MAX_RTCP_SHARE: f64 = 0.06;
/// Maximum number of flows that a warning lists by name.
const MAX_NAMED_FLOWS: usize = 3;

pub(crate) struct CheckedPromise<'a> {
    check: Check,
    broken_by: Vec<&'a str>,
}

impl<'a> CheckedPromise<'a> {
    fn add(all: &mut Vec<Self>, check: &Check, flow: &'a str) {
        let place = all.iter().position(|kept| kept.check.promise.id == check.promise.id).unwrap_or_else(|| {
            all.push(Self { check: Check::new(check.promise), broken_by: Vec::new() });
            all.len() - 1
        });
        let kept = &mut all[place];
        kept.check.checked += check.checked;
        kept.check.broken += check.broken;
        if check.broken > 0 {
            kept.broken_by.push(flow);
        }
    }

    pub(crate) fn figures(&self) -> Figures {
        let mut into = Figures::new(Of::Invariant);
        into.put(&invariant::ID, self.check.promise.id);
        into.put(&invariant::ABOUT, self.check.promise.about);
        into.put(&invariant::CHECKED, self.check.checked);
        into.put(&invariant::BROKEN, self.check.broken);
        into
    }

    pub(crate) fn warning(&self) -> Option<String> {
        let Check { promise, checked, broken } = self.check;
        let flows = match self.broken_by.len().checked_sub(MAX_NAMED_FLOWS).filter(|more| *more > 0) {
            Some(more) => format!("{} and {more} more", self.broken_by[..MAX_NAMED_FLOWS].join(", ")),
            None => self.broken_by.join(", "),
        };
        (broken > 0).then(|| {
            format!(
                "the promise {} was broken {broken} of {} ({flows}): {}",
                promise.id,
                counted(checked, "time"),
                promise.about
            )
        })
    }
}

impl Record<'_> {
    /// Returns the results of all promises, sorted by id. Only the share of RTCP is checked here. The agents check the
    /// other promises.
    pub(crate) fn promises(&self) -> Vec<CheckedPromise<'_>> {
        let mut all = Vec::new();
        for (spec, ends) in self.scenario.flows.iter().zip(self.flows) {
            let FlowKind::Video(video) = &spec.kind else { continue };
            let (mut seen, mut rtcp) = (Vec::new(), Check::new(&RTCP_SHARE));
            let timed = has_timed_feedback(video);
            for agent in ends.sources.iter().chain(&ends.sinks) {
                let agent = self.recorded(*agent);
                Check::gather(&mut seen, &agent.promises());
                agent.rtcp_shares().iter().filter(|_| timed).for_each(|share| rtcp.see(*share <= MAX_RTCP_SHARE));
            }
            seen.push(rtcp);
            seen.iter()
                // Leave out a promise that was never tested, because it has no result.
                .filter(|check| check.checked > 0)
                .for_each(|check| CheckedPromise::add(&mut all, check, &spec.name));
        }
        all.sort_by_key(|kept| kept.check.promise.id);
        all
    }
}

/// Returns whether RTCP's timer rules limit how often feedback is sent. They do not limit per-packet feedback, because
/// that is sent as packets arrive.
fn has_timed_feedback(video: &sc::Video) -> bool {
    video.feedback == FeedbackFormat::Own
        && video.controller.entry().is_some_and(|controller| controller.feedback != FeedbackTiming::Clocked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_promise_is_said_with_its_flows_and_a_kept_one_is_not() {
        let (mut held, mut bad) = (Check::new(&RTCP_SHARE), Check::new(&RTCP_SHARE));
        held.see(true);
        bad.see(false);
        let said = |flows: &[(&Check, &'static str)]| {
            let mut all = Vec::new();
            flows.iter().for_each(|(check, flow)| CheckedPromise::add(&mut all, check, flow));
            assert_eq!(all.len(), 1);
            all[0].warning()
        };
        assert_eq!(said(&[(&held, "a")]), None);
        let one = said(&[(&held, "a"), (&bad, "b")]).unwrap_or_default();
        assert!(one.starts_with("the promise rtcp.share was broken 1 of 2 times (b): timed RTCP"), "{one}");
        let many = said(&[(&bad, "a"), (&bad, "b"), (&bad, "c"), (&bad, "d"), (&held, "e")]).unwrap_or_default();
        assert!(many.contains("broken 4 of 5 times (a, b, c and 1 more): "), "{many}");
    }
}
