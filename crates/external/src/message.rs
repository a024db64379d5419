//! The messages to a program. They are lines of JSON, and most values in them are numbers.

use crate::answer::VERSION;
use crate::half::LawReport;
use std::fmt::{Display, Write};
use steadycast_control::{PacketReport, ReceiverId, Sent, Setup};
use steadycast_media::{RungContext, RungNeed};
use steadycast_units::{Ecn, Rate, Time};

/// Writes a number as JSON, or `null` if there is no number.
struct Or<T>(Option<T>);

impl<T: Display> Display for Or<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("null"),
        }
    }
}

/// A message that is being written. Errors are ignored, because writing to a `String` never fails.
#[derive(Debug, Default)]
pub(crate) struct Message(String);

impl Message {
    pub(crate) fn line(&self) -> &[u8] {
        self.0.as_bytes()
    }

    fn begin(&mut self, kind: &str) -> &mut String {
        self.0.clear();
        let _ = write!(self.0, "{{\"m\":\"{kind}\"");
        &mut self.0
    }

    fn end(&mut self) {
        self.0.push_str("}\n");
    }

    pub(crate) fn hello(&mut self) {
        let program = concat!("steadycast ", env!("CARGO_PKG_VERSION"));
        let _ = write!(self.begin("hello"), ",\"v\":{VERSION},\"program\":\"{program}\"");
        self.end();
    }

    pub(crate) fn setup(&mut self, setup: &Setup) {
        let (packet, floor, cap) = (setup.packet.get(), setup.floor.as_bps(), setup.cap.as_bps());
        let (session, group, ecn) = (setup.session_bandwidth.as_bps(), setup.group, setup.ecn.bits());
        // Draw the seed from a clone, so that the random sequence of the controller does not change.
        let seed = setup.chance.clone().bits32();
        let _ = write!(
            self.begin("setup"),
            ",\"packet\":{packet},\"floor\":{floor},\"cap\":{cap},\"session\":{session},\"group\":{group},\
             \"ecn\":{ecn},\"seed\":{seed}"
        );
        self.end();
    }

    pub(crate) fn report(&mut self, report: &LawReport<'_>, sent: Option<&mut String>) {
        let span = |span: Option<steadycast_units::Span>| Or(span.map(steadycast_units::Span::as_nanos));
        let (expected, lost) = report.counts.unzip();
        let text = self.begin("report");
        let _ = write!(
            text,
            ",\"t\":{},\"from\":{},\"members\":{},\"rtt\":{},\"expected\":{},\"lost\":{},\"received\":{},\
             \"queueing\":{},\"jitter\":{},\"waiting\":{},\"age\":{},\"packets\":[",
            report.at.as_nanos(),
            report.from.0,
            report.members,
            span(report.rtt),
            Or(expected),
            Or(lost),
            Or(report.received.map(Rate::as_bps)),
            span(report.queueing),
            span(report.jitter),
            report.waiting.0.get(),
            report.waiting.1.as_nanos(),
        );
        for (n, packet) in report.packets.iter().enumerate() {
            text.push_str(if n > 0 { ",[" } else { "[" });
            row(text, packet);
        }
        text.push(']');
        self.close(sent);
    }

    /// Writes a message of the kind `kind`. `sent` lists the packets that were sent since the previous message.
    pub(crate) fn at(&mut self, kind: &str, now: Time, sent: Option<&mut String>) {
        let _ = write!(self.begin(kind), ",\"t\":{}", now.as_nanos());
        self.close(sent);
    }

    pub(crate) fn leave(&mut self, now: Time, from: ReceiverId, sent: Option<&mut String>) {
        let _ = write!(self.begin("leave"), ",\"t\":{},\"from\":{}", now.as_nanos(), from.0);
        self.close(sent);
    }

    pub(crate) fn rungs(&mut self, context: &RungContext<'_>) {
        let list = |rate: fn(&RungNeed) -> Rate| {
            context.needs.iter().map(|need| rate(need).as_bps().to_string()).collect::<Vec<_>>().join(",")
        };
        let _ = write!(
            self.begin("rungs"),
            ",\"t\":{},\"rung\":{},\"recent\":[{}],\"worst\":[{}],\"rate\":{},\"backlog\":{},\"group\":{}",
            context.at.as_nanos(),
            Or(context.rung),
            list(|need| need.recent),
            list(|need| need.worst),
            context.rate.as_bps(),
            context.backlog.get(),
            context.lasts.as_nanos(),
        );
        self.end();
    }

    pub(crate) fn over(&mut self) {
        self.begin("end");
        self.end();
    }

    /// Ends a message with the list of packets that were sent since the previous message. Clears that list.
    fn close(&mut self, sent: Option<&mut String>) {
        if let Some(rows) = sent {
            let _ = write!(self.0, ",\"sent\":[{rows}]");
            rows.clear();
        }
        self.end();
    }
}

pub(crate) fn departed(rows: &mut String, sent: &Sent) {
    let comma = if rows.is_empty() { "" } else { "," };
    let (at, size, limited) = (sent.left.as_nanos(), sent.size.get(), u8::from(sent.data_limited));
    let _ = write!(rows, "{comma}[{},{at},{size},{limited}]", sent.number);
}

fn row(text: &mut String, packet: &PacketReport) {
    // The value −1 means that the packet has arrived at an unknown time.
    let arrived = packet.arrived.map(|arrived| arrived.at.map_or(-1, steadycast_units::PeerTime::as_nanos));
    let ecn = packet.arrived.and_then(|arrived| arrived.ecn).map(Ecn::bits);
    let (sent, size) = (packet.sent.as_nanos(), packet.size.get());
    let _ = write!(text, "{},{sent},{size},{},{}]", packet.number, Or(arrived), Or(ecn));
}
