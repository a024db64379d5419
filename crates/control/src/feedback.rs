use crate::Need;
use crate::registry::Factory;
use steadycast_units::Ecn;
use steadycast_words::words;

/// The format in which receivers report single packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeedbackFormat {
    /// None: the controller's own reports say what it needs.
    #[default]
    Own,
    /// Congestion control feedback by SSRC and sequence number, with ECN (RFC 8888).
    Rfc8888,
    /// Transport-wide feedback by a number of its own in a header extension (draft-holmer-rmcat-transport-wide-cc-extensions-01).
    TransportWide,
}

impl FeedbackFormat {
    /// What a controller's own receivers report, of a group or one alone: RFC 8888's feedback where its sender half reads reports of
    /// single packets.
    pub fn own_of(factory: &dyn Factory, group: bool) -> Self {
        if factory.needs_in(group).contains(&Need::PacketReports) { Self::Rfc8888 } else { Self::Own }
    }

    /// The format that receivers use: this one, or the controller's `own` where none is asked for.
    pub fn or(self, own: Self) -> Self {
        if self == Self::Own { own } else { self }
    }

    /// Whether receivers report single packets to a controller whose own format does not: its receiver half is then replayed at the
    /// sender.
    pub fn is_replayed_for(self, own: Self) -> bool {
        self != Self::Own && own == Self::Own
    }

    /// What a session offers its controller, whose receivers report in this format and whose packets leave as `ecn`, with `frames`
    /// that wait at the sender or without.
    pub fn offered(self, ecn: Ecn, frames: bool) -> Vec<Need> {
        let has = |need: &Need| match need {
            Need::PacketReports => self != Self::Own,
            Need::Ecn => ecn != Ecn::NotEct,
            Need::Queue => frames,
            Need::Probes => true,
        };
        Need::ALL.into_iter().filter(has).collect()
    }
}

words! {
    FeedbackFormat { "own" => Self::Own, "rfc8888" => Self::Rfc8888, "twcc" => Self::TransportWide, }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_offers_what_its_format_its_packets_and_its_source_have() {
        assert_eq!(FeedbackFormat::Own.offered(Ecn::NotEct, false), [Need::Probes]);
        let marked = FeedbackFormat::Own.offered(Ecn::Ect1, true);
        assert_eq!(marked, [Need::Ecn, Need::Queue, Need::Probes]);
        for format in [FeedbackFormat::Rfc8888, FeedbackFormat::TransportWide] {
            assert_eq!(format.offered(Ecn::Ect0, true), Need::ALL);
        }
    }
}
