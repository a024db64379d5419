//! Finds the pictures of a call's video. Only the headers of packets are used, because payloads are encrypted.

use crate::call::{Fate, Flight, Frame, MissingPackets, PacketRecord, main_source};
use std::collections::{BTreeMap, BTreeSet};
use steadycast_units::{Bytes, PeerTime, Time, counted};

/// RTP clocks that audio formats use, in ticks per second (RFC 3551, section 4.5; RFC 7587).
const AUDIO_CLOCKS: [f64; 10] =
    [8000.0, 11_025.0, 12_000.0, 16_000.0, 22_050.0, 24_000.0, 32_000.0, 44_100.0, 48_000.0, 96_000.0];
/// Maximum relative difference between an RTP clock and the measured rate of timestamps.
const CLOCK_ERROR: f64 = 0.03;
/// Minimum ratio of different timestamps to packets in an audio stream. It is below 1, because the packets of a DTMF
/// event share a timestamp.
const OWN_TIMESTAMPS: f64 = 0.8;
/// A note is added if at least this share of the packets comes after the end of their picture. A packet belongs to the
/// picture that has its timestamp.
const NOTED_SURPLUS: f64 = 0.01;

/// Returns the pictures of the video stream that has the most bytes. Adds notes on packets that belong to no picture.
pub(crate) fn frames_of(all: &[(PacketRecord, Flight)], notes: &mut Vec<String>) -> Vec<Frame> {
    let Some(main) = video_source(all) else { return Vec::new() };
    let mut mine: Vec<&(PacketRecord, Flight)> =
        all.iter().filter(|(packet, _)| packet.ssrc == main && !packet.is_repeat).collect();
    mine.sort_by_key(|(_, flight)| flight.left);
    let drafts = Drafts::of(&mine);
    let surplus: u64 = drafts.all.iter().map(|draft| draft.surplus).sum();
    if surplus as f64 >= NOTED_SURPLUS * mine.len() as f64 && surplus > 0 {
        notes.push(format!(
            "{} follow the end of their picture, as redundancy (RED with ULPFEC) and padding do, and count for no \
             picture; which of the lost packets were such is estimated from the pictures beside",
            counted(surplus, "packet")
        ));
    }
    if drafts.all.iter().all(|draft| draft.end.is_none()) {
        notes.push("no packet of its video has the marker bit, which ends a picture: no picture is known".to_owned());
    }
    drafts.frames(&mine)
}

/// Returns the SSRC of the video stream that has the most bytes. Returns `None` if all streams are audio.
fn video_source(all: &[(PacketRecord, Flight)]) -> Option<u32> {
    let mut streams: BTreeMap<u32, Vec<PacketRecord>> = BTreeMap::new();
    for (packet, _) in all.iter().filter(|(packet, _)| packet.is_recorded) {
        streams.entry(packet.ssrc).or_default().push(*packet);
    }
    let (ended, endless): (Vec<_>, Vec<_>) = streams
        .into_values()
        .filter(|stream| !is_audio(stream))
        .partition(|stream| stream.iter().any(|packet| packet.marker));
    // A stream without marker bits carries redundancy (RFC 8627, section 4.2.1). Use it only if there is no other
    // stream.
    let videos = if ended.is_empty() { endless } else { ended };
    main_source(&videos.concat())
}

