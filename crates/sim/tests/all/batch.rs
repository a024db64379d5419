//! A run of plain packets that is delivered in one step.

use proptest::prelude::*;
use steadycast_endpoints::{Agent, AgentIx, Arriving, Body, Intake, PlainRun, PlainSink};
use steadycast_link::Ecn;
use steadycast_units::{Bytes, Span, Time};

proptest! {
    #[test]
    fn a_run_adds_up_to_what_its_packets_add_one_by_one(
        runs in prop::collection::vec(
            prop::collection::vec((0u64..20_000_000, 0u64..2_000, 0u64..500_000_000), 1..70), 1..6,
        ),
        skip in 0usize..5, from in 0u64..400, until in 100u64..2_000,
    ) {
        let (from, until) = (Time::ZERO + Span::millis(from), Time::ZERO + Span::millis(until));
        let sink = || Agent::PlainSink(Box::new(PlainSink::new(Intake::new(from, until))));
        let (mut one_by_one, mut plain_run) = (sink(), sink());
        let (mut now, mut number) = (Time::ZERO, 0);
        for (n, run) in runs.iter().enumerate() {
            // One packet is lost before this run.
            number += u64::from(n == skip);
            let bodies: Vec<_> = (number..).take(run.len()).map(Body::Plain).collect();
            number += run.len() as u64;
            let packets: Vec<_> = run.iter().zip(&bodies).map(|((gap, size, delay), body)| {
                now += Span::nanos(*gap);
                let (size, sent) = (Bytes::new(*size), now.before(Span::nanos(*delay)));
                (now, Arriving { from: AgentIx(0), size, sent: Some(sent), ecn: Ecn::NotEct, body })
            }).collect();
            let run = PlainRun::of(packets.iter().copied());
            prop_assert!(run.is_some());
            one_by_one.catch_up(packets.iter().copied());
            if !run.is_some_and(|run| plain_run.catch_up_run(&run)) {
                plain_run.catch_up(packets.iter().copied());
            }
            // Packets that are delivered a second time must not be counted again.
            for sink in [&mut one_by_one, &mut plain_run] {
                sink.catch_up(packets.iter().copied().take(2));
                sink.sample(now);
            }
        }
        let state = |agent: &Agent| {
            let Agent::PlainSink(sink) = agent else { return None };
            let Intake { bytes, delay, samples, digest, .. } = &sink.intake;
            let tenth = |n: u32| delay.quantile(f64::from(n) / 10.0);
            let quantiles: Vec<_> = (0..=10).map(tenth).collect();
            Some((*bytes, quantiles, delay.mean(), delay.max(), samples.all().to_vec(), *digest, sink.expected()))
        };
        prop_assert_eq!(state(&one_by_one), state(&plain_run));
    }
}
