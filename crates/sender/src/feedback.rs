//! Reads per-packet feedback and matches it with the record of sent packets.

use steadycast_control::{FeedbackFormat, PacketArrival};
use steadycast_remote::{History, Joined};
use steadycast_units::Time;
use steadycast_wire::rtcp::{Acknowledged, Arrived, Compound, CongestionFeedback, Packet, TransportFeedback};

/// How feedback identifies a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PacketName {
    /// The transport-wide sequence number.
    Transport(u16),
    /// The SSRC and the RTP sequence number, as in RFC 8888.
    Rtp {
        /// The SSRC.
        ssrc: u32,
        /// The RTP sequence number.
        seq: u16,
    },
    /// A number that the caller's protocol assigns, for example QUIC's packet number.
    Own(u64),
}

/// Returns whether an RTCP packet contains per-packet feedback in this format.
pub fn is_packet_feedback(format: FeedbackFormat, packet: &Packet) -> bool {
    match format {
        FeedbackFormat::Rfc8888 => CongestionFeedback::is(packet),
        FeedbackFormat::TransportWide => TransportFeedback::is(packet),
        _ => false,
    }
}

/// After this many packet reports, the remaining messages of a compound are ignored. A limit is needed, because a
/// message of a few bytes can report 16,384 packets. The limit is twice the length of the history.
const MAX_PACKETS_PER_COMPOUND: usize = 1 << 15;

/// Reads the per-packet feedback in a compound and matches it with the sent packets. `find` returns the number of a
/// sent packet by its name in feedback. Returns the matched packets, or `None` if feedback matches no sent packet. Also
/// returns the number of messages that were ignored because of the limit.
pub fn join(
    history: &mut History,
    now: Time,
    compound: &Compound,
    format: FeedbackFormat,
    find: impl Fn(&History, PacketName) -> Option<u64>,
) -> (Option<Joined>, u64) {
    let to_arrival = |arrival: Option<Arrived>| arrival.map(|Arrived { at, ecn }| PacketArrival { at, ecn });
    let (mut joined, mut any, mut read, mut unread) = (Joined::default(), false, 0, 0);
    for packet in compound.packets.iter().filter(|packet| is_packet_feedback(format, packet)) {
        // The report time of a message applies only to its own packets, which start at this index.
        let first = joined.packets.len();
        if read >= MAX_PACKETS_PER_COMPOUND {
            unread += 1;
        } else if let Ok(Some(feedback)) = CongestionFeedback::from_packet(packet) {
            let reported = feedback.reported_at(history.near());
            for (ssrc, Acknowledged { seq, arrival }) in feedback.acknowledged(history.near()) {
                read += 1;
                if let Some(number) = find(history, PacketName::Rtp { ssrc, seq }) {
                    any = true;
                    history.join(number, to_arrival(arrival), &mut joined);
                }
            }
            joined.measure_from(first, now, reported);
        } else if let Ok(Some(feedback)) = TransportFeedback::from_packet(packet) {
            for Acknowledged { seq, arrival } in feedback.acknowledged(history.near()) {
                read += 1;
                if let Some(number) = find(history, PacketName::Transport(seq)) {
                    any = true;
                    history.join(number, to_arrival(arrival), &mut joined);
                }
            }
            // The transport-wide format has no report time, so use the newest arrival instead.
            if let Some(newest) = history.near() {
                joined.measure_from(first, now, newest);
            }
        }
    }
    joined.sort();
    joined.assume_times();
    (any.then_some(joined), unread)
}
