use super::message::{ReceiverReport, SenderNotice};
use super::rtt::RoundTrip;
use super::timer::{bias, draw};
use super::{Config, DISCOUNT, K, X_MIN};
use crate::entry::{Setup, Values};
use crate::equation::{first_interval_sqrt, loss_for, throughput};
use crate::loss::{LossHistory, LossSettings, ReceivedPacket};
use crate::meter::Meter;
use crate::queue::Queue;
use crate::{Arrival, Body, Due, ExtraArrival, Overheard, ReceiverHalf, ReceiverId, Reply, Slot, View, Wake};
use steadycast_units::{Bytes, Chance, OneWay, PeerTime, Rate, Span, Stamp, Time};

/// If no packet arrives for this number of round trips, losses are discarded (RFC 4654, section 4.3.1).
const LOSS_EXPIRY_RTTS: u64 = 10;

/// Queueing delay that ends a quick start.
const START_DELAY: Span = Span::millis(20);

/// Minimum queueing delay that ends a quick start, in packet transmission times. On a slow link, a few packets of other
/// flows already cause a delay of more than [`START_DELAY`].
const LEAST_QUEUE_PACKETS: u64 = 4;
/// Duration over which the receive rate is measured in slow start, in round trips. With this value, the rate doubles
/// every two round trips.
const SLOW_START_WINDOW_RTTS: f64 = 1.0;

#[derive(Clone, Copy, Debug)]
struct Last {
    at: Time,
    sent: PeerTime,
    seq: u64,
    forward: SenderNotice,
}

pub(super) struct Receiver {
    config: Config,
    id: ReceiverId,
    packet: Bytes,
    least: Rate,
    group: bool,
    chance: Chance,
    last: Option<Last>,
    rtt: RoundTrip,
    meter: Meter,
    losses: LossHistory,
    queue: Queue,
    have_loss: bool,
    is_clr: bool,
    x_fbr: Rate,
    /// When the next report is due. `None` if no report is planned.
    fire: Option<Time>,
    news: bool,
    reported: Option<Time>,
}

impl Receiver {
    pub(super) fn new(setup: &Setup, values: &Values) -> Self {
        let config = Config::new(values);
        Self {
            id: setup.id,
            packet: setup.packet,
            least: setup.packet.per(X_MIN),
            group: setup.group,
            chance: setup.chance.clone(),
            last: None,
            rtt: RoundTrip::default(),
            meter: Meter::default(),
            losses: LossHistory::new(LossSettings { discount: DISCOUNT, ..LossSettings::default() }),
            queue: Queue::new(if config.quick { START_DELAY } else { Span::ZERO }),
            have_loss: false,
            is_clr: false,
            x_fbr: Rate::MAX,
            fire: None,
            news: false,
            reported: None,
            config,
        }
    }

    fn r_max(&self) -> Span {
        self.last.map_or(self.config.r_max, |last| last.forward.r_max)
    }

    fn rtt(&self) -> Span {
        self.rtt.get(self.r_max())
    }

    fn window(&self) -> Span {
        let slow_start = self.config.quick && !self.have_loss;
        self.rtt().scale(if slow_start { SLOW_START_WINDOW_RTTS } else { K })
    }

    /// Returns the receive rate. Until it is measured, returns the rate of one packet per R_max.
    fn received(&self, now: Time) -> Rate {
        self.meter.rate(now, self.window()).unwrap_or_else(|| self.packet.per(self.r_max()))
    }

    /// Computes the requested rate X_r.
    ///
    /// ```text
    ///                         8 s
    ///  X_r = ──────────────────────────────────────────  after a loss event
    ///          R (√(2p/3) + 12 √(3p/8) p (1 + 32 p²))
    ///
    ///  X_r = 2 × receive rate                            before the first loss event
    /// ```
    ///
    /// s is the packet size in bytes, R is the round-trip time, and p is the loss event rate. X_r is at least one
    /// packet per eight seconds. Source: RFC 4654, sections 2.1, 4.3.4 and 4.4.
    fn desired(&self, now: Time) -> Rate {
        let rate = match self.losses.rate() {
            Some(p) if self.have_loss => throughput(self.packet, self.rtt(), p),
            _ => self.received(now).scale(2.0),
        };
        rate.max(self.least)
    }

    /// Returns whether reports of other receivers suppress this receiver's report in this round.
    fn silenced(&self, now: Time) -> bool {
        let Some(last) = self.last else { return true };
        let x_supp = last.forward.x_supp;
        x_supp < Rate::MAX && !self.is_far() && (x_supp < self.x_fbr || x_supp < self.desired(now))
    }

