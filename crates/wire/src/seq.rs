//! Extended sequence numbers (RFC 3550, appendix A.1).

/// A jump ahead by at least this is a restart of the source if the next packet follows in sequence.
pub const MAX_DROPOUT: u16 = 3000;
/// A packet counts as late if its number is behind the newest number by less than this.
///
/// A jump ahead by less than this counts as a loss. [`ExtendedSeq::on_packet_within`] can raise the limit for jumps.
pub const MAX_MISORDER: u16 = 100;
/// Number of consecutive packets that make a source valid.
pub const MIN_SEQUENTIAL: u8 = 2;

/// The classification of a received sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A packet on probation: the source is not valid yet.
    Probation,
    /// The packet that makes the source valid. Earlier packets of the probation count as received.
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

impl Verdict {
    /// Returns the extended sequence number. Returns `None` if the packet is on probation or stray.
    pub const fn extended(self) -> Option<i64> {
        match self {
            Self::Started(seq) | Self::Newer(seq) | Self::Late(seq) | Self::Restarted(seq) => Some(seq),
            Self::Probation | Self::Stray => None,
        }
    }
}

/// Extends the 16-bit sequence numbers of one source to cycles · 2¹⁶ + number.
///
/// The first packet is in cycle 0, so packets before the first packet may have negative numbers.
///
/// Differences from the sample code of RFC 3550, appendix A.1:
/// - Packets of the probation count as expected and received.
/// - A jump ahead counts as a loss only if it is less than [`MAX_MISORDER`]. With [`MAX_DROPOUT`], the limit of A.1, an
///   attacker could feign losses by forged numbers. [`ExtendedSeq::on_packet_within`] can raise the limit.
/// - After a restart, numbers continue in the nearest cycle.
/// - After a restart, a single packet that continues the earlier stream restores the earlier stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedSeq {
    newest: i64,
    base: i64,
    probation: u8,
    needed: u8,
    stray: Option<u16>,
    /// Number of sequence numbers since the last restart.
    ran: u64,
    /// The stream before the last restart: its newest extended number, and the value of `ran` at the restart.
    left: Option<(i64, u64)>,
}

impl ExtendedSeq {
    /// Creates a counter that needs [`MIN_SEQUENTIAL`] consecutive packets.
    pub const fn new() -> Self {
        Self::with_probation(MIN_SEQUENTIAL)
    }
    /// Creates a counter that needs `needed` consecutive packets. With 0 or 1, the first packet is enough.
    pub const fn with_probation(needed: u8) -> Self {
        let needed = if needed == 0 { 1 } else { needed };
        Self { newest: 0, base: 0, probation: needed, needed, stray: None, ran: 0, left: None }
    }
    /// Returns whether the source is valid.
    pub const fn is_valid(&self) -> bool {
        self.probation == 0
    }
    /// Returns the highest extended number. Returns `None` during probation.
    pub const fn newest(&self) -> Option<i64> {
        if self.is_valid() { Some(self.newest) } else { None }
    }
    /// Returns the first extended number of the stream. Returns `None` during probation.
    pub const fn base(&self) -> Option<i64> {
        if self.is_valid() { Some(self.base) } else { None }
    }
    /// Returns the number of packets from the first to the newest packet, including lost packets.
    pub const fn expected(&self) -> u64 {
        if self.is_valid() { (self.newest - self.base) as u64 + 1 } else { 0 }
    }
    /// Returns how many packets are on probation before the packet that makes the source valid.
    pub const fn probation_packets(&self) -> u64 {
        self.needed as u64 - 1
    }
    /// Classifies an arrived packet's sequence number.
    pub fn on_packet(&mut self, seq: u16) -> Verdict {
        self.on_packet_within(seq, MAX_MISORDER)
    }
    /// Like [`ExtendedSeq::on_packet`], but a jump ahead of less than `reach` counts as a loss.
    pub fn on_packet_within(&mut self, seq: u16, reach: u16) -> Verdict {
        if !self.is_valid() {
            return self.on_probation(seq);
        }
        let ahead = seq.wrapping_sub(self.newest as u16);
        let behind = ahead.wrapping_neg();
        if behind < MAX_MISORDER {
            return Verdict::Late(self.newest - i64::from(behind));
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
            let nearest = self.newest + i64::from(ahead as i16);
            // Remember the stream, so that it can be restored. Skip a stream of few numbers, because it probably
            // consisted of stray packets.
            if self.ran >= self.left.map_or(0, |(_, ran)| ran.min(MAX_DROPOUT.into())) {
                self.left = Some((self.newest, self.ran));
            }
            self.ran = 0;
            return self.restart(if nearest < 0 { i64::from(seq) } else { nearest });
        }
        self.stray = Some(seq.wrapping_add(1));
        Verdict::Stray
    }

    /// Advances the newest number by `ahead`, which may exceed 16 bits.
    pub fn go_on(&mut self, ahead: u32) -> Verdict {
        self.stray = None;
        self.newest += i64::from(ahead);
        self.ran += u64::from(ahead);
        Verdict::Newer(self.newest)
    }

    fn restart(&mut self, to: i64) -> Verdict {
        (self.newest, self.base, self.stray) = (to, to, None);
        Verdict::Restarted(to)
    }

    fn on_probation(&mut self, seq: u16) -> Verdict {
        // During probation, `stray` is the number that would follow the last packet.
        let left = if self.stray == Some(seq) { self.probation } else { self.needed };
        if left <= 1 {
            self.start(seq, i64::from(self.needed) - 1);
            return Verdict::Started(self.newest);
        }
        self.probation = left - 1;
        self.stray = Some(seq.wrapping_add(1));
        Verdict::Probation
    }

    fn start(&mut self, seq: u16, before: i64) {
        self.probation = 0;
        self.stray = None;
        self.newest = i64::from(seq);
        self.base = self.newest - before;
    }
}

impl Default for ExtendedSeq {
    fn default() -> Self {
        Self::new()
    }
}
