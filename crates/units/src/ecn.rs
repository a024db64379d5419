/// The ECN field of an IP header. It has two bits (RFC 3168, section 5; RFC 9331).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ecn {
    /// Not ECN-capable. A queue drops such a packet instead of marking it.
    #[default]
    NotEct,
    /// ECT(1): the packet is ECN-capable and comes from an L4S sender.
    Ect1,
    /// ECT(0): the packet is ECN-capable.
    Ect0,
    /// Congestion experienced (CE): a queue has marked the packet.
    Ce,
}

impl Ecn {
    /// Returns the ECN field as the two lowest bits.
    pub const fn bits(self) -> u8 {
        // ECT(1) is 0b01 and ECT(0) is 0b10 (RFC 3168, section 5).
        match self {
            Self::NotEct => 0,
            Self::Ect1 => 1,
            Self::Ect0 => 2,
            Self::Ce => 3,
        }
    }

    /// Reads the ECN field from the two lowest bits of `bits`.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// Whether a queue can mark the packet instead of dropping it.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotEct)
    }

    /// Whether a queue has marked the packet.
    pub const fn is_ce(self) -> bool {
        matches!(self, Self::Ce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_bits_are_those_of_rfc_3168() {
        let all = [(Ecn::NotEct, 0), (Ecn::Ect1, 1), (Ecn::Ect0, 2), (Ecn::Ce, 3)];
        for (ecn, bits) in all {
            assert_eq!((ecn.bits(), Ecn::from_bits(bits), Ecn::from_bits(bits | 0xfc)), (bits, ecn, ecn));
            assert_eq!((ecn.is_capable(), ecn.is_ce()), (bits > 0, bits == 3));
        }
    }
}
