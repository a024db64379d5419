use crate::registry::Factory;
use crate::{Arrival, Due, EchoReceiver, Need, ReceiverHalf, Reply, Slot, Wake};
use steadycast_units::{Span, Time};
use steadycast_words::words;

words! {
    /// What receivers report: what the controller's own say, single packets in a format, or less than either.
    #[derive(Default)]
    pub enum FeedbackFormat {
        /// None: the controller's own reports say what it needs.
        #[default]
        Own = "own",
        /// Congestion control feedback by SSRC and sequence number, with ECN (RFC 8888).
        Rfc8888 = "rfc8888",
        /// Transport-wide feedback by a number of its own in a header extension
        /// (draft-holmer-rmcat-transport-wide-cc-extensions-01).
        TransportWide = "twcc",
        /// Counts, once a second: what a browser's statistics have of a stream.
        Stats = "stats",
        /// Standard report blocks alone (RFC 3550, 6.4.1), at RTCP's interval or each second, whichever is longer.
        Blocks = "rr",
    }
}

/// How far apart coarse feedback leaves, at the least.
const COARSE: Span = Span::secs(1);

impl FeedbackFormat {
    /// Whether receivers say less than any controller of the registry asks for.
    pub const fn is_coarse(self) -> bool {
        matches!(self, Self::Stats | Self::Blocks)
    }

    /// The receiver half of coarse feedback; `None` for the other kinds. To a controller that `reads_echoes` counts go
    /// as an [`Echo`](crate::Echo), to any other as report blocks.
    pub fn coarse_receiver(self, reads_echoes: bool) -> Option<Box<dyn ReceiverHalf>> {
        match self {
            Self::Stats if reads_echoes => Some(Box::new(EchoReceiver::new(COARSE))),
            _ if self.is_coarse() => Some(Box::new(BlockReceiver { rtcp: self == Self::Blocks, next: None })),
            _ => None,
        }
    }

    /// What a controller's own receivers report, of a group or one alone: RFC 8888's feedback where its sender half
    /// reads reports of single packets.
    pub fn own_of(factory: &dyn Factory, group: bool) -> Self {
        if factory.terms().needs_in(group).contains(&Need::PacketReports) { Self::Rfc8888 } else { Self::Own }
    }

    /// The format of single packets that receivers use: this one, or the controller's `own` where none is asked for.
    pub fn or(self, own: Self) -> Self {
        match self {
            Self::Own => own,
            _ if self.is_coarse() => Self::Own,
            _ => self,
        }
    }

    /// Whether receivers report single packets to a controller whose own format does not: its receiver half is then
    /// replayed at the sender.
    pub fn is_replayed_for(self, own: Self) -> bool {
        self != Self::Own && own == Self::Own
    }
}

/// Sends report blocks and nothing else.
struct BlockReceiver {
    /// Not more often than RTCP's own timer would.
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
        let apart = if self.rtcp { slot.interval.max(COARSE) } else { COARSE };
        self.next = Some(slot.now + apart);
        Reply::Plain
    }
}
