//! The figures and table rows of a video's sender and receiver.

use super::{CountedBytes, LimitShares, VideoSink, VideoSource, ViewRow};
use crate::Freezes;
use crate::agent::{FigureContext, Recorded, RowOrigin, SentStep};
use crate::intake::Intake;
use crate::score::{coding, combined_score, smooth};
use std::collections::BTreeSet;
use std::ops::Add;
use steadycast_control::Check;
use steadycast_media::{FrameFate, FrameKind};
use steadycast_record::{Figures, Table, decisions, flow, receiver};
use steadycast_session::FeedbackCounts;
use steadycast_units::{Bytes, Span, Spread, Time};

impl Recorded for VideoSource {
    fn figures(&self, about: &FigureContext<'_>, into: &mut Figures) {
        let all: Vec<&Self> = about.others.iter().filter_map(|agent| agent.video_source()).chain([self]).collect();
        let sum = |of: fn(&Self) -> u64| all.iter().map(|source| of(source)).sum::<u64>();
        let feedback = all.iter().map(|source| source.feedback()).fold(FeedbackCounts::default(), Add::add);
        let repairs = all.iter().filter_map(|source| source.repairs()).reduce(Add::add);
        let padding = all.iter().filter_map(|source| source.padding()).reduce(|a, b| (a.0 + b.0, a.1 + b.1));
        // Report the worst result if the paths of the receivers differ.
        let ecn = all.iter().filter_map(|source| source.ecn()).reduce(|a, b| (a.0.max(b.0), a.1 + b.1));
        into.put(&flow::SENT_PACKETS, sum(Self::rtp_packets));
        into.put(&flow::FEEDBACK_PACKETS, feedback.packets);
        let bytes = all.iter().map(|source| source.bytes_of_means()).fold(CountedBytes::default(), Add::add);
        // A mean rate is unknown if the source was not active after the warm-up.
        let rate = |bytes: Bytes| (!about.active.is_zero()).then(|| bytes.per(about.active).as_bps_f64());
        into.put(&flow::FEEDBACK_BPS, rate(bytes.feedback));
        into.put(&flow::FEEDBACK_REFUSED, feedback.refused);
        if let Some(repairs) = repairs {
            into.put(&flow::REPAIR_PACKETS, repairs.packets);
            into.put(&flow::REPAIR_BPS, rate(bytes.repair));
            into.put(&flow::REPAIR_REFUSED, repairs.refused);
            into.put(&flow::REPAIR_STALE, repairs.stale);
            into.put(&flow::PARITY_PACKETS, repairs.parities);
            into.put(&flow::PARITY_BPS, rate(bytes.parity));
        }
        if let Some((packets, _)) = padding {
            into.put(&flow::PADDING_PACKETS, packets);
            into.put(&flow::PADDING_BPS, rate(bytes.padding));
        }
        if let Some((path, counts)) = ecn {
            into.put(&flow::ECN_PATH, path.name());
            into.put(&flow::ECN_SENT, counts.sent);
            into.put(&flow::ECN_MARKED, counts.marked);
        }
        into.put(&flow::SKIPPED_FRAMES, sum(Self::skipped));
        let mut backlog = Spread::default();
        all.iter().for_each(|source| backlog.merge(&source.backlog));
        into.put_spread(&flow::BACKLOG, &backlog);
        let limited = |by: fn(&LimitShares) -> Span| {
            all.iter().map(|source| by(&source.limits)).fold(Span::ZERO, Add::add).as_secs_f64()
        };
        let total = limited(|by| by.network + by.encoder + by.start + by.cap);
        for (figure, span) in [
            (&flow::LIMITED_BY_NETWORK, limited(|by| by.network)),
            (&flow::LIMITED_BY_ENCODER, limited(|by| by.encoder)),
            (&flow::LIMITED_BY_START, limited(|by| by.start)),
            (&flow::LIMITED_BY_CAP, limited(|by| by.cap)),
        ] {
            // The shares are unknown if there was no decision in the measured time.
            into.put(figure, (total > 0.0).then(|| span / total));
        }
        into.extend(&self.also);
    }

