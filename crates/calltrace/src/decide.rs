//! What a controller would have decided on a call's reports, while packets left as recorded: an open loop.

use crate::Call;
use std::borrow::Cow;
use steadycast_remote::{
    Bounds, Bytes, FrameEdge, Given, Need, Packet, PacketResult, ParamError, Rate, Remote, Span, Stream, Time,
};

/// No call has a rate beyond these.
const FLOOR: Rate = Rate::kbps(30);
const CAP: Rate = Rate::mbps(30);
/// Packets that follow each other faster than this leave one behind the other from the pacer's queue.
const PACED: Span = Span::millis(10);
/// What is sent within this time says the rate at which a record begins.
const BEGUN: Span = Span::secs(2);

/// A decision, and the rule behind it.
pub type Decided = (Time, Rate, Cow<'static, str>);

/// Each decision with another target or rule. Probes that the controller asks for find what left at their time. Where
/// the record begins in mid-call, a controller that has a start rate starts at that of the first `BEGUN`.
///
/// # Errors
/// No controller has this name.
pub fn decisions(call: &Call, name: &str) -> Result<Vec<Decided>, ParamError> {
    let mut bounds = Bounds::new(FLOOR, CAP);
    bounds.offers = vec![Need::Probes];
    let exchange = &call.exchange;
    let begin = exchange.sent.first().map_or(Time::ZERO, |packet| packet.0);
    let early = exchange.sent.iter().take_while(|packet| packet.0.since(begin) < BEGUN);
    let went = early.map(|packet| packet.1).sum::<Bytes>().per(BEGUN);
    let start = [("start".to_owned(), Given::Text(format!("{}bps", went.as_bps())))];
    let seeded = if call.begins { None } else { Remote::new(name, &start, &bounds).ok() };
    let mut remote = seeded.map_or_else(|| Remote::new(name, &[], &bounds), Ok)?;
    let mut all: Vec<Decided> = Vec::new();
    let mut note = |at: Time, remote: &Remote| {
        let decision = remote.decision();
        if all.last().is_none_or(|last| (last.1, &last.2) != (decision.target, &decision.why.rule)) {
            all.push((at, decision.target, decision.why.rule));
        }
    };
    let mut numbers = Vec::with_capacity(exchange.sent.len());
    let mut reports = exchange.reports.iter().peekable();
    let ends = exchange.sent.iter().skip(1).map(|packet| Some(packet.0)).chain([None]);
    for (&(left, size, media), next) in exchange.sent.iter().zip(ends) {
        while let Some((at, results)) = reports.next_if(|report| report.0 < left) {
            until(&mut remote, *at, &mut note);
            let told = results.iter().filter_map(|(place, arrived)| {
                let number = *numbers.get(*place as usize)?;
                Some(arrived.map_or(PacketResult::missing(number), |at| PacketResult::at(number, at)))
            });
            remote.feedback(*at, told);
            note(*at, &remote);
        }
        until(&mut remote, left, &mut note);
        let data_limited = next.is_none_or(|next| next.since(left) > PACED);
        let edge = FrameEdge::default();
        numbers.push(if media {
            remote.sent(left, &Packet { size, edge, data_limited })
        } else {
            remote.sent_extra(left, Stream::Repair, size)
        });
    }
    Ok(all)
}

/// Calls the timer as often as the controller wants before a time.
fn until(remote: &mut Remote, at: Time, note: &mut impl FnMut(Time, &Remote)) {
    // One that does not move on would keep time from going on.
    let mut last = None;
    while let Some(wake) = remote.wake().filter(|wake| wake.at < at && Some(wake.at) > last) {
        last = Some(wake.at);
        remote.timer(wake.at);
        note(wake.at, remote);
    }
}
