//! The play-out of a receiver's audio. It measures how losses and delays affect the listener.

use std::collections::BTreeSet;
use steadycast_media::{AUDIO_PACKET_TIME, Bounds, Playout};
use steadycast_record::row;
use steadycast_units::{Span, Time};

/// Bounds of the play-out delay. The minimum is the duration of two packets, because a packet may be late by the
/// duration of one packet.
const DELAYS: Bounds = Bounds { least: Span::millis(40), most: Span::millis(800) };
/// A missing packet is given up once a packet has arrived whose sequence number is higher by at least this value.
const MAX_REORDERING: u64 = 50;

/// An adaptive play-out ([`Playout`]). It counts the gaps that a player would have to conceal. If a packet is late, the
/// gap is as long as the rise of the play-out delay. If a packet is lost, the gap is [`AUDIO_PACKET_TIME`].
#[derive(Clone, Debug)]
pub struct AudioPlayout {
    playout: Playout,
    /// The first sequence number, and the number that follows the newest sequence number.
    range: Option<(u64, u64)>,
    /// Duration of all packets before the last pause, including lost packets.
    covered_before: Span,
    /// Sequence numbers of missing packets that may still arrive.
    missing: BTreeSet<u64>,
    /// Sequence number of the last lost packet, and how many packets were lost in a row up to it.
    run: Option<(u64, u64)>,
    /// Number of lost packets that were given up.
    pub lost: u64,
    /// Number of packets that arrived after their play-out time.
    pub late: u64,
    /// Number of gaps that are longer than a packet.
    pub long_gaps: u64,
    /// Total duration of the gaps that were caused by late packets, or by lost packets that were given up.
    pub concealed: Span,
}

impl Default for AudioPlayout {
    fn default() -> Self {
        Self {
            playout: Playout::new(DELAYS),
            range: None,
            covered_before: Span::ZERO,
            missing: BTreeSet::new(),
            run: None,
            lost: 0,
            late: 0,
            long_gaps: 0,
            concealed: Span::ZERO,
        }
    }
}

impl AudioPlayout {
    /// Processes the packet `seq`, which took the time `took` to arrive. Returns how much the play-out delay has risen
    /// because the packet is late, or zero if it is on time.
    pub fn on_packet(&mut self, now: Time, seq: u64, took: Span) -> Span {
        let (first, next) = self.range.unwrap_or((seq, seq));
        // Remember the skipped packets as missing, because they may still arrive out of order.
        self.missing.extend(next..seq);
        self.missing.remove(&seq);
        let next = next.max(seq + 1);
        self.range = Some((first.min(seq), next));
        let before = self.playout.delay();
        self.playout.on_whole(now, took, false);
        let is_late = took > before;
        let gap = if is_late { self.playout.delay().saturating_sub(before) } else { Span::ZERO };
        self.late += u64::from(is_late);
        self.concealed += gap;
        self.long_gaps += u64::from(gap > AUDIO_PACKET_TIME);
        self.give_up(next.saturating_sub(MAX_REORDERING));
        gap
    }

    /// Starts again after a pause.
    pub(crate) fn restart(&mut self) {
        // Give up all missing packets, because packets from before the pause can no longer arrive.
        self.give_up(u64::MAX);
        self.covered_before = self.covered();
        (self.range, self.run) = (None, None);
    }

    /// Returns the counts as they are if the missing packets do not arrive any more.
    #[must_use]
    pub fn settled(&self) -> Self {
        let mut settled = self.clone();
        settled.give_up(u64::MAX);
        settled
    }

    fn give_up(&mut self, before: u64) {
        while let Some(seq) = self.missing.first().copied().filter(|seq| *seq < before) {
            self.missing.pop_first();
            self.lost += 1;
            self.concealed += AUDIO_PACKET_TIME;
            let length = self.run.filter(|(last, _)| last + 1 == seq).map_or(1, |(_, length)| length + 1);
            // Count a run of losses once, when its second packet is lost.
            self.long_gaps += u64::from(length == 2);
            self.run = Some((seq, length));
        }
    }

