//! A controller's probe under way ([`SenderHalf::probe`](steadycast_control::SenderHalf::probe)): packets that leave
//! at a rate of their own.

use steadycast_control::Probe;
use steadycast_units::{Bytes, Rate};

/// What became of a sender's probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    /// Probes that were sent whole.
    pub whole: u64,
    /// Probes that ended early: nothing waited any more, and there was no padding.
    pub cut: u64,
    /// Probes that were withdrawn before anything waited, or while the window was closed.
    pub skipped: u64,
}

/// Sends one probe after the other. A probe begins with the first packet that leaves once it is wanted, and ends when
/// it has its packets and bytes, or when nothing waits. Each is sent once, by its id.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prober {
    running: Option<Running>,
    /// The last one that has begun.
    begun: Option<u32>,
    /// One that is wanted and has not begun.
    pending: Option<u32>,
    told: Probes,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    probe: Probe,
    packets: u32,
    bytes: Bytes,
}

impl Prober {
    pub(crate) const fn told(&self) -> Probes {
        self.told
    }

    /// What the controller wants now.
    pub(crate) fn want(&mut self, wanted: Option<Probe>) {
        let new = wanted.map(|probe| probe.id).filter(|id| self.begun != Some(*id));
        if self.pending.is_some_and(|pending| new != Some(pending)) {
            self.told.skipped += 1;
        }
        self.pending = new;
    }

    /// The rate at which packets leave, while a probe is under way.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.running.map(|running| running.probe.rate)
    }

    /// Whether the probe under way is filled up: one within the pacing rate is made of what waits.
    pub(crate) fn pads(&self) -> bool {
        self.running.is_some_and(|running| !running.probe.within)
    }

    /// A packet of this size leaves: it begins the probe that is wanted, where none is under way. Padding begins none.
    /// The bytes that have left too soon, where it ends a probe within the pacing rate.
    pub(crate) fn on_sent(&mut self, wanted: Option<Probe>, size: Bytes) -> Bytes {
        if self.running.is_none() {
            self.running = wanted
                .filter(|probe| self.begun != Some(probe.id) && probe.rate > Rate::ZERO)
                .map(|probe| Running { probe, packets: 0, bytes: Bytes::ZERO });
            if let Some(running) = self.running {
                (self.begun, self.pending) = (Some(running.probe.id), None);
            }
        }
        let Some(running) = &mut self.running else { return Bytes::ZERO };
        running.packets = running.packets.saturating_add(1);
        running.bytes += size;
        if running.packets >= running.probe.packets && running.bytes >= running.probe.bytes {
            self.told.whole += 1;
            let early = if running.probe.within { running.bytes.saturating_sub(size) } else { Bytes::ZERO };
            self.running = None;
            return early;
        }
        Bytes::ZERO
    }

    /// Nothing waits behind the packet that has left.
    pub(crate) fn ran_dry(&mut self) {
        if self.running.take().is_some() {
            self.told.cut += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Bytes = Bytes::new(1_000);

    fn probe(id: u32) -> Option<Probe> {
        Some(Probe { id, rate: Rate::mbps(4), packets: 3, bytes: Bytes::new(3_500), within: false })
    }

    #[test]
    fn a_probe_is_sent_once_and_ends_with_its_packets_and_bytes_whichever_comes_last() {
        let mut prober = Prober::default();
        for n in 1..=4 {
            prober.on_sent(probe(7), S);
            assert_eq!(prober.rate().is_some(), n < 4, "after packet {n}");
        }
        prober.on_sent(probe(7), S);
        assert_eq!(prober.rate(), None);
        prober.on_sent(probe(8), S);
        assert_eq!(prober.rate(), Some(Rate::mbps(4)));
        prober.ran_dry();
        assert_eq!(prober.told(), Probes { whole: 1, cut: 1, skipped: 0 });
    }

    #[test]
    fn a_probe_that_never_began_is_told_as_skipped_and_one_that_began_is_not() {
        let mut prober = Prober::default();
        [probe(1), probe(1), probe(2), None, None].into_iter().for_each(|wanted| prober.want(wanted));
        assert_eq!(prober.told().skipped, 2);
        prober.want(probe(3));
        prober.on_sent(probe(3), S);
        prober.want(probe(3));
        prober.want(None);
        assert_eq!(prober.told().skipped, 2);
    }

    #[test]
    fn one_that_follows_at_once_waits_for_the_end_of_the_one_before() {
        let mut prober = Prober::default();
        prober.on_sent(probe(1), S);
        for _ in 0..3 {
            prober.want(probe(2));
            prober.on_sent(probe(2), S);
        }
        assert_eq!((prober.told().whole, prober.rate()), (1, None));
        prober.on_sent(probe(2), S);
        assert_eq!(prober.rate(), Some(Rate::mbps(4)));
    }
}
