//! Parallel connections over one stream of packets. Each connection is a TFRC sender and a TFRC receiver.

use super::law::Law;
use super::one::with_n;
use crate::entry::{Setup, Values};
use crate::tfrc::{self, CountedPackets, FeedbackReport, REPORT_BYTES, Settings, rtt_notice};
use crate::{
    Arrival, Body, Decision, Departing, Due, Limit, Notice, ReceiverHalf, Reply, Report, SenderHalf, Sent, Slot, View,
    Wake, Why,
};
use std::collections::BTreeMap;
use steadycast_units::{Rate, Span, Time};

/// Identifier of the RTP header extension element. It has this content:
///
/// ```text
///   0       3              5                9
///   ├───────┼──────────────┼────────────────┤
///   │ R     │ connection   │ seq            │    R: the connection's round-trip time, in TFRC's format
///   │ u24   │ u16          │ u32            │
/// ```
pub(super) const EXTENSION: u8 = 7;
/// Subtype of the APP packets with reports. Their content is a record for each connection whose report is due. A record
/// is the number of the connection, two unused bytes, and TFRC's report.
const REPORTS: u8 = 1;
const RECORD: usize = 4 + REPORT_BYTES;
const MOST_RECORDS: usize = 48;
/// Maximum number of connections at a receiver. If there are more, a new connection replaces the connection that has
/// been silent for longest.
const MOST_CONNECTIONS: usize = 128;

struct Connection {
    id: u16,
    tfrc: tfrc::Sender,
    seq: u32,
    /// Number of bytes by which the connection has sent too little (deficit round robin). The connection with the
    /// largest deficit sends the next packet.
    deficit: f64,
}

pub(super) struct Sender {
    setup: Setup,
    settings: Settings,
    law: Law,
    /// Open connections, oldest first. There is always at least one.
    open: Vec<Connection>,
    next_id: u16,
    turn: u16,
    apart: Span,
}

impl Sender {
    pub(super) fn new(setup: &Setup, values: &Values) -> Self {
        let mut sender = Self {
            setup: setup.clone(),
            settings: Settings::of_profile(values),
            law: Law::new(values),
            open: Vec::new(),
            next_id: 0,
            turn: 0,
            apart: Span::ZERO,
        };
        sender.adjust();
        sender
    }

    /// Opens or closes connections until their number is n, rounded. Closes the newest connections first.
    fn adjust(&mut self) {
        let wanted = (self.law.n + 0.5) as usize;
        // The floor is for the sum of the connections' rates (see `sum`). So a single connection has a floor of zero.
        let setup = Setup { floor: Rate::ZERO, ..self.setup.clone() };
        while self.open.len() < wanted.max(1) {
            let mut tfrc = tfrc::Sender::new(&setup, &self.settings);
            tfrc.on_feedback_interval(self.apart);
            // Begin with this deficit, so that the connection sends its first packet without waiting.
            let deficit = self.setup.packet.as_f64();
            self.open.push(Connection { id: self.next_id, tfrc, seq: 0, deficit });
            self.next_id = self.next_id.wrapping_add(1);
        }
        self.open.truncate(wanted.max(1));
    }

    fn sum(&self, rates: impl Iterator<Item = Rate>) -> Rate {
        let sum = rates.fold(Rate::ZERO, |sum, rate| sum + rate);
        sum.max(self.setup.floor.min(self.setup.cap)).min(self.setup.cap)
    }
}

impl SenderHalf for Sender {
    fn on_sent(&mut self, sent: &Sent) {
        let turn = self.turn;
        if let Some(c) = self.open.iter_mut().find(|c| c.id == turn) {
            c.tfrc.on_sent(&Sent { seq: u64::from(c.seq), ..*sent });
        }
        let target = self.sum(self.open.iter().map(|c| c.tfrc.decision().target));
        self.law.on_sent(sent.at, sent.size.as_f64(), target);
    }