    /// Returns the total duration of all packets, including lost packets.
    pub fn covered(&self) -> Span {
        self.covered_before + self.range.map_or(Span::ZERO, |(first, next)| AUDIO_PACKET_TIME * (next - first))
    }
}

/// The arrival of an audio packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct AudioArrival {
    /// When the packet arrived.
    pub at: Time,
    /// The extended RTP sequence number.
    pub seq: u64,
    /// How much the play-out delay has risen because the packet is late. Zero if the packet is on time.
    pub gap: Span,
}

row!(AudioArrival { at, seq, gap });

/// Returns the index in `sent` of the packet that has the sequence number `seq` and arrived at `at`. `first_seq` is the
/// sequence number of the packet `sent[0]`. Returns `None` if no such packet was sent.
pub(crate) fn index_of(sent: &[Time], first_seq: u16, seq: u64, at: Time) -> Option<usize> {
    let newest = sent.partition_point(|left| *left <= at).checked_sub(1)?;
    // Use only the low 16 bits of `seq`. A receiver that joined late does not know how often the numbers have wrapped.
    let behind = (newest as u16).wrapping_add(first_seq).wrapping_sub(seq as u16);
    newest.checked_sub(usize::from(behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(delays: impl IntoIterator<Item = Option<u64>>) -> AudioPlayout {
        let mut playout = AudioPlayout::default();
        for (seq, delay) in delays.into_iter().enumerate() {
            if let Some(delay) = delay {
                let sent = Time::ZERO + AUDIO_PACKET_TIME * seq as u64;
                playout.on_packet(sent + Span::millis(delay), seq as u64, Span::millis(delay));
            }
        }
        playout.settled()
    }

    #[test]
    fn a_lost_packet_is_a_short_gap_and_two_in_a_row_are_a_long_one() {
        let lost = |at: &'static [usize]| played((0..200).map(|n| (!at.contains(&n)).then_some(15)));
        for (at, concealed, long_gaps) in
            [(&[][..], 0, 0), (&[7, 90], 40, 0), (&[7, 8, 60, 90, 91, 92], 120, 2), (&[7, 197, 198], 60, 1)]
        {
            let playout = lost(at);
            assert_eq!((playout.concealed, playout.long_gaps), (Span::millis(concealed), long_gaps), "{at:?}");
            assert_eq!((playout.lost, playout.late, playout.covered()), (at.len() as u64, 0, Span::secs(4)));
        }
    }

    #[test]
    fn a_packet_is_found_by_its_number_however_often_the_numbers_have_wrapped_around() {
        let sent: Vec<Time> = (0..200_000).map(|n| Time::ZERO + AUDIO_PACKET_TIME * n).collect();
        for (first, index) in [(0, 0), (65_530, 3), (65_530, 9), (7, 65_529), (7, 131_071), (40_000, 199_999)] {
            let seq = u64::from(first) + index as u64;
            // The packet takes up to 10 s to arrive. `counted` includes either all wraps of the sequence numbers or
            // none.
            for (delay, counted) in [(0, seq), (10_000, seq), (30, seq & 0xffff)] {
                let at = sent[index] + Span::millis(delay);
                assert_eq!(index_of(&sent, first, counted, at), Some(index), "{first} {index} {delay}");
            }
        }
        assert_eq!(index_of(&sent[..3], 9, 12, Time::ZERO + Span::secs(1)), None);
        assert_eq!(index_of(&[], 9, 9, Time::ZERO), None);
    }

    #[test]
    fn a_delay_that_rises_is_concealed_once_and_jitter_within_the_play_out_delay_is_none() {
        let steady = played((0..200).map(|n| Some(10 + n % 3 * 10)));
        assert_eq!((steady.concealed, steady.long_gaps, steady.late), (Span::ZERO, 0, 0));
        // The delay rises from 20 to 120 ms. At the first late packet, the play-out delay rises from 40 ms to 130 ms.
        let risen = played((0..200).map(|n| Some(if n < 100 { 20 } else { 120 })));
        assert_eq!((risen.concealed, risen.long_gaps, risen.late), (Span::millis(90), 1, 1));
    }
}
