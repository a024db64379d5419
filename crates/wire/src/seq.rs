//! Extended sequence numbers (RFC 3550, appendix A.1).

/// A jump ahead by at least this is a restart of the source if the next packet follows in sequence.
pub const MAX_DROPOUT: u16 = 3000;
/// A packet counts as late if its number is behind the newest number by less than this.
///
/// A jump ahead by less than this counts as a loss. [`ExtendedSeq::on_packet`] can raise the limit for jumps.
pub const MAX_MISORDER: u16 = 100;
/// Number of consecutive packets that make a source valid.
pub const MIN_SEQUENTIAL: u8 = 2;

/// The classification of a received sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first packet.
    Started(i64),
    /// The newest packet so far.
    Newer(i64),
    /// A reordered or duplicate packet.
    Late(i64),
    /// The counts restart with this packet.
    ///
    /// This has one of two reasons. Either two consecutive packets were far from the numbers of the stream. Or the
    /// packet continues the stream that was received before the last restart.
    Restarted(i64),
    /// A packet whose number is far from all others. Neither a loss nor a restart explains it.
    Stray,
}

/// Extends the 16-bit sequence numbers of one source to cycles · 2¹⁶ + number.
///
/// The first packet is in cycle 0, so packets before the first packet may have negative numbers.
///
/// Differences from the sample code of RFC 3550, appendix A.1:
/// - There is no probation: the first packet counts.
/// - A jump ahead counts as a loss only if it is less than [`MAX_MISORDER`]. With [`MAX_DROPOUT`], the limit of A.1, an
///   attacker could feign losses by forged numbers. [`ExtendedSeq::on_packet`] can raise the limit.
/// - After a restart, numbers continue in the nearest cycle.
/// - After a restart, a single packet that continues the earlier stream restores the earlier stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtendedSeq {
    newest: Option<i64>,
    base: i64,
    /// The number that would follow the last stray packet.
    stray: Option<u16>,
    /// Number of sequence numbers since the last restart.
    ran: u64,
    /// The stream before the last restart: its newest extended number, and the value of `ran` at the restart.
    left: Option<(i64, u64)>,
}

impl ExtendedSeq {
    /// Returns the highest extended number. Returns `None` before the first packet.
    pub const fn newest(&self) -> Option<i64> {
        self.newest
    }
    /// Returns the number of packets from the first to the newest packet, including lost packets.
    pub const fn expected(&self) -> u64 {
        match self.newest {
            Some(newest) => (newest - self.base) as u64 + 1,
            None => 0,
        }
    }
    /// Classifies an arrived packet's sequence number. A jump ahead counts as a loss if it is less than `reach` or less
    /// than [`MAX_MISORDER`].
    pub fn on_packet(&mut self, seq: u16, reach: u16) -> Verdict {
        let Some(newest) = self.newest else {
            self.base = seq.into();
            self.newest = Some(self.base);
            return Verdict::Started(self.base);
        };
        let ahead = seq.wrapping_sub(newest as u16);
        let behind = ahead.wrapping_neg();
        if behind < MAX_MISORDER {
            return Verdict::Late(newest - i64::from(behind));
        }
        if ahead < reach.max(MAX_MISORDER) {
            return self.go_on(ahead.into());
        }
        let confirmed = self.stray == Some(seq);
        let near_left = 1..if confirmed { MAX_DROPOUT } else { MAX_MISORDER };
        if let Some((left, ran)) = self.left
            && let ahead = seq.wrapping_sub(left as u16)
            && near_left.contains(&ahead)
        {
            // The packet continues the earlier stream, so packets of another stream had caused the restart. Restore the
            // earlier stream.
            (self.left, self.ran) = (None, ran);
            return self.restart(left + i64::from(ahead));
        }
        if confirmed && ahead >= MAX_DROPOUT {
            // Continue in the nearest cycle, so that extended numbers stay comparable across the restart.
            let nearest = newest + i64::from(ahead as i16);
            // Remember the stream, so that it can be restored. Skip a stream of few numbers, because it probably
            // consisted of stray packets.
            if self.ran >= self.left.map_or(0, |(_, ran)| ran.min(MAX_DROPOUT.into())) {
                self.left = Some((newest, self.ran));
            }
            self.ran = 0;
            return self.restart(if nearest < 0 { i64::from(seq) } else { nearest });
        }
        self.stray = Some(seq.wrapping_add(1));
        Verdict::Stray
    }

    /// Advances the newest number by `ahead`, which may exceed 16 bits.
    pub fn go_on(&mut self, ahead: u32) -> Verdict {
        let newest = self.newest.unwrap_or_default() + i64::from(ahead);
        (self.newest, self.stray) = (Some(newest), None);
        self.ran += u64::from(ahead);
        Verdict::Newer(newest)
    }

    fn restart(&mut self, to: i64) -> Verdict {
        (self.newest, self.base, self.stray) = (Some(to), to, None);
        Verdict::Restarted(to)
    }
}
