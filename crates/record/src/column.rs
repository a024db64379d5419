//! The tables of a run: the list of their columns, and a type that builds their rows.

use crate::Unit;
use std::collections::BTreeMap;
use steadycast_units::Span;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Real,
    Whole,
    Text,
}

/// One column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name of the table.
    pub table: &'static str,
    /// The name of the column in its table.
    pub name: &'static str,
    /// The unit of the column's values.
    pub unit: Unit,
    /// What the values of the column mean.
    pub about: &'static str,
    place: usize,
    kind: Kind,
    /// Whether the column is written only after pictures have been measured.
    pub measured: bool,
}

/// Declares a constant for each column of each table, and a list of all columns.
macro_rules! columns {
    ($($(#[$doc:meta])* $table:ident { $($name:ident: $kind:ident = $key:literal, $unit:ident, $about:expr;)* })*) => {
        $(
            $(#[$doc])*
            pub mod $table {
                use super::{Column, Kind};
                use crate::Unit;
                #[allow(clippy::upper_case_acronyms, non_camel_case_types, reason = "named as the handles are")]
                enum Order { $($name),* }
                $(
                    #[doc = concat!("`", $key, "`: ", $about)]
                    pub const $name: Column = Column {
                        table: stringify!($table), name: $key, unit: Unit::$unit, about: $about,
                        place: Order::$name as usize, kind: Kind::$kind, measured: false,
                    };
                )*
            }
        )*
        /// All columns that a simulation, an emulation or a live session writes. They are grouped by table.
        const WRITTEN: &[Column] = &[$($($table::$name,)*)*];
    };
}

columns! {
    /// Columns of `rates`. For each interval of the record, there is one row per source and one per receiver of each
    /// flow. The row has the data that was sent or received there.
    rates {
        T: Real = "t_s", Seconds, "The start of the interval.";
        FLOW: Text = "flow", Text, "The flow's name.";
        NODE: Text = "node", Text, "The source's or the receiver's node.";
        THROUGHPUT: Real = "throughput_bps", Rate, "The rate that the source sent or the receiver received, in bits \
            of IP packets per second. At a receiver of a group it is the rate in the part of the interval in which \
            the receiver is a member, and null if it is none.";
        LOSS: Real = "loss_frac", Share, "The share of the packets expected that did not arrive; null at sources and \
            for TCP.";
        DELAY: Real = "delay_ms", Millis, "Mean one-way delay of the packets that arrived; null at sources.";
        TARGET: Real = "target_bps", Rate, "The controller's target rate at the interval's end; only at sources of \
            videos.";
        PACING: Real = "pacing_bps", Rate, "The pacing rate at the interval's end; only at sources of videos.";
        BUFFER: Real = "buffer_bytes", Bytes, "Bytes in the play-out buffer at the interval's end; null without a \
            buffer.";
        PLAYOUT: Real = "playout_ms", Millis, "The play-out delay at the interval's end; null if the receiver waits \
            for frames without limit.";
        FAIR: Real = "fair_bps", Rate, "The flow's max–min fair share in the part of the interval in which the flow \
            is active (fair_share_bps has the definition); only at receivers. Null while the flow is not active, and \
            if no link limits it.";
    }
    /// Columns of `decisions`. A row is a decision of a controller or a report of a receiver, with its reason.
    decisions {
        T: Real = "t_s", Seconds, "The time of the row.";
        FLOW: Text = "flow", Text, "The flow's name.";
        NODE: Text = "node", Text, "The source's or the receiver's node.";
        RULE: Text = "rule", Text, "The controller's rule for the decision.";
        TARGET: Real = "target_bps", Rate, "The target rate; at receivers, the rate that they report.";
        PACING: Real = "pacing_bps", Rate, "The pacing rate; null at receivers.";
        LOSS: Real = "loss", Share, "The loss on which the decision is based, as the controller counts it.";
        RTT: Real = "rtt_ms", Millis, "The round-trip time on which the decision is based.";
        LIMIT: Text = "limit", Text, "The limit of the rate: start, network, encoder, cap or floor; null at receivers.";
        BY: Text = "by", Text, "The receiver whose report led to the decision.";
    }
    /// Columns of `frames`. A row is the outcome of a frame at a receiver.
    frames {
        FLOW: Text = "flow", Text, "The flow's name.";
        NODE: Text = "node", Text, "The receiver's node.";
        FRAME: Whole = "frame", Count, "The frame's number, in the order of coding.";
        DISPLAY: Whole = "display", Count, "The frame's place in the order of display.";
        CLIP: Whole = "clip_frame", Count, "The number of the clip's picture that the frame shows.";
        PTS: Real = "pts_s", Seconds, "The capture time of the frame's picture.";
        KIND: Text = "kind", Text, "The kind of the frame: I, P or B.";
        Q: Whole = "q", Number, "The frame's quantizer.";
        SIZE: Whole = "size_bytes", Bytes, "The frame's encoded size.";
        READY: Real = "ready_s", Seconds, "The time at which the frame was encoded.";
        SENT: Real = "sent_s", Seconds, "The time at which the frame's first packet was sent.";
        FIRST: Real = "first_s", Seconds, "The time at which the frame's first packet arrived.";
        ARRIVED: Real = "arrived_s", Seconds, "The time at which the frame's last packet arrived.";
        DELAY: Real = "delay_ms", Millis, "The time from the frame's encoding to the arrival of its last packet.";
        DUE: Real = "due_s", Seconds, "The frame's display time, at which it had to be complete; null if the receiver \
            waits for frames without limit.";
        FATE: Text = "fate", Text, "The frame's outcome: ok, lost, late or undecodable. A frame that the sender \
            skipped is lost, and has no sent_s.";
    }
    /// Columns of `missing`. A row is a range of bytes of a damaged frame that did not arrive.
    missing {
        FLOW: Text = "flow", Text, "The flow's name.";
        NODE: Text = "node", Text, "The receiver's node.";
        FRAME: Whole = "frame", Count, "The frame's number.";
        OFFSET: Whole = "offset", Bytes, "The position of the first missing byte in the frame, from 0.";
        LEN: Whole = "len", Bytes, "The number of missing bytes from there on.";
    }
    /// Columns of `audio`. A row is the outcome of an audio packet at a receiver. The table is written only if the
    /// scenario asks for it.
    audio {
        FLOW: Text = "flow", Text, "The flow's name.";
        NODE: Text = "node", Text, "The receiver's node.";
        PACKET: Whole = "packet", Count, "The packet's number in the flow, from 0.";
        SENT: Real = "sent_s", Seconds, "The time at which the packet was sent, and its first sample taken.";
        ARRIVED: Real = "arrived_s", Seconds, "The time at which the packet arrived; null if it was lost.";
        FATE: Text = "fate", Text, "The packet's outcome: ok, lost, or late (it arrived after its play-out time). In \
            the warm-up no packet is late, because the play-out delay is not known.";
        CONCEALED: Real = "concealed_ms", Millis, "The time that a player conceals because of the packet: 20 ms if it \
            was lost, and the rise of the play-out delay if it was late.";
    }
    /// Columns of `links`. A row has the load, the queue and the drops of a link direction in an interval of the
    /// record.
    links {
        T: Real = "t_s", Seconds, "The start of the interval.";
        LINK: Text = "link", Text, "The link's name.";
        DIRECTION: Text = "direction", Text, "The direction: forward or back.";
        THROUGHPUT: Real = "throughput_bps", Rate, "The rate that the link sent, in bits of IP packets per second.";
        CAPACITY: Real = "capacity_bps", Rate, "The link's capacity; null if its rate is unlimited.";
        UTILISATION: Real = "utilisation_frac", Share, "Throughput as a share of the capacity; null if the rate is \
            unlimited, or while the capacity is 0.";
        WAIT: Real = "queue_ms", Millis, "The queueing delay of the last packet that was offered in the interval.";
        QUEUED: Whole = "queue_packets", Count, "Packets in the queue at the interval's end.";
        DROPPED: Whole = "dropped_packets", Count, "Packets dropped in the interval.";
    }
    /// Columns of `tcp`. A row has the window, the threshold and the round-trip time of a TCP flow in an interval of
    /// the record.
    tcp {
        T: Real = "t_s", Seconds, "The start of the interval.";
        FLOW: Text = "flow", Text, "The flow's name.";
        CWND: Real = "cwnd_packets", Number, "Congestion window in packets, at the interval's end.";
        SSTHRESH: Real = "ssthresh_packets", Number, "Slow-start threshold in packets; null while it is infinite.";
        SRTT: Real = "srtt_ms", Millis, "Smoothed round-trip time.";
    }
    /// Columns of `moves`. A row is the change of a receiver of a simulcast to another group.
    moves {
        T: Real = "t_s", Seconds, "The time of the change.";
        SIMULCAST: Text = "simulcast", Text, "The simulcast's name.";
        RECEIVER: Text = "receiver", Text, "The receiver's node.";
        FROM: Text = "from", Text, "The group that it left.";
        TO: Text = "to", Text, "The group that it joined.";
        OWN: Real = "own_bps", Rate, "The receiver's available rate; null if it is unlimited.";
        AGAINST: Real = "against_bps", Rate, "The rate with which the available rate was compared.";
        WHY: Text = "why", Text, "The rule that led to the change.";
    }
    /// Columns of `packets`. A row is a packet that was sent or received. The table has only flows whose packets the
    /// scenario records.
    packets {
        T: Real = "t_s", Seconds, "The time at which the packet was sent (dir s) or arrived (dir r).";
        DIR: Text = "dir", Text, "s if the row is from the sender, r if it is from the receiver.";
        FLOW: Text = "flow", Text, "The flow's name.";
        NODE: Text = "node", Text, "The sender's or the receiver's node.";
        SEQ: Whole = "seq", Count, "The packet's number in the flow; in TCP flows the sequence number in packets. \
            Audio and parity packets are numbered separately. Repair and padding packets have the number of the video \
            packet that they repeat.";
        STREAM: Text = "stream", Text, "The packet's stream in a video flow: video, repair, parity, padding or audio; \
            null in other flows.";
        SIZE: Whole = "size_bytes", Bytes, "The packet's size, including IP headers.";
        FRAME: Whole = "frame", Count, "The number of the frame that the packet belongs to; −1 for none, as for audio \
            and parity.";
        KIND: Text = "ftype", Text, "The frame's kind: I, P or B.";
        Q: Whole = "q", Number, "The frame's quantizer; −1 for none.";
        ECN: Whole = "ecn", Number, "3 if a queue marked the packet (CE), otherwise 0.";
        DELAY: Real = "owd_ms", Millis, "One-way delay; null at the sender.";
    }
    /// Columns of `wire`. In an emulation, the table has the datagrams from and to the recorded hosts, including
    /// datagrams of other programs. There is one row per arrival, and one row per datagram that did not arrive.
    wire {
        NUMBER: Whole = "number", Count, "The number of datagrams that were sent in the network before this one; \
            duplicates have the same number.";
        SENT: Real = "sent_s", Seconds, "The time at which the datagram left the sending host.";
        ARRIVED: Real = "arrived_s", Seconds, "The time at which the links delivered the datagram; null if it was \
            lost, or in flight at the end of the run.";
        COPY: Whole = "copy", Count, "0 for the datagram itself; 1, 2 and so on for duplicates that a link delivers \
            to the same host.";
        FROM: Text = "from", Text, "The host that sent the datagram.";
        TO: Text = "to", Text, "The host that the datagram reached, or its destination if it was lost. The group's \
            address if no member of a group received it.";
        PROTOCOL: Whole = "protocol", Number, "The IP protocol number: 6 is TCP, 17 is UDP.";
        FROM_PORT: Whole = "from_port", Number, "The source port of UDP or TCP.";
        TO_PORT: Whole = "to_port", Number, "The destination port of UDP or TCP.";
        BYTES: Whole = "bytes", Bytes, "The datagram's size, including IP headers.";
        ECN_SENT: Whole = "ecn_sent", Number, "The ECN field when the datagram was sent, 0 to 3.";
        ECN_ARRIVED: Whole = "ecn_arrived", Number, "The ECN field when the datagram arrived, 0 to 3.";
        SSRC: Whole = "ssrc", Number, "The RTP header's SSRC; this and the following columns are null if the datagram \
            is not RTP.";
        PT: Whole = "pt", Number, "The RTP header's payload type.";
        SEQ: Whole = "seq", Number, "The RTP header's sequence number.";
        RTP_TS: Whole = "rtp_ts", Number, "The RTP header's timestamp.";
        MARKER: Whole = "marker", Number, "The RTP header's marker bit, 0 or 1.";
        HEAD: Whole = "head", Number, "The first seven bytes of the RTP payload as one number. A shorter payload is \
            continued with zeros; null if it is empty.";
    }
}

/// Creates a column that is appended to `frames` after pictures have been measured.
const fn measured(name: &'static str, unit: Unit, kind: Kind, about: &'static str) -> Column {
    Column { table: "frames", name, unit, about, place: usize::MAX, kind, measured: true }
}

const LISTED: usize = WRITTEN.len() + 3;

const fn listed() -> [Column; LISTED] {
    let mut all = [measured(
        "psnr_y_db",
        Unit::Decibels,
        Kind::Real,
        "PSNR of the luminance of the picture shown in its slot, against the original.",
    ); LISTED];
    let mut n = 0;
    while n < WRITTEN.len() {
        all[n] = WRITTEN[n];
        n += 1;
    }
    all[n + 1] = measured("ssim", Unit::Number, Kind::Real, "SSIM of the picture shown in its slot.");
    all[n + 2] = measured("mos", Unit::Opinion, Kind::Whole, "The opinion class of the picture shown in its slot.");
    all
}

/// All columns, grouped by table. Columns that need measured pictures come last.
pub const COLUMNS: &[Column] = &listed();

/// The values of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Real numbers. A value that is absent is NaN.
    Real(Vec<f64>),
    /// Whole numbers. A value that is absent is −1.
    Whole(Vec<i64>),
    /// Texts, as indices into a list. An index that is absent is `u32::MAX`.
    Text {
        /// For each row, the index of its text.
        codes: Vec<u32>,
        /// All different texts of the column.
        texts: Vec<String>,
    },
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::Real(values) => values.len(),
            Self::Whole(values) => values.len(),
            Self::Text { codes, .. } => codes.len(),
        }
    }
}

