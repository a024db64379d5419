use crate::ReceiverId;
use steadycast_units::{Rate, Stamp, Time};

/// Maximum number of reports that wait for their echo.
const MOST: usize = 512;

#[derive(Clone, Copy, Debug)]
struct Pending {
    id: ReceiverId,
    stamp: Stamp,
    arrived: Time,
    has_rtt: bool,
    fb_nr: u8,
    rate: Rate,
}

/// Selects the time stamp that the next packet echoes (RFC 4654, section 3.5). A new limiting receiver comes first.
/// Then come receivers that have no round-trip time, then older rounds, then lower rates.
#[derive(Clone, Debug, Default)]
pub(super) struct Echoes {
    waiting: Vec<Pending>,
    clr: Option<(ReceiverId, Stamp, Time)>,
    clr_is_new: bool,
    clr_echoed: bool,
}

impl Echoes {
    pub(super) fn on_report(
        &mut self,
        id: ReceiverId,
        stamp: Stamp,
        arrived: Time,
        has_rtt: bool,
        fb_nr: u8,
        rate: Rate,
    ) {
        // Discard an older report of this receiver, because the newer report measures the current round-trip time.
        self.waiting.retain(|p| p.id != id);
        if self.clr.is_some_and(|(clr, ..)| clr == id) {
            self.clr = Some((id, stamp, arrived));
            self.clr_is_new |= !has_rtt;
            return;
        }
        self.waiting.push(Pending { id, stamp, arrived, has_rtt, fb_nr, rate });
        if self.waiting.len() > MOST
            // Remove a receiver that has a round-trip time. The others need their echo more.
            && let Some(last) = self.waiting.iter().position(|p| p.has_rtt)
        {
            self.waiting.swap_remove(last);
        }
        self.waiting.truncate(MOST);
    }

    pub(super) fn set_clr(&mut self, id: ReceiverId, stamp: Stamp, arrived: Time) {
        self.waiting.retain(|p| p.id != id);
        self.clr = Some((id, stamp, arrived));
        self.clr_is_new = true;
    }

    pub(super) fn forget(&mut self, id: ReceiverId) {
        self.waiting.retain(|p| p.id != id);
        if self.clr.is_some_and(|(clr, ..)| clr == id) {
            self.clear_clr();
        }
    }

    pub(super) fn clear_clr(&mut self) {
        (self.clr, self.clr_is_new) = (None, false);
    }

    pub(super) fn new_round(&mut self) {
        self.clr_echoed = false;
    }

    /// Returns the echo for a packet that was sent at `now` in round `fb_nr`. `late` is true in the second half of the
    /// round.
    pub(super) fn next(&mut self, now: Time, fb_nr: u8, late: bool) -> Option<(ReceiverId, Stamp)> {
        let clr_first = self.clr_is_new || (late && !self.clr_echoed);
        let waiting = if clr_first && self.clr.is_some() { None } else { self.most_urgent(now, fb_nr) };
        let (id, stamp, arrived) = match waiting {
            Some(i) => {
                let pending = self.waiting.swap_remove(i);
                (pending.id, pending.stamp, pending.arrived)
            }
            // Echo nothing, because the report arrived after this packet was sent.
            None if self.clr.is_some_and(|(.., arrived)| arrived > now) => return None,
            None => {
                (self.clr_is_new, self.clr_echoed) = (false, true);
                self.clr?
            }
        };
        Some((id, stamp.plus(now.since(arrived))))
    }

    fn most_urgent(&self, now: Time, fb_nr: u8) -> Option<usize> {
        let key = |p: &Pending| (p.has_rtt, u8::MAX - fb_nr.wrapping_sub(p.fb_nr), p.rate, p.id);
        (0..self.waiting.len()).filter(|i| self.waiting[*i].arrived <= now).min_by_key(|i| key(&self.waiting[*i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_units::Span;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::millis(ms)
    }

    #[test]
    fn echoes_go_in_the_order_of_the_rfc() {
        let mut echoes = Echoes::default();
        let mut report = |id, has_rtt, fb_nr, kbps| {
            echoes.on_report(ReceiverId(id), Stamp(id), at(0), has_rtt, fb_nr, Rate::kbps(kbps))
        };
        report(1, true, 254, 100);
        report(2, true, 3, 50);
        report(3, false, 3, 900);
        report(4, false, 255, 900);
        report(5, false, 3, 800);
        report(6, true, 3, 40);
        report(9, true, 3, 10);
        echoes.set_clr(ReceiverId(9), Stamp(9), at(0));
        let order: Vec<_> = (0..9).filter_map(|_| echoes.next(at(0), 3, false)).map(|(id, _)| id.0).collect();
        assert_eq!(order, [9, 4, 5, 3, 1, 6, 2, 9, 9]);
    }

    #[test]
    fn the_limiting_receiver_is_echoed_in_each_round_whoever_waits() {
        let mut echoes = Echoes::default();
        echoes.set_clr(ReceiverId(9), Stamp(9), at(0));
        assert_eq!(echoes.next(at(0), 0, false).map(|(id, _)| id.0), Some(9));
        echoes.new_round();
        for id in 0..3 {
            echoes.on_report(ReceiverId(id), Stamp(0), at(0), false, 0, Rate::kbps(1));
        }
        assert_eq!(echoes.next(at(1), 1, false).map(|(id, _)| id.0), Some(0));
        assert_eq!(echoes.next(at(1), 1, true).map(|(id, _)| id.0), Some(9));
        assert_eq!(echoes.next(at(1), 1, true).map(|(id, _)| id.0), Some(1));
    }

    #[test]
    fn the_holding_time_is_taken_out_of_an_echo() {
        let mut echoes = Echoes::default();
        echoes.on_report(ReceiverId(1), Stamp(u32::MAX), at(0), true, 0, Rate::ZERO);
        // Half a second is 2¹⁷ units, so the time stamp wraps around.
        assert_eq!(echoes.next(at(500), 0, false), Some((ReceiverId(1), Stamp((1 << 17) - 1))));
        assert_eq!(echoes.next(at(500), 0, false), None);
    }

    #[test]
    fn a_flood_of_reports_is_bounded() {
        let mut echoes = Echoes::default();
        for id in 0..10_000 {
            echoes.on_report(ReceiverId(id), Stamp(0), at(0), id % 2 == 0, 0, Rate::ZERO);
        }
        assert_eq!(echoes.waiting.len(), MOST);
    }
}
