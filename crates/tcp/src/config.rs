use crate::rtt::RtoFloor;
use crate::wire::Ack;
use serde_json::{Value as Json, json};
use std::fmt;
use steadycast_settings::tree::{Item, Value};
use steadycast_settings::{Declared, Findings, FromToml, Packets, Settings, ToToml, field, settings, words};
use steadycast_units::{Bytes, Seed, Span};

/// The congestion control. It also determines the loss recovery if SACK is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 5681: fast recovery ends at the first acknowledgment of new data.
    Reno,
    /// RFC 6582: fast recovery ends when all that was outstanding is acknowledged.
    NewReno,
    /// The window follows Reno. Losses are recovered with RFC 6675's scoreboard, even if [`Config::sack`] is false.
    Sack,
    /// The window follows RFC 9438. Losses are recovered with RFC 6675 if [`Config::sack`] is true, otherwise as with
    /// NewReno.
    Cubic,
    /// BBR version 3 (draft-ietf-ccwg-bbr), always with SACK and pacing.
    Bbr,
    /// BBR version 1 (draft-cardwell-iccrg-bbr-congestion-control-00), always with SACK and pacing.
    Bbr1,
    /// RFC 8257: the window is reduced in proportion to the fraction of marked data.
    Dctcp,
    /// TCP Prague (draft-briscoe-iccrg-prague-congestion-control): DCTCP for L4S with pacing.
    Prague,
    /// A congestion control that only a kernel provides. The value is its name. [`Config::check`] rejects it.
    Kernel(&'static str),
}

/// What can end slow start before the first loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hystart {
    /// Only a loss ends slow start.
    Off,
    /// HyStart as in Linux. Slow start ends when the delay increases, or when an ACK train lasts half an RTT.
    Classic,
    /// HyStart++ (RFC 9406). When the delay increases, conservative slow start begins.
    PlusPlus,
}

words! {
    /// A named set of defaults. See [`Config::new`].
    pub enum Preset {
        /// A current Linux kernel, as far as this model covers it.
        Linux = "linux",
        /// The defaults of ns-2.35.
        Ns2 = "ns2",
        /// ns-2 before 2002: a clock of 0.1 s and a minimum time-out of 1 s.
        Ns2Old = "ns2old",
    }
}

impl Preset {
    /// All presets.
    pub const ALL: [Self; 3] = [Self::Ns2, Self::Ns2Old, Self::Linux];

    const fn congestion(self) -> Congestion {
        match self {
            Self::Ns2 | Self::Ns2Old => Congestion::Reno,
            Self::Linux => Congestion::Cubic,
        }
    }
}

/// The congestion controls of Linux that this crate does not model.
const KERNEL: &[&str] = &[
    "bic",
    "cdg",
    "highspeed",
    "htcp",
    "hybla",
    "illinois",
    "lp",
    "nv",
    "scalable",
    "vegas",
    "veno",
    "westwood",
    "yeah",
];

impl Congestion {
    /// All congestion controls that this crate models.
    pub const ALL: [Self; 8] =
        [Self::Reno, Self::NewReno, Self::Sack, Self::Cubic, Self::Bbr, Self::Bbr1, Self::Dctcp, Self::Prague];

    /// Returns the name that scenarios and the Linux kernel use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::NewReno => "newreno",
            Self::Sack => "sack",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Bbr1 => "bbr1",
            Self::Dctcp => "dctcp",
            Self::Prague => "prague",
            Self::Kernel(name) => name,
        }
    }

    fn known() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain(KERNEL.iter().copied().map(Self::Kernel))
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Declared for Congestion {
    fn schema() -> Json {
        json!({ "enum": Self::known().map(Self::name).collect::<Vec<_>>() })
    }
}

impl FromToml for Congestion {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        let name = String::read(item, out)?;
        let found = Self::known().find(|congestion| congestion.name() == name);
        if found.is_none() {
            let known: Vec<_> = Self::known().map(Self::name).collect();
            out.unknown_name(&item.at, "congestion control", &name, &known);
        }
        if let Some(Self::Kernel(name)) = found {
            let simulated = Self::ALL.map(Self::name).join(", ");
            let what = format!("\"{name}\" is a kernel's, which only emulate runs");
            out.warn(&item.at, what, format!("to simulate it, choose from: {simulated}"));
        }
        found
    }
}

