use super::{Need, ParitySettings};
use std::collections::BTreeMap;
use steadycast_units::{Chance, Span, Time};
use steadycast_wire::rtcp::{BlockRequest, ParityRequest};

/// Groups with more members than this ask for no parity: requests would take more than RTCP's share, and come too late.
pub(crate) const ASKING: u32 = 100;
/// The round trip before the controller knows one.
const UNKNOWN: Span = Span::millis(100);
/// The longest that is waited for others to ask.
const LONGEST: Span = Span::millis(500);
/// The least margin for what an answer takes beyond the round trip.
const MARGIN: Span = Span::millis(10);
/// The most requests for one block.
const TRIES: u32 = 3;
/// The most blocks that are asked for at once: the newest.
const BLOCKS: usize = 8;

/// A block of which more parity is needed.
#[derive(Clone, Copy, Debug)]
struct Ask {
    packets: u8,
    /// Parities of it that have to be sent in all.
    parities: u8,
    /// When to ask, unless another does.
    at: Time,
    /// An answer has to be here by then.
    due: Time,
    tries: u32,
}

/// Knows at a receiver of a small group of which blocks to ask for more parity, and when, as RFC 5401 has it: after a
/// time drawn at random, and not at all when another has asked for as much.
#[derive(Debug)]
pub(crate) struct Asker {
    asks: BTreeMap<u64, Ask>,
    chance: Chance,
}

/// The group, as it is now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) members: u32,
    /// The round trip to the sender, as far as it is known.
    pub(crate) round_trip: Option<Span>,
}

impl Group {
    fn round_trip(self) -> Span {
        self.round_trip.unwrap_or(UNKNOWN)
    }

    /// An answer is here after this time, at the latest.
    fn answer(self) -> Span {
        self.round_trip() + MARGIN
    }
}

impl Asker {
    pub(crate) fn new(chance: Chance) -> Self {
        Self { asks: BTreeMap::new(), chance }
    }

    /// Nothing waits to be asked for.
    pub(crate) fn is_idle(&self) -> bool {
        self.asks.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.asks.clear();
    }

    /// A packet or a parity of a block has come, which leaves this need.
    pub(crate) fn on_need(&mut self, now: Time, need: &Need, settings: &ParitySettings, group: Group) {
        let Need { base, packets, sent, lacks } = *need;
        if lacks == 0 || group.members > ASKING {
            self.asks.remove(&base);
            return;
        }
        let parities = sent.saturating_add(lacks);
        if let Some(ask) = self.asks.get_mut(&base) {
            if sent >= ask.parities {
                // The answer is here or lost: another request has to say more.
                ask.at = ask.at.max(now + backoff(&mut self.chance, group));
            }
            ask.parities = ask.parities.max(parities);
            return;
        }
        let at = now + backoff(&mut self.chance, group);
        // A block's first packet was ready this long before its first parity came, at most, but for the way.
        let due = (now + settings.useful()).before(settings.block() + group.round_trip() / 2);
        if at + group.answer() <= due && parities <= packets {
            self.asks.insert(base, Ask { packets, parities, at, due, tries: 0 });
            if self.asks.len() > BLOCKS {
                self.asks.pop_first();
            }
        }
    }

    /// Another has asked for parity of a block: it need not be asked for again before the answer is here.
    pub(crate) fn on_overheard(&mut self, now: Time, base: u64, request: &BlockRequest, group: Group) {
        if let Some(ask) = self.asks.get_mut(&base)
            && ask.packets == request.packets
            && request.parities >= ask.parities
        {
            ask.at = ask.at.max(now + group.answer() * 2);
        }
    }

    /// What is too late or was asked for often enough is not asked for.
    fn forget(&mut self, now: Time, group: Group) {
        self.asks.retain(|_, ask| ask.tries < TRIES && now.max(ask.at) + group.answer() <= ask.due);
    }

    /// When something is to be asked for.
    pub(crate) fn wake(&self) -> Option<Time> {
        self.asks.values().map(|ask| ask.at).min()
    }

    /// For how much longer a request helps, of those to be sent now.
    pub(crate) fn useful(&self, now: Time, group: Group) -> Span {
        let due = self.asks.values().filter(|ask| ask.at <= now).map(|ask| ask.due).max();
        due.map_or(Span::ZERO, |due| due.since(now + group.answer()))
    }

    /// Whether something is to be asked for now.
    pub(crate) fn wants(&mut self, now: Time, group: Group) -> bool {
        self.forget(now, group);
        self.wake().is_some_and(|at| at <= now)
    }

    /// What is to be asked for now. It counts as asked for.
    pub(crate) fn take(&mut self, now: Time, group: Group) -> Vec<BlockRequest> {
        self.forget(now, group);
        let again = now + group.answer() + MARGIN;
        let due = self.asks.iter_mut().filter(|(_, ask)| ask.at <= now).take(ParityRequest::MOST);
        let mut requests = Vec::new();
        for (base, ask) in due {
            requests.push(BlockRequest { base: *base as u16, packets: ask.packets, parities: ask.parities });
            // Should the answer be lost, the next request has to say more.
            (ask.at, ask.tries, ask.parities) = (again, ask.tries + 1, ask.parities.saturating_add(1).min(ask.packets));
        }
        requests
    }
}

