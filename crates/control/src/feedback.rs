use crate::registry::Factory;
use crate::{Arrival, Due, EchoReceiver, Need, ReceiverHalf, Reply, Slot, Wake};
use steadycast_settings::words;
use steadycast_units::{Span, Time};

words! {
    /// Format of the feedback that receivers send.
    #[derive(Default)]
    pub enum FeedbackFormat {
        /// The controller's own reports. There is no per-packet feedback.
        #[default]
        Own = "own",
        /// Congestion control feedback (RFC 8888). It lists packets by SSRC and sequence number, with their ECN field.
        Rfc8888 = "rfc8888",
        /// Transport-wide feedback. It numbers packets in a header extension
        /// (draft-holmer-rmcat-transport-wide-cc-extensions-01).
        TransportWide = "twcc",
        /// Only packet counts once per second, like those in a browser's WebRTC statistics.
        Stats = "stats",
        /// Only standard report blocks (RFC 3550, 6.4.1). They are sent at RTCP's interval, or once per second if
        /// RTCP's interval is shorter.
        Blocks = "rr",
    }
}

const COARSE: Span = Span::secs(1);

impl FeedbackFormat {
    /// Returns whether this format contains only packet counts. Such a format is called coarse.
    pub const fn is_coarse(self) -> bool {
        matches!(self, Self::Stats | Self::Blocks)
    }

    /// Returns the receiver part for a coarse format. Returns `None` for other formats. If the format is `Stats` and
    /// the controller `reads_echoes`, the receiver part sends an [`Echo`](crate::Echo). Otherwise, it sends report
    /// blocks.
    pub fn coarse_receiver(self, reads_echoes: bool) -> Option<Box<dyn ReceiverHalf>> {
        match self {
            Self::Stats if reads_echoes => Some(Box::new(EchoReceiver::new(COARSE))),
            _ if self.is_coarse() => Some(Box::new(BlockReceiver { rtcp: self == Self::Blocks, next: None })),
            _ => None,
        }
    }

    /// Returns the format that a controller uses by itself. This is RFC 8888 if its sender part needs per-packet
    /// feedback. Otherwise, it is the controller's own reports.
    pub fn own_of(factory: &dyn Factory, group: bool) -> Self {
        if factory.terms().needs_in(group).contains(&Need::PacketReports) { Self::Rfc8888 } else { Self::Own }
    }

    /// Returns the format of per-packet feedback in use. This is `self`, or `own` if `self` is [`FeedbackFormat::Own`].
    /// Coarse formats have no per-packet feedback, so the result for them is [`FeedbackFormat::Own`].
    pub fn or(self, own: Self) -> Self {
        match self {
            Self::Own => own,
            _ if self.is_coarse() => Self::Own,
            _ => self,
        }
    }

    /// Returns whether the controller's receiver part runs at the sender. There, arrivals are replayed from per-packet
    /// feedback.
    pub fn is_replayed_for(self, own: Self) -> bool {
        self != Self::Own && own == Self::Own
    }
}

/// A receiver part that sends only standard report blocks.
struct BlockReceiver {
    /// Whether RTCP's timer limits how often reports are sent.
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
        // Use RTCP's interval, because it limits reports to 5 % of the session bandwidth.
        let apart = if self.rtcp { slot.interval.max(COARSE) } else { COARSE };
        self.next = Some(slot.now + apart);
        Reply::Plain
    }
}
