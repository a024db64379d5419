//! Random early detection (Floyd and Jacobson 1993).

use crate::queue::{Arrival, Discipline, EnqueueAqm, needs_rate};
use crate::{Drop, Ecn, Limit, LinkProperties};
use steadycast_settings::tree::Item;
use steadycast_settings::{Findings, Kind, Settings, Within, field, settings, words};
use steadycast_units::{Bytes, Chance, Rate, Span};

words! {
    /// The source of RED parameters that are not set.
    pub enum RedPreset {
        /// Derived from the link's rate and delay, as ns-2.35 configures it by itself.
        Ns2 = "ns2",
        /// 5 and 15 packets, weight 0.002.
        Classic = "classic",
    }
}

settings! {
    /// Random early detection (Floyd and Jacobson 1993). `min` and `max` limit the average queue length, in the same
    /// unit. From `max` on, packets are dropped even if they are ECN-capable.
    #[derive(Copy)]
    Red checked by thresholds {
        /// The maximum length of the queue, in packets, bytes or time.
        limit: Limit = Limit::Packets(50),
        /// The defaults of `min`, `max` and `weight`. ns2: derived from the link's rate and delay, as in ns-2. classic:
        /// "5p", "15p" and 0.002.
        preset: RedPreset = RedPreset::Ns2,
        /// The average queue length above which packets are dropped, with a probability that rises from 0; default:
        /// that of `preset`.
        min: Limit,
        /// The average queue length at which the drop probability is `max_p`; default: that of `preset`.
        max: Limit,
        /// The drop probability at an average queue length of `max`.
        max_p: f64 where (share) = 0.1,
        /// The weight of a new sample in the average queue length; default: that of `preset`.
        weight: f64 where (share),
        /// Whether the drop probability rises linearly from `max_p` to 1 between `max` and twice `max`. With false, it
        /// is 1 above `max`.
        gentle: bool = true,
        /// Whether ECN-capable packets are marked instead of dropped.
        ecn: bool = false,
        /// The mean packet size, with which idle times and limits in bytes are converted to packets; default with
        /// preset ns2 "500B", with classic "1000B".
        mean_packet: Bytes where (PACKET),
    }
}

const PACKET: Within<Bytes> =
    Within { least: Bytes::new(1), most: Bytes::new(65_535), remedy: "from \"1B\" to \"65535B\"" };

fn share(value: &f64) -> Option<(String, String)> {
    let fine = *value > 0.0 && *value <= 1.0;
    (!fine).then(|| (format!("{value} is out of range"), "write a number above 0 and at most 1".into()))
}

fn thresholds(red: &Red, item: &Item, out: &mut Findings) {
    let at = item.get("max").or(item.get("min")).map_or_else(|| item.at.below("max"), |said| said.at.clone());
    let ordered = match (red.min, red.max) {
        (Limit::Packets(min), Limit::Packets(max)) => min < max,
        (Limit::Bytes(min), Limit::Bytes(max)) => min < max,
        (Limit::Time(min), Limit::Time(max)) => min < max,
        _ => {
            let unit = |limit| match limit {
                Limit::Packets(_) => "packets",
                Limit::Bytes(_) => "bytes",
                Limit::Time(_) => "time",
            };
            let what = format!("one threshold in {}, the other in {}", unit(red.min), unit(red.max));
            out.problem(&at, what, "write min and max in the same unit");
            return;
        }
    };
    if !ordered {
        out.problem(&at, "min is not below max", "write for example min = \"5p\", max = \"15p\"");
    }
}

/// Mean packet size that ns-2 uses by default.
const NS2_MEAN_PACKET: Bytes = Bytes::new(500);

impl Red {
    const CLASSIC: Self = Self {
        limit: Limit::Packets(50),
        preset: RedPreset::Classic,
        min: Limit::Packets(5),
        max: Limit::Packets(15),
        max_p: 0.1,
        weight: 0.002,
        gentle: true,
        ecn: false,
        mean_packet: Bytes::new(1000),
    };

    /// Returns the parameters that ns-2.35 computes by itself (`queue/red.cc`):
    ///
    /// ```text
    /// min = max(5, C · 5 ms / 2) packets of the mean size    max = 3 min
    /// w = 1 − exp(−1 / (10 · rtt · C)),  rtt = max(0.1 s, 3 (delay + 1/C))
    /// ```
    /// Here C is the link's rate in packets of the mean size per second.
    fn ns2(rate: Rate, delay: Span, mean_packet: Bytes) -> Self {
        let mean = mean_packet.as_f64().max(1.0);
        let packets = (rate.as_bytes_per_s() / mean).max(1e-9);
        let min = ((packets * 0.005 / 2.0).max(5.0) * mean + 0.5) as u64;
        let rtt = (3.0 * (delay.as_secs_f64() + 1.0 / packets)).max(0.1);
        Self {
            preset: RedPreset::Ns2,
            min: Limit::Bytes(Bytes::new(min)),
            max: Limit::Bytes(Bytes::new(3 * min)),
            weight: 1.0 - libm::exp(-1.0 / (10.0 * rtt * packets)),
            mean_packet,
            ..Self::CLASSIC
        }
    }
}

