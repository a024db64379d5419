use crate::Steps;
use serde_json::Value as Json;
use std::sync::Arc;
use steadycast_settings::tree::{Item, Table, Value};
use steadycast_settings::{Declared, Findings, FromToml, Kind, Packets, Spanned, ToToml, kinds, settings};
use steadycast_units::{Chance, Time};

kinds! {
    /// The model by which the link loses sent packets. Drops in the queue are not included.
    Loss for (), example "0.01, \"1%\" or { kind = \"run\", mean = \"50p\" }", short share {
        /// each packet is lost with the probability "p", independently.
        "bernoulli" => Bernoulli(BernoulliLoss), "bernoulli loss";
        /// one packet is lost after each run of packets that arrive; the run's length is exponentially distributed
        /// (ns-2's "exponential error model").
        "run" => Run(RunLoss), "run loss";
        /// the Gilbert–Elliott model, with a good and a bad state that have different loss probabilities.
        "gilbert" => Gilbert(GilbertLoss), "gilbert loss";
        /// the packets with the numbers in "packets" are lost.
        "list" => List(ListLoss), "list loss";
        /// no packet is lost.
        "none" => None, "none loss";
    }
}

settings! {
    /// Each packet is lost with the same probability, independently.
    #[derive(Copy)]
    BernoulliLoss {
        /// The loss probability, from 0 to 1.
        p: f64 where (probability) => "write a probability from 0 to 1",
    }
    /// One packet is lost after a run of packets that arrive.
    #[derive(Copy)]
    RunLoss {
        /// The mean number of packets in a run, for example "50p"; at least "1p".
        mean: Packets where (run) => "write for example mean = \"50p\"",
    }
    /// Gilbert–Elliott: the state may change after each packet.
    #[derive(Copy)]
    GilbertLoss {
        /// The probability of a change from the good to the bad state after a packet.
        p_bad: f64 where (probability) => "write a probability from 0 to 1",
        /// The probability of a change from the bad to the good state after a packet.
        p_good: f64 where (probability) => "write a probability from 0 to 1",
        /// The loss probability in the good state.
        loss_good: f64 where (probability) = 0.0,
        /// The loss probability in the bad state.
        loss_bad: f64 where (probability) = 1.0,
    }
    /// Exactly the packets with these numbers are lost.
    ListLoss {
        /// The numbers of the packets that are lost, counted from 1 in each direction of the link.
        packets: PacketNumbers => "write for example packets = [7, 9]",
    }
}

impl Kind<()> for BernoulliLoss {}
impl Kind<()> for RunLoss {}
impl Kind<()> for GilbertLoss {}
impl Kind<()> for ListLoss {}

impl FromToml for Loss {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        Self::read_for(item, &(), out)
    }
}

/// Reads a plain number as a Bernoulli loss. Examples are 0.01 and "1%".
fn share(item: &Item) -> Option<Table> {
    let p = match &item.value {
        Value::Real(_) | Value::Whole(_) => item.value.clone(),
        Value::Text(text) => match text.trim().strip_suffix('%').map(|percent| percent.trim().parse::<f64>()) {
            Some(Ok(percent)) => Value::Real(percent / 100.0),
            // The text begins like a number, so it is not the name of a kind of loss. Let the number be checked later.
            _ if text.trim().starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-') => item.value.clone(),
            _ => return None,
        },
        _ => return None,
    };
    let kind = Value::Text("bernoulli".to_owned());
    Some(vec![("kind".to_owned(), kind.into()), ("p".to_owned(), p.into())])
}

/// Returns `None` if `value` is a probability. Otherwise returns what is wrong and what to do about it.
pub fn probability(value: &f64) -> Option<(String, String)> {
    let remedy = match *value {
        p if (0.0..=1.0).contains(&p) => return None,
        // The value is probably a percentage, so convert it in the remedy.
        percent if percent > 1.0 && percent <= 100.0 => {
            format!("write a number from 0 to 1; if you mean {percent} %, write {}", percent / 100.0)
        }
        _ => "write a number from 0 to 1".to_owned(),
    };
    Some((format!("{value} is not a probability"), remedy))
}

