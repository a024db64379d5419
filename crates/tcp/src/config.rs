use crate::rtt::Floor;
use crate::wire::Ack;
use std::fmt;
use std::str::FromStr;
use steadycast_units::{Bytes, Span};

/// How the window is governed, and how losses are repaired where SACK is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 5681: leaves fast recovery at the first acknowledgment of new data.
    Reno,
    /// RFC 6582: stays until all that was outstanding is acknowledged, one repair per round trip.
    NewReno,
    /// Reno's window; RFC 6675's scoreboard and pipe, whatever [`Config::sack`] says.
    Sack,
    /// RFC 9438's window; repairs as NewReno, or by the scoreboard with [`Config::sack`].
    Cubic,
}

/// How slow start ends before the first loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hystart {
    /// It doesn't.
    Off,
    /// At the first sign of a growing delay or of a train of acknowledgments as long as the round trip, as in Linux.
    Classic,
    /// RFC 9406: by delay, through a conservative slow start that takes a false alarm back.
    PlusPlus,
}

/// Named sets of defaults; [`Config::new`] tells what each holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// The defaults of ns-2.35.
    Ns2,
    /// ns-2 before 2002: a clock of 0.1 s and a minimum time-out of 1 s.
    Ns2Old,
    /// A kernel of today, as far as it is modelled.
    Linux,
}

impl Congestion {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Reno, Self::NewReno, Self::Sack, Self::Cubic];

    /// Its name in a scenario.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::NewReno => "newreno",
            Self::Sack => "sack",
            Self::Cubic => "cubic",
        }
    }
}

impl Preset {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Ns2, Self::Ns2Old, Self::Linux];

    /// Its name in a scenario.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ns2 => "ns2",
            Self::Ns2Old => "ns2old",
            Self::Linux => "linux",
        }
    }
}

/// A name that is none of those there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no {what} “{got}”: use {known}")]
pub struct UnknownName {
    /// What was to be named.
    pub what: &'static str,
    /// What was written.
    pub got: String,
    /// The names there are.
    pub known: &'static str,
}

impl FromStr for Congestion {
    type Err = UnknownName;
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let found = Self::ALL.into_iter().find(|congestion| congestion.name() == text);
        let known = "reno, newreno, sack or cubic";
        found.ok_or_else(|| UnknownName { what: "congestion control", got: text.to_owned(), known })
    }
}

impl FromStr for Preset {
    type Err = UnknownName;
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let found = Self::ALL.into_iter().find(|preset| preset.name() == text);
        found.ok_or_else(|| UnknownName { what: "preset", got: text.to_owned(), known: "ns2, ns2old or linux" })
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Everything that a pair of a sender and a receiver is told. Start from [`Config::new`] and change fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Window law and repair.
    pub congestion: Congestion,
    /// Selective acknowledgments (RFC 2018): the receiver reports blocks, the sender keeps a scoreboard.
    pub sack: bool,
    /// Whether blocks make an acknowledgment longer; ns-2 sends 40 B always.
    pub sack_on_wire: bool,
    /// Size on the wire of a full segment, headers included.
    pub packet: Bytes,
    /// IP and TCP header of a data segment, options included: `packet` less this is payload.
    pub header: Bytes,
    /// Payload to carry; `None`: without end (4 290 000 000 segments). [`crate::Sender::offer`] adds to it.
    pub bytes: Option<Bytes>,
    /// The receiver's advertised window, in segments.
    pub window: u32,
    /// Congestion window after the handshake, in segments.
    pub initial_window: u32,
    /// Congestion window after a pause longer than the time-out, at most (RFC 5681, section 4.1), in segments.
    pub restart_window: u32,
    /// Grow only while the window, and not the application, is the limit (RFC 7661's aim, by Linux's rule).
    pub validated_growth: bool,
    /// Slow-start threshold at the start, in segments; `None`: `window`.
    pub initial_ssthresh: Option<u32>,
    /// Whether a first segment of headers only opens the connection; the window grows from its acknowledgment on.
    pub handshake: bool,
    /// Acknowledge every second segment only, RFC 5681 section 4.2.
    pub delayed_ack: bool,
    /// How long one segment may wait for the second.
    pub delayed_ack_timeout: Span,
    /// That many segments at the start are acknowledged one by one nevertheless.
    pub quick_acks: u32,
    /// Send a new segment for each of the first two duplicate acknowledgments (RFC 3042).
    pub limited_transmit: bool,
    /// Grow by the segments acknowledged, not by the acknowledgments (RFC 3465, without its limit L).
    pub byte_counting: bool,
    /// The window is a whole number, and so is what is acknowledged for each step of it; CUBIC by Linux's formula.
    pub whole_window: bool,
    /// Measure every acknowledgment by the timestamp that it echoes (RFC 7323); otherwise one segment per round trip,
    /// by Karn's rule.
    pub timestamps: bool,
    /// The clock of the round-trip measurement; zero: exact.
    pub tick: Span,
    /// Where in a tick the connection's clock starts: ns-2 draws it. Below `tick`.
    pub tick_phase: Span,
    /// Least time-out.
    pub min_rto: Span,
    /// What `min_rto` applies to.
    pub rto_floor: Floor,
    /// Largest time-out, back-off included.
    pub max_rto: Span,
    /// Time-out before the first measurement.
    pub initial_rto: Span,
    /// Only the first partial acknowledgment of a recovery restarts the timer, so that a window with very many losses
    /// ends in a time-out ("impatient", RFC 6582 section 4); otherwise each does ("slow but steady").
    pub impatient: bool,
    /// NewReno: at most that many segments per acknowledgment during recovery; 0: no limit. ns-2 drops the limit
    /// together with its send jitter (`overhead_`): set 0 where polls are delayed.
    pub recovery_burst: u32,
    /// With SACK: let out segments in proportion to what arrives while the window shrinks (proportional rate reduction,
    /// RFC 6937), instead of waiting until enough has left the network.
    pub proportional_reduction: bool,
    /// With SACK: a repair is lost, and repeated, when something that was sent after it has arrived (RACK, RFC 8985), instead of
    /// waiting for the time-out.
    pub repeat_repairs: bool,
    /// Keep the threshold when the same segment times out again (RFC 5681, equation 4); ns-2 lowers it each time, to 2.
    pub hold_ssthresh: bool,
    /// Segments leave in units that a device cuts (TSO), as Linux sizes them: pairs on most ways. A unit's end is acknowledged at
    /// once.
    pub offload: bool,
    /// Mark segments as ECN-capable and answer marks (RFC 3168), once per round trip.
    pub ecn: bool,
    /// How slow start may end without a loss.
    pub hystart: Hystart,
    /// Fast convergence of CUBIC (RFC 9438, section 4.7).
    pub fast_convergence: bool,
}

