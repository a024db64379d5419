//! Extended sequence numbers (RFC 3550, appendix A.1).

/// Minimum jump ahead that may be a restart. If the sequence number jumps by at least this without an explanation, and
/// the next packet confirms the jump, the source has restarted, and the jump is not a loss.
pub const MAX_DROPOUT: u16 = 3000;
/// A packet that is at least this far behind the newest is not a late packet of the stream. After a jump ahead of at
/// least this, late packets from before the jump would therefore be rejected. For this reason, such a jump is accepted
/// only if it can be explained ([`ExtendedSeq::on_packet_within`]).
pub const MAX_MISORDER: u16 = 100;
/// Number of consecutive packets after which a source is valid.
pub const MIN_SEQUENTIAL: u8 = 2;

/// The classification of a received sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The source is not valid yet; its consecutive packets are on probation.
    Probation,
    /// The source is valid from this packet on. The preceding packets of the probation count as received.
    Started(i64),
    /// The packet is the newest so far.
    Newer(i64),
    /// The packet is not newer than the newest: it is reordered or a duplicate.
    Late(i64),
    /// The source restarted, and the counts restart with this packet. Either two consecutive packets were far from the
    /// others, or this packet continues the stream from before the last restart.
    Restarted(i64),
    /// The packet does not belong to the stream: it is far from all others, and neither a loss nor a restart explains
    /// this.
    Stray,
}

impl Verdict {
    /// Returns the extended sequence number of a packet that belongs to the stream.
    pub const fn extended(self) -> Option<i64> {
        match self {
            Self::Started(seq) | Self::Newer(seq) | Self::Late(seq) | Self::Restarted(seq) => Some(seq),
            Self::Probation | Self::Stray => None,
        }
    }
}

/// Extends the sequence numbers of one source: cycles · 2¹⁶ + number. Cycles count from the cycle of the first packet,
/// so that the number of an earlier packet may be negative.
///
/// This differs from the sample code of A.1 in three points. First, packets of the probation count as expected and
/// received, because they were received. A.1 starts to count with the last packet of the probation. Second, a jump
/// ahead of [`MAX_MISORDER`] or more counts as a loss only if the caller can explain it. A.1 accepts any jump below
/// [`MAX_DROPOUT`], which allows forged numbers to invent losses and to make genuine packets look late. Third, a
/// restart uses the nearest cycle, and stores the previous position. A single packet that continues at that position
/// restores the previous stream and its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedSeq {
    newest: i64,
    base: i64,
    probation: u8,
    needed: u8,
    stray: Option<u16>,
    /// The number of sequence numbers covered since the last restart.
    ran: u64,
    /// The stream that was current before the last restart: its newest number, and how many sequence numbers it had
    /// covered.
    left: Option<(i64, u64)>,
}

impl ExtendedSeq {
    /// Creates a counter that considers a source valid after [`MIN_SEQUENTIAL`] consecutive packets.
    pub const fn new() -> Self {
        Self::with_probation(MIN_SEQUENTIAL)
    }
    /// Creates a counter that considers a source valid after `needed` consecutive packets. With 0 and 1 the first
    /// packet is enough.
    pub const fn with_probation(needed: u8) -> Self {
        let needed = if needed == 0 { 1 } else { needed };
        Self { newest: 0, base: 0, probation: needed, needed, stray: None, ran: 0, left: None }
    }
    /// Returns true if the source is valid.
    pub const fn is_valid(&self) -> bool {
        self.probation == 0
    }
    /// Returns the highest extended number, or `None` during probation.
    pub const fn newest(&self) -> Option<i64> {
        if self.is_valid() { Some(self.newest) } else { None }
    }
    /// Returns the first extended number of the stream, or `None` during probation.
    pub const fn base(&self) -> Option<i64> {
        if self.is_valid() { Some(self.base) } else { None }
    }
    /// Returns the number of packets from the first to the newest, including lost ones.
    pub const fn expected(&self) -> u64 {
        if self.is_valid() { (self.newest - self.base) as u64 + 1 } else { 0 }
    }
    /// Returns the number of packets of the probation before the one that ended it.
    pub const fn probation_packets(&self) -> u64 {
        self.needed as u64 - 1
    }
    /// Classifies the sequence number of a packet that has arrived.
    pub fn on_packet(&mut self, seq: u16) -> Verdict {
        self.on_packet_within(seq, MAX_MISORDER)
    }
    /// Classifies a packet. A jump ahead of less than `reach` counts as explained: this many packets may have been lost
    /// since the previous packet. See [`ExtendedSeq::on_packet`].
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
            // The restart was caused by packets of another stream, so the stored position is dropped.
            (self.left, self.ran) = (None, ran);
            return self.restart(left + i64::from(ahead));
        }
        if confirmed && ahead >= MAX_DROPOUT {
            // The nearest cycle is kept, so that extended numbers stay comparable across the restart.
            let nearest = self.newest + i64::from(ahead as i16);
            // A stream that has covered only a few numbers was probably a stray one, so its position is not stored.
            if self.ran >= self.left.map_or(0, |(_, ran)| ran.min(MAX_DROPOUT.into())) {
                self.left = Some((self.newest, self.ran));
            }
            self.ran = 0;
            return self.restart(if nearest < 0 { i64::from(seq) } else { nearest });
        }
        self.stray = Some(seq.wrapping_add(1));
        Verdict::Stray
    }

    /// Advances the newest number by `ahead`, which may exceed the 16 bits of a sequence number.
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
        // During probation, `stray` holds the next consecutive number.
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