/// A time that few draw short (RFC 5401, section 3.2.2.1): between 0 and one round trip, so that of a group that lacks
/// the same a few ask and the others hear it.
fn backoff(chance: &mut Chance, group: Group) -> Span {
    let most = group.round_trip().min(LONGEST);
    let lambda = libm::log(f64::from(group.members.max(1))) + 1.0;
    // x is uniform in lambda / (e^lambda - 1) · [1/T, e^lambda/T], and the time T/lambda · ln(x · (e^lambda - 1) ·
    // T/lambda).
    let x = 1.0 + chance.unit() * (libm::exp(lambda) - 1.0);
    most.scale(libm::log(x) / lambda)
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_units::Seed;

    const SETTINGS: ParitySettings = ParitySettings { ssrc: 9, payload_type: 98, playout: Some(Span::millis(500)) };
    const GROUP: Group = Group { members: 45, round_trip: Some(Span::millis(60)) };

    fn ms(n: u64) -> Time {
        Time::ZERO + Span::millis(n)
    }

    fn asker(n: u64) -> Asker {
        Asker::new(Seed(n).part("asker"))
    }

    fn need(sent: u8, lacks: u8) -> Need {
        Need { base: 65_530, packets: 20, sent, lacks }
    }

    #[test]
    fn backoffs_fill_a_round_trip_and_few_of_them_are_short() {
        let mut chance = Seed(1).part("backoff");
        let all: Vec<Span> = (0..2_000).map(|_| backoff(&mut chance, GROUP)).collect();
        assert!(all.iter().all(|span| *span <= Span::millis(60)));
        let short = all.iter().filter(|span| **span < Span::millis(20)).count();
        // (e^(lambda/3) - 1) / (e^lambda - 1) of them: 3.3 % with lambda = ln 45 + 1.
        assert!((40..=95).contains(&short), "{short}");
    }

    #[test]
    fn it_asks_for_as_many_parities_as_it_lacks_and_the_second_time_for_one_more() {
        let mut asker = asker(2);
        asker.on_need(ms(0), &need(1, 2), &SETTINGS, GROUP);
        let at = asker.wake().expect("it lacks two");
        assert!(at <= ms(60) && !asker.wants(ms(0), GROUP) && asker.wants(at, GROUP));
        let first = BlockRequest { base: 65_530, packets: 20, parities: 3 };
        assert_eq!(asker.take(at, GROUP), [first]);
        assert_eq!(asker.take(at, GROUP), []);
        assert_eq!(asker.take(at + Span::millis(80), GROUP), [BlockRequest { parities: 4, ..first }]);
        // 500 ms after it was ready, which was 200 ms and half a round trip before: an answer has to be here after 270
        // ms.
        assert!(!asker.wants(ms(210), GROUP) && asker.wake().is_none());
    }

    #[test]
    fn it_does_not_ask_when_another_has_asked_for_as_much_or_the_block_is_whole_or_the_group_is_large() {
        let mut asker = asker(3);
        let told = BlockRequest { base: 65_530, packets: 20, parities: 2 };
        asker.on_need(ms(0), &need(1, 2), &SETTINGS, GROUP);
        asker.on_overheard(ms(0), 65_530, &told, GROUP);
        assert!(asker.wake().is_some_and(|at| at <= ms(60)), "that is too little");
        asker.on_overheard(ms(0), 65_530, &BlockRequest { parities: 3, ..told }, GROUP);
        assert_eq!(asker.wake(), Some(ms(140)));
        asker.on_need(ms(100), &need(3, 0), &SETTINGS, GROUP);
        assert_eq!(asker.wake(), None);
        asker.on_need(ms(100), &need(1, 1), &SETTINGS, Group { members: ASKING + 1, ..GROUP });
        assert_eq!(asker.wake(), None);
    }

    #[test]
    fn what_cannot_come_in_time_or_at_all_is_not_asked_for_and_the_list_is_bounded() {
        let mut asker = asker(4);
        let far = Group { round_trip: Some(Span::millis(200)), ..GROUP };
        asker.on_need(ms(0), &need(1, 1), &SETTINGS, far);
        assert_eq!(asker.wake(), None, "two fifths of 500 ms, a way of 100, the wait and 200 for the answer");
        asker.on_need(ms(0), &need(200, 100), &SETTINGS, GROUP);
        assert_eq!(asker.wake(), None);
        for base in 0..1_000 {
            asker.on_need(ms(0), &Need { base, ..need(1, 1) }, &SETTINGS, GROUP);
        }
        assert_eq!(asker.asks.len(), BLOCKS);
        assert!(asker.take(ms(70), GROUP).iter().all(|request| request.base >= 992));
    }
}