    /// Returns whether the round-trip time exceeds R_max. The receiver must report it in this case.
    fn is_far(&self) -> bool {
        self.rtt.is_known() && self.rtt() > self.r_max()
    }

    fn start_round(&mut self, now: Time, forward: &SenderNotice) {
        self.x_fbr = self.desired(now);
        if self.is_clr {
            return;
        }
        let bias = forward.x.map(|x| bias(forward.slow_start, self.x_fbr, self.received(now), x));
        let first = forward.slow_start && forward.fb_nr == 0;
        let t = self.config.round(forward.r_max, first);
        // Report at once, because a single receiver need not wait for the reports of others.
        let alone = first && self.config.quick && !self.group;
        let wait = if alone { Span::ZERO } else { draw(&self.config, t, bias, &mut self.chance) };
        self.fire = Some(now + wait);
    }

    fn follow(&mut self, before: Option<Last>, forward: &SenderNotice, now: Time) {
        let was_clr = self.is_clr;
        self.is_clr = forward.clr == Some(self.id);
        if self.is_clr {
            if !was_clr {
                // A limiting receiver reports one round trip after its last report, without a random delay.
                self.fire = Some(self.reported.map_or(now, |at| (at + self.rtt()).max(now)));
            } else if self.fire.is_none() {
                self.fire = Some(now);
            }
        } else if was_clr {
            self.fire = None;
        }
        let round = before.map(|b| forward.fb_nr.wrapping_sub(b.forward.fb_nr));
        // A round number is new if it is ahead by at most half of the number range.
        match round {
            None | Some(1..=127) => self.start_round(now, forward),
            _ if self.is_clr => {}
            _ => {
                if let (Some(fire), Some(b)) = (self.fire, before)
                    && b.forward.r_max != forward.r_max
                {
                    self.fire = Some(now + fire.since(now).scale(forward.r_max.ratio(b.forward.r_max)));
                }
                if self.fire.is_some() && self.silenced(now) {
                    self.fire = None;
                }
            }
        }
    }

    fn count(&mut self, arrival: &Arrival<'_>) {
        let rtt = self.rtt();
        // Before the first loss, treat a growing queue like a CE mark.
        let way = OneWay::between(arrival.sent, arrival.at);
        let own = self.packet.at(self.received(arrival.at)) * LEAST_QUEUE_PACKETS;
        let queued = self.queue.on_packet(way, arrival.at, rtt, own) && self.losses.events() == 0;
        let received = ReceivedPacket { seq: arrival.seq, at: arrival.at, ce: arrival.ecn.is_ce() || queued, rtt };
        let (meter, packet, window) = (self.meter, self.packet, self.window());
        let r_max = self.r_max();
        // At the end of slow start, `rtt` includes a queue that will drain. Take the mean of `least` and `rtt`, which
        // includes half of this queue.
        let first_rtt = self.rtt.least().filter(|_| self.config.quick).map_or(rtt, |least| (least + rtt) / 2);
        let quick = self.config.quick;
        let first = || {
            let rate = meter.rate(arrival.at, window).unwrap_or_else(|| packet.per(r_max));
            // `loss_for` inverts `throughput`, so that `desired` begins near the measured rate. `first_interval_sqrt`
            // ignores timeouts. When it was used here, `desired` was 1/50 of the measured rate at two packets per round
            // trip (`docs/controllers/tfmcc.md`).
            if quick {
                1.0 / loss_for(rate, packet, first_rtt).get()
            } else {
                first_interval_sqrt(rate, packet, first_rtt)
            }
        };
        if self.losses.on_packet(&received, first).new_loss_event {
            self.have_loss = true;
            if self.is_clr {
                self.fire = Some(arrival.at);
            }
        }
    }

    fn say(&self, now: Time, leave: bool) -> Option<Body> {
        let last = self.last?;
        let back = ReceiverReport {
            ts: Stamp::of(now),
            echo: peer_stamp(last.sent).plus(now.since(last.at)),
            rate: self.desired(now),
            loss: self.losses.rate().map_or(0.0, |p| p.get()),
            rtt: self.rtt(),
            fb_nr: last.forward.fb_nr,
            have_rtt: self.rtt.is_known(),
            have_loss: self.have_loss,
            leave,
            is_clr: self.is_clr,
        };
        Some(back.body())
    }
}

/// Returns the time stamp of a packet. `sent` is its send time on the sender's clock.
fn peer_stamp(sent: PeerTime) -> Stamp {
    let units = (i128::from(sent.as_nanos()) << 18).div_euclid(1_000_000_000);
    Stamp(units as u32)
}

impl ReceiverHalf for Receiver {
    fn on_extra(&mut self, extra: &ExtraArrival) {
        self.meter.add(extra.size, extra.at, self.window());
    }

