use crate::registry::Factory;
use crate::{Arrival, Due, EchoReceiver, Need, ReceiverHalf, Reply, Slot, Wake};
use steadycast_settings::words;
use steadycast_units::{Span, Time};

words! {
    /// The format of the feedback that receivers send.
    #[derive(Default)]
    pub enum FeedbackFormat {
        /// The controller's own reports, and no per-packet feedback.
        #[default]
        Own = "own",
        /// Congestion control feedback by SSRC and sequence number, with ECN (RFC 8888).
        Rfc8888 = "rfc8888",
        /// Transport-wide feedback, which numbers packets in a header extension
        /// (draft-holmer-rmcat-transport-wide-cc-extensions-01).
        TransportWide = "twcc",
        /// Packet counts once a second, as in a browser's WebRTC statistics.
        Stats = "stats",
        /// Standard report blocks alone (RFC 3550, 6.4.1), at RTCP's interval or each second, whichever is longer.
        Blocks = "rr",
    }
}

/// The minimum interval between two reports of coarse feedback.
const COARSE: Span = Span::secs(1);

impl FeedbackFormat {
    /// Returns whether the format is coarse: it has packet counts only, neither the controller's own reports nor the
    /// fates of single packets.
    pub const fn is_coarse(self) -> bool {
        matches!(self, Self::Stats | Self::Blocks)
    }

    /// Returns the receiver half of coarse feedback; `None` for the other formats. If the controller `reads_echoes`,
    /// counts are sent as an [`Echo`](crate::Echo), otherwise as report blocks.
    pub fn coarse_receiver(self, reads_echoes: bool) -> Option<Box<dyn ReceiverHalf>> {
        match self {
            // An echo carries the counts of a browser's statistics to controllers that can parse it.
            Self::Stats if reads_echoes => Some(Box::new(EchoReceiver::new(COARSE))),
            _ if self.is_coarse() => Some(Box::new(BlockReceiver { rtcp: self == Self::Blocks, next: None })),
            _ => None,
        }
    }

    /// Returns the format that a controller's own receivers use in a group or a unicast session. It is RFC 8888 if the
    /// sender half reads per-packet feedback, and otherwise the controller's own reports.
    pub fn own_of(factory: &dyn Factory, group: bool) -> Self {
        if factory.terms().needs_in(group).contains(&Need::PacketReports) { Self::Rfc8888 } else { Self::Own }
    }

    /// Returns the per-packet format in use: the configured one (`self`), or `own` if none is configured. A coarse
    /// format has no per-packet feedback, so the result is [`FeedbackFormat::Own`].
    pub fn or(self, own: Self) -> Self {
        match self {
            Self::Own => own,
            _ if self.is_coarse() => Self::Own,
            _ => self,
        }
    }

    /// Returns whether receivers send per-packet feedback although the controller has its own reports. The controller's
    /// receiver half then runs at the sender, on arrivals that are replayed from the feedback.
    pub fn is_replayed_for(self, own: Self) -> bool {
        self != Self::Own && own == Self::Own
    }
}

/// A receiver half that sends report blocks and nothing else.
struct BlockReceiver {
    /// Whether RTCP's own timer limits the frequency.
    rtcp: bool,
    next: Option<Time>,
}

impl ReceiverHalf for BlockReceiver {
    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        self.next.get_or_insert(arrival.at + COARSE);
    }

    fn due(&self) -> Due {
        self.next.map_or(Due::Hold, |at| Due::At(Wake { at, why: "report block" }))
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        // RTCP's interval grows with the group, so that reports keep within 5 % of the session bandwidth.
        let apart = if self.rtcp { slot.interval.max(COARSE) } else { COARSE };
        self.next = Some(slot.now + apart);
        Reply::Plain
    }
}
