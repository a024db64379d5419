use super::{Need, ParitySettings};
use std::collections::BTreeMap;
use steadycast_units::{Chance, Span, Time};
use steadycast_wire::rtcp::{BlockRequest, ParityRequest};

/// Maximum size of a group whose members request parity. In a larger group, requests would exceed RTCP's bandwidth and
/// arrive too late.
pub(crate) const MAX_REQUESTING_MEMBERS: u32 = 100;
/// The RTT that is assumed before the controller has measured one.
const DEFAULT_RTT: Span = Span::millis(100);
/// Maximum random delay of a request. Another member may send the same request in this time.
const MAX_BACKOFF: Span = Span::millis(500);
/// Time that an answer takes in addition to the RTT.
const ANSWER_MARGIN: Span = Span::millis(10);
/// Maximum number of requests per block.
const MAX_REQUESTS: u32 = 3;
/// Maximum number of blocks that have a pending request.
const MAX_BLOCKS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    packets: u8,
    /// The number of parity packets that the request asks for. It is the total for the block.
    parities: u8,
    /// When the request is sent, unless another member sends the same request before.
    at: Time,
    /// The time by which the answer must arrive.
    due: Time,
    tries: u32,
}

/// Schedules requests for parity in a small group. Each request has a random delay. If another member sends an equal or
/// larger request in this time, this member's request is suppressed (RFC 5401).
#[derive(Debug)]
pub(crate) struct ParityRequester {
    pending: BTreeMap<u64, PendingRequest>,
    chance: Chance,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) members: u32,
    /// The RTT to the sender, or `None` if it is not known.
    pub(crate) round_trip: Option<Span>,
}

impl Group {
    fn round_trip(self) -> Span {
        self.round_trip.unwrap_or(DEFAULT_RTT)
    }

    /// Returns the maximum time from a request to its answer.
    fn answer(self) -> Span {
        self.round_trip() + ANSWER_MARGIN
    }
}

impl ParityRequester {
    pub(crate) fn new(chance: Chance) -> Self {
        Self { pending: BTreeMap::new(), chance }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.pending.clear();
    }

    /// Updates the request for a block after a packet of the block has arrived. `need` is the state of the block.
    pub(crate) fn on_need(&mut self, now: Time, need: &Need, settings: &ParitySettings, group: Group) {
        let Need { base, packets, sent, lacks } = *need;
        if lacks == 0 || group.members > MAX_REQUESTING_MEMBERS {
            self.pending.remove(&base);
            return;
        }
        let parities = sent.saturating_add(lacks);
        if let Some(ask) = self.pending.get_mut(&base) {
            if sent >= ask.parities {
                // Ask for more with the next request, because the parity that was requested has arrived and is not
                // enough.
                ask.at = ask.at.max(now + backoff(&mut self.chance, group));
            }
            ask.parities = ask.parities.max(parities);
            return;
        }
        let at = now + backoff(&mut self.chance, group);
        // Parity must arrive within `useful()` after the block's first frame was ready. It was ready at most one block
        // duration plus the one-way delay ago.
        let due = (now + settings.useful()).before(settings.block() + group.round_trip() / 2);
        if at + group.answer() <= due && parities <= packets {
            self.pending.insert(base, PendingRequest { packets, parities, at, due, tries: 0 });
            if self.pending.len() > MAX_BLOCKS {
                self.pending.pop_first();
            }
        }
    }

    /// Processes another member's request for the block `base`. If that request asks for enough parity, this member
    /// delays its own request until the parity can have arrived.
    pub(crate) fn on_overheard(&mut self, now: Time, base: u64, request: &BlockRequest, group: Group) {
        if let Some(ask) = self.pending.get_mut(&base)
            && ask.packets == request.packets
            && request.parities >= ask.parities
        {
            ask.at = ask.at.max(now + group.answer() * 2);
        }
    }

    /// Drops requests whose answer would arrive too late. Also drops requests that have been sent [`MAX_REQUESTS`]
    /// times.
    fn forget(&mut self, now: Time, group: Group) {
        self.pending.retain(|_, ask| ask.tries < MAX_REQUESTS && now.max(ask.at) + group.answer() <= ask.due);
    }

    pub(crate) fn wake(&self) -> Option<Time> {
        self.pending.values().map(|ask| ask.at).min()
    }

    /// Returns for how long the due requests can still wait, so that their answers arrive in time.
    pub(crate) fn useful(&self, now: Time, group: Group) -> Span {
        let due = self.pending.values().filter(|ask| ask.at <= now).map(|ask| ask.due).max();
        due.map_or(Span::ZERO, |due| due.since(now + group.answer()))
    }

