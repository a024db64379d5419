use crate::Need;
use crate::registry::Factory;
use steadycast_words::words;

words! {
    /// The format in which receivers report single packets.
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
    }
}

impl FeedbackFormat {
    /// What a controller's own receivers report, of a group or one alone: RFC 8888's feedback where its sender half
    /// reads reports of single packets.
    pub fn own_of(factory: &dyn Factory, group: bool) -> Self {
        if factory.terms().needs_in(group).contains(&Need::PacketReports) { Self::Rfc8888 } else { Self::Own }
    }

    /// The format that receivers use: this one, or the controller's `own` where none is asked for.
    pub fn or(self, own: Self) -> Self {
        if self == Self::Own { own } else { self }
    }

    /// Whether receivers report single packets to a controller whose own format does not: its receiver half is then
    /// replayed at the sender.
    pub fn is_replayed_for(self, own: Self) -> bool {
        self != Self::Own && own == Self::Own
    }
}