fn run(mean: &Packets) -> Option<(String, String)> {
    let short = mean.0 < 1.0;
    short.then(|| (format!("runs of {} packets are too short", mean.0), "write a mean of at least \"1p\"".into()))
}

/// A set of packet numbers in ascending order. Packets are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketNumbers(Arc<[u64]>);

impl PacketNumbers {
    /// Returns whether the set contains `number`.
    pub fn contains(&self, number: u64) -> bool {
        self.0.binary_search(&number).is_ok()
    }
}

impl FromIterator<u64> for PacketNumbers {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut all: Vec<_> = numbers.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        Self(all.into())
    }
}

impl Declared for PacketNumbers {
    fn schema() -> Json {
        Vec::<u64>::schema()
    }
}

impl FromToml for PacketNumbers {
    fn read(item: &Item, out: &mut Findings) -> Option<Self> {
        let before = out.problems.len();
        let said = Vec::<Spanned<u64>>::read(item, out)?;
        for zero in said.iter().filter(|number| number.value == 0) {
            out.problem(&zero.at, "there is no packet 0", "count the packets from 1");
        }
        let numbers: Self = said.iter().map(|number| number.value).collect();
        if numbers.0.len() < said.len() {
            out.problem(&item.at, "a packet is listed twice", "list each packet once");
        }
        (out.problems.len() == before).then_some(numbers)
    }
}

impl ToToml for PacketNumbers {
    fn value(&self) -> Option<Value> {
        Some(Value::list(self.0.iter().filter_map(ToToml::value)))
    }
}

#[derive(Debug)]
pub(crate) struct LossState {
    steps: Steps<Loss>,
    now: Loss,
    valid: Time,
    chance: Chance,
    packets: u64,
    bad: bool,
    /// When a [`RunLoss`] loses the next packet, as a number of packets since the start.
    next: f64,
}

impl LossState {
    /// Creates the state. Returns `None` if no packet is ever lost.
    pub(crate) fn new(steps: &Steps<Loss>, chance: Chance) -> Option<Self> {
        if steps.as_constant() == Some(&Loss::None) {
            return None;
        }
        let mut state = Self {
            steps: steps.clone(),
            now: Loss::None,
            valid: Time::ZERO,
            chance,
            packets: 0,
            bad: false,
            next: 0.0,
        };
        state.enter(Time::ZERO);
        Some(state)
    }

    pub(crate) fn loses_all(&self, now: Time) -> bool {
        matches!(self.steps.at(now), Loss::Bernoulli(BernoulliLoss { p }) if *p >= 1.0)
    }

    pub(crate) fn next_change(&self, now: Time) -> Time {
        self.steps.next_change(now)
    }

    fn enter(&mut self, at: Time) {
        self.now = self.steps.at(at).clone();
        self.valid = self.steps.next_change(at);
        // A change of the model resets the Gilbert–Elliott state to good.
        self.bad = false;
        if let Loss::Run(RunLoss { mean: Packets(mean) }) = self.now {
            self.next = self.packets as f64 + self.chance.exponential(mean).max(1.0);
        }
    }

    /// Returns whether the next packet is lost. `at` is the time at which its transmission ends.
    pub(crate) fn next(&mut self, at: Time) -> bool {
        if at >= self.valid {
            self.enter(at);
        }
        self.packets += 1;
        match &self.now {
            Loss::None => false,
            Loss::Bernoulli(BernoulliLoss { p }) => self.chance.happens(*p),
            Loss::Run(RunLoss { mean: Packets(mean) }) => {
                let lost = self.packets as f64 >= self.next;
                if lost {
                    // Keep the fraction in `next`, because rounding up would increase the mean distance between losses.
                    self.next = (self.next + self.chance.exponential(*mean)).max(self.packets as f64);
                }
                lost
            }
            Loss::Gilbert(GilbertLoss { p_bad, p_good, loss_good, loss_bad }) => {
                let (turn, p) = if self.bad { (*p_good, *loss_bad) } else { (*p_bad, *loss_good) };
                // Draw the loss first, because a change of the state applies from the next packet on.
                let lost = self.chance.happens(p);
                if self.chance.happens(turn) {
                    self.bad = !self.bad;
                }
                lost
            }
            Loss::List(ListLoss { packets }) => packets.contains(self.packets),
        }
    }
}
