//! The settings of CoDel (RFC 8289) and FQ-CoDel (RFC 8290); [`crate::managed`] holds how they work.

use crate::managed::Managed;
use crate::queue::Discipline;
use crate::{Limit, Line};
use steadycast_units::{Bytes, Chance, Rate, Span};
use steadycast_words::tree::Item;
use steadycast_words::{Findings, Kind, Within, settings};

settings! {
    /// Controlled delay (RFC 8289, with the constants of its sections 4.2 and 4.3).
    #[derive(Copy)]
    CoDel checked by target_below_interval {
        /// How much fits.
        limit: Limit = Limit::Packets(1000),
        /// How long packets may always have to wait.
        target: Span where (|span: &Span| takes_time(span, "5ms")) = Span::millis(5),
        /// How long they may have to wait longer before the first is dropped.
        interval: Span where (|span: &Span| takes_time(span, "100ms")) = Span::millis(100),
        /// Mark packets that can be marked, instead of dropping them.
        ecn: bool = false,
    }
    /// CoDel for each of many queues, which take turns (RFC 8290, with the constants of its section 5.2). The limit is for all of
    /// them together, and what is beyond it is taken from the longest.
    #[derive(Copy)]
    FqCoDel {
        /// For each queue.
        [flat] codel: CoDel = CoDel { limit: Limit::Packets(10_240), ..CoDel::RFC },
        /// Queues that flows are hashed into.
        flows: u32 where (Within { least: 1, most: 65_536, remedy: "from 1 to 65536" }) = 1024,
        /// What a queue may send in its turn.
        quantum: Bytes where (QUANTUM) = Bytes::new(1514),
    }
}

const QUANTUM: Within<Bytes> =
    Within { least: Bytes::new(64), most: Bytes::new(1_048_576), remedy: "from \"64B\" to \"1MiB\"" };

fn takes_time(span: &Span, default: &str) -> Option<(String, String)> {
    span.is_zero().then(|| ("takes no time".into(), format!("above \"0ms\"; without it \"{default}\"")))
}

fn target_below_interval(codel: &CoDel, item: &Item, out: &mut Findings) {
    let CoDel { target, interval, .. } = codel;
    if target >= interval {
        let at = item.get("target").or(item.get("interval")).map_or(&item.at, |said| &said.at);
        let what = format!("the target of {target} is not below the interval of {interval}");
        out.problem(at, what, "the interval is the longest usual round-trip time, the target a twentieth of that");
    }
}

impl CoDel {
    /// The RFC's constants.
    const RFC: Self =
        Self { limit: Limit::Packets(1000), target: Span::millis(5), interval: Span::millis(100), ecn: false };
}

impl Kind<Line> for CoDel {}
impl Kind<Line> for FqCoDel {}

impl Discipline for CoDel {
    fn limit(&self) -> Limit {
        self.limit
    }
    fn on_departure(&self, rate: Option<Rate>, mtu: Bytes, chance: Chance) -> Option<Managed> {
        Some(Managed::new(*self, None, rate, mtu, chance))
    }
}

impl Discipline for FqCoDel {
    fn limit(&self) -> Limit {
        self.codel.limit
    }
    fn on_departure(&self, rate: Option<Rate>, mtu: Bytes, chance: Chance) -> Option<Managed> {
        Some(Managed::new(self.codel, Some((self.flows, self.quantum)), rate, mtu, chance))
    }
}
