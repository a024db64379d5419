//! Replays the feedback reports of a call into a controller. The replay is open-loop: packets leave as they were
//! recorded, whatever the controller decides.

use crate::Call;
use std::borrow::Cow;
use steadycast_remote::{
    Bounds, Bytes, FrameEdge, Given, Need, Packet, PacketResult, ParamError, Rate, Remote, Span, Stream, Time,
};

/// Lower limit of the target rate. It is below the rates of calls.
const FLOOR: Rate = Rate::kbps(30);
const CAP: Rate = Rate::mbps(30);
/// The longest interval between two packets while the pacer's queue is not empty.
const PACED: Span = Span::millis(10);
/// Duration at the beginning of a recording in which the initial rate is measured.
const BEGUN: Span = Span::secs(2);

/// A decision of the controller: when it was made, the target rate, and the rule that set this rate.
pub type Decided = (Time, Rate, Cow<'static, str>);

/// Returns the decisions of the controller `name`. Contains only decisions whose target or rule differs from the
/// previous decision.
///
/// Probes are not sent, even if the controller asks for them. If the recording begins in mid-call, the controller
/// begins at the mean rate of the first two seconds. This needs a controller that has the parameter `start`.
///
/// # Errors
/// There is no controller `name`.
pub fn decisions(call: &Call, name: &str) -> Result<Vec<Decided>, ParamError> {
    let mut bounds = Bounds::new(FLOOR, CAP);
    bounds.offers = vec![Need::Probes];
    let exchange = &call.exchange;
    let begin = exchange.sent.first().map_or(Time::ZERO, |packet| packet.0);
    let early = exchange.sent.iter().take_while(|packet| packet.0.since(begin) < BEGUN);
    let went = early.map(|packet| packet.1).sum::<Bytes>().per(BEGUN);
    let start = [("start".to_owned(), Given::Text(format!("{}bps", went.as_bps())))];
    // `Remote::new` fails if the controller does not have the parameter `start`. Then create it without parameters, so
    // that it uses its default.
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
        // First pass on the reports that arrived before this packet was sent, as in the call itself.
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
        // If the next packet leaves later than the pacer would allow, the pacer's queue was empty.
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

/// Calls the controller's timer at each of its wake-up times before `at`.
fn until(remote: &mut Remote, at: Time, note: &mut impl FnMut(Time, &Remote)) {
    // Stop if the wake-up time does not advance, because this would be an endless loop.
    let mut last = None;
    while let Some(wake) = remote.wake().filter(|wake| wake.at < at && Some(wake.at) > last) {
        last = Some(wake.at);
        remote.timer(wake.at);
        note(wake.at, remote);
    }
}
