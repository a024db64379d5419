//! The reasons why received packets were not used. Each unused packet is counted under one reason.

/// Declares [`UnusedReason`] from a list of variants and their names.
macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident = $name:literal,)*) => {
        /// The reason why a received packet was not used.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum UnusedReason {
            $($(#[$doc])* $reason,)*
        }

        impl UnusedReason {
            /// All reasons, in the order of their declaration.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$reason),*];

            /// Returns the reason's name in records, status lines and metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)*
                }
            }
        }
    };
}

reasons! {
    /// The session description excludes the packet's source (RFC 4570).
    ExcludedSource = "excluded_source",
    /// The datagram is shorter than an RTP header. It only keeps a NAT binding alive (RFC 6263, sections 4.1 and 4.2).
    KeepAlive = "keep_alive",
    /// A STUN message.
    Stun = "stun",
    /// A DTLS record.
    Dtls = "dtls",
    /// An MPEG transport stream without RTP.
    MpegTs = "mpeg_ts",
    /// The datagram uses another protocol or another version of RTP.
    NotRtp = "not_rtp",
    /// The packet's headers do not conform to the RTP or RTCP format.
    Malformed = "malformed",
    /// The packet was not authenticated with the session's key, or it was replayed (RFC 3711).
    FailedAuthentication = "failed_authentication",
    /// The session does not use the packet's payload type.
    UnknownPayloadType = "unknown_payload_type",
    /// The packet's source is not the source that this receiver follows.
    OtherSource = "other_source",
    /// Packets of the same source have arrived from another address before (RFC 3550, section 8.2).
    OtherAddress = "other_address",
    /// The packet has the SSRC of the receiver itself (RFC 3550, section 8.2).
    OwnSource = "own_source",
    /// The packet's sequence number is far from the other sequence numbers of its stream (RFC 3550, appendix A.1).
    FarNumber = "far_number",
    /// A duplicate.
    Duplicate = "duplicate",
    /// A retransmission that was not requested.
    UnaskedRepair = "unasked_repair",
    /// The RTCP packet comes from a source that this receiver does not follow.
    OtherReport = "other_report",
    /// The packet arrived before the session began, after the session ended, or after its source left.
    Outside = "outside",
    /// The receiver has already assembled later frames without this packet.
    TooLate = "too_late",
    /// The packet has no payload.
    NoPayload = "no_payload",
    /// The packet's packetisation is not supported.
    UnsupportedPacketisation = "unsupported_packetisation",
    /// The packet's payload belongs to a layer that is not supported.
    UnsupportedLayer = "unsupported_layer",
    /// The packet's payload contradicts the payload format.
    MalformedPayload = "malformed_payload",
    /// The packet continues a payload whose beginning was lost.
    AfterLoss = "after_loss",
}

/// Number of unused packets for each reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnusedCounts([u64; UnusedReason::ALL.len()]);

impl UnusedCounts {
    /// Counts one packet under `reason`.
    pub fn add(&mut self, reason: UnusedReason) {
        self.0[reason as usize] += 1;
    }

    /// Subtracts one packet from the count of `reason`. The packet was counted as unused, but was used later.
    pub fn take_back(&mut self, reason: UnusedReason) {
        self.0[reason as usize] = self.get(reason).saturating_sub(1);
    }

    /// Returns the number of packets that were not used for `reason`.
    pub const fn get(&self, reason: UnusedReason) -> u64 {
        self.0[reason as usize]
    }

    /// Returns the number of unused packets.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns each reason that has unused packets, with their number.
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