    fn on_feedback_interval(&mut self, interval: Span) {
        self.apart = interval;
        self.open.iter_mut().for_each(|c| c.tfrc.on_feedback_interval(interval));
    }

    fn on_report(&mut self, report: &Report<'_>) {
        let Some(body) = report.body.filter(|b| b.subtype == REPORTS) else { return };
        for record in body.bytes.chunks_exact(RECORD) {
            let Some((id, finding)) = record.split_first_chunk::<2>() else { return };
            let id = u16::from_be_bytes(*id);
            let Some(finding) = finding.get(2..).and_then(FeedbackReport::parse) else { continue };
            let Some(c) = self.open.iter_mut().find(|c| c.id == id) else { continue };
            if let Some(sample) = c.tfrc.on_feedback(&finding, report.at, report.from) {
                self.law.on_sample(sample);
            }
        }
    }

    fn on_timer(&mut self, now: Time) {
        for c in &mut self.open {
            c.tfrc.on_timer(now);
        }
        if self.law.on_timer(now) {
            self.adjust();
        }
    }

    fn wake(&self) -> Option<Wake> {
        let period = self.law.wake().map(|at| Wake { at, why: "number of connections" });
        self.open.iter().filter_map(|c| c.tfrc.wake()).chain(period).min_by_key(|w| w.at)
    }

    fn decision(&self) -> Decision {
        let all: Vec<Decision> = self.open.iter().map(|c| c.tfrc.decision()).collect();
        let sum = all.iter().fold(Rate::ZERO, |sum, d| sum + d.target);
        // The connections may have different limits and rules. Take the limit and the rule of the oldest connection.
        let oldest = all.first();
        let limit = if sum > self.setup.cap {
            Limit::Cap
        } else if sum < self.setup.floor {
            Limit::Floor
        } else {
            oldest.map_or(Limit::Start, |d| d.limit)
        };
        let mean = |of: &dyn Fn(&Decision) -> Option<f64>| {
            let known: Vec<f64> = all.iter().filter_map(of).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
        };
        Decision {
            target: self.sum(all.iter().map(|d| d.target)),
            pacing: self.sum(all.iter().map(|d| d.pacing)),
            window: None,
            limit,
            why: Why {
                rule: with_n(self.open.len() as f64, oldest.map_or("", |d| &d.why.rule)),
                loss: mean(&|d| d.why.loss),
                rtt: mean(&|d| d.why.rtt.map(Span::as_secs_f64)).map(Span::from_secs_f64),
                by: oldest.and_then(|d| d.why.by),
            },
        }
    }

    /// Selects the connection that sends this packet. This is done by deficit round robin, with quanta that are
    /// proportional to the connections' rates.
    fn notice(&mut self, packet: &Departing) -> Notice {
        let size = packet.size.as_f64();
        // Use at least 1 bit/s for each connection, so that the sum is never zero.
        let rates: Vec<f64> = self.open.iter().map(|c| c.tfrc.decision().pacing.as_bps_f64().max(1.0)).collect();
        let sum: f64 = rates.iter().sum();
        for (c, rate) in self.open.iter_mut().zip(&rates) {
            // All quanta together are as large as the packet, so the deficits remain bounded.
            c.deficit += size * rate / sum;
        }
        // If several deficits are equal, take the oldest connection.
        let most = self.open.iter().fold(f64::NEG_INFINITY, |most, c| most.max(c.deficit));
        let Some(c) = self.open.iter_mut().find(|c| c.deficit >= most) else { return Notice::NONE };
        c.deficit -= size;
        self.turn = c.id;
        let mut bytes = [0; 9];
        bytes[..3].copy_from_slice(&rtt_notice(c.tfrc.round_trip()));
        bytes[3..5].copy_from_slice(&c.id.to_be_bytes());
        bytes[5..].copy_from_slice(&c.seq.to_be_bytes());
        c.seq = c.seq.wrapping_add(1);
        Notice::new(EXTENSION, &bytes)
    }
}