    fn digest(&self) -> (u64, u64) {
        (self.digest.value(), self.sent_packets)
    }

    fn sent(&self) -> Vec<SentStep> {
        let step = |p: &super::SourcePoint| {
            let packets = u64::from(p.packets);
            SentStep { bytes: p.bytes, packets, decided: Some((p.target, p.pacing)) }
        };
        self.samples.iter().map(step).collect()
    }

    fn decisions(&self, origin: &RowOrigin<'_>, into: &mut Table) {
        for row in &self.decisions {
            let why = &row.decision.why;
            into.real(&decisions::T, row.at.as_secs_f64());
            into.text(&decisions::FLOW, origin.flow);
            into.text(&decisions::NODE, origin.node);
            into.text(&decisions::RULE, &why.rule);
            into.real(&decisions::TARGET, row.decision.target.as_bps_f64());
            into.real(&decisions::PACING, row.decision.pacing.as_bps_f64());
            into.real(&decisions::LOSS, why.loss);
            into.millis(&decisions::RTT, why.rtt);
            into.text(&decisions::LIMIT, self.limit(row));
            if let Some(name) = why.by.and_then(|id| origin.receivers.get(&id.0)) {
                into.text(&decisions::BY, name);
            }
            into.end_row();
        }
    }

    fn promises(&self) -> Vec<Check> {
        self.checks()
    }

    fn rtcp_shares(&self) -> &[f64] {
        &self.rtcp_shares
    }
}

impl VideoSink {
    fn repair_figures(&self, about: &FigureContext<'_>, into: &mut Figures) {
        let Some(requests) = self.requests() else { return };
        let (expected, got) = self.intake.expected_and_got(about);
        let counted = || self.repaired.iter().filter(|(at, _)| self.intake.counts(*at));
        let late = |(at, frame): &(Time, u32)| {
            let sent = about.source.and_then(|s| s.frames.frames.get(*frame as usize));
            sent.and_then(|frame| self.player.schedule.due(frame.ready)).is_some_and(|due| *at > due)
        };
        let (lost, repaired) = (expected.saturating_sub(got), counted().count() as u64);
        let after = (expected > 0).then(|| lost.saturating_sub(repaired) as f64 / expected as f64);
        into.put(&receiver::LOST_PACKETS, lost);
        into.put(&receiver::REPAIRED_PACKETS, repaired);
        into.put(&receiver::REPAIRED_LATE, counted().filter(|repaired| late(repaired)).count() as u64);
        into.put(&receiver::LOSS_AFTER_REPAIR, after);
        into.put(&receiver::NACK_PACKETS, requests.nacks);
        into.put(&receiver::NACK_REQUESTS, requests.asked);
    }
}

impl VideoSink {
    fn audio_figures(&self, into: &mut Figures) {
        let Some(audio) = self.audio.as_ref().map(|audio| audio.settled()) else { return };
        let minutes = audio.covered().as_secs_f64() / 60.0;
        let concealed = (minutes > 0.0).then(|| audio.concealed.as_millis_f64() / minutes);
        into.put(&receiver::AUDIO_LOST, audio.lost);
        into.put(&receiver::AUDIO_LATE, audio.late);
        into.put(&receiver::AUDIO_GAPS, audio.long_gaps);
        into.put(&receiver::AUDIO_CONCEALED, concealed);
    }
}

impl Recorded for VideoSink {
    fn stays(&self) -> &[(Time, Time)] {
        &self.stays
    }