/// A table that is being built. All columns have equal lengths after each [`Table::end_row`].
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(&'static Column, Values)>,
    /// For each column, the index of each text in it.
    places: Vec<BTreeMap<String, u32>>,
    rows: usize,
}

impl Table {
    /// Returns an empty table with the columns of the table `name`. Returns `None` if there is no table with this name.
    pub fn called(name: &str) -> Option<Self> {
        let empty = |column: &'static Column| {
            let values = match column.kind {
                Kind::Real => Values::Real(Vec::new()),
                Kind::Whole => Values::Whole(Vec::new()),
                Kind::Text => Values::Text { codes: Vec::new(), texts: Vec::new() },
            };
            (column, values)
        };
        let columns: Vec<_> = WRITTEN.iter().filter(|column| column.table == name).map(empty).collect();
        let places = vec![BTreeMap::new(); columns.len()];
        (!columns.is_empty()).then_some(Self { columns, places, rows: 0 })
    }

    /// Sets a real number in the current row. A number that is not finite is stored as absent.
    #[inline]
    pub fn real(&mut self, column: &Column, value: impl Into<Option<f64>>) {
        if let Values::Real(values) = self.values(column) {
            values.push(value.into().filter(|v| v.is_finite()).unwrap_or(f64::NAN));
        }
    }

    /// Sets a time span in the current row, in milliseconds.
    pub fn millis(&mut self, column: &Column, value: impl Into<Option<Span>>) {
        self.real(column, value.into().map(Span::as_millis_f64));
    }

    /// Sets a whole number in the current row.
    #[inline]
    pub fn whole(&mut self, column: &Column, value: i64) {
        if let Values::Whole(values) = self.values(column) {
            values.push(value);
        }
    }

    /// Sets a text in the current row.
    pub fn text(&mut self, column: &Column, text: &str) {
        let Some(places) = self.places.get_mut(column.place) else { return };
        let next = places.len() as u32;
        let known = places.get(text).copied();
        let code = known.unwrap_or(next);
        if known.is_none() {
            places.insert(text.to_owned(), next);
        }
        if let Values::Text { codes, texts } = self.values(column) {
            codes.push(code);
            if code == next {
                texts.push(text.to_owned());
            }
        }
    }

    /// Ends the current row. A column that was not set in this row is absent.
    pub fn end_row(&mut self) {
        self.rows += 1;
        for (column, values) in &mut self.columns {
            if values.len() < self.rows {
                match values {
                    Values::Real(values) => values.push(f64::NAN),
                    Values::Whole(values) => values.push(-1),
                    Values::Text { codes, .. } => codes.push(u32::MAX),
                }
            }
            debug_assert_eq!(values.len(), self.rows, "{} is said once in a row", column.name);
        }
    }

    fn values(&mut self, column: &Column) -> &mut Values {
        let (own, values) = &mut self.columns[column.place];
        debug_assert_eq!(*own, column, "a column of another table");
        values
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the values of the column with this name.
    pub fn get(&self, name: &str) -> Option<&Values> {
        self.columns.iter().find(|(column, _)| column.name == name).map(|(_, values)| values)
    }
}

