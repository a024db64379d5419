//! The reasons why packets that arrived were not used. Each packet is counted under one reason.

/// Declares the reasons with their names.
macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident = $name:literal,)*) => {
        /// The reason why a packet that arrived was not used.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum UnusedReason {
            $($(#[$doc])* $reason,)*
        }

        impl UnusedReason {
            /// All reasons, in the order in which they are listed.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$reason),*];

            /// Returns the name in records, status lines and metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)*
                }
            }
        }
    };
}

reasons! {
    /// The packet's source is excluded by the session description (RFC 4570).
    ExcludedSource = "excluded_source",
    /// A datagram shorter than a header, which only keeps a NAT binding alive (RFC 6263, sections 4.1 and 4.2).
    KeepAlive = "keep_alive",
    /// A STUN message.
    Stun = "stun",
    /// A DTLS record.
    Dtls = "dtls",
    /// A datagram of another protocol, or of another version of RTP.
    NotRtp = "not_rtp",
    /// The packet's headers contradict RTP's or RTCP's format.
    Malformed = "malformed",
    /// A packet that fails authentication by the session's key, or a replayed one (RFC 3711).
    FailedAuthentication = "failed_authentication",
    /// The packet's payload type is not one of the session's.
    UnknownPayloadType = "unknown_payload_type",
    /// A packet of another source than the followed one.
    OtherSource = "other_source",
    /// The packet's source is known from another address (RFC 3550, section 8.2).
    OtherAddress = "other_address",
    /// A packet with the receiver's SSRC (RFC 3550, section 8.2).
    OwnSource = "own_source",
    /// The packet's sequence number is far from those of its stream (RFC 3550, appendix A.1).
    FarNumber = "far_number",
    /// A duplicate.
    Duplicate = "duplicate",
    /// A retransmission that was not requested.
    UnaskedRepair = "unasked_repair",
    /// RTCP of another source than the followed one.
    OtherReport = "other_report",
    /// A packet before the session's start, or after its end or the end of its source.
    Outside = "outside",
    /// Later frames were already assembled without this packet.
    TooLate = "too_late",
    /// A packet without payload.
    NoPayload = "no_payload",
    /// The packet's packetisation is not supported.
    UnsupportedPacketisation = "unsupported_packetisation",
    /// The packet's payload belongs to a layer that is not supported.
    UnsupportedLayer = "unsupported_layer",
    /// The packet's payload contradicts the payload format.
    MalformedPayload = "malformed_payload",
    /// A packet that continues a payload whose beginning was lost.
    AfterLoss = "after_loss",
}

/// Counts of unused packets by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnusedCounts([u64; UnusedReason::ALL.len()]);

impl UnusedCounts {
    /// Counts a packet.
    pub fn add(&mut self, reason: UnusedReason) {
        self.0[reason as usize] += 1;
    }

    /// Subtracts a packet that was counted as not used, but was used later.
    pub fn take_back(&mut self, reason: UnusedReason) {
        self.0[reason as usize] = self.get(reason).saturating_sub(1);
    }

    /// Returns the number of packets that were not used for this reason.
    pub const fn get(&self, reason: UnusedReason) -> u64 {
        self.0[reason as usize]
    }

    /// Returns the number of packets that were not used.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the reasons for which packets were not used, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (UnusedReason, u64)> {
        UnusedReason::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0)
    }
}

impl std::ops::Add for UnusedCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|n| self.0[n] + other.0[n]))
    }
}
