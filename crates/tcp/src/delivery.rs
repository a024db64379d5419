//! Delivery-rate samples (draft-cheng-iccrg-delivery-rate-estimation-02), counted in segments.

use crate::scoreboard::Scoreboard;
use crate::wire::Ack;
use std::collections::VecDeque;
use steadycast_units::{Span, Time};

/// State of the connection when a segment was sent (the draft's P.*), and what became of the segment.
#[derive(Clone, Copy, Debug)]
struct PacketState {
    sent: Time,
    pub(crate) delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    app_limited: bool,
    /// Number of segments that were lost before this segment was sent.
    lost: u64,
    /// Number of segments in flight, including this segment.
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

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Delivery rate in segments per second. It is 0 if the interval is shorter than the minimum RTT.
    pub(crate) rate: f64,
    /// Number of segments that were delivered in the interval.
    pub(crate) delivered: u64,
    /// Number of segments that had been delivered when the newest acknowledged segment was sent.
    pub(crate) prior_delivered: u64,
    pub(crate) app_limited: bool,
    /// Number of segments whose arrival this acknowledgment reports for the first time.
    pub(crate) fresh: u32,
    /// Number of segments in flight when the newest acknowledged segment was sent.
    pub(crate) in_flight: u32,
    /// Number of segments that were lost since the newest acknowledged segment was sent.
    pub(crate) lost: u64,
    /// RTT of the newest acknowledged segment. It is `None` if the segment was retransmitted (Karn's rule).
    pub(crate) rtt: Option<Span>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    /// Whether this segment is the first of a range of adjacent lost segments.
    pub(crate) begins: bool,
    pub(crate) in_flight: u32,
    /// Number of segments lost since this segment was sent, including this segment.
    pub(crate) lost: u64,
    pub(crate) app_limited: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RateEstimator {
    /// State of all segments from the first unacknowledged segment on.
    sent: VecDeque<PacketState>,
    una: u32,
    pub(crate) delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    lost: u64,
    /// Segments below this number are lost, unless they have arrived.
    lost_to: u32,
    /// Samples are application-limited until this number of segments is delivered. It is 0 if samples are not limited.
    app_limited: u64,
    blocks: [crate::wire::Block; 3],
    /// The losses that the last acknowledgment or time-out revealed.
    losses: Vec<Loss>,
}

impl RateEstimator {
    pub(crate) fn losses(&self) -> &[Loss] {
        &self.losses
    }

    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited > 0
    }

    /// Treats the following samples as application-limited.
    pub(crate) fn set_app_limited(&mut self, in_flight: u32) {
        // Use at least 1, because 0 means "not limited".
        self.app_limited = (self.delivered + u64::from(in_flight)).max(1);
    }

    pub(crate) fn on_sent(&mut self, now: Time, seq: u32, in_flight: u32) {
        // If nothing else is in flight, start a new interval here, so that it does not include an idle time.
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

    /// Processes an acknowledgment that `scoreboard` has already processed.
    pub(crate) fn on_ack<'a>(
        &mut self,
        now: Time,
        ack: &Ack,
        scoreboard: &Scoreboard,
        lost_retransmissions: impl Iterator<Item = &'a u32>,
        min_rtt: Span,
    ) -> Sample {
        self.losses.clear();
        let mut sample = Sample::default();
        let mut newest = None;
        let top = self.una + self.sent.len() as u32;
        self.arrive(now, self.una, ack.next.min(top), &mut sample, &mut newest);
        for block in ack.sacks {
            // Skip the part of this block that the previous acknowledgment already reported.
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
        for seq in lost_retransmissions {
            self.lose(*seq, &mut last);
        }
        if self.app_limited > 0 && self.delivered > self.app_limited {
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
        // The send interval of the next sample starts when this segment was sent.
        self.first_sent = sent;
        // Use the longer of the send interval and the acknowledgment interval. Otherwise compressed acknowledgments
        // would inflate the rate.
        let interval = sent.since(first_sent).max(now.since(delivered_at));
        if interval >= min_rtt && !interval.is_zero() {
            sample.rate = sample.delivered as f64 / interval.as_secs_f64();
        }
        sample
    }

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
            // Use the segment that was sent last, because its interval is the most recent.
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