impl IntoIterator for Table {
    type Item = (&'static Column, Values);
    type IntoIter = std::vec::IntoIter<Self::Item>;
    fn into_iter(self) -> Self::IntoIter {
        self.columns.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_s_place_is_that_in_its_table() {
        for column in WRITTEN {
            let table = Table::called(column.table).unwrap();
            assert_eq!(*table.columns[column.place].0, *column);
        }
        assert!(Table::called("nothing").is_none());
        assert_eq!(
            COLUMNS.iter().filter(|c| c.measured).map(|c| c.name).collect::<Vec<_>>(),
            ["psnr_y_db", "ssim", "mos"]
        );
    }

    #[test]
    fn what_a_row_does_not_say_is_absent() {
        let mut table = Table::called("packets").unwrap();
        table.text(&packets::FLOW, "video");
        table.whole(&packets::SEQ, 7);
        table.end_row();
        table.text(&packets::FLOW, "tcp");
        table.real(&packets::DELAY, f64::INFINITY);
        table.end_row();
        table.text(&packets::FLOW, "video");
        table.end_row();
        assert_eq!(table.rows(), 3);
        assert_eq!(table.get("seq"), Some(&Values::Whole(vec![7, -1, -1])));
        let texts = vec!["video".to_owned(), "tcp".to_owned()];
        assert_eq!(table.get("flow"), Some(&Values::Text { codes: vec![0, 1, 0], texts }));
        let Some(Values::Real(delays)) = table.get("owd_ms") else { panic!("it is real") };
        assert!(delays.len() == 3 && delays.iter().all(|d| d.is_nan()));
    }
}
