//! The two ends of a TCP connection of the kernel, observed from outside.

use super::tcp::{SegmentCounts, TcpMeans, TcpPoint, tcp_figures};
use super::{FigureContext, Recorded};
use crate::intake::{Digest, Intake};
use crate::{Activity, Rows};
use steadycast_record::Figures;
use steadycast_units::{Bytes, Span, Time};

/// The state of a connection, as the kernel reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// Number of data segments sent, including retransmissions.
    pub sent: u64,
    /// IP bytes of these segments.
    pub bytes: Bytes,
    /// Number of retransmitted segments.
    pub retransmitted: u64,
    /// Number of retransmission timeouts.
    pub timeouts: u64,
    /// Congestion window in packets.
    pub cwnd: f64,
    /// Slow-start threshold in packets. It is infinite at the start of a connection.
    pub ssthresh: f64,
    /// Smoothed round-trip time. `None` before the first measurement.
    pub srtt: Option<Span>,
    /// Whether the connection still has data that is unsent or unacknowledged.
    pub waits: bool,
}

/// A TCP sender in a kernel.
#[derive(Clone, Debug)]
pub struct KernelSource {
    past: Observed,
    now: Observed,
    means: TcpMeans,
    last: Option<Time>,
    last_bytes: Bytes,
    /// State of TCP in each step of the time series.
    pub samples: Rows<TcpPoint>,
    /// The periods in which the application had data to send.
    pub activity: Activity,
    /// A digest of all observations and their times.
    pub digest: Digest,
}

impl KernelSource {
    /// Creates a source that has not been observed yet. Mean values begin at `means_from`.
    pub fn new(means_from: Time) -> Self {
        Self {
            past: Observed::default(),
            now: Observed::default(),
            means: TcpMeans::new(means_from),
            last: None,
            last_bytes: Bytes::ZERO,
            samples: Rows::default(),
            activity: Activity::default(),
            digest: Digest::default(),
        }
    }

    /// Adds an observation. Observations must follow each other at intervals that are short compared to the RTT.
    pub fn observe(&mut self, now: Time, seen: Observed) {
        if let Some(last) = self.last.replace(now) {
            // Assume that the previously observed window was valid until now.
            self.means.add_window(self.now.cwnd, last, now);
        }
        if let Some(srtt) = seen.srtt {
            // Add the value once per segment. In simulated TCP, each acknowledgment adds a value, so the percentiles of
            // simulated and kernel TCP are comparable.
            self.means.add_srtt(now, srtt, seen.sent.saturating_sub(self.now.sent));
        }
        self.digest.add(now.as_nanos() ^ seen.sent << 40);
        self.now = seen;
    }

    /// Ends the connection. The counts of later connections are added to its counts.
    pub fn close(&mut self) {
        let (past, now) = (&mut self.past, &self.now);
        past.sent += now.sent;
        past.bytes += now.bytes;
        past.retransmitted += now.retransmitted;
        past.timeouts += now.timeouts;
        (self.now, self.last) = (Observed::default(), None);
    }

    /// Returns the segment counts of all connections.
    pub fn counts(&self) -> SegmentCounts {
        let of = |o: &Observed| SegmentCounts { sent: o.sent, retransmitted: o.retransmitted, timeouts: o.timeouts };
        of(&self.past) + of(&self.now)
    }

    /// Returns whether data was unsent or unacknowledged at the last observation.
    pub const fn waits(&self) -> bool {
        self.now.waits
    }

    /// Returns the IP bytes of all connections.
    pub fn sent_bytes(&self) -> Bytes {
        self.past.bytes + self.now.bytes
    }

    /// Appends the current step to the time series.
    pub fn sample(&mut self) {
        let bytes = self.sent_bytes();
        self.samples.push(TcpPoint {
            cwnd: self.now.cwnd,
            ssthresh: self.now.ssthresh,
            srtt: self.now.srtt,
            bytes: bytes.saturating_sub(self.last_bytes).get(),
        });
        self.last_bytes = bytes;
    }
}

/// A TCP receiver in the kernel. A packet counts as arrived when it reaches the receiver's host.
#[derive(Clone, Debug)]
pub struct KernelSink {
    /// Counts of the segments that delivered new data.
    pub intake: Intake,
}

impl Recorded for KernelSource {
    fn figures(&self, _about: &FigureContext<'_>, into: &mut Figures) {
        tcp_figures(self.counts(), &self.means, into);
    }
    fn digest(&self) -> (u64, u64) {
        (self.digest.value(), self.sent_bytes().get())
    }
    fn windows(&self) -> &[TcpPoint] {
        &self.samples
    }
    fn activity(&self) -> Option<&Activity> {
        Some(&self.activity)
    }
}

impl Recorded for KernelSink {
    fn intake(&self) -> Option<&Intake> {
        Some(&self.intake)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_connection_counts_on_and_its_window_is_its_own() {
        let mut source = KernelSource::new(Time::ZERO + Span::millis(50));
        let at = |ms| Time::ZERO + Span::millis(ms);
        let seen = |sent, cwnd| Observed {
            sent,
            bytes: Bytes::new(sent * 1500),
            cwnd,
            srtt: Some(Span::millis(40)),
            ..Observed::default()
        };
        source.observe(at(0), seen(10, 10.0));
        source.observe(at(100), seen(30, 20.0));
        source.sample();
        source.close();
        source.observe(at(5_000), seen(7, 40.0));
        source.observe(at(5_100), seen(8, 10.0));
        source.sample();
        assert_eq!(source.counts(), SegmentCounts { sent: 38, retransmitted: 0, timeouts: 0 });
        assert_eq!(source.samples.iter().map(|s| s.bytes).collect::<Vec<_>>(), [45_000, 12_000]);
        // The window has ten packets for 50 ms of the first connection, after the warm-up, and then 40 packets for
        // 100 ms of the second one. The time between the two does not count.
        assert_eq!(source.means.cwnd(), Some(30.0));
    }
}