    /// Drops useless requests. Returns whether any request is due.
    pub(crate) fn wants(&mut self, now: Time, group: Group) -> bool {
        self.forget(now, group);
        self.wake().is_some_and(|at| at <= now)
    }

    /// Returns the requests that are due. They count as sent from now on.
    pub(crate) fn take(&mut self, now: Time, group: Group) -> Vec<BlockRequest> {
        self.forget(now, group);
        let again = now + group.answer() + ANSWER_MARGIN;
        let due = self.pending.iter_mut().filter(|(_, ask)| ask.at <= now).take(ParityRequest::MOST);
        let mut requests = Vec::new();
        for (base, ask) in due {
            requests.push(BlockRequest { base: *base as u16, packets: ask.packets, parities: ask.parities });
            // Ask for one more packet next time: if a part of the answer is lost, the same total would bring no further
            // parity.
            (ask.at, ask.tries, ask.parities) = (again, ask.tries + 1, ask.parities.saturating_add(1).min(ask.packets));
        }
        requests
    }
}

/// Returns a random delay of at most one RTT (RFC 5401, section 3.2.2.1). Only few members draw a short delay. The
/// other members receive the requests of these members and send none.
fn backoff(chance: &mut Chance, group: Group) -> Span {
    let most = group.round_trip().min(MAX_BACKOFF);
    let lambda = libm::log(f64::from(group.members.max(1))) + 1.0;
    // The delay has the truncated exponential distribution of RFC 5401. `x` is uniformly distributed between 1 and
    // e^lambda.
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

    fn requester(n: u64) -> ParityRequester {
        ParityRequester::new(Seed(n).part("asker"))
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
        // The share of short delays is (e^(lambda/3) - 1) / (e^lambda - 1). With lambda = ln 45 + 1 this is 3.3 %.
        assert!((40..=95).contains(&short), "{short}");
    }

    #[test]
    fn it_asks_for_as_many_parities_as_it_lacks_and_the_second_time_for_one_more() {
        let mut requester = requester(2);
        requester.on_need(ms(0), &need(1, 2), &SETTINGS, GROUP);
        let at = requester.wake().expect("it lacks two");
        assert!(at <= ms(60) && !requester.wants(ms(0), GROUP) && requester.wants(at, GROUP));
        let first = BlockRequest { base: 65_530, packets: 20, parities: 3 };
        assert_eq!(requester.take(at, GROUP), [first]);
        assert_eq!(requester.take(at, GROUP), []);
        assert_eq!(requester.take(at + Span::millis(80), GROUP), [BlockRequest { parities: 4, ..first }]);
        // The first packet of the block was ready 230 ms before its parity arrived. This is the duration of the block,
        // 200 ms, plus half a round trip, 30 ms. The packet is useful for 500 ms, so an answer must arrive within
        // 270 ms.
        assert!(!requester.wants(ms(210), GROUP) && requester.wake().is_none());
    }

    #[test]
    fn it_does_not_ask_when_another_has_asked_for_as_much_or_the_block_is_whole_or_the_group_is_large() {
        let mut requester = requester(3);
        let told = BlockRequest { base: 65_530, packets: 20, parities: 2 };
        requester.on_need(ms(0), &need(1, 2), &SETTINGS, GROUP);
        requester.on_overheard(ms(0), 65_530, &told, GROUP);
        assert!(requester.wake().is_some_and(|at| at <= ms(60)), "that is too little");
        requester.on_overheard(ms(0), 65_530, &BlockRequest { parities: 3, ..told }, GROUP);
        assert_eq!(requester.wake(), Some(ms(140)));
        requester.on_need(ms(100), &need(3, 0), &SETTINGS, GROUP);
        assert_eq!(requester.wake(), None);
        requester.on_need(ms(100), &need(1, 1), &SETTINGS, Group { members: MAX_REQUESTING_MEMBERS + 1, ..GROUP });
        assert_eq!(requester.wake(), None);
    }

    #[test]
    fn what_cannot_come_in_time_or_at_all_is_not_asked_for_and_the_list_is_bounded() {
        let mut requester = requester(4);
        let far = Group { round_trip: Some(Span::millis(200)), ..GROUP };
        requester.on_need(ms(0), &need(1, 1), &SETTINGS, far);
        assert_eq!(requester.wake(), None, "two fifths of 500 ms, a way of 100, the wait and 200 for the answer");
        requester.on_need(ms(0), &need(200, 100), &SETTINGS, GROUP);
        assert_eq!(requester.wake(), None);
        for base in 0..1_000 {
            requester.on_need(ms(0), &Need { base, ..need(1, 1) }, &SETTINGS, GROUP);
        }
        assert_eq!(requester.pending.len(), MAX_BLOCKS);
        assert!(requester.take(ms(70), GROUP).iter().all(|request| request.base >= 992));
    }
}
