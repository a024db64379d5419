//! Records when datagrams of selected hosts are sent and when they arrive.

use crate::datagram::Datagram;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use steadycast_endpoints::{Rows, Store, StoredRows, Table};
use steadycast_network::{DatagramArrival, host_address};
use steadycast_record::{row, wire};
use steadycast_scenario::{NodeIx, Scenario};
use steadycast_units::Time;
use steadycast_wire::rtp::RtpHeader;

/// Records the datagrams that some hosts send or receive, including datagrams to groups.
pub(crate) struct Tap {
    hosts: BTreeSet<NodeIx>,
    sent: Rows<Departure>,
    came: Rows<Arrival>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Departure {
    number: u32,
    at: Time,
    from: u32,
    /// The destination address, of a host or a group.
    to: u32,
    protocol: u32,
    /// The source port and the destination port, 16 bits each.
    ports: Option<u32>,
    bytes: u32,
    ecn: u32,
    rtp: Option<Rtp>,
}

row!(Departure { number, at, from, to, protocol, ports, bytes, ecn, rtp });

/// The RTP header of a datagram, if the datagram really is RTP.
#[derive(Clone, Copy, Debug, Default)]
struct Rtp {
    ssrc: u32,
    payload_type: u32,
    seq: u32,
    timestamp: u32,
    marker: bool,
    /// The first seven bytes of the payload as one number. A VP8 payload descriptor has at most six (RFC 7741, section
    /// 4.2), so the first byte of VP8's own header is always included.
    head: Option<i64>,
}

row!(Rtp { ssrc, payload_type, seq, timestamp, marker, head });

/// The arrival of a datagram. A datagram arrives more than once if it is duplicated or sent to a group.
#[derive(Clone, Copy, Debug, Default)]
struct Arrival {
    number: u32,
    at: Time,
    host: u32,
    ecn: u32,
}

row!(Arrival { number, at, host, ecn });

impl Tap {
    pub(crate) fn new(hosts: BTreeSet<NodeIx>, store: Option<&Arc<dyn Store>>) -> Self {
        Self { hosts, sent: Rows::stored(store.cloned()), came: Rows::stored(store.cloned()) }
    }

    /// Returns whether a datagram is recorded. `to` is `None` if it is sent to a group.
    fn sees(&self, from: NodeIx, to: Option<NodeIx>) -> bool {
        self.hosts.contains(&from) || to.is_none_or(|to| self.hosts.contains(&to))
    }

    /// Records that a datagram was sent. `number` is its number in the network.
    pub(crate) fn sent(&mut self, now: Time, number: u32, from: NodeIx, to: Option<NodeIx>, datagram: &Datagram<'_>) {
        if !self.sees(from, to) {
            return;
        }
        self.sent.push(Departure {
            number,
            at: now,
            from: from.0,
            to: datagram.to().into(),
            protocol: datagram.protocol().into(),
            ports: datagram.ports().map(|(from, to)| u32::from(from) << 16 | u32::from(to)),
            bytes: datagram.len() as u32,
            ecn: datagram.ecn().bits().into(),
            rtp: datagram.udp().and_then(Rtp::read),
        });
    }

    pub(crate) fn arrived(&mut self, arrival: &DatagramArrival<'_>) {
        let Some(datagram) = Datagram::read(arrival.bytes) else { return };
        let to = (!datagram.to().is_multicast()).then_some(arrival.host);
        if self.sees(arrival.from, to) {
            let ecn = arrival.ecn.bits().into();
            self.came.push(Arrival { number: arrival.number, at: arrival.at, host: arrival.host.0, ecn });
        }
    }

    /// Reads the recorded rows back from the store.
    ///
    /// # Errors
    /// Returns an error if the store can't be read.
    pub(crate) fn recall(&mut self) -> io::Result<()> {
        self.sent.recall()?;
        self.came.recall()
    }