/// Why a [`Config`] makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No room for payload.
    #[error("a packet of {packet} has no room for payload behind {header} of headers")]
    NoPayload {
        /// [`Config::packet`].
        packet: Bytes,
        /// [`Config::header`].
        header: Bytes,
    },
    /// A window in which nothing can be sent, or that the numbers can't hold.
    #[error("{what} is {got} segments: it must be 1 … {max}")]
    Window {
        /// Which.
        what: &'static str,
        /// What it is.
        got: u32,
        /// The largest possible.
        max: u32,
    },
    /// Time-outs in the wrong order.
    #[error("the minimum time-out {min} is longer than the maximum {max}")]
    Timeouts {
        /// [`Config::min_rto`].
        min: Span,
        /// [`Config::max_rto`].
        max: Span,
    },
    /// More than can be numbered.
    #[error("{0} is more than can be numbered: at most 4 290 000 000 segments")]
    TooLong(Bytes),
}

/// Windows are at most this, in segments.
pub const MAX_WINDOW: u32 = 1 << 20;
/// Numbers end here: beyond it there is room for a window.
pub(crate) const MAX_SEGMENTS: u32 = 4_290_000_000;

impl Config {
    /// The defaults of `preset` with the window law `congestion`.
    ///
    /// | field | `Ns2` | `Ns2Old` | `Linux` |
    /// |---|---|---|---|
    /// | `sack` | with `Sack` and `Cubic` only | same | always |
    /// | `sack_on_wire` | no | same | yes |
    /// | `packet`, `header` | 1040 B, 40 B | same | 1500 B, 52 B |
    /// | `window` | 20 | same | 4096 (6 MB) |
    /// | `initial_window`, `initial_ssthresh` | 2, the window | same | 10, infinite |
    /// | `restart_window`, `validated_growth` | 1, no | same | 10, yes |
    /// | `handshake` | yes (40 B, then the window opens) | same | yes |
    /// | `delayed_ack`, its timer, `quick_acks` | off, 100 ms, 0 | same | on, 40 ms, 16 |
    /// | `limited_transmit` | on: ns-2.35 has `singledup_ 1` | same | on |
    /// | `byte_counting`, `whole_window` | no | same | yes |
    /// | `timestamps` | no | same | yes |
    /// | `tick` | 10 ms | 100 ms | exact |
    /// | `min_rto`, `rto_floor` | 200 ms, `Whole` | 1 s, `Whole` | 200 ms, `Variance` |
    /// | `max_rto`, `initial_rto` | 60 s, 3 s | same | 120 s, 1 s |
    /// | `impatient`, `recovery_burst` | yes, 2 | same | no, none |
    /// | `proportional_reduction` | no | same | yes |
    /// | `repeat_repairs` | no | same | yes |
    /// | `hold_ssthresh` | no | same | yes |
    /// | `offload` | no | same | yes |
    /// | `hystart` | off | same | classic, with `Cubic` |
    /// | `ecn` | off | same | off |
    ///
    /// The ns-2 columns were read from the variables of a running `ns` (Debian's 2.35+dfsg) and from its behaviour.
    pub fn new(preset: Preset, congestion: Congestion) -> Self {
        let ns2 = Self {
            congestion,
            sack: matches!(congestion, Congestion::Sack | Congestion::Cubic),
            sack_on_wire: false,
            packet: Bytes::new(1040),
            header: Bytes::new(40),
            bytes: None,
            window: 20,
            initial_window: 2,
            restart_window: 1,
            validated_growth: false,
            initial_ssthresh: None,
            handshake: true,
            delayed_ack: false,
            delayed_ack_timeout: Span::millis(100),
            quick_acks: 0,
            limited_transmit: true,
            byte_counting: false,
            whole_window: false,
            timestamps: false,
            tick: Span::millis(10),
            tick_phase: Span::ZERO,
            min_rto: Span::millis(200),
            rto_floor: Floor::Whole,
            max_rto: Span::secs(60),
            initial_rto: Span::secs(3),
            impatient: true,
            recovery_burst: 2,
            proportional_reduction: false,
            repeat_repairs: false,
            hold_ssthresh: false,
            offload: false,
            ecn: false,
            hystart: Hystart::Off,
            fast_convergence: true,
        };
        match preset {
            Preset::Ns2 => ns2,
            Preset::Ns2Old => Self { tick: Span::millis(100), min_rto: Span::secs(1), ..ns2 },
            Preset::Linux => Self {
                sack: true,
                sack_on_wire: true,
                packet: Bytes::new(1500),
                header: Bytes::new(52),
                window: 4096,
                initial_window: 10,
                restart_window: 10,
                validated_growth: true,
                initial_ssthresh: Some(MAX_WINDOW),
                delayed_ack: true,
                delayed_ack_timeout: Span::millis(40),
                quick_acks: 16,
                byte_counting: true,
                whole_window: true,
                timestamps: true,
                tick: Span::ZERO,
                rto_floor: Floor::Variance,
                max_rto: Span::secs(120),
                initial_rto: Span::secs(1),
                impatient: false,
                recovery_burst: 0,
                proportional_reduction: true,
                repeat_repairs: true,
                hold_ssthresh: true,
                offload: true,
                hystart: if congestion == Congestion::Cubic { Hystart::Classic } else { Hystart::Off },
                ..ns2
            },
        }
    }