impl Kind<LinkProperties> for Red {
    fn read_for(item: &Item, line: &LinkProperties, out: &mut Findings) -> Option<Self> {
        let preset = field::<RedPreset>(item, "preset", &[], out).ok()?.unwrap_or(RedPreset::Ns2);
        let mean_packet = field::<Bytes>(item, "mean_packet", &[&PACKET], out).ok()?;
        let explicit = ["min", "max", "weight"].iter().all(|key| item.get(key).is_some());
        let base = match (preset, line.rate) {
            (RedPreset::Classic, _) => Self::CLASSIC,
            (RedPreset::Ns2, None) if !explicit => {
                let what =
                    format!("RED's ns2 parameters derive from the rate of {}, which has none, or 0", line.called);
                let remedy = format!("give {} a rate above 0, or write preset = \"classic\"", line.called);
                return out.refuse(&item.at, what, remedy);
            }
            (RedPreset::Ns2, rate) => {
                // Derive parameters from 1 Mb/s if the link has no rate. They are not used, because such a link
                // requires explicit values.
                Self::ns2(rate.unwrap_or(Rate::mbps(1)), line.delay, mean_packet.unwrap_or(NS2_MEAN_PACKET))
            }
        };
        let red = Self::fill(item, Some(&base), out)?;
        let fine = needs_rate(red.min, "min", item, line, out) & needs_rate(red.max, "max", item, line, out);
        fine.then_some(red)
    }
}

impl Discipline for Red {
    fn limit(&self) -> Limit {
        self.limit
    }

    fn on_arrival(&self, rate: Option<Rate>, mtu: Bytes) -> Option<Box<dyn EnqueueAqm>> {
        // Convert bytes to packets of the mean size.
        let packets = |limit: Limit| match limit.on(rate, mtu) {
            Limit::Bytes(bytes) => bytes.as_f64() / self.mean_packet.as_f64(),
            Limit::Packets(n) => f64::from(n),
            Limit::Time(_) => f64::INFINITY,
        };
        let by_bytes = matches!(self.min.on(rate, mtu), Limit::Bytes(_));
        let (min, max) = (packets(self.min), packets(self.max));
        Some(Box::new(State { red: *self, nominal: rate, min, max, by_bytes, average: 0.0, since: None }))
    }
}

#[derive(Debug)]
struct State {
    red: Red,
    /// Rate of the link, or mean rate of its trace.
    nominal: Option<Rate>,
    /// Average queue length below which no packet is dropped, in packets (of the mean size if `by_bytes`).
    min: f64,
    /// Average queue length at which the drop probability is `max_p`, in the same unit as `min`.
    max: f64,
    /// Whether the average queue length counts bytes. The drop probability is then proportional to the packet's size.
    by_bytes: bool,
    average: f64,
    /// Number of packets since the last drop. `None` while the average is below `min`.
    since: Option<u64>,
}

impl EnqueueAqm for State {
    fn admit(&mut self, packet: &Arrival, chance: &mut Chance) -> Result<Ecn, Drop> {
        // Update the average even if the packet does not fit.
        let early = self.early(packet, chance);
        if !packet.room {
            self.since = Some(0);
            return Err(Drop::Full);
        }
        match (early, packet.ecn) {
            (false, ecn) => Ok(ecn),
            (true, ecn) if ecn.is_capable() && self.red.ecn && self.average < self.max => Ok(Ecn::Ce),
            (true, _) => Err(Drop::Early),
        }
    }
}

impl State {
    /// Updates the average queue length. Returns whether to drop or mark the packet.
    fn early(&mut self, packet: &Arrival, chance: &mut Chance) -> bool {
        let red = &self.red;
        // Leave out the packet on the transmitter, as ns-2 does.
        let length = if self.by_bytes {
            (packet.bytes - packet.on_air) as f64 / red.mean_packet.as_f64()
        } else {
            packet.packets.saturating_sub(1) as f64
        };
        if packet.packets == 0 {
            // Add a sample of zero for each packet that could have been sent while the queue was idle.
            let one = packet.rate.or(self.nominal).map_or(0, |r| red.mean_packet.at(r).as_nanos()).max(1);
            let missed = packet.now.since(packet.empty_since).as_nanos() / one;
            self.average *= libm::pow(1.0 - red.weight, missed as f64 + 1.0);
        } else {
            self.average += red.weight * (length - self.average);
        }
        let average = self.average;
        if average < self.min {
            self.since = None;
            return false;
        }
        // The first packet above the lower threshold is not dropped. It only starts the count.
        let Some(since) = self.since else {
            self.since = Some(0);
            return false;
        };
        let since = since + 1;
        self.since = Some(since);
        let base = if average < self.max {
            red.max_p * (average - self.min) / (self.max - self.min)
        } else if red.gentle && average < 2.0 * self.max {
            red.max_p + (1.0 - red.max_p) * (average - self.max) / self.max
        } else {
            1.0
        };
        let p = if self.by_bytes { base * packet.size.as_f64() / red.mean_packet.as_f64() } else { base };
        // Spread the drops evenly: the next drop comes between 1/p and 2/p packets after the last drop.
        let count = since as f64 * p;
        let p = if base >= 1.0 || count >= 2.0 {
            1.0
        } else if count < 1.0 {
            0.0
        } else {
            (p / (2.0 - count)).min(1.0)
        };
        if p > 0.0 && (p >= 1.0 || chance.happens(p)) {
            self.since = Some(0);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ns2_configures_red_as_the_specification_prints() {
        let ns2 = |rate| Red::ns2(rate, Span::millis(20), NS2_MEAN_PACKET);
        for (kbps, weight) in [(500, 0.00797), (1000, 0.00399), (1500, 0.00266)] {
            let red = ns2(Rate::kbps(kbps));
            assert_eq!(red.min, Limit::Bytes(Bytes::new(2500)), "below 8 Mb/s the threshold is 5 packets of 500 B");
            assert!((red.weight - weight).abs() < 5e-6, "{kbps} kb/s: {}", red.weight);
        }
        let fast = ns2(Rate::mbps(16)).min;
        assert_eq!(fast, Limit::Bytes(Bytes::new(5000)), "16 Mb/s: 4000 packets/s · 2.5 ms");
    }
}