    fn on_renamed(&mut self, id: ReceiverId) {
        self.id = id;
    }

    fn on_arrival(&mut self, arrival: &Arrival<'_>) {
        let now = arrival.at;
        let Some(mut forward) = SenderNotice::read(arrival.notice) else { return };
        let before = self.last;
        if let Some(b) = before {
            // Discard old losses after a long time without packets. The sender then starts slowly, and old losses say
            // nothing about the path.
            if now.since(b.at) > self.rtt() * LOSS_EXPIRY_RTTS {
                self.have_loss = false;
            }
            // Keep the newer notice, because an overtaken packet carries an old round number.
            if arrival.seq < b.seq {
                forward = b.forward;
            }
        }
        let newest = before.map_or(arrival.seq, |b| b.seq.max(arrival.seq));
        self.last = Some(Last { at: now, sent: arrival.sent, seq: newest, forward });
        self.news = true;
        let way = OneWay::between(arrival.sent, now);
        match forward.echo.filter(|(id, _)| *id == self.id && arrival.seq == newest) {
            Some((_, stamp)) => {
                let assumed = self.rtt();
                if self.rtt.on_echo(stamp, way, now, self.is_clr, &self.config) {
                    // The first losses were counted with R_max instead of the round-trip time. Correct them.
                    let ratio = self.rtt().ratio(assumed);
                    self.losses.rescale_first(ratio * ratio);
                    self.losses.regroup(self.rtt());
                }
            }
            None => self.rtt.on_packet(way, &self.config),
        }
        self.meter.add(arrival.size, now, self.window());
        self.count(arrival);
        self.follow(before, &forward, now);
    }

    fn on_overheard(&mut self, heard: &Overheard<'_>) {
        if self.is_clr || self.fire.is_none() || self.is_far() {
            return;
        }
        let Some(other) = ReceiverReport::read(heard.body) else { return };
        if !other.is_clr && !other.leave && other.rate < self.desired(heard.at) {
            self.fire = None;
        }
    }

    fn due(&self) -> Due {
        match self.fire {
            Some(at) if self.is_clr && self.news => Due::At(Wake { at, why: "limiting receiver" }),
            Some(at) if !self.is_clr => Due::At(Wake { at, why: "feedback round" }),
            _ => Due::Hold,
        }
    }

    fn report(&mut self, slot: &Slot) -> Reply {
        let now = slot.now;
        let Some(last) = self.last else { return Reply::Plain };
        if self.is_clr {
            self.fire = Some(now + self.rtt());
            self.news = false;
        } else {
            // Wait longer if packets are overdue. After the sender has stopped, receivers must not all report at the
            // same time.
            let overdue = now.since(last.at).saturating_sub(last.forward.r_max);
            if !overdue.is_zero() {
                self.fire = Some(now + overdue);
                return Reply::Suppress;
            }
            self.fire = None;
            if self.silenced(now) {
                return Reply::Suppress;
            }
        }
        self.reported = Some(now);
        self.say(now, false).map_or(Reply::Plain, Reply::Body)
    }

    fn leave(&mut self, now: Time) -> Option<Body> {
        self.say(now, true)
    }

    fn acceptable(&self) -> Option<Rate> {
        let loss = self.losses.rate().filter(|_| self.have_loss);
        // Return no rate before the first measurement. The round-trip time is then an assumed maximum, and the rate
        // would be too low.
        self.rtt.is_known().then(|| loss.map_or(Rate::MAX, |p| throughput(self.packet, self.rtt(), p)))
    }

    fn view(&self) -> View {
        let now = self.last.map_or(Time::ZERO, |last| last.at);
        let state = match (self.is_clr, self.have_loss) {
            (true, true) => "limiting",
            (true, false) => "limiting, slow start",
            (false, true) => "other",
            (false, false) => "other, no loss",
        };
        View {
            rate: self.last.map(|_| self.desired(now)),
            loss: self.losses.rate().map(|p| p.get()),
            rtt: Some(self.rtt()),
            state: Some(state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_receivers_fit_into_twenty_megabytes() {
        assert!(size_of::<Receiver>() <= 2_000, "{} bytes", size_of::<Receiver>());
    }

    #[test]
    fn a_stamp_survives_the_way_to_the_other_end_and_back() {
        for ns in [0, 1, 999_999_999, 123_456_789_012, 17_000_000_000_000_000] {
            let stamp = Stamp::of(Time::from_nanos(ns));
            assert_eq!(peer_stamp(PeerTime::from_nanos(ns as i64)), stamp);
            let heard = peer_stamp(stamp.peer(None)).0;
            assert!(stamp.0.wrapping_sub(heard) <= 1, "{heard} for {}", stamp.0);
        }
    }
}
