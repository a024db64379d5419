//! Sequence numbers of 16 bits, unwrapped (RFC 3550, appendix A.1).

/// A jump ahead of this many or more that nothing explains is not a loss but another stream, once its successor
/// confirms it.
pub const MAX_DROPOUT: u16 = 3000;
/// A packet this far behind the newest, or further, isn't a late one. A jump ahead of as many counts where something
/// explains it ([`ExtendedSeq::on_packet_within`]), since it would make strays of the packets that it leaves behind.
pub const MAX_MISORDER: u16 = 100;
/// Packets in sequence before a source is believed.
pub const MIN_SEQUENTIAL: u8 = 2;

/// What a sequence number turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The source isn't believed yet; packets in sequence so far are on probation.
    Probation,
    /// The source is believed from this packet on. The packets of the probation that led here count as received.
    Started(i64),
    /// Newer than all before.
    Newer(i64),
    /// As new as, or older than, the newest: out of order, or a duplicate.
    Late(i64),
    /// Two packets in sequence far from the others, or one that goes on where a restart had left the stream: the source
    /// started again, and all counts with it.
    Restarted(i64),
    /// Far from all others, and nothing explains it so far: not of this stream.
    Stray,
}

impl Verdict {
    /// The extended sequence number, of packets that belong to the stream.
    pub const fn extended(self) -> Option<i64> {
        match self {
            Self::Started(seq) | Self::Newer(seq) | Self::Late(seq) | Self::Restarted(seq) => Some(seq),
            Self::Probation | Self::Stray => None,
        }
    }
}

/// Unwraps one source's sequence numbers: cycles · 2¹⁶ + number, counted from the cycle of the first packet (so that
/// one from before it is negative).
///
/// Differs from the sample code of A.1 in three places. The packets of the probation count as expected and received,
/// since they were both; A.1 begins counting with the last of them. A jump ahead of [`MAX_MISORDER`] or more counts as
/// a loss only where its caller can explain it, however many follow it; A.1 believes any below [`MAX_DROPOUT`]: whoever
/// makes numbers up must neither put the true ones behind nor make losses of nothing. And a restart keeps to the cycle
/// that is nearest, and knows where it has left the stream: a single packet that goes on there brings it back, with the
/// numbers that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedSeq {
    newest: i64,
    base: i64,
    probation: u8,
    needed: u8,
    stray: Option<u16>,
    /// Numbers since the last restart.
    ran: u64,
    /// The newest number of the stream that the last restart has left, and how many it had.
    left: Option<(i64, u64)>,
}

impl ExtendedSeq {
    /// Believes a source after [`MIN_SEQUENTIAL`] packets in sequence.
    pub const fn new() -> Self {
        Self::believing_after(MIN_SEQUENTIAL)
    }
    /// Believes a source after `needed` packets in sequence; 0 and 1 believe the first one.
    pub const fn believing_after(needed: u8) -> Self {
        let needed = if needed == 0 { 1 } else { needed };
        Self { newest: 0, base: 0, probation: needed, needed, stray: None, ran: 0, left: None }
    }
    /// Whether the source is believed.
    pub const fn is_valid(&self) -> bool {
        self.probation == 0
    }
    /// The highest extended number, `None` during probation.
    pub const fn newest(&self) -> Option<i64> {
        if self.is_valid() { Some(self.newest) } else { None }
    }
    /// The first extended number of the stream, `None` during probation.
    pub const fn base(&self) -> Option<i64> {
        if self.is_valid() { Some(self.base) } else { None }
    }
    /// Packets from the first to the newest, lost ones included.
    pub const fn expected(&self) -> u64 {
        if self.is_valid() { (self.newest - self.base) as u64 + 1 } else { 0 }
    }
    /// Packets of the probation before the one that ended it.
    pub const fn probationers(&self) -> u64 {
        self.needed as u64 - 1
    }
    /// Takes the sequence number of a packet that has arrived.
    pub fn on_packet(&mut self, seq: u16) -> Verdict {
        self.on_packet_within(seq, MAX_MISORDER)
    }
    /// As [`ExtendedSeq::on_packet`] where something explains a jump ahead of less than `reach`: the time since the
    /// packet before, in which as many may have been lost.
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
            // What it had left for was another stream.
            (self.left, self.ran) = (None, ran);
            return self.restart(left + i64::from(ahead));
        }
        if confirmed && ahead >= MAX_DROPOUT {
            let nearest = self.newest + i64::from(ahead as i16);
            // What has hardly run is nothing to come back to.
            if self.ran >= self.left.map_or(0, |(_, ran)| ran.min(MAX_DROPOUT.into())) {
                self.left = Some((self.newest, self.ran));
            }
            self.ran = 0;
            return self.restart(if nearest < 0 { i64::from(seq) } else { nearest });
        }
        self.stray = Some(seq.wrapping_add(1));
        Verdict::Stray
    }

    /// The stream's newest packet is so far ahead of the one before, by more than the number tells.
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
        // `stray` holds the number that would continue the sequence.
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
