//! What a run comes to: the numbers of `summary.json`.

use crate::agent::{Agent, KernelSource, TcpSource, VideoSink, VideoSource};
use crate::intake::{Intake, Point};
use crate::share::{Claim, fair, jain, variation};
use crate::{FlowEnds, Record};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use steadycast_control::Check;
use steadycast_control::registry::{self, Feedback};
use steadycast_link::Counts;
use steadycast_media::{Fate, SentFrames};
use steadycast_scenario::{self as sc, FlowKind};
use steadycast_units::{Bytes, Rate, Span, Spread, Time};

fn ms(span: Option<Span>) -> Value {
    span.map_or(Value::Null, |s| json!(s.as_millis_f64()))
}

pub(crate) fn number(value: Option<f64>) -> Value {
    value.filter(|v| v.is_finite()).map_or(Value::Null, |v| json!(v))
}

fn quantiles(spread: &Spread) -> Value {
    json!({
        "p50": ms(spread.quantile(0.5)), "p95": ms(spread.quantile(0.95)),
        "p99": ms(spread.quantile(0.99)), "max": ms(spread.max()),
    })
}

impl Record<'_> {
    /// The summary of the run so far, without what needs pixels. `complete` says whether its end was reached.
    pub fn summary(&self, complete: bool) -> Value {
        let shares = self.fair_shares();
        let flows: Vec<Value> = (0..self.flows.len()).map(|n| self.flow(n, shares[n])).collect();
        let until = self.now;
        let mut summary = json!({
            "format": 1,
            "scenario": { "name": self.scenario.name, "seed": self.scenario.seed.0 },
            "world": self.world,
            "complete": complete,
            "warnings": [],
            "from_s": self.scenario.warmup.as_secs_f64(),
            "to_s": until.as_secs_f64(),
            "record_sha256": self.record_sha256(),
            "flows": flows,
            "links": self.link_summaries(),
            "fairness": self.fairness(),
            "invariants": self.invariants(),
            "expect": [],
        });
        if !self.scenario.simulcasts.is_empty() {
            summary["simulcasts"] = self.simulcasts();
        }
        summary
    }

    fn flow(&self, n: usize, share: Option<Rate>) -> Value {
        let (spec, ends) = (&self.scenario.flows[n], &self.flows[n]);
        let throughput = self.throughput(ends);
        let bins = self.bins(ends);
        let seconds: Vec<f64> = self.seconds_from(ends, &bins);
        let mut flow = Map::new();
        let mut put = |key: &str, value: Value| {
            flow.insert(key.to_owned(), value);
        };
        put("name", json!(spec.name));
        put("throughput_bps", number(throughput));
        put("fair_share_bps", share.map_or(Value::Null, |s| json!(s.as_bps_f64())));
        put("share_of_fair", number(throughput.zip(share).map(|(t, s)| t / s.as_bps_f64())));
        put("rate_cov", number(variation(&seconds)));
        put("ramp_s", self.ramp(ends, &bins, share));
        match &spec.kind {
            FlowKind::Cbr(_) => put("kind", json!("cbr")),
            FlowKind::OnOff(_) => put("kind", json!("onoff")),
            FlowKind::Tcp(tcp) => {
                put("kind", json!("tcp"));
                put("congestion", json!(tcp.config.congestion.name()));
            }
            FlowKind::Video(video) => {
                put("kind", json!("video"));
                put("controller", json!(video.controller));
                let paper = video.mode == steadycast_control::Mode::Paper;
                put("mode", json!(if paper { "paper" } else { "repaired" }));
            }
        }
        let sources = ends.sources.iter().map(|s| &self.agents[s.0 as usize]);
        for source in sources.take(1) {
            match source {
                Agent::TcpSource(source) => flow.extend(tcp_source(source)),
                Agent::KernelSource(source) => flow.extend(kernel_source(source)),
                Agent::VideoSource(source) => flow.extend(self.video_source(ends, source)),
                Agent::PlainSource(source) => {
                    flow.insert("sent_packets".into(), json!(source.sent));
                }
                _ => {}
            }
        }
        flow.insert("receivers".into(), self.receivers(spec, ends));
        Value::Object(flow)
    }

    fn intake(&self, sink: crate::AgentIx) -> Option<&Intake> {
        match &self.agents[sink.0 as usize] {
            Agent::PlainSink(sink) => Some(&sink.intake),
            Agent::TcpSink(sink) => Some(&sink.intake),
            Agent::KernelSink(sink) => Some(&sink.intake),
            Agent::VideoSink(sink) => Some(&sink.intake),
            _ => None,
        }
    }

    /// When a sink's means begin: a member that joins late is measured from then on.
    fn means_from(&self, ends: &FlowEnds, sink: crate::AgentIx) -> Time {
        match &self.agents[sink.0 as usize] {
            Agent::VideoSink(sink) => sink.joined.max(ends.means_from),
            _ => ends.means_from,
        }
    }

    /// For how long a sink's means are taken.
    fn sink_span(&self, ends: &FlowEnds, sink: crate::AgentIx) -> Span {
        ends.active(self.means_from(ends, sink), self.now)
    }

    /// Mean over the receivers, in bit/s.
    fn throughput(&self, ends: &FlowEnds) -> Option<f64> {
        let rates = ends.sinks.iter().filter_map(|s| {
            let span = self.sink_span(ends, *s);
            let bytes = self.intake(*s)?.bytes;
            (!span.is_zero()).then(|| bytes.per(span).as_bps_f64())
        });
        let (n, sum) = rates.fold((0u32, 0.0), |(n, sum), r| (n + 1, sum + r));
        (n > 0).then(|| sum / f64::from(n))
    }

    /// Mean bytes per receiver in each step of the series.
    fn bins(&self, ends: &FlowEnds) -> Vec<f64> {
        let mut bins = Vec::new();
        for sink in &ends.sinks {
            let Some(intake) = self.intake(*sink) else { continue };
            bins.resize(intake.samples.len().max(bins.len()), 0.0);
            for (bin, point) in bins.iter_mut().zip(&intake.samples) {
                *bin += point.bytes as f64 / ends.sinks.len() as f64;
            }
        }
        bins
    }

    fn steps_per_second(&self) -> usize {
        (Span::secs(1).as_nanos() / self.step.as_nanos()).max(1) as usize
    }

    /// Rates in whole seconds that lie within the flow's means, in bit/s.
    fn seconds_from(&self, ends: &FlowEnds, bins: &[f64]) -> Vec<f64> {
        let per = self.steps_per_second();
        let second = |n: usize| bins[n * per..(n + 1) * per].iter().sum::<f64>() * 8.0;
        let whole = bins.len() / per;
        let first = ends.means_from.as_secs_f64().ceil() as usize;
        let last = whole.min(ends.stop.min(self.now).as_secs_f64().floor() as usize);
        let instant = |n: usize| Time::ZERO + Span::secs(n as u64);
        (first.min(last)..last).filter(|n| ends.active_throughout(instant(*n), instant(n + 1))).map(second).collect()
    }

    /// After how long a second of the flow first reached a rate.
    fn ramp(&self, ends: &FlowEnds, bins: &[f64], share: Option<Rate>) -> Value {
        let per = self.steps_per_second();
        let begin = (ends.start.as_nanos() / self.step.as_nanos()) as usize;
        let reached = |bps: f64| {
            let windows = bins.get(begin..).unwrap_or(&[]).windows(per);
            let n = windows.map(|w| w.iter().sum::<f64>() * 8.0).position(|rate| rate >= bps)?;
            Some(((n + per) as u64 * self.step.as_nanos()) as f64 / 1e9)
        };
        json!({ "1Mbps": number(reached(1e6)), "share_80pct": number(share.and_then(|s| reached(0.8 * s.as_bps_f64()))) })
    }

    fn video_source(&self, ends: &FlowEnds, source: &VideoSource) -> Map<String, Value> {
        let limits = source.limits;
        let total = (limits.network + limits.encoder + limits.start + limits.cap).as_secs_f64();
        let part = |span: Span| if total > 0.0 { json!(span.as_secs_f64() / total) } else { Value::Null };
        let feedback = source.feedback();
        let span = ends.active(Time::ZERO, self.now);
        let mut map = Map::new();
        map.insert("sent_packets".into(), json!(source.sent_packets));
        map.insert("feedback_packets".into(), json!(feedback.packets));
        map.insert("feedback_bps".into(), json!(feedback.bytes.per(span.max(Span::nanos(1))).as_bps_f64()));
        map.insert("feedback_refused".into(), json!(feedback.refused));
        map.insert("skipped_frames".into(), json!(source.skipped()));
        map.insert("backlog_ms".into(), quantiles(&source.backlog));
        map.insert(
            "limited_by_frac".into(),
            json!({
                "network": part(limits.network), "encoder": part(limits.encoder),
                "start": part(limits.start), "cap": part(limits.cap),
            }),
        );
        map
    }

    fn receivers(&self, spec: &sc::Flow, ends: &FlowEnds) -> Value {
        let each = spec.to.iter().zip(&ends.sinks).enumerate().map(|(n, (node, sink_ix))| {
            let name = self.scenario.node_name(*node);
            let span = self.sink_span(ends, *sink_ix);
            let Some(intake) = self.intake(*sink_ix) else { return Value::Null };
            let rate = (!span.is_zero()).then(|| intake.bytes.per(span).as_bps_f64());
            let mut map = Map::new();
            map.insert("name".into(), json!(name));
            map.insert("throughput_bps".into(), number(rate));
            let agent = &self.agents[sink_ix.0 as usize];
            if !matches!(agent, Agent::TcpSink(_) | Agent::KernelSink(_)) {
                let first = (ends.means_from.as_nanos() / self.step.as_nanos()) as usize;
                let (expected, got) = totals(intake.samples.get(first..).unwrap_or(&[]));
                let lost = (expected > 0).then(|| (1.0 - got as f64 / expected as f64).max(0.0));
                map.insert("loss_frac".into(), number(lost));
                map.insert("delay_ms".into(), quantiles(&intake.delay));
            }
            if let Agent::VideoSink(sink) = agent {
                let source = ends.sources.get(if ends.sources.len() > 1 { n } else { 0 });
                let source = source.and_then(|s| match &self.agents[s.0 as usize] {
                    Agent::VideoSource(source) => Some(&**source),
                    _ => None,
                });
                let playout = match &spec.kind {
                    FlowKind::Video(video) => video.playout,
                    _ => None,
                };
                let (sent, from) = (source.map(|s| &s.frames), self.means_from(ends, *sink_ix));
                map.extend(video_sink(sink, sent, playout, self.frame_period(source), from));
            }
            Value::Object(map)
        });
        Value::Array(each.collect())
    }

    fn frame_period(&self, source: Option<&VideoSource>) -> Span {
        source.map_or(Span::ZERO, |s| s.frame_period())
    }

    fn link_summaries(&self) -> Value {
        let mut all = Vec::new();
        for (n, link) in self.scenario.links.iter().enumerate() {
            for (back, direction) in ["forward", "back"].into_iter().enumerate() {
                let Some(hop) = self.links.get(2 * n + back) else { continue };
                let counts = hop.link.counts();
                if counts.offered == 0 {
                    continue;
                }
                // Means leave the warm-up out, counts don't.
                let none = Counts::default();
                let before = hop.before.unwrap_or(&none);
                let from = if hop.before.is_some() { Time::ZERO + self.scenario.warmup } else { Time::ZERO };
                let sent = counts.sent.saturating_sub(before.sent);
                let (offered, dropped) = (counts.offered - before.offered, counts.dropped() - before.dropped());
                let capacity = hop.link.capacity(from, self.now).filter(|c| *c > Bytes::ZERO);
                let used = capacity.map(|c| (sent.as_f64() / c.as_f64()).min(1.0));
                all.push(json!({
                    "name": link.name,
                    "direction": direction,
                    "utilisation_frac": number(used),
                    "offered_packets": counts.offered,
                    "packets": hop.carried,
                    "dropped_packets": counts.dropped(),
                    "lost_packets": counts.lost,
                    "reordered_packets": counts.reordered,
                    "duplicated_packets": counts.duplicated,
                    "marked_packets": counts.marked,
                    "drop_frac": number((offered > 0).then(|| dropped as f64 / offered as f64)),
                    "queue_ms": quantiles(&counts.wait.since(&before.wait)),
                }));
            }
        }
        Value::Array(all)
    }

    /// What each flow wants, and which links it needs.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let of = |(spec, links): (&sc::Flow, &Vec<u32>)| {
            let demand = match &spec.kind {
                FlowKind::Cbr(cbr) => Some(cbr.rate),
                FlowKind::OnOff(on) => {
                    let (a, b) = (on.on.mean.as_secs_f64(), on.off.mean.as_secs_f64());
                    Some(on.rate.scale(a / (a + b).max(1e-9)))
                }
                FlowKind::Video(_) | FlowKind::Tcp(_) => None,
            };
            Claim { demand, links: links.clone() }
        };
        self.scenario.flows.iter().zip(&self.ways).map(of).collect()
    }

    fn fair_shares(&self) -> Vec<Option<Rate>> {
        let mut claims = self.claims();
        // The groups of a simulcast have no shares of their own: for the others they are one flow.
        let in_one = |n: usize| self.scenario.group_of(sc::FlowIx(n as u32));
        for (n, claim) in claims.iter_mut().enumerate() {
            if in_one(n).is_some_and(|(_, place)| place > 0) {
                claim.links.clear();
            }
        }
        // Nor has a flow over a link whose rate follows a trace.
        let moves = |claim: &Claim| claim.links.iter().any(|l| matches!(self.rate(*l), Some(sc::RateSpec::Trace(_))));
        let shares = fair(&claims, |l| self.capacity(l));
        let each = claims.iter().zip(shares).enumerate();
        each.map(|(n, (claim, share))| share.filter(|_| in_one(n).is_none() && !moves(claim))).collect()
    }

    /// What a link's direction carries.
    fn rate(&self, l: u32) -> Option<&sc::RateSpec> {
        let link = self.scenario.links.get(l as usize / 2)?;
        Some(if l.is_multiple_of(2) { &link.forward.rate } else { &link.back.rate })
    }

    /// The constant rate of a link's direction.
    pub(crate) fn capacity(&self, l: u32) -> Option<Rate> {
        self.rate(l).and_then(constant)
    }

    /// Over flows that adapt: what does not is not treated unfairly by them.
    fn fairness(&self) -> Value {
        let adapts = |n: &usize| {
            matches!(self.scenario.flows[*n].kind, FlowKind::Video(_) | FlowKind::Tcp(_))
                && self.scenario.group_of(sc::FlowIx(*n as u32)).is_none()
        };
        let flows: Vec<usize> = (0..self.flows.len()).filter(adapts).collect();
        let means: Vec<f64> = flows.iter().filter_map(|n| self.throughput(&self.flows[*n])).collect();
        let per = self.steps_per_second();
        let bins: Vec<Vec<f64>> = flows.iter().map(|n| self.bins(&self.flows[*n])).collect();
        let whole = bins.iter().map(|b| b.len() / per).min().unwrap_or(0);
        let from = self.scenario.warmup.as_secs_f64().ceil() as usize;
        let mut seconds: Vec<f64> = (from.min(whole)..whole)
            .filter_map(|s| {
                let rates: Vec<f64> = bins.iter().map(|b| b[s * per..(s + 1) * per].iter().sum()).collect();
                jain(&rates)
            })
            .collect();
        seconds.sort_by(f64::total_cmp);
        let mean = (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64);
        let p05 = seconds.get((seconds.len() as f64 * 0.05) as usize).copied();
        json!({ "jain": number(jain(&means)), "jain_1s": { "mean": number(mean), "p05": number(p05) } })
    }

    /// INV-2: RTCP of controllers with periodic feedback stays within 5 % of the session bandwidth, with a point to spare over
    /// half a minute. The others are promises of the controllers, which keep an eye on them.
    fn invariants(&self) -> Value {
        let mut all = Vec::new();
        let mut shares = Check::new("INV-2");
        for (spec, ends) in self.scenario.flows.iter().zip(self.flows) {
            let FlowKind::Video(video) = &spec.kind else { continue };
            let periodic = registry::find(&video.controller).is_ok_and(|c| c.feedback != Feedback::Clocked);
            for agent in ends.sources.iter().chain(&ends.sinks) {
                match &self.agents[agent.0 as usize] {
                    Agent::VideoSource(source) => {
                        Check::gather(&mut all, &source.checks());
                        source.rtcp_shares.iter().filter(|_| periodic).for_each(|share| shares.see(*share <= 0.06));
                    }
                    Agent::VideoSink(sink) => Check::gather(&mut all, &sink.checks()),
                    _ => {}
                }
            }
        }
        all.push(shares);
        all.retain(|check| check.checked > 0);
        all.sort_by_key(|check| check.id);
        let said = |c: &Check| json!({ "id": c.id, "checked": c.checked, "broken": c.broken });
        let all = all.iter().map(said).collect();
        Value::Array(all)
    }

    /// SHA-256 over all times, packets, decisions and frame fates.
    fn record_sha256(&self) -> String {
        let mut hash = Sha256::new();
        for agent in self.agents {
            let (a, b) = match agent {
                Agent::PlainSource(source) => (source.sent, source.bytes.get()),
                Agent::PlainSink(sink) => (sink.intake.digest.value(), sink.intake.packets()),
                Agent::TcpSource(source) => (source.digest.value(), source.sent_bytes.get()),
                Agent::TcpSink(sink) => (sink.intake.digest.value(), sink.intake.packets()),
                Agent::KernelSource(source) => (source.digest.value(), source.sent_bytes().get()),
                Agent::KernelSink(sink) => (sink.intake.digest.value(), sink.intake.packets()),
                Agent::VideoSource(source) => (source.digest.value(), source.sent_packets),
                Agent::VideoSink(sink) => (sink.intake.digest.value(), sink.rtcp_packets),
            };
            hash.update(a.to_le_bytes());
            hash.update(b.to_le_bytes());
        }
        for told in self.viewers.iter().flat_map(|viewer| &viewer.moves) {
            hash.update(told.at.as_nanos().to_le_bytes());
            hash.update([told.from as u8, told.to as u8]);
        }
        hash.update(self.hops.to_le_bytes());
        hash.finalize().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

fn constant(rate: &sc::RateSpec) -> Option<Rate> {
    match rate {
        sc::RateSpec::Constant(rate) => Some(*rate),
        _ => None,
    }
}

fn totals(points: &[Point]) -> (u64, u64) {
    points.iter().fold((0, 0), |(e, p), point| (e + u64::from(point.expected), p + u64::from(point.packets)))
}

fn tcp_source(source: &TcpSource) -> Map<String, Value> {
    let (past, sender) = (&source.past, &source.sender);
    let totals =
        (past.sent + sender.sent(), past.retransmitted + sender.retransmitted(), past.timeouts + sender.timeouts());
    tcp_figures(totals, &source.srtt, source.cwnd_area, &source.completed)
}

fn kernel_source(source: &KernelSource) -> Map<String, Value> {
    tcp_figures(source.totals(), &source.srtt, source.cwnd_area, &source.completed)
}

fn tcp_figures(
    (sent, retransmitted, timeouts): (u64, u64, u64),
    srtt: &Spread,
    (area, span): (f64, Span),
    completed: &[Time],
) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("sent_packets".into(), json!(sent));
    map.insert("retransmitted_packets".into(), json!(retransmitted));
    map.insert("timeouts".into(), json!(timeouts));
    map.insert("srtt_ms".into(), quantiles(srtt));
    let cwnd = (!span.is_zero()).then(|| area / span.as_secs_f64());
    map.insert("cwnd_packets".into(), json!({ "mean": number(cwnd) }));
    if let Some(first) = completed.first() {
        map.insert("transfers_count".into(), json!(completed.len()));
        map.insert("completed_s".into(), json!(first.as_secs_f64()));
    }
    map
}

