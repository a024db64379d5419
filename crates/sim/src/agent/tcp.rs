//! TCP's two ends.

use super::Out;
use super::plain::draw;
use crate::intake::{Digest, Intake};
use crate::packet::{Body, Packet};
use steadycast_link::Ecn;
use steadycast_scenario::TcpSource as Source;
use steadycast_tcp::{Ack, Config, Poll, Receiver, Segment, Sender};
use steadycast_units::{Bytes, Chance, Span, Spread, Time};

pub(crate) struct TcpSource {
    pub(crate) config: Config,
    source: Source,
    pub(crate) sender: Sender,
    chance: Chance,
    running: bool,
    done: bool,
    /// A transfer is over; the next one starts then.
    again: Time,
    /// Packets and time-outs of transfers that are over.
    pub(crate) past: Past,
    pub(crate) srtt: Spread,
    /// ∫ cwnd dt in packet seconds, and over what time.
    pub(crate) cwnd_area: (f64, Span),
    last: Time,
    ect: Ecn,
    pub(crate) samples: Vec<TcpPoint>,
    pub(crate) sent_bytes: Bytes,
    last_bytes: Bytes,
    pub(crate) completed: Vec<Time>,
    pub(crate) digest: Digest,
}

/// What transfers before the present one add up to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Past {
    pub(crate) sent: u64,
    pub(crate) retransmitted: u64,
    pub(crate) timeouts: u64,
}

/// One step of TCP's series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpPoint {
    /// Congestion window in packets.
    pub(crate) cwnd: f64,
    /// Slow-start threshold in packets; infinite at first.
    pub(crate) ssthresh: f64,
    /// Smoothed round-trip time.
    pub(crate) srtt: Option<Span>,
    /// IP bytes sent in the step.
    pub(crate) bytes: u64,
}

impl TcpSource {
    pub(crate) fn new(config: Config, source: Source, chance: Chance) -> Self {
        let ect = if config.ecn { Ecn::Ect0 } else { Ecn::NotCapable };
        Self {
            sender: Sender::new(&config),
            config,
            source,
            chance,
            running: false,
            done: false,
            again: Time::NEVER,
            past: Past::default(),
            srtt: Spread::default(),
            cwnd_area: (0.0, Span::ZERO),
            last: Time::ZERO,
            ect,
            samples: Vec::new(),
            sent_bytes: Bytes::ZERO,
            last_bytes: Bytes::ZERO,
            completed: Vec::new(),
            digest: Digest::default(),
        }
    }

    pub(crate) fn start(&mut self, now: Time, out: &mut Out<'_>) {
        self.running = true;
        self.last = now;
        self.drain(now, out);
    }

    pub(crate) fn stop(&mut self, now: Time) {
        self.account(now);
        self.running = false;
        self.again = Time::NEVER;
    }

    pub(crate) fn wake(&self) -> Time {
        if !self.running {
            return Time::NEVER;
        }
        self.sender.wake().unwrap_or(Time::NEVER).min(self.again)
    }

    pub(crate) fn on_ack(&mut self, now: Time, ack: &Ack, out: &mut Out<'_>) {
        if !self.running {
            return;
        }
        self.account(now);
        self.sender.on_ack(now, ack);
        if let Some(srtt) = self.sender.srtt() {
            self.srtt.add(srtt);
        }
        self.drain(now, out);
    }

    pub(crate) fn on_wake(&mut self, now: Time, out: &mut Out<'_>) {
        if !self.running {
            return;
        }
        if self.again <= now {
            self.again = Time::NEVER;
            self.renew();
        }
        self.account(now);
        self.sender.on_timer(now);
        self.drain(now, out);
    }

    fn drain(&mut self, now: Time, out: &mut Out<'_>) {
        loop {
            match self.sender.poll(now) {
                Poll::Send(segment) => {
                    self.digest.add(now.as_nanos() ^ u64::from(segment.seq) << 40);
                    self.sent_bytes += segment.len;
                    out.send(segment.len, self.ect, Body::Tcp(segment));
                }
                Poll::Wait { .. } => return,
                Poll::Done => {
                    if !std::mem::replace(&mut self.done, true) {
                        self.completed.push(now);
                        if let Source::Transfers { off, .. } = &self.source {
                            self.again = now + draw(off, &mut self.chance);
                        }
                    }
                    return;
                }
            }
        }
    }

    fn renew(&mut self) {
        self.past.sent += self.sender.sent();
        self.past.retransmitted += self.sender.retransmitted();
        self.past.timeouts += self.sender.timeouts();
        self.sender = Sender::new(&self.config);
        self.done = false;
    }

    fn account(&mut self, now: Time) {
        let span = now.since(self.last);
        self.cwnd_area.0 += self.sender.cwnd() * span.as_secs_f64();
        self.cwnd_area.1 += span;
        self.last = now;
    }

    pub(crate) fn sample(&mut self, now: Time) {
        if self.running {
            self.account(now);
        }
        self.samples.push(TcpPoint {
            cwnd: self.sender.cwnd(),
            ssthresh: self.sender.ssthresh(),
            srtt: self.sender.srtt(),
            bytes: self.sent_bytes.saturating_sub(self.last_bytes).get(),
        });
        self.last_bytes = self.sent_bytes;
    }
}

pub(crate) struct TcpSink {
    receiver: Receiver,
    config: Config,
    pub(crate) intake: Intake,
    distinct: u64,
}

impl TcpSink {
    pub(crate) fn new(config: Config, intake: Intake) -> Self {
        Self { receiver: Receiver::new(&config), config, intake, distinct: 0 }
    }

    pub(crate) fn on_segment(&mut self, now: Time, packet: &Packet, segment: &Segment, ecn: Ecn, out: &mut Out<'_>) {
        let segment = match ecn {
            Ecn::Ce => &Segment { ecn: steadycast_tcp::Ecn::Ce, ..*segment },
            _ => segment,
        };
        if segment.seq == 0 && !segment.retransmission && self.receiver.next() > 0 {
            // The next of several transfers.
            self.receiver = Receiver::new(&self.config);
            self.distinct = 0;
        }
        let ack = self.receiver.on_segment(now, segment);
        let distinct = self.receiver.distinct_segments();
        if distinct > self.distinct {
            self.intake.add(now, packet.size, packet.sent);
        }
        self.distinct = distinct;
        self.reply(ack, out);
    }

    pub(crate) fn on_wake(&mut self, now: Time, out: &mut Out<'_>) {
        let ack = self.receiver.on_timer(now);
        self.reply(ack, out);
    }

    fn reply(&self, ack: Option<Ack>, out: &mut Out<'_>) {
        if let Some(ack) = ack {
            out.send(self.config.ack_len(), Ecn::NotCapable, Body::TcpAck(ack));
        }
    }

    pub(crate) fn wake(&self) -> Time {
        self.receiver.wake().unwrap_or(Time::NEVER)
    }

    pub(crate) fn sample(&mut self) {
        let packets = self.intake.packets();
        self.intake.sample(packets);
    }
}
