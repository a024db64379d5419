//! Sends the bandwidth probes that a controller requests
//! ([`SenderHalf::probe`](steadycast_control::SenderHalf::probe)).

use steadycast_control::Probe;
use steadycast_units::{Bytes, Rate};

/// Numbers of a sender's probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    /// Number of probes that were sent completely.
    pub whole: u64,
    /// Number of probes that ended early because the queue was empty and there was no padding.
    pub cut: u64,
    /// Number of probes that the controller withdrew before they began.
    pub skipped: u64,
}

/// Sends one probe at a time. A probe begins with the first packet that is sent after its request. Each id is sent only
/// once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prober {
    running: Option<Running>,
    /// The id of the last probe that has begun.
    begun: Option<u32>,
    /// The id of a probe that is requested but has not begun.
    pending: Option<u32>,
    counts: Probes,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    probe: Probe,
    packets: u32,
    bytes: Bytes,
}

impl Prober {
    /// Returns the numbers of probes.
    pub const fn counts(&self) -> Probes {
        self.counts
    }

    /// Sets the probe that the controller requests, or `None` if it requests none.
    pub fn request(&mut self, wanted: Option<Probe>) {
        let new = wanted.map(|probe| probe.id).filter(|id| self.begun != Some(*id));
        if self.pending.is_some_and(|pending| new != Some(pending)) {
            self.counts.skipped += 1;
        }
        self.pending = new;
    }

    /// Returns the rate of the current probe, or `None` if there is none.
    pub fn rate(&self) -> Option<Rate> {
        self.running.map(|running| running.probe.rate)
    }

    /// Returns whether padding can fill the current probe. A probe with [`Probe::within`] consists only of packets that
    /// wait in the queue.
    pub fn pads(&self) -> bool {
        self.running.is_some_and(|running| !running.probe.within)
    }

    /// Adds a sent packet to the current probe. If there is no current probe, the packet starts the probe `wanted`,
    /// unless that probe has begun before.
    ///
    /// Returns the bytes that the pacer has to charge now. They are above zero only at the end of a probe with
    /// [`Probe::within`], because the packets of other probes do not count against the pacing rate.
    pub fn on_sent(&mut self, wanted: Option<Probe>, size: Bytes) -> Bytes {
        // A probe begins with a media packet, so without media it never begins.
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
            self.counts.whole += 1;
            // Leave out the last packet, because the pacer charges it itself.
            let early = if running.probe.within { running.bytes.saturating_sub(size) } else { Bytes::ZERO };
            self.running = None;
            return early;
        }
        Bytes::ZERO
    }

    /// Ends the current probe because the queue is empty.
    pub fn ran_dry(&mut self) {
        if self.running.take().is_some() {
            self.counts.cut += 1;
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
        assert_eq!(prober.counts(), Probes { whole: 1, cut: 1, skipped: 0 });
    }

    #[test]
    fn a_probe_that_never_began_is_told_as_skipped_and_one_that_began_is_not() {
        let mut prober = Prober::default();
        [probe(1), probe(1), probe(2), None, None].into_iter().for_each(|wanted| prober.request(wanted));
        assert_eq!(prober.counts().skipped, 2);
        prober.request(probe(3));
        prober.on_sent(probe(3), S);
        prober.request(probe(3));
        prober.request(None);
        assert_eq!(prober.counts().skipped, 2);
    }

    #[test]
    fn one_that_follows_at_once_waits_for_the_end_of_the_one_before() {
        let mut prober = Prober::default();
        prober.on_sent(probe(1), S);
        for _ in 0..3 {
            prober.request(probe(2));
            prober.on_sent(probe(2), S);
        }
        assert_eq!((prober.counts().whole, prober.rate()), (1, None));
        prober.on_sent(probe(2), S);
        assert_eq!(prober.rate(), Some(Rate::mbps(4)));
    }
}
