//! Delivery-rate samples (draft-cheng-iccrg-delivery-rate-estimation-02), counted in segments.

use crate::scoreboard::Scoreboard;
use crate::wire::Ack;
use std::collections::VecDeque;
use steadycast_units::{Span, Time};

/// The connection's state when a segment was last sent, and the segment's fate (the P.* of the draft).
#[derive(Clone, Copy, Debug)]
struct PacketState {
    sent: Time,
    pub(crate) delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    app_limited: bool,
    /// The number of segments lost before this one was sent.
    lost: u64,
    /// The number of segments in flight, this one included.
    in_flight: u32,
    is_retransmission: bool,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    InFlight,
    Arrived,
    Lost,
}

/// The delivery-rate sample of one acknowledgment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// The delivery rate in segments per second; 0 if the interval is shorter than the minimum RTT.
    pub(crate) rate: f64,
    /// The number of segments delivered during the interval.
    pub(crate) delivered: u64,
    /// The number of segments that had been delivered when the newest acknowledged segment was sent.
    pub(crate) prior_delivered: u64,
    pub(crate) app_limited: bool,
    /// The number of segments that this acknowledgment reports for the first time.
    pub(crate) fresh: u32,
    /// The number of segments in flight when the newest acknowledged segment was sent.
    pub(crate) in_flight: u32,
    /// The number of segments lost since the newest acknowledged segment was sent.
    pub(crate) lost: u64,
    /// The RTT of the newest acknowledged segment, unless it was retransmitted (Karn's rule).
    pub(crate) rtt: Option<Span>,
}

/// A segment that has just been declared lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    /// Whether this segment is the first of a range of adjacent lost segments.
    pub(crate) begins: bool,
    pub(crate) in_flight: u32,
    /// The number of segments lost since this one was sent, this one included.
    pub(crate) lost: u64,
    pub(crate) app_limited: bool,
}

/// The delivery-rate estimation of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateEstimator {
    /// The segments from the first unacknowledged one on.
    sent: VecDeque<PacketState>,
    una: u32,
    pub(crate) delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    lost: u64,
    /// All segments below this number are declared lost unless they have arrived.
    lost_to: u32,
    /// Samples are application-limited until this number of segments has been delivered; 0 if they are not limited.
    app_limited: u64,
    blocks: [crate::wire::Block; 3],
    /// The losses that the last acknowledgment revealed.
    losses: Vec<Loss>,
}

impl RateEstimator {
    pub(crate) fn losses(&self) -> &[Loss] {
        &self.losses
    }

    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited > 0
    }

    /// Marks the following samples as application-limited, because the application or the congestion control limits the
    /// data in flight.
    pub(crate) fn set_app_limited(&mut self, in_flight: u32) {
        // The value is at least 1, since 0 means that samples are not limited.
        self.app_limited = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// Records a transmission after which `in_flight` segments are outstanding.
    pub(crate) fn on_sent(&mut self, now: Time, seq: u32, in_flight: u32) {
        // After an idle time the sample's interval must not include the idle time.
        if in_flight <= 1 {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        let at = seq.wrapping_sub(self.una) as usize;
        let packet = PacketState {
            sent: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            app_limited: self.app_limited > 0,
            lost: self.lost,
            in_flight,
            is_retransmission: at < self.sent.len(),
            fate: Fate::InFlight,
        };
        match self.sent.get_mut(at) {
            Some(slot) => *slot = packet,
            None => self.sent.push_back(packet),
        }
    }

    /// Processes an acknowledgment after `scoreboard` has processed it. `again` lists the retransmissions that are
    /// lost.
    pub(crate) fn on_ack<'a>(
        &mut self,
        now: Time,
        ack: &Ack,
        scoreboard: &Scoreboard,
        again: impl Iterator<Item = &'a u32>,
        min_rtt: Span,
    ) -> Sample {
        self.losses.clear();
        let mut sample = Sample::default();
        let mut newest = None;
        let top = self.una + self.sent.len() as u32;
        self.arrive(now, self.una, ack.next.min(top), &mut sample, &mut newest);
        for block in ack.sacks {
            // If the previous acknowledgment reported a part of this block, that part has been processed already.
            let known = self.blocks.iter().find(|b| !b.is_empty() && b.start == block.start && b.end <= block.end);
            let start = known.map_or(block.start, |b| b.end);
            self.arrive(now, start.max(ack.next), block.end.min(top), &mut sample, &mut newest);
        }
        self.blocks = ack.sacks;
        let gone = (ack.next.min(top) - self.una) as usize;
        self.sent.drain(..gone);
        self.una += gone as u32;
        let mut last = None;
        for seq in self.lost_to.max(self.una)..scoreboard.lost_to.min(top) {
            self.lose(seq, &mut last);
        }
        self.lost_to = self.lost_to.max(scoreboard.lost_to);
        for seq in again {
            self.lose(*seq, &mut last);
        }
        if self.app_limited > 0 && self.delivered > self.app_limited {
            // The last application-limited segment is delivered.
            self.app_limited = 0;
        }
        let Some(PacketState {
            sent,
            delivered,
            delivered_at,
            first_sent,
            app_limited,
            lost,
            in_flight,
            is_retransmission,
            ..
        }) = newest
        else {
            return sample;
        };
        sample.prior_delivered = delivered;
        sample.delivered = self.delivered - delivered;
        sample.app_limited = app_limited;
        sample.in_flight = in_flight;
        sample.lost = self.lost - lost;
        sample.rtt = (!is_retransmission).then(|| now.since(sent));
        // The next sample's send interval starts at this segment.
        self.first_sent = sent;
        // The interval is the longer of the send interval and the ACK interval, so that compressed acknowledgments do
        // not inflate the rate.
        let interval = sent.since(first_sent).max(now.since(delivered_at));
        if interval >= min_rtt && !interval.is_zero() {
            sample.rate = sample.delivered as f64 / interval.as_secs_f64();
        }
        sample
    }

    /// Declares all outstanding segments lost, after a time-out.
    pub(crate) fn on_timeout(&mut self) {
        self.losses.clear();
        let mut last = None;
        for seq in self.una..self.una + self.sent.len() as u32 {
            self.lose(seq, &mut last);
        }
        self.lost_to = self.una + self.sent.len() as u32;
        self.blocks = Default::default();
    }

    fn arrive(&mut self, now: Time, from: u32, to: u32, sample: &mut Sample, newest: &mut Option<PacketState>) {
        for seq in from.max(self.una)..to {
            let packet = &mut self.sent[(seq - self.una) as usize];
            if packet.fate == Fate::Arrived {
                continue;
            }
            packet.fate = Fate::Arrived;
            self.delivered += 1;
            self.delivered_at = now;
            sample.fresh += 1;
            // The sample is taken from the segment that was sent last, because its interval is the most recent.
            if newest.is_none_or(|n| (packet.delivered, packet.sent) >= (n.delivered, n.sent)) {
                *newest = Some(*packet);
            }
        }
    }

    fn lose(&mut self, seq: u32, last: &mut Option<u32>) {
        let Some(at) = seq.checked_sub(self.una) else { return };
        let Some(packet) = self.sent.get_mut(at as usize).filter(|d| d.fate == Fate::InFlight) else { return };
        packet.fate = Fate::Lost;
        self.lost += 1;
        self.losses.push(Loss {
            begins: last.is_none_or(|last| last + 1 != seq),
            in_flight: packet.in_flight,
            lost: self.lost - packet.lost,
            app_limited: packet.app_limited,
        });
        *last = Some(seq);
    }
}