struct ReceivingConnection {
    tfrc: tfrc::Receiver,
    heard: Time,
    /// Number of packets expected so far.
    highest: u64,
    /// Number of packets received so far.
    got: u64,
    /// Values of `highest` and `got` when the last report was written.
    counted: (u64, u64),
}

pub(super) struct Receiver {
    setup: Setup,
    settings: Settings,
    connections: BTreeMap<u16, ReceivingConnection>,
}

impl Receiver {
    pub(super) fn new(setup: &Setup, values: &Values) -> Self {
        Self { setup: setup.clone(), settings: Settings::of_profile(values), connections: BTreeMap::new() }
    }
}

impl ReceiverHalf for Receiver {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        let Some(bytes) = arrival.notice.first_chunk::<9>().filter(|_| arrival.notice.len() == 9) else { return };
        let [r, s, t, i, d, a, b, c, e] = *bytes;
        let (id, seq) = (u16::from_be_bytes([i, d]), u64::from(u32::from_be_bytes([a, b, c, e])));
        // Limit the size of the table, because the connection's number comes from the network.
        if !self.connections.contains_key(&id) && self.connections.len() >= MOST_CONNECTIONS {
            let silent = self.connections.iter().min_by_key(|(_, connection)| connection.heard).map(|(id, _)| *id);
            silent.and_then(|id| self.connections.remove(&id));
        }
        let connection = self.connections.entry(id).or_insert_with(|| ReceivingConnection {
            tfrc: tfrc::Receiver::new(&self.setup, &self.settings, CountedPackets::All),
            heard: arrival.at,
            highest: 0,
            got: 0,
            counted: (0, 0),
        });
        connection.heard = arrival.at;
        connection.highest = connection.highest.max(seq + 1);
        connection.got += 1;
        connection.tfrc.on_arrival(&Arrival { seq, notice: &[r, s, t], ..*arrival });
    }

    fn due(&self) -> Due {
        let wakes = self.connections.values().filter_map(|connection| match connection.tfrc.due() {
            Due::At(wake) => Some(wake),
            Due::Rtcp | Due::Hold => None,
        });
        wakes.min_by_key(|w| w.at).map_or(Due::Hold, Due::At)
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        let mut bytes = Vec::new();
        for (id, connection) in &mut self.connections {
            // If the report has no space left, skip the connection. Its report remains due.
            if bytes.len() >= RECORD * MOST_RECORDS
                || !matches!(connection.tfrc.due(), Due::At(wake) if wake.at <= slot.now)
            {
                continue;
            }
            let expected = connection.highest.saturating_sub(connection.counted.0);
            let lost = expected as i64 - connection.got.saturating_sub(connection.counted.1) as i64;
            let Reply::Body(body) = connection.tfrc.report(&Slot { expected, lost, ..*slot }) else { continue };
            connection.counted = (connection.highest, connection.got);
            bytes.extend(id.to_be_bytes());
            bytes.extend([0, 0]);
            bytes.extend(body.bytes);
        }
        if bytes.is_empty() { Reply::Suppress } else { Reply::Body(Body { subtype: REPORTS, bytes }) }
    }

    fn view(&self) -> View {
        let last = self.connections.values().map(|connection| connection.heard).max().unwrap_or_default();
        // Skip closed connections, which have been silent for a long time.
        let open = self.connections.values().filter(|connection| last.since(connection.heard) < Span::secs(10));
        let (mut rate, mut loss, mut known) = (Rate::ZERO, 0.0, 0.0);
        let (mut rtt, mut state) = (None, None);
        for connection in open {
            let view = connection.tfrc.view();
            rate += view.rate.unwrap_or_default();
            if let Some(p) = view.loss {
                (loss, known) = (loss + p, known + 1.0);
            }
            (rtt, state) = (rtt.or(view.rtt), state.or(view.state));
        }
        View { rate: Some(rate), loss: (known > 0.0).then(|| loss / known), rtt, state }
    }
}