impl ToToml for Congestion {
    fn value(&self) -> Option<Value> {
        Some(Value::Text(self.name().to_owned()))
    }
}

impl Declared for Hystart {
    fn schema() -> Json {
        json!({ "anyOf": [{ "type": "boolean" }, { "const": "rfc9406" }] })
    }
}

impl FromToml for Hystart {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        match item.text() {
            Some("rfc9406") => Some(Self::PlusPlus),
            _ => bool::read(item, out).map(|on| if on { Self::Classic } else { Self::Off }),
        }
    }
}

impl ToToml for Hystart {
    fn value(&self) -> Option<Value> {
        Some(match self {
            Self::Off => Value::Bool(false),
            Self::Classic => Value::Bool(true),
            Self::PlusPlus => Value::Text("rfc9406".into()),
        })
    }
}

/// A window in segments. In a scenario file it is written, for example, as "20p".
#[derive(Clone, Copy, Debug)]
struct Segments(u32);

impl From<Segments> for u32 {
    fn from(segments: Segments) -> Self {
        segments.0
    }
}

impl From<u32> for Segments {
    fn from(segments: u32) -> Self {
        Self(segments)
    }
}

impl Declared for Segments {
    fn schema() -> Json {
        Packets::schema()
    }
}

impl FromToml for Segments {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        let Packets(n) = Packets::read(item, out)?;
        let fine = (1.0..=1e6).contains(&n) && n == n.trunc();
        if !fine {
            out.problem(
                &item.at,
                format!("{n} packets is out of range"),
                "write a whole number from \"1p\" to \"1000000p\"",
            );
        }
        fine.then_some(Self(n as u32))
    }
}

impl ToToml for Segments {
    fn value(&self) -> Option<Value> {
        Packets(f64::from(self.0)).value()
    }
}

fn takes_time(span: &Span) -> Option<(String, String)> {
    span.is_zero().then(|| ("a time of 0".into(), "write a time above 0".into()))
}