    /// Returns the table `wire`, in the order in which datagrams were sent. It has a row for each arrival, and a row
    /// for each datagram that did not arrive.
    pub(crate) fn table(&self, scenario: &Scenario) -> Option<Table> {
        let mut table = Table::called("wire")?;
        let name = |node: u32| scenario.node_name(NodeIx(node));
        let all = (0..scenario.nodes.len() as u32).map(|node| (u32::from(host_address(NodeIx(node))), name(node)));
        let hosts: BTreeMap<u32, &str> = all.collect();
        let rtp = rtp_paths(&self.sent);
        let mut came: Vec<&Arrival> = self.came.iter().collect();
        // The sort is stable, so the arrivals of a datagram remain in order of time.
        came.sort_by_key(|came| came.number);
        let mut came = &came[..];
        for sent in &self.sent {
            let (own, rest) = came.split_at(came.partition_point(|came| came.number <= sent.number));
            came = rest;
            // Leave the RTP columns empty if the path has no RTP stream, because a datagram can look like RTP by
            // chance.
            let told = Departure { rtp: sent.rtp.filter(|_| rtp.contains(&sent.path())), ..*sent };
            for (n, one) in own.iter().enumerate() {
                // Count the copies per host, because a datagram to a group arrives at several hosts.
                let copy = own[..n].iter().filter(|other| other.host == one.host).count();
                told.put(&mut table, name(sent.from), name(one.host), Some((one, copy)));
            }
            if own.is_empty() {
                let group = Ipv4Addr::from(sent.to).to_string();
                told.put(&mut table, name(sent.from), hosts.get(&sent.to).unwrap_or(&&*group), None);
            }
        }
        Some(table)
    }
}

impl Rtp {
    fn read(payload: &[u8]) -> Option<Self> {
        let (header, payload) = RtpHeader::recognise(payload)?;
        Some(Self {
            ssrc: header.ssrc,
            payload_type: header.payload_type.into(),
            seq: header.seq.into(),
            timestamp: header.timestamp,
            marker: header.marker,
            head: (!payload.is_empty()).then(|| {
                let mut first = [0; 8];
                first[1..].iter_mut().zip(payload).for_each(|(into, byte)| *into = *byte);
                i64::from_be_bytes(first)
            }),
        })
    }
}

impl Departure {
    /// Returns the source host, the destination address and the ports.
    fn path(&self) -> (u32, u32, Option<u32>) {
        (self.from, self.to, self.ports)
    }

