//! The tables of a record.

use crate::activity::{overlap, within};
use crate::agent::{AudioArrival, Recorded, RowOrigin, VideoSink, VideoSource};
use crate::{FlowEnds, Point, Record};
use std::collections::BTreeMap;
use steadycast_media::AUDIO_PACKET_TIME;
use steadycast_record::{Table, audio, frames, links, missing, packets, rates, tcp};
use steadycast_scenario::{self as sc, FlowKind};
use steadycast_units::{Bytes, Rate, Span, Time};

impl Record<'_> {
    /// Returns the table called `name`. Returns `None` if there is no such table. The table `wire` has no rows here.
    pub fn table(&self, name: &str) -> Option<Table> {
        let mut table = Table::called(name)?;
        match name {
            "rates" => self.rates(&mut table),
            "decisions" => self.decisions(&mut table),
            "frames" => self.frames(&mut table),
            "missing" => self.missing(&mut table),
            "audio" => self.audio(&mut table),
            "links" => self.link_table(&mut table),
            "tcp" => self.tcp_table(&mut table),
            "moves" => self.moves(&mut table),
            "packets" => self.packets(&mut table),
            // The table stays empty here, because the emulation writes it.
            "wire" => {}
            _ => return None,
        }
        Some(table)
    }

    /// Returns the number of steps in an interval of the record.
    fn steps(&self) -> usize {
        (self.scenario.record.interval.as_nanos() / self.step.as_nanos()).max(1) as usize
    }

    fn interval(&self) -> Span {
        self.step * self.steps() as u64
    }

    fn flows(&self) -> impl Iterator<Item = (&sc::Flow, &FlowEnds)> {
        self.scenario.flows.iter().zip(self.flows)
    }

    /// Splits a series into the record's intervals. Each item has the begin in seconds, the steps and the duration.
    fn intervals<'s, T>(&self, series: &'s [T]) -> impl Iterator<Item = (f64, &'s [T], Span)> {
        let (interval, step) = (self.interval(), self.step);
        let chunks = series.chunks(self.steps()).enumerate();
        chunks.map(move |(n, chunk)| ((interval * n as u64).as_secs_f64(), chunk, step * chunk.len() as u64))
    }

    fn rates(&self, into: &mut Table) {
        let shares = self.shares_by_interval(self.interval());
        for ((spec, ends), shares) in self.flows().zip(&shares) {
            for source in &ends.sources {
                for (at, steps, span) in self.intervals(&self.recorded(*source).sent()) {
                    into.real(&rates::T, at);
                    into.text(&rates::FLOW, &spec.name);
                    into.text(&rates::NODE, self.scenario.node_name(spec.from));
                    into.real(&rates::THROUGHPUT, rate_of(steps.iter().map(|step| step.bytes).sum(), span));
                    let decided = steps.last().and_then(|step| step.decided);
                    into.real(&rates::TARGET, decided.map(|(target, _)| target.as_bps_f64()));
                    into.real(&rates::PACING, decided.map(|(_, pacing)| pacing.as_bps_f64()));
                    into.end_row();
                }
            }
            for (place, (to, sink)) in spec.to.iter().zip(&ends.sinks).enumerate() {
                // If all receivers share a session, they share a series.
                let shares = shares.get(if shares.len() > 1 { place } else { 0 }).map_or(&[][..], Vec::as_slice);
                self.arrived((spec, ends), self.scenario.node_name(*to), self.recorded(*sink), shares, into);
            }
        }
    }

    fn arrived(
        &self,
        (spec, ends): (&sc::Flow, &FlowEnds),
        node: &str,
        sink: &dyn Recorded,
        shares: &[Option<Rate>],
        into: &mut Table,
    ) {
        let Some(intake) = sink.intake() else { return };
        // Leave the loss out for TCP. TCP retransmits, so its application loses nothing.
        let lossless = matches!(spec.kind, FlowKind::Tcp(_));
        for (n, (at, steps, span)) in self.intervals(&intake.samples.all()).enumerate() {
            let sum = |of: fn(&Point) -> u64| steps.iter().map(of).sum::<u64>();
            let begin = Time::ZERO + self.interval() * n as u64;
            let active = || ends.active.iter().copied();
            let absent = within(active(), begin, begin + span).saturating_sub(within(
                overlap(active(), sink.stays()),
                begin,
                begin + span,
            ));
            let member = span.saturating_sub(absent);
            let (packets, expected) = (sum(|p| u64::from(p.packets)), sum(|p| u64::from(p.expected)));
            // Weight the delay of each step by its packets. Leave out steps whose delay is unknown.
            let delays: f64 = steps.iter().filter_map(|p| Some(p.delay?.as_millis_f64() * f64::from(p.packets))).sum();
            let delayed = sum(|p| p.delay.map_or(0, |_| u64::from(p.packets)));
            // More packets may arrive in these steps than are expected in them, because late packets were expected
            // earlier. Limit the loss to zero.
            let lost = (expected > 0 && !lossless).then(|| (1.0 - packets as f64 / expected as f64).max(0.0));
            into.real(&rates::T, at);
            into.text(&rates::FLOW, &spec.name);
            into.text(&rates::NODE, node);
            into.real(&rates::THROUGHPUT, (!member.is_zero()).then(|| rate_of(sum(|p| p.bytes), member)));
            into.real(&rates::LOSS, lost);
            into.real(&rates::DELAY, (delayed > 0).then(|| delays / delayed as f64));
            into.real(&rates::BUFFER, steps.last().and_then(|p| p.buffer).map(Bytes::as_f64));
            into.millis(&rates::PLAYOUT, steps.last().and_then(|p| p.playout));
            into.real(
                &rates::FAIR,
                shares.get(n).copied().flatten().filter(|_| !member.is_zero()).map(Rate::as_bps_f64),
            );
            into.end_row();
        }
    }

    fn decisions(&self, into: &mut Table) {
        for (spec, ends) in self.flows() {
            let receivers = self.receiver_names(spec, ends);
            let sources = ends.sources.iter().map(|source| (spec.from, source));
            for (node, agent) in sources.chain(spec.to.iter().copied().zip(&ends.sinks)) {
                let (flow, node) = (spec.name.as_str(), self.scenario.node_name(node));
                self.recorded(*agent)
                    .decisions(&RowOrigin { flow, node, receivers: &receivers, until: self.now }, into);
            }
        }
    }

    fn receiver_names(&self, spec: &sc::Flow, ends: &FlowEnds) -> BTreeMap<u32, String> {
        let sinks = spec.to.iter().zip(&ends.sinks);
        let videos = sinks.filter_map(|(to, sink)| Some((to, self.agents[sink.0 as usize].video_sink()?)));
        let names = videos.flat_map(|(to, sink)| {
            // Add the present SSRC, because a collision may have changed it (RFC 3550, section 8.2).
            let now = sink.session().map(|s| s.ssrc());
            sink.ssrcs.iter().copied().chain(now).map(|ssrc| (ssrc, self.scenario.node_name(*to).to_owned()))
        });
        names.collect()
    }

    /// Returns each receiver of a video flow with the name of its node and its source.
    fn views(&self) -> Vec<(&sc::Flow, &str, &VideoSource, &VideoSink)> {
        let mut all = Vec::new();
        for (spec, ends) in self.flows() {
            for (n, (to, sink)) in spec.to.iter().zip(&ends.sinks).enumerate() {
                let source = ends.source_of(n).and_then(|source| self.agents[source.0 as usize].video_source());
                let sink = self.agents[sink.0 as usize].video_sink();
                if let (Some(source), Some(sink)) = (source, sink) {
                    all.push((spec, self.scenario.node_name(*to), source, sink));
                }
            }
        }
        all
    }

    fn frames(&self, into: &mut Table) {
        for (spec, name, source, sink) in self.views() {
            let Some(assembly) = &sink.assembly else { continue };
            let schedule = &sink.player.schedule;
            let fates = assembly.fates(&source.frames, schedule);
            let counted = sink.counted(&source.frames, &fates);
            for (n, (row, fate)) in source.frames.frames.iter().zip(fates).enumerate() {
                // Skip frames that do not count for this receiver, and frame numbers that were skipped.
                if !counted[n] || row.is_gap() {
                    continue;
                }
                let arrival = assembly.arrival(n as u32);
                let left = source.frames.packets.get(row.first_packet as usize).filter(|_| row.packets > 0);
                into.text(&frames::FLOW, &spec.name);
                into.text(&frames::NODE, name);
                into.whole(&frames::FRAME, i64::from(row.coded.index));
                into.whole(&frames::DISPLAY, i64::from(row.coded.display));
                into.whole(&frames::CLIP, i64::from(row.coded.clip));
                into.real(&frames::PTS, source.shown_at(row.coded.display).as_secs_f64());
                into.text(&frames::KIND, row.coded.kind.word());
                into.whole(&frames::Q, i64::from(row.coded.quantizer));
                into.whole(&frames::SIZE, row.coded.size.get() as i64);
                into.real(&frames::READY, row.ready.as_secs_f64());
                into.real(&frames::SENT, left.map(|(at, _)| at.as_secs_f64()));
                into.real(&frames::FIRST, arrival.map(|(at, _)| at.as_secs_f64()));
                into.real(&frames::ARRIVED, arrival.map(|(_, at)| at.as_secs_f64()));
                into.millis(&frames::DELAY, arrival.map(|(_, at)| at.since(row.ready)));
                into.real(&frames::DUE, schedule.due(row.ready).map(Time::as_secs_f64));
                into.text(&frames::FATE, fate.word());
                into.end_row();
            }
        }
    }

    fn missing(&self, into: &mut Table) {
        for (spec, name, source, sink) in self.views() {
            let Some(assembly) = &sink.assembly else { continue };
            let fates = assembly.fates(&source.frames, &sink.player.schedule);
            let counted = sink.counted(&source.frames, &fates);
            for gap in assembly.missing(&source.frames).into_iter().filter(|gap| counted[gap.frame as usize]) {
                into.text(&missing::FLOW, &spec.name);
                into.text(&missing::NODE, name);
                into.whole(&missing::FRAME, i64::from(gap.frame));
                into.whole(&missing::OFFSET, i64::from(gap.offset));
                into.whole(&missing::LEN, i64::from(gap.len));
                into.end_row();
            }
        }
    }

    fn audio(&self, into: &mut Table) {
        for (spec, name, source, sink) in self.views() {
            let (Some(all), Some(arrivals)) = (&source.audio_sent, &sink.audio_arrivals) else { continue };
            let arrived: BTreeMap<usize, &AudioArrival> = arrivals
                .iter()
                .filter_map(|arrival| Some((source.audio_index(arrival.seq, arrival.at)?, arrival)))
                .collect();
            for (packet, sent) in all.iter().enumerate() {
                // Skip packets that were sent while the receiver was no member.
                if !sink.stayed(*sent) {
                    continue;
                }
                let arrival = arrived.get(&packet);
                let (fate, concealed) = match arrival {
                    None => ("lost", AUDIO_PACKET_TIME),
                    Some(arrival) if arrival.gap > Span::ZERO => ("late", arrival.gap),
                    Some(_) => ("ok", Span::ZERO),
                };
                into.text(&audio::FLOW, &spec.name);
                into.text(&audio::NODE, name);
                into.whole(&audio::PACKET, packet as i64);
                into.real(&audio::SENT, sent.as_secs_f64());
                into.real(&audio::ARRIVED, arrival.map(|arrival| arrival.at.as_secs_f64()));
                into.text(&audio::FATE, fate);
                into.millis(&audio::CONCEALED, concealed);
                into.end_row();
            }
        }
    }

    fn link_table(&self, into: &mut Table) {
        for (n, hop) in self.links.iter().enumerate() {
            // Skip a link without traffic, as the summary does.
            if hop.link.counts(self.now).offered == 0 {
                continue;
            }
            for (i, (at, steps, span)) in self.intervals(hop.series).enumerate() {
                let from = Time::ZERO + self.interval() * i as u64;
                let bps = rate_of(steps.iter().map(|p| p.bytes).sum(), span);
                let capacity = hop.link.capacity(from, from + span).map(|could| could.per(span).as_bps_f64());
                let last = steps.last().copied().unwrap_or_default();
                into.real(&links::T, at);
                // The two directions of a link are adjacent, as in `DirIx`.
                into.text(&links::LINK, &self.scenario.links[n / 2].name);
                into.text(&links::DIRECTION, if n % 2 == 0 { "forward" } else { "back" });
                into.real(&links::THROUGHPUT, bps);
                into.real(&links::CAPACITY, capacity);
                into.real(&links::UTILISATION, capacity.filter(|c| *c > 0.0).map(|c| bps / c));
                into.millis(&links::WAIT, last.wait);
                into.whole(&links::QUEUED, i64::from(last.queued));
                into.whole(&links::DROPPED, steps.iter().map(|p| p.dropped).sum::<u64>() as i64);
                into.end_row();
            }
        }
    }

    fn tcp_table(&self, into: &mut Table) {
        for (spec, ends) in self.flows() {
            for source in &ends.sources {
                for (at, steps, _) in self.intervals(self.recorded(*source).windows()) {
                    let Some(last) = steps.last() else { continue };
                    into.real(&tcp::T, at);
                    into.text(&tcp::FLOW, &spec.name);
                    into.real(&tcp::CWND, last.cwnd);
                    into.real(&tcp::SSTHRESH, last.ssthresh);
                    into.millis(&tcp::SRTT, last.srtt);
                    into.end_row();
                }
            }
        }
    }

    fn packets(&self, into: &mut Table) {
        for (spec, ends) in self.flows() {
            let sources = ends.sources.iter().map(|s| (spec.from, s, "s", Some(*s)));
            let sinks = spec.to.iter().zip(&ends.sinks).enumerate();
            let sinks = sinks.map(|(n, (to, s))| (*to, s, "r", ends.source_of(n)));
            for (node, agent, way, source) in sources.chain(sinks) {
                let Some(Some(log)) = self.logs.get(agent.0 as usize) else { continue };
                let sent = source.and_then(|s| self.agents[s.0 as usize].video_source());
                let sent = sent.map(|source| &source.frames.frames);
                for row in log {
                    let coded = row.frame().and_then(|i| sent?.get(i as usize)).map(|frame| frame.coded);
                    into.real(&packets::T, row.at().as_secs_f64());
                    into.text(&packets::DIR, way);
                    into.text(&packets::FLOW, &spec.name);
                    into.text(&packets::NODE, self.scenario.node_name(node));
                    into.whole(&packets::SEQ, row.seq() as i64);
                    if let Some(stream) = row.stream() {
                        into.text(&packets::STREAM, stream);
                    }
                    into.whole(&packets::SIZE, i64::from(row.size()));
                    if let Some(frame) = row.frame() {
                        into.whole(&packets::FRAME, i64::from(frame));
                    }
                    if let Some(coded) = coded {
                        into.text(&packets::KIND, coded.kind.word());
                        into.whole(&packets::Q, i64::from(coded.quantizer));
                    }
                    // Write 3 for CE (RFC 3168, section 5). Other codepoints are not recorded.
                    into.whole(&packets::ECN, if row.ce() { 3 } else { 0 });
                    into.millis(&packets::DELAY, row.delay());
                    into.end_row();
                }
            }
        }
    }
}

/// Returns a rate in bit/s.
fn rate_of(bytes: u64, span: Span) -> f64 {
    Rate::as_bps_f64(Bytes::new(bytes).per(span))
}