/// Whether a stream is audio. Nearly every packet of an audio stream has its own timestamp, and the timestamps advance
/// with the clock of an audio format. In contrast, video has a clock of 90 kHz (RFC 3551, section 5). The packets of
/// `stream` are in the order of their times.
fn is_audio(stream: &[PacketRecord]) -> bool {
    let timestamps: BTreeSet<u32> = stream.iter().map(|packet| packet.timestamp).collect();
    if (timestamps.len() as f64) < OWN_TIMESTAMPS * stream.len() as f64 {
        return false;
    }
    let at = |packet: &PacketRecord| packet.stamp.unwrap_or(packet.seen);
    let mut rates: Vec<f64> = stream
        .windows(2)
        .filter(|two| at(&two[1]) > at(&two[0]))
        .map(|two| {
            let ticks = two[1].timestamp.wrapping_sub(two[0].timestamp) as i32;
            f64::from(ticks) / at(&two[1]).since(at(&two[0])).as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let Some(median) = rates.get(rates.len() / 2) else { return false };
    AUDIO_CLOCKS.iter().any(|clock| (median / clock - 1.0).abs() <= CLOCK_ERROR)
}

struct Draft {
    left: Time,
    ticks: i64,
    arrived: Option<PeerTime>,
    size: Bytes,
    /// Index of the last packet that has the marker bit, which ends the picture.
    end: Option<usize>,
    packets: u64,
    /// Number of packets that follow the end of the picture.
    surplus: u64,
    /// Whether a packet that arrived without being recorded may have been the end.
    may_end: bool,
    is_torn: bool,
    /// Packets that are missing in the recording before the first packet of this picture.
    missing: MissingPackets,
}

/// Pictures in the order of their first packets, before missing packets are attributed to them.
struct Drafts {
    all: Vec<Draft>,
    /// For each packet, the index of its picture. It is `None` if the packet is missing in the recording.
    of: Vec<Option<usize>>,
}

impl Drafts {
    /// Sorts packets into pictures by their timestamps, and finds the packet that ends each picture.
    fn of(mine: &[&(PacketRecord, Flight)]) -> Self {
        let mut all: Vec<Draft> = Vec::new();
        let mut of = Vec::with_capacity(mine.len());
        let mut places: BTreeMap<i64, usize> = BTreeMap::new();
        let mut last: Option<(u32, i64)> = None;
        for (i, (packet, flight)) in mine.iter().enumerate() {
            if !packet.is_recorded {
                of.push(None);
                continue;
            }
            // The difference is a signed 32-bit number, so it is correct even if the timestamp wraps.
            let ticks =
                last.map_or(0, |(timestamp, ticks)| ticks + i64::from(packet.timestamp.wrapping_sub(timestamp) as i32));
            last = Some((packet.timestamp, ticks));
            // Look up the picture by timestamp, because packets of the next picture may come before this packet.
            let place = *places.entry(ticks).or_insert_with(|| {
                all.push(Draft {
                    left: flight.left,
                    ticks,
                    arrived: flight.arrived,
                    size: Bytes::ZERO,
                    end: None,
                    packets: 0,
                    surplus: 0,
                    may_end: false,
                    is_torn: false,
                    missing: MissingPackets::default(),
                });
                all.len() - 1
            });
            of.push(Some(place));
            if packet.marker {
                all[place].end = Some(i);
            }
        }
        let mut drafts = Self { all, of };
        drafts.add_packets(mine);
        drafts
    }

    fn add_packets(&mut self, mine: &[&(PacketRecord, Flight)]) {
        for (i, (_, flight)) in mine.iter().enumerate() {
            let Some(draft) = self.of[i].map(|place| &mut self.all[place]) else { continue };
            if draft.end.is_some_and(|end| i > end) {
                draft.surplus += 1;
            } else {
                draft.arrived = draft.arrived.zip(flight.arrived).map(|(a, b)| a.max(b));
                draft.size += flight.size;
                draft.packets += 1;
            }
        }
    }

    /// Attributes the packets that are missing in the recording to pictures, and returns the pictures.
    fn frames(mut self, mine: &[&(PacketRecord, Flight)]) -> Vec<Frame> {
        let mut between: Vec<(usize, usize, u64)> = Vec::new();
        let mut has_gap: BTreeSet<usize> = BTreeSet::new();
        let (mut before, mut came, mut lost) = (None, 0_u64, 0_u64);
        let mut missing = MissingPackets::default();
        for (i, (_, flight)) in mine.iter().enumerate() {
            let Some(after) = self.of[i] else {
                let has_come = matches!(flight.fate, Fate::Arrived { .. });
                came += u64::from(has_come);
                lost += u64::from(!has_come);
                missing.all += 1;
                missing.lost += u64::from(flight.fate == Fate::Lost);
                continue;
            };
            if before.is_some_and(|place| place != after) {
                self.all[after].missing = missing;
            }
            if let Some(place) = before.filter(|_| came + lost > 0) {
                let draft: &mut Draft = &mut self.all[place];
                has_gap.insert(place);
                match draft.end {
                    Some(end) if i > end && place != after => between.push((place, after, lost)),
                    // The missing packets followed the end of this picture, so the picture is complete.
                    Some(end) if i > end => {}
                    Some(_) => draft.is_torn |= lost > 0,
                    None => {
                        draft.is_torn |= lost > 0;
                        draft.may_end |= lost == 0;
                    }
                }
            }
            (before, came, lost, missing) = (Some(after), 0, 0, MissingPackets::default());
        }
        for (place, after, lost) in between {
            // The lost packets may be redundancy that follows the end of the picture `place`. If more were lost than
            // this redundancy can explain, some belong to the picture `after`, so this picture is torn.
            if lost > self.expected(place, &has_gap).saturating_sub(self.all[place].surplus) {
                self.all[after].is_torn = true;
            }
        }
        self.all.sort_by_key(|draft| draft.left);
        let frame = |draft: Draft| {
            let is_whole = !draft.is_torn && (draft.end.is_some() || draft.may_end);
            let Draft { left, ticks, arrived, size, missing, .. } = draft;
            Frame { left, ticks, arrived: arrived.filter(|_| is_whole), size, missing }
        };
        self.all.into_iter().map(frame).collect()
    }

    /// Estimates how many packets followed the end of a picture. The estimate is the mean of the nearest pictures on
    /// both sides that have no missing packets.
    fn expected(&self, place: usize, has_gap: &BTreeSet<usize>) -> u64 {
        let is_clean = |n: &usize| !has_gap.contains(n) && self.all[*n].end.is_some();
        let share = |n: usize| self.all[n].surplus as f64 / self.all[n].packets.max(1) as f64;
        let beside = [(0..place).rev().find(is_clean), (place + 1..self.all.len()).find(is_clean)];
        let shares: Vec<f64> = beside.into_iter().flatten().map(share).collect();
        let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        libm::round(mean * self.all[place].packets as f64) as u64
    }
}
