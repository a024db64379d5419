//! The audio stream of a session with video. It consists of Opus packets (RFC 7587) and has its own SSRC.
//!
//! Audio is sent before video, without pacing, and is never dropped. Its bytes are part of the controlled rate, but its
//! losses do not affect the controller.

use crate::sender::CLOCK_RATE;
use std::collections::VecDeque;
use steadycast_rtcp::Reception;
use steadycast_units::{PeerTime, Rate, Stamp, Time};
use steadycast_wire::rtcp::{Packet, ReportBlock};
use steadycast_wire::rtp::RtpHeader;

/// RTP clock rate of Opus in Hz (RFC 7587, section 4.1).
pub const AUDIO_CLOCK_RATE: u32 = 48_000;

/// Settings of the audio stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AudioSettings {
    /// The SSRC of the stream.
    pub ssrc: u32,
    /// The RTP payload type.
    pub payload_type: u8,
    /// The rate that is reserved for audio, including packet headers.
    pub rate: Rate,
    /// Whether the video's per-packet feedback and header extensions include audio packets. If not, the controller
    /// ignores audio packets.
    pub shares_feedback: bool,
    /// The first RTP sequence number.
    pub first_seq: u16,
    /// The RTP timestamp at time zero.
    pub first_timestamp: u32,
}

/// An encoded audio packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AudioPacket {
    /// The packet's index in its audio source.
    pub index: u32,
    /// The sampling time of the packet's first sample.
    pub sampled: Time,
    /// The length of the payload in bytes.
    pub len: u16,
    /// Whether this is the first packet after a silence. Such a packet has the RTP marker bit (RFC 3551, section 4.1).
    pub begins: bool,
}

/// Returns the RTP timestamp at the time `at`. `first` is the RTP timestamp at time zero.
pub(crate) fn timestamp(first: u32, at: Time, clock_rate: u32) -> u32 {
    let ticks = u128::from(at.as_nanos()) * u128::from(clock_rate) / 1_000_000_000;
    first.wrapping_add(ticks as u32)
}

pub(crate) struct AudioSender {
    pub(crate) settings: AudioSettings,
    pub(crate) seq: u64,
    waiting: VecDeque<AudioPacket>,
    packets: u32,
    octets: u32,
    /// The reported loss as a fraction. It falls by at most an eighth per report. Before the first report it is `None`.
    loss: Option<f64>,
    /// Whether a sender report for the audio stream is due.
    report_due: bool,
    reported: bool,
    bye_due: bool,
}

const LOSS_DECAY: f64 = 7.0 / 8.0;

impl AudioSender {
    pub(crate) fn new(settings: AudioSettings) -> Self {
        Self {
            settings,
            seq: settings.first_seq.into(),
            waiting: VecDeque::new(),
            packets: 0,
            octets: 0,
            loss: None,
            report_due: false,
            reported: false,
            bye_due: false,
        }
    }

    pub(crate) fn push(&mut self, packet: AudioPacket) {
        self.waiting.push_back(packet);
    }

    pub(crate) fn stop(&mut self) {
        self.waiting.clear();
        self.bye_due = self.packets > 0;
    }

    /// Returns the next packet and its header. The packet counts as sent from now on.
    pub(crate) fn next(&mut self, now: Time) -> Option<(AudioPacket, RtpHeader)> {
        let packet = self.waiting.pop_front()?;
        let header = RtpHeader {
            payload_type: self.settings.payload_type,
            marker: packet.begins,
            seq: self.seq as u16,
            timestamp: timestamp(self.settings.first_timestamp, packet.sampled, AUDIO_CLOCK_RATE),
            ssrc: self.settings.ssrc,
            send_time: self.settings.shares_feedback.then(|| Stamp::of(now)),
            payload_len: packet.len,
        };
        self.seq += 1;
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(packet.len.into());
        Some((packet, header))
    }

    /// Processes a report block. Ignores blocks about other streams.
    pub(crate) fn on_block(&mut self, block: &ReportBlock) {
        if block.ssrc == self.settings.ssrc {
            // Let the loss fall slowly: losses come in bursts, so a single report without loss must not switch in-band
            // FEC off.
            let decayed = self.loss.unwrap_or(0.0) * LOSS_DECAY;
            self.loss = Some((f64::from(block.fraction) / 256.0).max(decayed));
        }
    }

    pub(crate) const fn loss(&self) -> Option<f64> {
        self.loss
    }

    /// Makes the audio's sender report due after a sender report of the video.
    pub(crate) const fn on_video_report(&mut self) {
        self.report_due = self.packets > 0;
    }

    /// Returns whether both streams have started but no sender report for the audio has been sent. `video` is whether
    /// the video stream has started.
    pub(crate) const fn lacks_report(&self, video: bool) -> bool {
        video && self.packets > 0 && !self.reported
    }