    /// Writes a row. `came` is the arrival and the number of the copy that arrived.
    fn put(&self, into: &mut Table, from: &str, to: &str, came: Option<(&Arrival, usize)>) {
        into.whole(&wire::NUMBER, self.number.into());
        into.real(&wire::SENT, self.at.as_secs_f64());
        into.real(&wire::ARRIVED, came.map(|(came, _)| came.at.as_secs_f64()));
        into.whole(&wire::COPY, came.map_or(0, |(_, copy)| copy as i64));
        into.text(&wire::FROM, from);
        into.text(&wire::TO, to);
        into.whole(&wire::PROTOCOL, self.protocol.into());
        if let Some(ports) = self.ports {
            into.whole(&wire::FROM_PORT, (ports >> 16).into());
            into.whole(&wire::TO_PORT, (ports & 0xffff).into());
        }
        into.whole(&wire::BYTES, self.bytes.into());
        into.whole(&wire::ECN_SENT, self.ecn.into());
        if let Some((came, _)) = came {
            into.whole(&wire::ECN_ARRIVED, came.ecn.into());
        }
        if let Some(rtp) = self.rtp {
            into.whole(&wire::SSRC, rtp.ssrc.into());
            into.whole(&wire::PT, rtp.payload_type.into());
            into.whole(&wire::SEQ, rtp.seq.into());
            into.whole(&wire::RTP_TS, rtp.timestamp.into());
            into.whole(&wire::MARKER, rtp.marker.into());
            if let Some(head) = rtp.head {
                into.whole(&wire::HEAD, head);
            }
        }
        into.end_row();
    }
}

/// Minimum number of packets in an RTP stream.
const MIN_STREAM_PACKETS: u32 = 16;
/// Maximum step between two consecutive sequence numbers in an RTP stream.
const MAX_STREAM_STEP: u16 = 64;

/// Returns the paths that have an RTP stream: at least [`MIN_STREAM_PACKETS`] packets with the same SSRC and payload
/// type. At least nine of ten sequence numbers must exceed the previous sequence number by 1 to [`MAX_STREAM_STEP`].
///
/// A single header does not prove RTP. For example, the long headers of QUIC look like RTP if the fixed bit is greased
/// (RFC 9287).
fn rtp_paths(sent: &[Departure]) -> BTreeSet<(u32, u32, Option<u32>)> {
    // The key is a path, an SSRC and a payload type. The value is the number of packets, the number of regular steps,
    // and the last sequence number.
    let mut streams = BTreeMap::<_, (u32, u32, u16)>::new();
    for (one, rtp) in sent.iter().filter_map(|one| Some((one, one.rtp?))) {
        let (packets, steps, last) = streams.entry((one.path(), rtp.ssrc, rtp.payload_type)).or_default();
        let step = (rtp.seq as u16).wrapping_sub(*last);
        *steps += u32::from(*packets > 0 && (1..=MAX_STREAM_STEP).contains(&step));
        (*packets, *last) = (*packets + 1, rtp.seq as u16);
    }
    let steady = streams.into_iter().filter(|(_, (n, steps, _))| *n >= MIN_STREAM_PACKETS && 10 * steps >= 9 * (n - 1));
    steady.map(|((path, ..), _)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;
    use steadycast_link::Ecn;
    use steadycast_network::{DatagramEvent, Datagrams, Target};
    use steadycast_record::Values;
    use steadycast_units::{Bytes, Rate, Span};

    /// Returns a UDP datagram from host 0 to host 1 with these ports.
    fn datagram(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
        let total = 28 + payload.len();
        let mut bytes = vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0, 0, 64, 17, 0, 0];
        bytes.extend([0, 1].map(|n| host_address(NodeIx(n)).octets()).concat());
        bytes.extend([ports.0, ports.1, (8 + payload.len()) as u16, 0].map(u16::to_be_bytes).concat());
        bytes.extend(payload);
        bytes
    }

    fn scenario(link: &str) -> Scenario {
        let text = format!(
            "duration = '9s'\nnodes = ['a', 'b']\n[[link]]\nname = 'way'\nbetween = ['a', 'b']\n{link}\n\
             [[flow]]\nname = 'any'\nkind = 'cbr'\nrate = '1Mbps'\nfrom = 'a'\nto = ['b']\n"
        );
        Scenario::parse(&text, Path::new("test.toml")).unwrap_or_else(|p| panic!("{p}")).scenario
    }

    /// Returns a tap of the host `tapped`. Host a has sent these datagrams to host b at intervals of `gap`.
    fn tapped(network: &mut Datagrams, tapped: u32, gap: Span, datagrams: impl IntoIterator<Item = Vec<u8>>) -> Tap {
        let mut tap = Tap::new([NodeIx(tapped)].into(), None);
        let note = |tap: &mut Tap, passed: DatagramEvent<'_>| {
            if let DatagramEvent::Arrival(arrival) = passed {
                tap.arrived(&arrival);
            }
        };
        let mut now = Time::ZERO;
        for bytes in datagrams {
            network.advance(now, |passed| note(&mut tap, passed));
            let (from, to) = (NodeIx(0), NodeIx(1));
            let number =
                network.offer(now, from, Target::Host(to), Ecn::NotEct, bytes.clone()).expect("the network accepts it");
            tap.sent(now, number, from, Some(to), &Datagram::read(&bytes).expect("a datagram"));
            now += gap;
        }
        network.advance(now + Span::secs(9), |passed| note(&mut tap, passed));
        tap.recall().unwrap();
        tap
    }

    fn reals(table: &Table, name: &str) -> Vec<f64> {
        if let Some(Values::Real(values)) = table.get(name) { values.clone() } else { panic!("{name}") }
    }

    fn wholes(table: &Table, name: &str) -> Vec<i64> {
        if let Some(Values::Whole(values)) = table.get(name) { values.clone() } else { panic!("{name}") }
    }