fn video_sink(
    sink: &VideoSink,
    sent: Option<&SentFrames>,
    playout: Option<Span>,
    period: Span,
    from: Time,
) -> Map<String, Value> {
    let mut map = Map::new();
    let view = sink.session().map(|s| s.view()).unwrap_or_default();
    map.insert("loss_event_rate".into(), number(view.loss));
    map.insert("jitter_ms".into(), ms(sink.session().map(|s| s.jitter())));
    map.insert("cumulative_jitter_max_ms".into(), json!(sink.jitter.max.later().as_millis_f64()));
    map.insert("feedback_packets".into(), json!(sink.rtcp_packets));
    let buffer = sink.buffer.as_ref();
    map.insert("buffer_underflows".into(), buffer.map_or(Value::Null, |b| json!(b.underflows())));
    map.insert("buffer_overflows".into(), buffer.map_or(Value::Null, |b| json!(b.overflows())));
    let assembled = sink.assembly.as_ref().zip(sent);
    map.insert("playout_needed_ms".into(), ms(sent.and_then(|s| sink.playout_needed(s))));
    let Some((assembly, sent)) = assembled else {
        map.insert("frames".into(), Value::Null);
        return map;
    };
    let fates = assembly.fates(sent, playout);
    // A member that joins late is not owed what was sent before, and nobody is judged by the warm-up.
    let judged = |since: Time| {
        let of = |n: &usize| sent.frames[*n].ready >= since && !sent.frames[*n].is_gap();
        (0..fates.len()).filter(of).collect::<Vec<usize>>()
    };
    let owed = judged(from);
    let count = |fate| owed.iter().filter(|n| fates[**n] == fate).count();
    map.insert(
        "frames".into(),
        json!({
            "sent": owed.len(), "ok": count(Fate::Ok), "lost": count(Fate::Lost),
            "late": count(Fate::Late), "undecodable": count(Fate::Undecodable),
        }),
    );
    let (freezes, frozen) = freezes(sent, &fates, &owed);
    map.insert("freeze_count".into(), json!(freezes));
    map.insert("freeze_s".into(), json!((period * frozen).as_secs_f64()));
    let startup = judged(sink.joined).into_iter().find(|n| fates[*n] == Fate::Ok).and_then(|n| {
        let (_, last) = assembly.arrival(n as u32)?;
        let whole = last.since(sink.joined);
        // A player shows the first frame when it is whole and its play-out delay is over.
        Some(playout.map_or(whole, |p| whole.max(sent.frames[n].ready.since(sink.joined) + p)))
    });
    map.insert("startup_ms".into(), ms(startup));
    map
}

/// How often, and for how many slots in all, no new picture was there to be shown.
fn freezes(sent: &SentFrames, fates: &[Fate], owed: &[usize]) -> (u64, u64) {
    let mut slots: Vec<(u32, bool)> =
        owed.iter().map(|n| (sent.frames[*n].coded.display, fates[*n] == Fate::Ok)).collect();
    slots.sort_unstable();
    let (mut count, mut frozen, mut before) = (0, 0, true);
    for (_, shown) in slots {
        count += u64::from(before && !shown);
        frozen += u64::from(!shown);
        before = shown;
    }
    (count, frozen)
}

/// Bytes as a rate over one step of a series.
pub(crate) fn rate_of(bytes: u64, step: Span) -> f64 {
    Bytes::new(bytes).per(step).as_bps_f64()
}
