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

const COARSE: Span = Span::secs(1);

impl FeedbackFormat {
    /// Returns whether the format has only packet counts.
    pub const fn is_coarse(self) -> bool {
        matches!(self, Self::Stats | Self::Blocks)
    }

    /// Returns the receiver half of coarse feedback; `None` for other formats. It sends an [`Echo`](crate::Echo) if
    /// the controller `reads_echoes`, else report blocks.
    pub fn coarse_receiver(self, reads_echoes: bool) -> Option<Box<dyn ReceiverHalf>> {
        match self {
            Self::Stats if reads_echoes => Some(Box::new(EchoReceiver::new(COARSE))),
            _ if self.is_coarse() => Some(Box::new(BlockReceiver { rtcp: self == Self::Blocks, next: None })),
            _ => None,
        }
    }

    /// Returns the controller's own format: RFC 8888 if its sender half needs per-packet feedback, else its own
    /// reports.
    pub fn own_of(factory: &dyn Factory, group: bool) -> Self {
        if factory.terms().needs_in(group).contains(&Need::PacketReports) { Self::Rfc8888 } else { Self::Own }
    }

    /// Returns the per-packet format in use: `self`, or `own` if `self` is [`FeedbackFormat::Own`]. The coarse formats
    /// have no per-packet feedback, so the result for them is [`FeedbackFormat::Own`].
    pub fn or(self, own: Self) -> Self {
        match self {
            Self::Own => own,
            _ if self.is_coarse() => Self::Own,
            _ => self,
        }
    }

    /// Returns whether the controller's receiver half runs at the sender, on arrivals replayed from per-packet
    /// feedback.
    pub fn is_replayed_for(self, own: Self) -> bool {
        self != Self::Own && own == Self::Own
    }
}

/// A receiver half that sends only report blocks.
struct BlockReceiver {
    /// Whether RTCP's timer limits the frequency.
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
        // RTCP's interval keeps reports within 5 % of the session bandwidth.
        let apart = if self.rtcp { slot.interval.max(COARSE) } else { COARSE };
        self.next = Some(slot.now + apart);
        Reply::Plain
    }
}