    proptest! {
        #[test]
        fn losses_and_copies_are_those_that_the_link_counts_and_times_those_that_it_takes(
            (loss, duplicate, reorder) in (0.0..0.5, 0.0..0.5, 0.0..0.5), gap_us in 500u64..3_000,
            limit in 3u32..20, count in 50usize..300, host in 0u32..2,
        ) {
            let scenario = scenario(&format!(
                "rate = '8Mbps'\ndelay = '10ms'\nloss = {loss}\nduplicate = {duplicate}\n\
                 reorder = {{ p = {reorder}, by = '7ms' }}\nqueue = {{ kind = 'droptail', limit = '{limit}p' }}"
            ));
            let mut network = Datagrams::new(&scenario, &[NodeIx(0), NodeIx(1)]).unwrap();
            let all = vec![datagram((7, 9), &[0; 972]); count];
            let tap = tapped(&mut network, host, Span::micros(gap_us), all);
            let table = tap.table(&scenario).unwrap();
            let links = network.links(Time::NEVER);
            let counts = links[0].link.counts(Time::NEVER);
            let (sent, arrived) = (reals(&table, "sent_s"), reals(&table, "arrived_s"));
            let (numbers, copies) = (wholes(&table, "number"), wholes(&table, "copy"));
            prop_assert_eq!(arrived.iter().filter(|at| at.is_nan()).count() as u64, counts.dropped());
            prop_assert_eq!(copies.iter().filter(|copy| **copy == 1).count() as u64, counts.duplicated);
            prop_assert!(copies.iter().all(|copy| (0..2).contains(copy)));
            let firsts = numbers.iter().zip(&copies).filter(|(_, copy)| **copy == 0);
            prop_assert!(firsts.map(|(number, _)| *number).eq(0..count as i64));
            for (n, at) in arrived.iter().enumerate().filter(|(_, at)| !at.is_nan()) {
                prop_assert_eq!(sent[n], Span::micros(gap_us * numbers[n] as u64).as_secs_f64());
                // The delay includes 1 ms of transmission and the extra delay. Each earlier datagram in the queue or in
                // the transmitter adds 1 ms. A duplicate is delayed by 1 ms more.
                let own = Bytes::new(1000).at(Rate::mbps(8)).as_secs_f64();
                let most = own * f64::from(limit + 2) + 0.017 + if copies[n] > 0 { own } else { 0.0 };
                prop_assert!((own + 0.01 - 1e-9..most + 1e-9).contains(&(at - sent[n])), "{} s", at - sent[n]);
            }
        }

        #[test]
        fn a_stream_of_rtp_is_found_with_its_few_retransmissions_and_quics_greased_handshake_is_not(
            first: u16, steps in prop::collection::vec(1u16..5, 15..60), ssrc: u32, quic in 0usize..40,
            versions in prop::sample::select(vec![0x0000_0001u32, 0x6b33_43cf, 0xff00_001d]),
        ) {
            let rtp = |pt: u8, seq: u16, ssrc: u32| {
                let mut bytes = vec![0x80, pt];
                bytes.extend(seq.to_be_bytes());
                bytes.extend([0, 0, 0, 9]);
                bytes.extend(ssrc.to_be_bytes());
                bytes.extend([0x65, 1, 2, 3, 4]);
                bytes
            };
            let mut seq = first;
            let mut all = vec![datagram((5, 6), &rtp(96, seq, ssrc)), datagram((5, 6), &rtp(97, 7, !ssrc))];
            for step in &steps {
                seq = seq.wrapping_add(*step);
                all.push(datagram((5, 6), &rtp(96, seq, ssrc)));
            }
            // Initial, 0-RTT, Handshake and Retry packets. The fixed bit of their long headers is greased (RFC 9000,
            // section 17.2; RFC 9287).
            for n in 0..quic {
                let mut bytes = vec![0x80 | (n as u8 & 3) << 4];
                bytes.extend(versions.to_be_bytes());
                bytes.resize(1200, n as u8);
                all.push(datagram((7, 443), &bytes));
            }
            let scenario = scenario("");
            let mut network = Datagrams::new(&scenario, &[NodeIx(0), NodeIx(1)]).unwrap();
            let table = tapped(&mut network, 1, Span::millis(1), all).table(&scenario).unwrap();
            let (seqs, ports) = (wholes(&table, "seq"), wholes(&table, "to_port"));
            for (n, (seq, port)) in seqs.iter().zip(&ports).enumerate() {
                prop_assert_eq!(*seq >= 0, *port == 6, "row {}", n);
            }
            prop_assert_eq!(wholes(&table, "head")[0], 0x65_0102_0304_0000, "shorter than seven bytes");
            prop_assert_eq!(wholes(&table, "pt")[..2].to_vec(), [96, 97]);
            prop_assert_eq!(seqs[0], i64::from(first));
        }
    }
}