    fn figures(&self, about: &FigureContext<'_>, into: &mut Figures) {
        self.intake.figures(about, into);
        self.audio_figures(into);
        self.repair_figures(about, into);
        let view = self.session().map(|s| s.view()).unwrap_or_default();
        into.put(&receiver::LOSS_EVENT_RATE, view.loss);
        into.put_span(&receiver::JITTER, self.session().and_then(|s| s.jitter()));
        // Without a packet that has a send time, the delays are unknown.
        let cumulative = self.jitter.anchor.map(|_| self.jitter.max.later());
        into.put_span(&receiver::CUMULATIVE_JITTER_MAX, cumulative);
        into.put(&receiver::FEEDBACK_PACKETS, self.rtcp_packets);
        // The index is the ECN field: 01 is ECT(1), 10 is ECT(0), and 11 is CE (RFC 3168, section 5).
        let [_, ect1, ect0, marked] = self.by_ecn;
        if ect0 + ect1 + marked > 0 {
            into.put(&receiver::ECN_CAPABLE, ect0 + ect1 + marked);
            into.put(&receiver::ECN_MARKED, marked);
        }
        into.put(&receiver::BUFFER_UNDERFLOWS, self.buffer.as_ref().map(|b| b.underflows()));
        into.put(&receiver::BUFFER_OVERFLOWS, self.buffer.as_ref().map(|b| b.overflows()));
        let needed = about.source.and_then(|source| self.playout_needed(&source.frames));
        into.put_span(&receiver::PLAYOUT_NEEDED, needed);
        match about.source.filter(|_| self.assembly.is_some()) {
            Some(source) => self.frames(source, about, into),
            None => into.put_unknown(&receiver::FRAMES_OK),
        }
        into.extend(&self.also);
    }

    fn digest(&self) -> (u64, u64) {
        (self.intake.digest.value(), self.rtcp_packets)
    }

    fn intake(&self) -> Option<&Intake> {
        Some(&self.intake)
    }

    fn joined(&self) -> Time {
        self.joined
    }

    fn decisions(&self, origin: &RowOrigin<'_>, into: &mut Table) {
        // Leave out reports that were written after the end of the run.
        for ViewRow { at, view } in self.views.iter().filter(|row| row.at <= origin.until) {
            into.real(&decisions::T, at.as_secs_f64());
            into.text(&decisions::FLOW, origin.flow);
            into.text(&decisions::NODE, origin.node);
            into.text(&decisions::RULE, view.state.unwrap_or("report"));
            into.real(&decisions::TARGET, view.rate.map(|r| r.as_bps_f64()));
            into.real(&decisions::LOSS, view.loss);
            into.millis(&decisions::RTT, view.rtt);
            into.end_row();
        }
    }

    fn promises(&self) -> Vec<Check> {
        self.checks()
    }
}

impl VideoSink {
    /// Computes the viewing score from how smoothly frames are shown and from the bit rate. `slots` lists whether a new
    /// picture is shown in each slot, and the slot's duration. `media` is the size of the frames in these slots.
    fn score(&self, slots: &[(bool, Span)], media: Bytes, period: Span, into: &mut Figures) {
        let smooth = smooth(slots.iter().copied(), period);
        let total = slots.iter().fold(Span::ZERO, |sum, (_, lasts)| sum + *lasts);
        let fps = 1.0 / period.max(Span::nanos(1)).as_secs_f64();
        let by_rate = (total > Span::ZERO).then(|| coding(media.per(total).as_bps_f64() / 1e3, fps));
        let score = by_rate.zip(smooth).map(|(coding, smooth)| combined_score(coding, smooth));
        into.put(&receiver::RATE_SCORE, score);
        into.put(&receiver::VIEWING_SCORE, score);
        into.put(&receiver::SCORED_BY, score.map(|_| "rate"));
        into.put(&receiver::SMOOTH, smooth);
    }