    /// Returns the due sender report, with a BYE if the stream has stopped, or `None` if neither is due. `ntp` is the
    /// NTP time at `now` on the clock that the audio and video streams share.
    pub(crate) fn take_report(&mut self, now: Time, ntp: u64, cname: &str) -> Option<Vec<Packet>> {
        let bye = std::mem::take(&mut self.bye_due);
        if !std::mem::take(&mut self.report_due) && !bye {
            return None;
        }
        self.reported = true;
        let AudioSettings { ssrc, first_timestamp, .. } = self.settings;
        // Compute the RTP timestamp for `now`, because it must denote the same instant as the NTP time (RFC 3550,
        // section 6.4.1).
        let rtp = timestamp(first_timestamp, now, AUDIO_CLOCK_RATE);
        let (packets, octets, blocks) = (self.packets, self.octets, Vec::new());
        let report = Packet::SenderReport { ssrc, ntp, rtp, packets, octets, blocks };
        let sdes = Packet::Sdes { chunks: vec![(ssrc, cname.to_owned())] };
        let bye = bye.then(|| Packet::Bye { ssrcs: vec![ssrc], reason: String::new() });
        Some([report, sdes].into_iter().chain(bye).collect())
    }
}

/// A pair of an RTP timestamp and the NTP time of the same instant, from a sender report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockReference {
    pub(crate) ntp: u64,
    pub(crate) rtp: u32,
}

/// Converts an RTP timestamp of the audio to the video's RTP timestamp of the same instant (RFC 3550, section 6.4.1).
pub(crate) fn video_timestamp(audio: ClockReference, video: ClockReference, timestamp: u32) -> u32 {
    let since = i128::from(timestamp.wrapping_sub(audio.rtp) as i32);
    // The time from the video's sender report to the audio sample, in units of 2⁻³² s.
    let at = i128::from(audio.ntp.wrapping_sub(video.ntp) as i64) + (since << 32) / i128::from(AUDIO_CLOCK_RATE);
    let ticks = (at * i128::from(CLOCK_RATE)) >> 32;
    video.rtp.wrapping_add(ticks as u32)
}

pub(crate) struct AudioReceiver {
    payload_type: u8,
    /// The SSRC of the audio stream and its reception. This is the first SSRC with the audio payload type.
    source: Option<(u32, Reception)>,
    pub(crate) sent: Option<PeerTime>,
    pub(crate) clock: Option<ClockReference>,
}

impl AudioReceiver {
    pub(crate) const fn new(payload_type: u8) -> Self {
        Self { payload_type, source: None, sent: None, clock: None }
    }

    pub(crate) const fn owns(&self, header: &RtpHeader) -> bool {
        header.payload_type == self.payload_type
    }

    pub(crate) fn ssrc(&self) -> Option<u32> {
        self.source.as_ref().map(|(ssrc, _)| *ssrc)
    }

    /// Returns the reception of the audio stream. Returns `None` if the stream has another SSRC than `ssrc`.
    pub(crate) fn follow(&mut self, ssrc: u32) -> Option<&mut Reception> {
        let source = self.source.get_or_insert_with(|| (ssrc, Reception::new(ssrc, AUDIO_CLOCK_RATE)));
        (source.0 == ssrc).then_some(&mut source.1)
    }

    /// Discards the audio stream, because the video's source has changed.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.payload_type);
    }

    pub(crate) fn report_block(&mut self, now: Time) -> Option<ReportBlock> {
        self.source.as_mut()?.1.report_block(now)
    }

    pub(crate) fn on_sender_report(&mut self, now: Time, ssrc: u32, clock: ClockReference) {
        if let Some((_, reception)) = self.source.as_mut().filter(|(known, _)| *known == ssrc) {
            reception.on_sr(now, clock.ntp);
            self.clock = Some(clock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audio_timestamp_maps_to_the_video_timestamp_of_its_sampling_time() {
        // Both RTP clocks wrap around in this example. The two sender reports are half a second apart.
        let second = 1u64 << 32;
        let audio = ClockReference { ntp: 10 * second, rtp: u32::MAX - 100 };
        let video = ClockReference { ntp: 10 * second + second / 2, rtp: 44_000 };
        assert_eq!(video_timestamp(audio, video, u32::MAX - 100), 44_000u32.wrapping_sub(45_000));
        assert_eq!(video_timestamp(audio, video, (u32::MAX - 100).wrapping_add(48_000)), 44_000 + 45_000);
        assert_eq!(video_timestamp(audio, video, (u32::MAX - 100).wrapping_sub(960)), 44_000u32.wrapping_sub(46_800));
    }
}
