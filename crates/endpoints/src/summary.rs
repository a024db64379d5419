//! The results of a run: the numbers of `summary.json`.

use crate::activity::{overlap, throughout, within};
use crate::agent::{FigureContext, Recorded, SentStep};
use crate::promises::CheckedPromise;
use crate::shares::{CompetingRate, FlowShare};
use crate::{Activity, AgentIx, FlowEnds, LinkRecord, Record};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use steadycast_link::Counts;
use steadycast_record::{Figures, Of, Tree, flow, jain, link, receiver, run, variation};
use steadycast_scenario::{self as sc, FlowKind};
use steadycast_units::{Bytes, Rate, Span, Spread, Time};

impl Record<'_> {
    /// Returns the summary so far. It lacks the figures that need decoded pictures. `complete` says whether the run has
    /// reached its end.
    pub fn summary(&self, complete: bool) -> Value {
        self.tree(complete).into()
    }

    /// Returns the summary as a tree. Its receivers and links are computed only when the tree is written.
    pub fn tree(&self, complete: bool) -> Tree<'_> {
        let shares = self.fair_shares();
        let mut into = Figures::new(Of::Run);
        into.put(&run::FORMAT, 1);
        into.put(&run::SCENARIO_NAME, self.scenario.name.as_str());
        into.put(&run::SCENARIO_SEED, self.scenario.seed.0);
        into.put(&run::WORLD, self.world);
        into.put(&run::COMPLETE, complete);
        let kept = self.promises();
        let warnings = kept.iter().filter_map(CheckedPromise::warning).chain(self.feedback_warnings());
        let warnings = warnings.chain(self.window_warnings(&shares));
        into.put(&run::WARNINGS, warnings.collect::<Vec<_>>());
        into.put(&run::FROM, self.scenario.warmup.as_secs_f64());
        into.put(&run::TO, self.now.as_secs_f64());
        into.put(&run::RECORD_SHA256, self.record_sha256());
        self.fairness(&mut into);
        into.put_list(&run::INVARIANTS, kept.iter().map(CheckedPromise::figures));
        // The list stays empty here, because the caller evaluates the expectations.
        into.put(&run::EXPECT, Vec::<Value>::new());
        if !self.scenario.simulcasts.is_empty() {
            into.put_list(&run::SIMULCASTS, self.simulcasts());
        }
        let mut tree = Tree::from(into);
        tree.list(&run::FLOWS, (0..self.flows.len()).zip(shares).map(|(n, share)| self.flow(n, share)));
        tree.list(&run::LINKS, self.link_summaries());
        tree
    }

    fn flow(&self, n: usize, share: FlowShare) -> Tree<'_> {
        let (spec, ends) = (&self.scenario.flows[n], &self.flows[n]);
        let throughput = self.throughput(ends);
        let bins = self.bins(ends);
        let share_bps = share.fair.map(Rate::as_bps_f64);
        let mut into = Figures::new(Of::Flow);
        into.put(&flow::NAME, spec.name.as_str());
        into.put(&flow::THROUGHPUT, throughput);
        into.put(&flow::FAIR_SHARE, share_bps);
        let rate = if spec.kind.pauses() { self.pauses(ends, &mut into) } else { self.rate_while_sending(n) };
        let competing = match share.rate {
            CompetingRate::None => None,
            CompetingRate::OfAllTime => rate,
            CompetingRate::Bps(rate) => rate,
        };
        into.put(&flow::COMPETING, share.competing.map(Span::as_secs_f64));
        into.put(&flow::SHARE_OF_FAIR, competing.zip(share_bps).filter(|(_, share)| *share > 0.0).map(|(t, s)| t / s));
        into.put(&flow::RATE_COV, variation(&self.seconds_from(ends, &bins)));
        into.put(&flow::RAMP_1MBPS, self.ramp(ends, &bins, 1e6));
        into.put(&flow::RAMP_SHARE, share_bps.filter(|s| *s > 0.0).and_then(|s| self.ramp(ends, &bins, 0.8 * s)));
        match &spec.kind {
            FlowKind::Cbr(_) => into.put(&flow::KIND, "cbr"),
            FlowKind::OnOff(_) => into.put(&flow::KIND, "onoff"),
            FlowKind::Tcp(tcp) => {
                into.put(&flow::KIND, "tcp");
                into.put(&flow::CONGESTION, tcp.config.congestion.name());
            }
            FlowKind::Video(video) => {
                into.put(&flow::KIND, "video");
                into.put(&flow::CONTROLLER, video.controller.name());
                let paper = video.mode == steadycast_control::Mode::Paper;
                into.put(&flow::MODE, if paper { "paper" } else { "repaired" });
            }
        }
        if let Some((source, others)) = ends.sources.split_first() {
            let others = others.iter().map(|other| &self.agents[other.0 as usize]).collect();
            let about = self.about(ends.active(ends.means_from, self.now), ends.means_from, ends.means_from);
            let about = FigureContext { others, ..about };
            self.recorded(*source).figures(&about, &mut into);
        }
        // Skip the receivers of a live sender, which has listed them from their reports.
        let listed = into.get(&flow::RECEIVERS).is_some();
        let mut tree = Tree::from(into);
        if !listed {
            tree.list(&flow::RECEIVERS, self.receivers(spec, ends));
        }
        tree
    }

    pub(crate) fn recorded(&self, agent: AgentIx) -> &dyn Recorded {
        self.agents[agent.0 as usize].recorded()
    }

    fn about(&self, active: Span, means_from: Time, from: Time) -> FigureContext<'_> {
        let first_step = (means_from.as_nanos() / self.step.as_nanos()) as usize;
        FigureContext { active, from, first_step, source: None, others: Vec::new(), unheard: 0 }
    }

    /// Returns when a sink's averaging period starts. For a receiver that joins late, this is the join.
    fn means_from(&self, ends: &FlowEnds, sink: AgentIx) -> Time {
        self.recorded(sink).joined().max(ends.means_from)
    }

    /// Returns the periods of `stretches` in which the sink was a member of the session.
    fn member(
        &self,
        sink: AgentIx,
        stretches: impl Iterator<Item = (Time, Time)>,
    ) -> impl Iterator<Item = (Time, Time)> {
        overlap(stretches, self.recorded(sink).stays())
    }

    /// Returns how long the flow was active and the sink was a member after the warm-up.
    fn time_of_means(&self, ends: &FlowEnds, sink: AgentIx) -> Span {
        within(self.member(sink, ends.active.iter().copied()), ends.means_from, self.now)
    }

    /// Returns the mean rate of a sink's bytes over `span`, in bit/s.
    fn rate_over(&self, sink: AgentIx, span: Span) -> Option<f64> {
        let bytes = self.recorded(sink).intake()?.bytes;
        (!span.is_zero()).then(|| bytes.per(span).as_bps_f64())
    }

    /// Returns the mean rate that a sink received while its flow was active and it was a member, in bit/s.
    fn sink_rate(&self, ends: &FlowEnds, sink: AgentIx) -> Option<f64> {
        self.rate_over(sink, self.time_of_means(ends, sink))
    }

    /// Returns the receivers' mean rate while the source had data to send, in bit/s. It differs from
    /// [`Record::throughput`] only if the source has a limited amount of data.
    fn rate_while_sending(&self, n: usize) -> Option<f64> {
        let ends = &self.flows[n];
        let amount = |video: &sc::Video| matches!(video.media, sc::Media::Greedy { bytes: Some(_) });
        if !matches!(&self.scenario.flows[n].kind, FlowKind::Video(video) if amount(video)) {
            return self.throughput(ends);
        }
        let rate = |(place, sink): (usize, &AgentIx)| {
            let source = self.agents[ends.source_of(place)?.0 as usize].video_source()?;
            let sending = self.member(*sink, source.sending.stretches());
            let span = within(sending, ends.means_from, self.now.min(ends.stop));
            self.rate_over(*sink, span)
        };
        mean(ends.sinks.iter().enumerate().filter_map(rate))
    }

    /// Returns the mean rate over all receivers that were members, in bit/s.
    fn throughput(&self, ends: &FlowEnds) -> Option<f64> {
        mean(ends.sinks.iter().filter_map(|sink| self.sink_rate(ends, *sink)))
    }

    /// Returns the periods in which the source of a receiver had data to send.
    fn activity(&self, ends: &FlowEnds, receiver: usize) -> Option<&Activity> {
        self.recorded(ends.source_of(receiver)?).activity()
    }

    /// Returns how long a receiver's source had data to send during the receiver's averaging period.
    fn time_active(&self, ends: &FlowEnds, receiver: usize) -> Option<Span> {
        let from = self.means_from(ends, ends.sinks[receiver]);
        Some(within(self.activity(ends, receiver)?.stretches(), from, self.now.min(ends.stop)))
    }

    /// Writes the figures of a source that pauses. Returns the mean rate while the source had data to send, in bit/s.
    fn pauses(&self, ends: &FlowEnds, into: &mut Figures) -> Option<f64> {
        let each = || ends.sinks.iter().enumerate().filter_map(|(n, sink)| Some((*sink, self.time_active(ends, n)?)));
        let rate = mean(each().filter_map(|(sink, active)| self.rate_over(sink, active)));
        let shares = each().map(|(sink, active)| active.as_secs_f64() / self.time_of_means(ends, sink).as_secs_f64());
        into.put(&flow::ACTIVE, mean(shares));
        into.put(&flow::ACTIVE_THROUGHPUT, rate);
        let activities = ends.sources.iter().filter_map(|source| self.recorded(*source).activity());
        let transfers: Vec<(Time, Time)> = activities.flat_map(Activity::transfers).collect();
        if let Some(first) = transfers.iter().map(|(_, ended)| *ended).min() {
            let mut times = Spread::default();
            // Leave the transfers that ended during the warm-up out of the means.
            let counted = transfers.iter().filter(|(_, ended)| *ended >= ends.means_from);
            counted.for_each(|(began, ended)| times.add(ended.since(*began)));
            into.put(&flow::TRANSFERS, transfers.len());
            into.put(&flow::COMPLETED, first.as_secs_f64());
            into.put_span(&flow::TRANSFER_MEAN, times.mean());
            into.put_spread(&flow::TRANSFER, &times);
        }
        rate
    }

    /// Returns the bytes that a receiver got in each step, as a mean over the members of this step. If the record has
    /// no receivers, returns the bytes that were sent.
    pub(crate) fn bins(&self, ends: &FlowEnds) -> Vec<f64> {
        // The received bytes of each step, and the number of members. A part of a step counts as a part of a member.
        let mut bins: Vec<(f64, f64)> = Vec::new();
        for sink in &ends.sinks {
            let recorded = self.recorded(*sink);
            let Some(intake) = recorded.intake() else { continue };
            let samples = intake.samples.all();
            bins.resize(samples.len().max(bins.len()), (0.0, 0.0));
            for (n, ((bytes, members), point)) in bins.iter_mut().zip(&*samples).enumerate() {
                let begin = Time::ZERO + self.step * n as u64;
                *bytes += point.bytes as f64;
                *members += within(recorded.stays().iter().copied(), begin, begin + self.step).ratio(self.step);
            }
        }
        match ends.sources.first().filter(|_| ends.sinks.is_empty()) {
            Some(source) => self.recorded(*source).sent().iter().map(|step| step.bytes as f64).collect(),
            None => {
                bins.into_iter().map(|(bytes, members)| if members > 0.0 { bytes / members } else { 0.0 }).collect()
            }
        }
    }

    fn steps_per_second(&self) -> usize {
        (Span::secs(1).as_nanos() / self.step.as_nanos()).max(1) as usize
    }

    /// Returns the rate of each whole second of the flow's averaging period, in bit/s.
    fn seconds_from(&self, ends: &FlowEnds, bins: &[f64]) -> Vec<f64> {
        let per = self.steps_per_second();
        let second = |n: usize| bins[n * per..(n + 1) * per].iter().sum::<f64>() * 8.0;
        let whole = bins.len() / per;
        // Leave out partial seconds, because they would show a lower rate.
        let first = ends.means_from.as_secs_f64().ceil() as usize;
        let last = whole.min(ends.stop.min(self.now).as_secs_f64().floor() as usize);
        let instant = |n: usize| Time::ZERO + Span::secs(n as u64);
        (first.min(last)..last).filter(|n| ends.active_throughout(instant(*n), instant(n + 1))).map(second).collect()
    }

    /// Returns how long the flow took, in seconds, until its rate over one second first reached `bps`.
    fn ramp(&self, ends: &FlowEnds, bins: &[f64], bps: f64) -> Option<f64> {
        let per = self.steps_per_second();
        let begin = (ends.start.as_nanos() / self.step.as_nanos()) as usize;
        let windows = bins.get(begin..).unwrap_or(&[]).windows(per);
        let n = windows.map(|w| w.iter().sum::<f64>() * 8.0).position(|rate| rate >= bps)?;
        // The window begins `n` steps after the start and ends `per` steps later, when the rate is reached.
        Some(((n + per) as u64 * self.step.as_nanos()) as f64 / 1e9)
    }

    /// Returns how many packets that were sent to a sink after its last arrival should have arrived by now. `sent` has
    /// the steps of the sink's source.
    fn unheard(&self, ends: &FlowEnds, sink: AgentIx, sent: &[SentStep]) -> u64 {
        let recorded = self.recorded(sink);
        let Some(intake) = recorded.intake() else { return 0 };
        let (silent, expected) = intake.silent_steps(self.now, self.step);
        let begins = |n: usize| Time::ZERO + self.step * n as u64;
        let from = self.means_from(ends, sink);
        let stayed =
            |n: usize| recorded.stays().iter().any(|(from, until)| *from <= begins(n) && begins(n + 1) < *until);
        let counted = silent.filter(|n| begins(*n) >= from && stayed(*n));
        let sent: u64 = counted.filter_map(|n| sent.get(n)).map(|step| step.packets).sum();
        sent.saturating_sub(expected)
    }

    fn receivers<'r>(&'r self, spec: &'r sc::Flow, ends: &'r FlowEnds) -> impl Iterator<Item = Figures> + 'r {
        let sent: Vec<_> = ends.sources.iter().map(|source| self.recorded(*source).sent()).collect();
        spec.to.iter().zip(&ends.sinks).enumerate().map(move |(n, (node, sink))| {
            let mut into = Figures::new(Of::Receiver);
            into.put(&receiver::NAME, self.scenario.node_name(*node));
            into.put(&receiver::THROUGHPUT, self.sink_rate(ends, *sink));
            let from = self.means_from(ends, *sink);
            let source = ends.source_of(n).and_then(|source| self.agents[source.0 as usize].video_source());
            let steps = sent.get(ends.source_place(n)).map_or(&[][..], Vec::as_slice);
            let unheard = self.unheard(ends, *sink, steps);
            let about = self.about(ends.active(from, self.now), ends.means_from, from);
            let about = FigureContext { source, unheard, ..about };
            self.recorded(*sink).figures(&about, &mut into);
            into
        })
    }

    fn link_summaries(&self) -> impl Iterator<Item = Figures> + '_ {
        self.scenario.links.iter().enumerate().flat_map(move |(n, spec)| {
            let ways = ["forward", "back"].into_iter().enumerate();
            ways.filter_map(move |(back, way)| self.link_summary(&spec.name, way, self.links.get(2 * n + back)?))
        })
    }

    /// Returns the summary of one direction of a link. Returns `None` if no packet was offered to that direction.
    fn link_summary(&self, name: &str, direction: &str, hop: &LinkRecord<'_>) -> Option<Figures> {
        let counts = hop.link.counts(self.now);
        if counts.offered == 0 {
            return None;
        }
        // Leave the warm-up out of the means. Counts include it.
        let none = Counts::default();
        let before = hop.before.unwrap_or(&none);
        let from = if hop.before.is_some() { Time::ZERO + self.scenario.warmup } else { Time::ZERO };
        let sent = hop.sent.saturating_sub(before.sent);
        let (offered, dropped) = (counts.offered - before.offered, counts.dropped() - before.dropped());
        let capacity = hop.link.capacity(from, self.now).filter(|c| *c > Bytes::ZERO);
        let used = capacity.map(|c| sent.as_f64() / c.as_f64());
        let mut into = Figures::new(Of::Link);
        into.put(&link::NAME, name);
        into.put(&link::DIRECTION, direction);
        into.put(&link::UTILISATION, used);
        into.put(&link::OFFERED, counts.offered);
        into.put(&link::PACKETS, hop.carried);
        into.put(&link::DROPPED, counts.dropped());
        into.put(&link::POLICED, counts.policed);
        into.put(&link::LOST, counts.lost);
        into.put(&link::REORDERED, counts.reordered);
        into.put(&link::DUPLICATED, counts.duplicated);
        into.put(&link::MARKED, counts.marked);
        into.put(&link::DROP_FRAC, (offered > 0).then(|| dropped as f64 / offered as f64));
        into.put_spread(&link::QUEUE, &counts.wait.since(&before.wait));
        Some(into)
    }

    /// Returns whether the source had no data during a part of the averaging period.
    fn paused(&self, n: usize) -> bool {
        let ends = &self.flows[n];
        let pauses = |(receiver, sink): (usize, &AgentIx)| {
            self.time_active(ends, receiver).is_some_and(|active| active < self.time_of_means(ends, *sink))
        };
        self.scenario.flows[n].kind.pauses() && ends.sinks.iter().enumerate().any(pauses)
    }

    /// Returns whether flow `n` was active and had data to send all the time between `from` and `until`.
    fn active_throughout(&self, n: usize, from: Time, until: Time) -> bool {
        let ends = &self.flows[n];
        let mut activities = ends.sources.iter().filter_map(|source| self.recorded(*source).activity());
        let busy = |one: &Activity| throughout(one.stretches(), from, until);
        ends.active_throughout(from, until) && (!self.scenario.flows[n].kind.pauses() || activities.all(busy))
    }

    /// Writes the fairness among video and TCP flows. Other flows are left out because they do not adapt their rate.
    fn fairness(&self, into: &mut Figures) {
        let adapts = |n: &usize| {
            matches!(self.scenario.flows[*n].kind, FlowKind::Video(_) | FlowKind::Tcp(_))
                // Leave out the groups of a simulcast. A group is only a part of a flow, so its rate can't be compared.
                && self.scenario.group_of(sc::FlowIx(*n as u32)).is_none()
        };
        let flows: Vec<usize> = (0..self.flows.len()).filter(adapts).collect();
        // Leave out flows that paused, because their lower throughput is not unfair.
        let always = flows.iter().filter(|n| !self.paused(**n));
        let means: Vec<f64> = always.filter_map(|n| self.throughput(&self.flows[*n])).collect();
        let per = self.steps_per_second();
        let bins: Vec<Vec<f64>> = flows.iter().map(|n| self.bins(&self.flows[*n])).collect();
        // Stop at the last second in which all flows have a rate, because Jain's index needs all rates.
        let whole = bins.iter().map(|b| b.len() / per).min().unwrap_or(0);
        let from = self.scenario.warmup.as_secs_f64().ceil() as usize;
        let mut seconds: Vec<f64> = (from.min(whole)..whole)
            .filter_map(|s| {
                let (begin, end) = (Time::ZERO + Span::secs(s as u64), Time::ZERO + Span::secs(s as u64 + 1));
                let there = flows.iter().zip(&bins).filter(|(n, _)| self.active_throughout(**n, begin, end));
                let rates: Vec<f64> = there.map(|(_, b)| b[s * per..(s + 1) * per].iter().sum()).collect();
                jain(&rates)
            })
            .collect();
        // Sort the values to find the fifth percentile.
        seconds.sort_by(f64::total_cmp);
        let mean = (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64);
        into.put(&run::JAIN, jain(&means));
        into.put(&run::JAIN_1S_MEAN, mean);
        into.put(&run::JAIN_1S_P05, seconds.get((seconds.len() as f64 * 0.05) as usize).copied());
    }

    /// Returns the SHA-256 over the times, packets, decisions and frame fates of the run.
    fn record_sha256(&self) -> String {
        let mut hash = Sha256::new();
        for agent in self.agents {
            let (a, b) = agent.recorded().digest();
            hash.update(a.to_le_bytes());
            hash.update(b.to_le_bytes());
        }
        for change in self.viewers.iter().flat_map(|viewer| &viewer.moves) {
            hash.update(change.at.as_nanos().to_le_bytes());
            hash.update([change.from as u8, change.to as u8]);
        }
        hash.update(self.hops.to_le_bytes());
        hash.finalize().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (n, sum) = values.fold((0u32, 0.0), |(n, sum), value| (n + 1, sum + value));
    (n > 0).then(|| sum / f64::from(n))
}