settings! {
    /// The settings of a TCP sender and its receiver. Create them with [`Config::new`], or read them from TOML.
    Config checked by fits_together {
        /// The TCP implementation that is modelled: linux (a current kernel; default), ns2 (ns-2.35) or ns2old (ns-2
        /// before 2002). It sets the defaults of the other keys, and details that have no key, such as when recovery
        /// ends, what a partial acknowledgment sends, and how an idle window restarts.
        preset: Preset,
        /// The congestion control: reno, newreno, sack, cubic, bbr (version 3), bbr1, dctcp or prague. Emulated
        /// runs also accept the kernel's other congestion controls. Default with preset linux: cubic, otherwise reno.
        congestion: Congestion,
        /// The receiver's advertised window, in packets; default with preset linux 4194p, otherwise 20p.
        window: u32 as Segments,
        /// The congestion window after the handshake, in packets; default with preset linux 10p, otherwise 2p.
        initial_window: u32 as Segments,
        /// The minimum retransmission time-out; default "200ms", with preset ns2old "1s".
        min_rto: Span where (takes_time),
        /// The maximum retransmission time-out, including back-off; default with preset linux "120s", otherwise "60s".
        max_rto: Span where (takes_time),
        /// The retransmission time-out before the first round-trip sample; default with preset linux "1s", otherwise
        /// "3s".
        init_rto: Span where (takes_time),
        /// The granularity of the sender's clock, with which round-trip times are measured; "0s" is exact. Default with
        /// preset linux "0s", with ns2 "10ms", with ns2old "100ms".
        tick: Span,
        /// Whether the receiver acknowledges only every second segment (RFC 5681, section 4.2); default with preset
        /// linux true, otherwise false.
        delayed_ack: bool,
        /// Whether TCP uses selective acknowledgments (RFC 2018); default with preset linux true, otherwise only with
        /// congestion sack, bbr and bbr1.
        sack: bool,
        /// Whether each acknowledgment gives a round-trip sample, by timestamps (RFC 7323). With false, one segment per
        /// round trip is measured, by Karn's rule. Default with preset linux true, otherwise false.
        timestamps: bool,
        /// Whether segments are ECN-capable (RFC 3168). A mark then reduces the window once per round trip, with dctcp
        /// and prague in proportion to the share of marked segments. With these two it is true by default. On bbr and
        /// bbr1 it has no effect.
        ecn: bool,
        /// How slow start may end before a loss, with congestion cubic: true for HyStart as in Linux (default with
        /// preset linux), "rfc9406" for HyStart++, or false for neither (default with other presets).
        hystart: Hystart,
        /// Whether SACK blocks make an acknowledgment longer. In ns-2, an acknowledgment always has 40 B.
        [inner] sack_on_wire: bool,
        /// Size of a full segment on the wire, including headers.
        [inner] packet: Bytes,
        /// Size of the IP and TCP headers of a data segment, including options. The payload is `packet` minus this
        /// size.
        [inner] header: Bytes,
        /// Amount of payload to send. `None` means endless data (4 290 000 000 segments). [`crate::Sender::offer`] adds
        /// to this amount.
        [inner] bytes: Option<Bytes>,
        /// Maximum window after an idle time that exceeds the time-out, in segments (RFC 5681, section 4.1).
        [inner] restart_window: u32,
        /// Whether the window grows only if it limited the sender. RFC 7661 has the same aim, but the rule is Linux's.
        [inner] validated_growth: bool,
        /// The initial slow-start threshold in segments. With `None`, the threshold is `window`.
        [inner] initial_ssthresh: Option<u32>,
        /// How long the receiver may delay an acknowledgment while it waits for a second segment.
        [inner] delayed_ack_timeout: Span,
        /// Number of segments at the start that are acknowledged without delay.
        [inner] quick_acks: u32,
        /// Whether the window grows by the number of acknowledged segments instead of the number of acknowledgments.
        /// This is RFC 3465 without its limit L.
        [inner] byte_counting: bool,
        /// Whether the window is a whole number and grows in whole segments. CUBIC then uses Linux's formula.
        [inner] whole_window: bool,
        /// The phase of the connection's clock within a tick. It is less than `tick`. In ns-2 the phase is random.
        [inner] tick_phase: Span,
        /// The part of the time-out that `min_rto` limits.
        [inner] rto_floor: RtoFloor,
        /// Whether only the first partial acknowledgment of a recovery restarts the timer. Then a window with many
        /// losses ends in a time-out ("impatient", RFC 6582, section 4). If false, each partial acknowledgment restarts
        /// the timer ("slow but steady").
        [inner] impatient: bool,
        /// Used by NewReno: the maximum number of segments sent per acknowledgment during recovery. 0 means no limit,
        /// as in ns-2 with send jitter (`overhead_`).
        [inner] recovery_burst: u32,
        /// Used with SACK: whether the window is reduced gradually, by proportional rate reduction (RFC 6937). The
        /// sender then sends in proportion to what is delivered. If false, it waits until the pipe is small enough.
        [inner] proportional_reduction: bool,
        /// Used with SACK: whether a retransmission is repeated once a segment that was sent later has arrived (RACK,
        /// RFC 8985). If false, it is repeated only after a time-out.
        [inner] repeat_repairs: bool,
        /// Whether the slow-start threshold stays the same when one segment times out again (RFC 5681, equation 4).
        /// ns-2 lowers the threshold each time, down to 2.
        [inner] hold_ssthresh: bool,
        /// Whether segments leave in units that the network device splits (TSO). As in Linux, a unit has two segments
        /// on most paths.
        [inner] offload: bool,
        /// Seed of BBR's random numbers, which determine when BBR probes.
        [inner] draws: Seed,
    }
}