    /// Writes the figures about the frames that were sent to this sink.
    fn frames(&self, source: &VideoSource, about: &FigureContext<'_>, into: &mut Figures) {
        let Some(assembly) = &self.assembly else { return };
        let (sent, schedule) = (&source.frames, &self.player.schedule);
        let fates = assembly.fates(sent, schedule);
        let counted = self.counted(sent, &fates);
        // Count only frames that were ready at `since` or later.
        let judged = |since: Time| {
            let of = |n: &usize| {
                let frame = &sent.frames[*n];
                frame.ready >= since && counted[*n] && !frame.is_gap()
            };
            (0..fates.len()).filter(of).collect::<Vec<usize>>()
        };
        let owed = judged(about.from);
        let count = |fate| owed.iter().filter(|n| fates[**n] == fate).count();
        into.put(&receiver::FRAMES_SENT, owed.len());
        into.put(&receiver::FRAMES_OK, count(FrameFate::Ok));
        let whole = (!owed.is_empty()).then(|| count(FrameFate::Ok) as f64 / owed.len() as f64);
        into.put(&receiver::FRAMES_OK_FRAC, whole);
        let repaired: BTreeSet<usize> = self.repaired.iter().map(|(_, frame)| frame as usize).collect();
        let saved = owed.iter().filter(|n| fates[**n] == FrameFate::Ok && repaired.contains(*n)).count();
        into.put(&receiver::FRAMES_REPAIRED, saved);
        into.put(&receiver::FRAMES_LOST, count(FrameFate::Lost));
        into.put(&receiver::FRAMES_LATE, count(FrameFate::Late));
        into.put(&receiver::FRAMES_UNDECODABLE, count(FrameFate::Undecodable));
        let mut slots: Vec<(u32, bool)> =
            owed.iter().map(|n| (sent.frames[*n].coded.display, fates[*n] == FrameFate::Ok)).collect();
        // Sort the frames by display index, because B frames are not sent in display order.
        slots.sort_unstable();
        let period = source.frame_period();
        // If the play-out delay is constant, each picture is shown for one frame period.
        let shown_at = |slot: u32| schedule.due(source.shown_at(slot)).filter(|_| self.player.adapts());
        // Do not count a pause of the flow as a long display of the frame before the pause.
        let lasts = |slot: u32| {
            if source.pauses_after(slot) {
                return None;
            }
            let (from, to) = shown_at(slot).zip(shown_at(slot + 1))?;
            Some(to.since(from))
        };
        let slots: Vec<(u32, bool, Span)> =
            slots.into_iter().map(|(slot, new)| (slot, new, lasts(slot).unwrap_or(period))).collect();
        let freezes = Freezes::of(slots.iter().map(|(_, new, lasts)| (*new, *lasts)));
        freezes.figures(into);
        let moving = freezes.shown.saturating_sub(freezes.time).as_secs_f64();
        // Leave out the frozen pictures and their time.
        let fps = count(FrameFate::Ok).saturating_sub(freezes.count as usize) as f64 / moving;
        into.put(&receiver::SHOWN_FPS, Some(fps).filter(|_| moving > 0.0));
        into.put(&receiver::HARMONIC_FPS, freezes.harmonic_fps());
        // Begin the score at the first I frame, because a new member can't decode anything before it.
        let coded = |n: &usize| &sent.frames[*n].coded;
        let begins = judged(self.joined).iter().map(coded).find(|coded| coded.kind == FrameKind::I);
        let since = begins.map_or(0, |coded| coded.display);
        let scored: Vec<(bool, Span)> =
            slots.iter().filter(|(slot, ..)| *slot >= since).map(|(_, new, lasts)| (*new, *lasts)).collect();
        let media = owed.iter().map(coded).filter(|coded| coded.display >= since).map(|coded| coded.size);
        self.score(&scored, media.fold(Bytes::ZERO, |sum, size| sum + size), period, into);
        let mut delays = Spread::default();
        let waited =
            owed.iter().filter_map(|n| Some(schedule.due(sent.frames[*n].ready)?.since(sent.frames[*n].ready)));
        waited.for_each(|delay| delays.add(delay));
        into.put_spread(&receiver::PLAYOUT, &delays);
        let startup = judged(self.joined).into_iter().find(|n| fates[*n] == FrameFate::Ok).and_then(|n| {
            let (_, last) = assembly.arrival(n as u32)?;
            let whole = last.since(self.joined);
            // The first frame is shown when it is complete and its play-out delay has passed.
            Some(schedule.due(sent.frames[n].ready).map_or(whole, |due| whole.max(due.since(self.joined))))
        });
        into.put_span(&receiver::STARTUP, startup);
    }
}