    /// Whether the fields fit together. [`crate::Sender::new`] and [`crate::Receiver::new`] don't ask: they put what is
    /// out of range to the nearest bound.
    ///
    /// # Errors
    /// The first that doesn't.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.packet <= self.header {
            return Err(ConfigError::NoPayload { packet: self.packet, header: self.header });
        }
        for (what, got) in [("window", self.window), ("initial_window", self.initial_window)] {
            if got == 0 || got > MAX_WINDOW {
                return Err(ConfigError::Window { what, got, max: MAX_WINDOW });
            }
        }
        if self.min_rto > self.max_rto {
            return Err(ConfigError::Timeouts { min: self.min_rto, max: self.max_rto });
        }
        match self.bytes {
            Some(bytes) if bytes.get().div_ceil(self.payload()) > u64::from(MAX_SEGMENTS) => {
                Err(ConfigError::TooLong(bytes))
            }
            _ => Ok(()),
        }
    }

    /// Size on the wire of this acknowledgment: with `sack_on_wire`, n blocks add 4 + 8n B.
    pub fn len_of(&self, ack: &Ack) -> Bytes {
        let blocks = ack.sacks.iter().filter(|block| !block.is_empty()).count() as u64;
        if blocks == 0 || !self.sack_on_wire { self.header } else { self.header + Bytes::new(4 + 8 * blocks) }
    }

    pub(crate) fn payload(&self) -> u64 {
        self.packet.saturating_sub(self.header).get().max(1)
    }

    pub(crate) fn uses_sack(&self) -> bool {
        self.sack || self.congestion == Congestion::Sack
    }
}