fn fits_together(config: &Config, item: &Item, out: &mut Findings) {
    let Config { min_rto, max_rto, init_rto, .. } = config;
    // Report only keys that the file sets, because only they have a place in the file.
    for (key, value) in [("min_rto", min_rto), ("init_rto", init_rto)] {
        if let Some(said) = item.get(key).filter(|_| value > max_rto) {
            out.problem(&said.at, format!("{key} is above max_rto, {max_rto}"), "make it smaller");
        }
    }
    if let Some(said) = item.get("max_rto").filter(|_| max_rto < min_rto || max_rto < init_rto) {
        let what = format!("below min_rto {min_rto} or init_rto {init_rto}");
        out.problem(&said.at, what, "make it larger");
    }
    if let Some(said) = item.get("sack").filter(|_| config.congestion == Congestion::Sack && !config.sack) {
        let what = "congestion \"sack\" without selective acknowledgments";
        out.problem(&said.at, what, "leave it out, or take \"newreno\"");
    }
}

/// The reason why this crate can't simulate a [`Config`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The congestion control exists only in kernels.
    #[error("the congestion control {0} is a kernel's alone")]
    NotModelled(&'static str),
    /// The payload needs more segments than there are sequence numbers.
    #[error("{0} is more than can be numbered: at most 4 290 000 000 segments")]
    TooLong(Bytes),
}

/// The maximum window of a Linux receiver, in segments of 1500 B: 6 MiB (`tcp_rmem`).
pub const LINUX_WINDOW: u32 = 4194;
/// The largest window, in segments.
pub const MAX_WINDOW: u32 = 1 << 20;
/// Number of available sequence numbers. The sum of a sequence number and a window must fit in 32 bits.
pub(crate) const MAX_SEGMENTS: u32 = 4_290_000_000;

