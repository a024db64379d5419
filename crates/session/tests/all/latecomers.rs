//! A group whose sender has paused for lack of receivers, and its first receiver.
#![allow(clippy::unwrap_used, reason = "a test may stop")]

use crate::group;

use group::{rtcp, settings, who};
use std::collections::BTreeMap;
use std::sync::Arc;
use steadycast_control::registry::{Chosen, Factory, Setup};
use steadycast_control::{Mode, ReceiverId};
use steadycast_session::{
    CircuitBreaker, Emit, OperatorControls, Origin, Output, Profile, Receiver, Sender, SenderSettings, StandardReports,
};
use steadycast_units::{Ecn, Rate, Seed, Span, Time};
use steadycast_wire::is_rtcp;

/// The results.
#[derive(Debug)]
struct Seen {
    /// The number of media packets that were sent in the last 20 s before the receiver joined.
    alone: u64,
    /// The time from the first report to a sending rate of at least 50 kb/s, with which the sender leaves its pause.
    served: Option<Span>,
    /// The time from the join to the first second with more than 400 kb/s.
    full: Option<Span>,
}

const DELAY: Span = Span::millis(20);

fn drive(controller: &str, come: Span, seed: Seed, lasts: Span) -> Seen {
    let setup = |id| Setup {
        session_bandwidth: Rate::mbps(2),
        group: true,
        id: ReceiverId(id),
        ..Setup::unicast(Rate::kbps(50), Rate::mbps(1), seed.part("half"))
    };
    let profile = Profile::Avpf { t_rr_interval: Span::ZERO };
    let rtcp = rtcp(profile, Rate::mbps(2), true);
    let own = Chosen::shared(controller, Mode::Repaired, &[]).unwrap();
    let factory: Arc<dyn Factory> =
        Arc::new(CircuitBreaker::new(Arc::new(StandardReports::new(own, false)), OperatorControls::default()));
    let settings = SenderSettings { greedy: true, app: factory.terms().app, ..settings(rtcp, Emit::Paced) };
    let mut sender = Sender::new(settings, factory.sender(&setup(1)), seed.part("sender"), Time::ZERO);
    let come = Time::ZERO + come;
    let mut receiver: Option<Receiver> = None;
    let mut under_way: BTreeMap<(Time, u64), (bool, Vec<u8>)> = BTreeMap::new();
    let (mut now, mut number, mut alone) = (Time::ZERO, 0, 0);
    let (mut reported, mut served, mut full) = (None, None, None);
    let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
    let end = come + lasts;
    while now < end {
        if receiver.is_none() && now >= come {
            let half = factory.receiver(&setup(2));
            let chance = seed.part("receiver");
            receiver = Some(Receiver::new(who(2), rtcp, factory.terms().app, half, chance, now).answering());
        }
        let mut wake = if receiver.is_none() { come } else { end };
        for back in [false, true] {
            loop {
                let output = match &mut receiver {
                    Some(receiver) if back => receiver.poll(now),
                    _ if back => break,
                    _ => sender.poll(now),
                };
                let datagram = match output {
                    Output::Media(media) => {
                        alone += u64::from(receiver.is_none() && now + Span::secs(20) >= come);
                        let mut datagram = Vec::new();
                        media.encode(&vec![0; usize::from(media.header.payload_len)], &mut datagram);
                        datagram
                    }
                    Output::Rtcp(datagram) => datagram,
                    Output::Wait(until) => {
                        wake = until.map_or(wake, |u| wake.min(u.at));
                        break;
                    }
                };
                under_way.insert((now + DELAY, number), (back, datagram));
                number += 1;
            }
        }
        if let (Some(at), None) = (reported, served)
            && sender.decision().pacing >= Rate::kbps(50)
        {
            served = Some(now.since(at));
        }
        now = under_way.first_key_value().map_or(wake, |((at, _), _)| wake.min(*at));
        while let Some(entry) = under_way.first_entry().filter(|e| e.key().0 <= now) {
            let (back, datagram) = entry.remove();
            match (&mut receiver, is_rtcp(&datagram)) {
                (_, true) if back => {
                    reported.get_or_insert(now);
                    sender.on_rtcp(now, Origin(2), &datagram);
                }
                (Some(receiver), true) => receiver.on_rtcp(now, Origin(1), &datagram),
                (Some(receiver), false) => {
                    receiver.on_rtp(now, Origin(1), &datagram, Ecn::NotEct, None);
                    let bytes = bins.entry(now.since(come).as_nanos() / 1_000_000_000).or_default();
                    *bytes += datagram.len() as u64 + 28;
                    if *bytes >= 50_000 {
                        full.get_or_insert(now.since(come));
                    }
                }
                (None, _) => {}
            }
        }
    }
    Seen { alone, served, full }
}

#[test]
fn a_sender_that_paused_for_want_of_receivers_serves_the_first_as_soon_as_it_reports() {
    // The time to 400 kb/s depends on the controller's start: `lda-plus` adds a packet per second.
    for (controller, start) in [("asmp", 4), ("tfmcc", 9), ("pgmcc", 4), ("lda-plus", 0)] {
        // The rate is a tenth from 15 s on, and the media pauses from 30 s on.
        for (come, most) in [(Span::secs(20), 300), (Span::secs(61), 11)] {
            let seen = drive(controller, come, Seed(1), Span::secs(start.max(5)));
            let told = format!("{controller} after {come:?}: {seen:?}");
            assert!((6..=most).contains(&seen.alone), "{told}");
            assert!(seen.served.is_some_and(|span| span <= Span::secs(1)), "{told}");
            assert!(start == 0 || seen.full.is_some_and(|span| span <= Span::secs(start)), "{told}");
        }
    }
}
