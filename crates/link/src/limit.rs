use crate::Service;
use serde_json::{Value as Json, json};
use steadycast_settings::tree::{Item, Value};
use steadycast_settings::{Declared, Findings, FromToml, Packets, ToToml, packets};
use steadycast_units::{Bytes, QuantityError, Rate, Span};

/// The limit of a queue's length, or a threshold of an AQM. The limit of a queue includes the packet on the
/// transmitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A number of packets.
    Packets(u32),
    /// A number of bytes.
    Bytes(Bytes),
    /// The bytes that the link sends in this time at its nominal rate, but at least one MTU. The nominal rate is the
    /// first rate above 0, or the mean rate of a file.
    Time(Span),
}

impl Limit {
    /// Returns the limit in packets or bytes for a link with the nominal rate `rate`. If the rate is unlimited, a limit
    /// in time is no limit.
    pub(crate) fn on(self, rate: Option<Rate>, mtu: Bytes) -> Self {
        match (self, rate) {
            // Allow at least one MTU, because otherwise no packet would fit at a low rate.
            (Self::Time(span), Some(rate)) => Self::Bytes(rate.over(span).max(mtu)),
            (Self::Time(_), None) => Self::Packets(u32::MAX),
            (limit, _) => limit,
        }
    }

    /// Returns whether a packet of `size` fits if `waiting` packets with `bytes` bytes in total are queued.
    #[inline]
    pub(crate) fn fits(self, waiting: usize, bytes: u64, size: Bytes) -> bool {
        match self {
            Self::Packets(most) => waiting < most as usize,
            Self::Bytes(most) => bytes + size.get() <= most.get(),
            // This case does not occur, because `Limit::on` has converted a limit that is a time to bytes or packets.
            Self::Time(_) => true,
        }
    }
}

impl Service {
    /// Returns the nominal rate, which converts a limit that is a time to bytes. It is the first rate above 0, or the
    /// mean rate of a file. Returns `None` if the rate is unlimited.
    pub(crate) fn nominal(&self) -> Option<Rate> {
        match self {
            Self::Unlimited => None,
            Self::Rate(steps) => {
                // Skip rates of 0, because the link may begin with an outage.
                Some(steps.iter().map(|(_, rate)| *rate).find(|rate| *rate > Rate::ZERO).unwrap_or_default())
            }
            Self::Table { mean, .. } => Some(*mean),
            Self::Trace(trace) => trace.mean_rate(),
        }
    }
}

impl Declared for Limit {
    fn schema() -> Json {
        let pattern = r"^\s*[0-9.e+-]+\s*(p|B|kB|MB|GB|KiB|MiB|ns|us|µs|ms|s|min|h)\s*$";
        json!({ "type": "string", "pattern": pattern, "examples": ["50p", "64kB", "100ms"] })
    }
}

impl FromToml for Limit {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        const FORMS: &str = "write for example \"50p\" (packets), \"64kB\" or \"100ms\" (at the link's rate)";
        let text = item.text().unwrap_or_default();
        if text.trim().ends_with('p') && packets(text).is_some() {
            let Packets(n) = Packets::read(item, out)?;
            if n < 1.0 || n > f64::from(u32::MAX) || n != n.trunc() {
                let what = format!("{} is not a whole number of packets from 1", item.shown());
                return out.refuse(&item.at, what, "write for example \"50p\"");
            }
            return Some(Self::Packets(n as u32));
        }
        let limit = match (text.parse::<Bytes>(), text.parse::<Span>()) {
            (Ok(bytes), _) => Self::Bytes(bytes),
            (_, Ok(span)) => Self::Time(span),
            // The text has a unit such as kB, so it can't be a time. Its number is out of range.
            (Err(QuantityError::Range { .. }), _) => {
                let what = format!("{} is out of range", item.shown());
                return out.refuse(&item.at, what, "a queue limit is above 0 and below 1000 GB");
            }
            _ => {
                return out.refuse(&item.at, format!("{} is not a queue limit", item.shown()), FORMS);
            }
        };
        if matches!(limit, Self::Bytes(Bytes::ZERO) | Self::Time(Span::ZERO)) {
            return out.refuse(&item.at, "nothing fits into it", FORMS);
        }
        Some(limit)
    }
}

impl ToToml for Limit {
    fn value(&self) -> Option<Value> {
        Some(Value::Text(match self {
            Self::Packets(n) => format!("{n}p"),
            Self::Bytes(bytes) => bytes.to_string(),
            Self::Time(span) => span.to_string(),
        }))
    }
}