impl Config {
    /// Returns the defaults of `preset` with the congestion control `congestion`.
    ///
    /// | field | `Ns2` | `Ns2Old` | `Linux` |
    /// |---|---|---|---|
    /// | `sack` | with `Sack` only (`Bbr` and `Bbr1` use SACK even so) | same | always |
    /// | `sack_on_wire` | no | same | yes |
    /// | `packet`, `header` | 1040 B, 40 B | same | 1500 B, 52 B |
    /// | `window` | 20 | same | 4194 (6 MiB, the largest of `tcp_rmem`) |
    /// | `initial_window`, `initial_ssthresh` | 2, the window | same | 10, infinite |
    /// | `restart_window`, `validated_growth` | 1, no | same | 10, yes |
    /// | `delayed_ack`, its timer, `quick_acks` | off, 100 ms, 0 | same | on, 40 ms, 16 |
    /// | `byte_counting`, `whole_window` | no | same | yes |
    /// | `timestamps` | no | same | yes |
    /// | `tick` | 10 ms | 100 ms | exact |
    /// | `min_rto`, `rto_floor` | 200 ms, `Whole` | 1 s, `Whole` | 200 ms, `Variance` |
    /// | `max_rto`, `init_rto` | 60 s, 3 s | same | 120 s, 1 s |
    /// | `impatient`, `recovery_burst` | yes, 2 | same | no, none |
    /// | `proportional_reduction` | no | same | yes |
    /// | `repeat_repairs` | no | same | yes |
    /// | `hold_ssthresh` | no | same | yes |
    /// | `offload` | no | same | yes |
    /// | `hystart` | off | same | classic, with `Cubic` |
    /// | `ecn` | with `Dctcp` and `Prague` | same | same |
    ///
    /// The ns-2 columns come from a running `ns` (Debian's 2.35+dfsg).
    pub fn new(preset: Preset, congestion: Congestion) -> Self {
        let ns2 = Self {
            preset,
            congestion,
            sack: congestion == Congestion::Sack,
            sack_on_wire: false,
            packet: Bytes::new(1040),
            header: Bytes::new(40),
            bytes: None,
            window: 20,
            initial_window: 2,
            restart_window: 1,
            validated_growth: false,
            initial_ssthresh: None,
            delayed_ack: false,
            delayed_ack_timeout: Span::millis(100),
            quick_acks: 0,
            byte_counting: false,
            whole_window: false,
            timestamps: false,
            tick: Span::millis(10),
            tick_phase: Span::ZERO,
            min_rto: Span::millis(200),
            rto_floor: RtoFloor::Whole,
            max_rto: Span::secs(60),
            init_rto: Span::secs(3),
            impatient: true,
            recovery_burst: 2,
            proportional_reduction: false,
            repeat_repairs: false,
            hold_ssthresh: false,
            offload: false,
            ecn: matches!(congestion, Congestion::Dctcp | Congestion::Prague),
            hystart: Hystart::Off,
            draws: Seed(0),
        };
        match preset {
            Preset::Ns2 => ns2,
            Preset::Ns2Old => Self { tick: Span::millis(100), min_rto: Span::secs(1), ..ns2 },
            Preset::Linux => Self {
                sack: true,
                sack_on_wire: true,
                packet: Bytes::new(1500),
                header: Bytes::new(52),
                window: LINUX_WINDOW,
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
                rto_floor: RtoFloor::Variance,
                max_rto: Span::secs(120),
                init_rto: Span::secs(1),
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

    /// Reads the keys of a TCP flow. A missing key gets the default of the preset. Problems are added to `out`. Unknown
    /// keys are ignored.
    pub fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        let preset = field::<Preset>(item, "preset", &[], out);
        let congestion = field::<Congestion>(item, "congestion", &[], out);
        let (Ok(preset), Ok(congestion)) = (preset, congestion) else { return None };
        let preset = preset.unwrap_or(Preset::Linux);
        let base = Self::new(preset, congestion.unwrap_or(preset.congestion()));
        let mut config = Self::fill(item, Some(&base), out)?;
        // Only CUBIC uses HyStart, so turn it off for other congestion controls.
        if config.congestion != Congestion::Cubic {
            config.hystart = Hystart::Off;
        }
        Some(config)
    }

    /// Checks that this crate can simulate the connection. [`crate::Sender::new`] and [`crate::Receiver::new`] do not
    /// return errors, but clamp invalid values.
    ///
    /// # Errors
    /// Returns the first problem that is found.
    pub fn check(&self) -> Result<(), ConfigError> {
        if let Congestion::Kernel(name) = self.congestion {
            return Err(ConfigError::NotModelled(name));
        }
        match self.bytes {
            Some(bytes) if bytes.get().div_ceil(self.payload()) > u64::from(MAX_SEGMENTS) => {
                Err(ConfigError::TooLong(bytes))
            }
            _ => Ok(()),
        }
    }

    /// Returns the size of an acknowledgment on the wire. With `sack_on_wire`, n SACK blocks add 4 + 8n bytes.
    pub fn len_of(&self, ack: &Ack) -> Bytes {
        let blocks = ack.sacks.iter().filter(|block| !block.is_empty()).count() as u64;
        if blocks == 0 || !self.sack_on_wire { self.header } else { self.header + Bytes::new(4 + 8 * blocks) }
    }

    pub(crate) fn payload(&self) -> u64 {
        self.packet.saturating_sub(self.header).get().max(1)
    }

    pub(crate) fn uses_sack(&self) -> bool {
        // BBR always uses SACK, because it reads the scoreboard.
        self.sack || matches!(self.congestion, Congestion::Sack | Congestion::Bbr | Congestion::Bbr1)
    }

    /// Returns a copy. Options that the congestion control replaces or ignores are turned off in the copy.
    pub(crate) fn as_modelled(&self) -> Self {
        let mut config = self.clone();
        match self.congestion {
            Congestion::Bbr | Congestion::Bbr1 => {
                // BBR sets the window and the bursts itself, also in recovery. It ignores ECN marks.
                (config.ecn, config.proportional_reduction, config.offload) = (false, false, false);
            }
            // Prague sets the bursts by pacing, and its window is not a whole number.
            Congestion::Prague => (config.offload, config.whole_window) = (false, false),
            _ => {}
        }
        config
    }
}
