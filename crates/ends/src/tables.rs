//! The record as tables: columns of one length, for whoever writes them down.

use crate::agent::{Agent, VideoSink, VideoSource};
use crate::intake::Intake;
use crate::summary::rate_of;
use crate::{FlowEnds, Record};
use std::collections::BTreeMap;
use steadycast_scenario::{self as sc, FlowKind};
use steadycast_session::FrameKind;
use steadycast_units::{Bytes, Span, Time};

/// One column.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Real numbers; NaN where there is none.
    Real(Vec<f64>),
    /// Whole numbers.
    Whole(Vec<i64>),
    /// Texts, each by its place in a list; `u32::MAX` where there is none.
    Text {
        /// The place of each row's text.
        codes: Vec<u32>,
        /// All texts.
        texts: Vec<String>,
    },
}

/// A table: named columns.
pub type Table = Vec<(&'static str, Column)>;

/// A text column that is being written.
#[derive(Default)]
pub(crate) struct Texts {
    codes: Vec<u32>,
    texts: Vec<String>,
    places: BTreeMap<String, u32>,
}

impl Texts {
    pub(crate) fn push(&mut self, text: &str) {
        let next = self.texts.len() as u32;
        let code = match self.places.get(text) {
            Some(code) => *code,
            None => {
                self.places.insert(text.to_owned(), next);
                self.texts.push(text.to_owned());
                next
            }
        };
        self.codes.push(code);
    }
    fn push_maybe(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.push(text),
            None => self.codes.push(u32::MAX),
        }
    }
    pub(crate) fn done(self) -> Column {
        Column::Text { codes: self.codes, texts: self.texts }
    }
}

pub(crate) fn real(value: Option<f64>) -> f64 {
    value.filter(|v| v.is_finite()).unwrap_or(f64::NAN)
}

fn ms(span: Option<Span>) -> f64 {
    real(span.map(Span::as_millis_f64))
}

impl Record<'_> {
    /// The table called `name`: rates, decisions, frames, missing, links, tcp, moves or packets; `None` for another name.
    pub fn table(&self, name: &str) -> Option<Table> {
        Some(match name {
            "rates" => self.rates(),
            "decisions" => self.decisions(),
            "frames" => self.frames(),
            "missing" => self.missing(),
            "links" => self.link_table(),
            "tcp" => self.tcp_table(),
            "moves" => self.moves(),
            "packets" => self.packets(),
            _ => return None,
        })
    }

    /// Steps of the series that make up one interval of the record.
    fn steps(&self) -> usize {
        (self.scenario.record.interval.as_nanos() / self.step.as_nanos()).max(1) as usize
    }

    fn interval(&self) -> Span {
        self.step * self.steps() as u64
    }

    fn flows(&self) -> impl Iterator<Item = (&sc::Flow, &FlowEnds)> {
        self.scenario.flows.iter().zip(self.flows)
    }

    fn rates(&self) -> Table {
        let (mut at, mut flow, mut node) = (Vec::new(), Texts::default(), Texts::default());
        let (mut rate, mut loss, mut delay) = (Vec::new(), Vec::new(), Vec::new());
        let (mut target, mut pacing, mut buffer) = (Vec::new(), Vec::new(), Vec::new());
        let (steps, interval) = (self.steps(), self.interval());
        for (spec, ends) in self.flows() {
            for source in &ends.sources {
                let bytes: Vec<(u64, f64, f64)> = match &self.agents[source.0 as usize] {
                    Agent::PlainSource(s) => s.samples.iter().map(|b| (*b, f64::NAN, f64::NAN)).collect(),
                    Agent::KernelSource(s) => s.samples.iter().map(|p| (p.bytes, f64::NAN, f64::NAN)).collect(),
                    Agent::TcpSource(s) => s.samples.iter().map(|p| (p.bytes, f64::NAN, f64::NAN)).collect(),
                    Agent::VideoSource(s) => {
                        let row =
                            |p: &crate::agent::SourcePoint| (p.bytes, p.target.as_bps_f64(), p.pacing.as_bps_f64());
                        s.samples.iter().map(row).collect()
                    }
                    _ => continue,
                };
                for (n, chunk) in bytes.chunks(steps).enumerate() {
                    at.push((interval * n as u64).as_secs_f64());
                    flow.push(&spec.name);
                    node.push(self.scenario.node_name(spec.from));
                    rate.push(rate_of(chunk.iter().map(|c| c.0).sum(), self.step * chunk.len() as u64));
                    loss.push(f64::NAN);
                    delay.push(f64::NAN);
                    let last = chunk.last().map_or((0, f64::NAN, f64::NAN), |c| *c);
                    target.push(last.1);
                    pacing.push(last.2);
                    buffer.push(f64::NAN);
                }
            }
            for (to, sink) in spec.to.iter().zip(&ends.sinks) {
                let intake: &Intake = match &self.agents[sink.0 as usize] {
                    Agent::PlainSink(s) => &s.intake,
                    Agent::TcpSink(s) => &s.intake,
                    Agent::KernelSink(s) => &s.intake,
                    Agent::VideoSink(s) => &s.intake,
                    _ => continue,
                };
                let lossless = matches!(spec.kind, FlowKind::Tcp(_));
                for (n, chunk) in intake.samples.chunks(steps).enumerate() {
                    let sum = |f: fn(&crate::intake::Point) -> u64| chunk.iter().map(f).sum::<u64>();
                    let (packets, expected) = (sum(|p| u64::from(p.packets)), sum(|p| u64::from(p.expected)));
                    let delays: f64 =
                        chunk.iter().filter_map(|p| Some(p.delay?.as_millis_f64() * f64::from(p.packets))).sum();
                    at.push((interval * n as u64).as_secs_f64());
                    flow.push(&spec.name);
                    node.push(self.scenario.node_name(*to));
                    rate.push(rate_of(sum(|p| p.bytes), self.step * chunk.len() as u64));
                    let lost = (expected > 0 && !lossless).then(|| (1.0 - packets as f64 / expected as f64).max(0.0));
                    loss.push(real(lost));
                    delay.push(real((packets > 0).then(|| delays / packets as f64)));
                    target.push(f64::NAN);
                    pacing.push(f64::NAN);
                    buffer.push(real(chunk.last().and_then(|p| p.buffer).map(Bytes::as_f64)));
                }
            }
        }
        vec![
            ("t_s", Column::Real(at)),
            ("flow", flow.done()),
            ("node", node.done()),
            ("throughput_bps", Column::Real(rate)),
            ("loss_frac", Column::Real(loss)),
            ("delay_ms", Column::Real(delay)),
            ("target_bps", Column::Real(target)),
            ("pacing_bps", Column::Real(pacing)),
            ("buffer_bytes", Column::Real(buffer)),
        ]
    }

    fn decisions(&self) -> Table {
        let (mut at, mut flow, mut node, mut rule) = (Vec::new(), Texts::default(), Texts::default(), Texts::default());
        let (mut target, mut pacing, mut loss, mut rtt) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut limits, mut by) = (Texts::default(), Texts::default());
        for (spec, ends) in self.flows() {
            let FlowKind::Video(_) = &spec.kind else { continue };
            let receivers = self.receiver_names(spec, ends);
            for source in &ends.sources {
                let Agent::VideoSource(source) = &self.agents[source.0 as usize] else { continue };
                for row in &source.decisions {
                    let why = &row.decision.why;
                    at.push(row.at.as_secs_f64());
                    flow.push(&spec.name);
                    node.push(self.scenario.node_name(spec.from));
                    rule.push(&why.rule);
                    target.push(row.decision.target.as_bps_f64());
                    pacing.push(row.decision.pacing.as_bps_f64());
                    loss.push(real(why.loss));
                    rtt.push(ms(why.rtt));
                    limits.push(source.limit(row));
                    by.push_maybe(why.by.and_then(|id| receivers.get(&id.0)).map(String::as_str));
                }
            }
            for (to, sink) in spec.to.iter().zip(&ends.sinks) {
                let Agent::VideoSink(sink) = &self.agents[sink.0 as usize] else { continue };
                // What was said while the last packets arrived is not of the run.
                for (when, view) in sink.views.iter().filter(|(when, _)| *when <= self.now) {
                    at.push(when.as_secs_f64());
                    flow.push(&spec.name);
                    node.push(self.scenario.node_name(*to));
                    rule.push(view.state.unwrap_or("report"));
                    target.push(real(view.rate.map(|r| r.as_bps_f64())));
                    pacing.push(f64::NAN);
                    loss.push(real(view.loss));
                    rtt.push(ms(view.rtt));
                    limits.push_maybe(None);
                    by.push_maybe(None);
                }
            }
        }
        vec![
            ("t_s", Column::Real(at)),
            ("flow", flow.done()),
            ("node", node.done()),
            ("rule", rule.done()),
            ("target_bps", Column::Real(target)),
            ("pacing_bps", Column::Real(pacing)),
            ("loss", Column::Real(loss)),
            ("rtt_ms", Column::Real(rtt)),
            ("limit", limits.done()),
            ("by", by.done()),
        ]
    }

    fn receiver_names(&self, spec: &sc::Flow, ends: &FlowEnds) -> BTreeMap<u32, String> {
        let names = |(to, sink): (&sc::NodeIx, &crate::AgentIx)| match &self.agents[sink.0 as usize] {
            Agent::VideoSink(sink) => {
                let name = self.scenario.node_name(*to);
                let now = sink.session().map(|s| s.ssrc());
                sink.ssrcs.iter().copied().chain(now).map(|ssrc| (ssrc, name.to_owned())).collect()
            }
            _ => Vec::new(),
        };
        spec.to.iter().zip(&ends.sinks).flat_map(names).collect()
    }

    /// Each video flow's receivers with their sources, where there are frames.
    fn views(&self) -> Vec<(&sc::Flow, &str, &VideoSource, &VideoSink)> {
        let mut all = Vec::new();
        for (spec, ends) in self.flows() {
            for (n, (to, sink)) in spec.to.iter().zip(&ends.sinks).enumerate() {
                let source = ends.sources.get(if ends.sources.len() > 1 { n } else { 0 });
                let (Some(Agent::VideoSource(source)), Agent::VideoSink(sink)) =
                    (source.map(|s| &self.agents[s.0 as usize]), &self.agents[sink.0 as usize])
                else {
                    continue;
                };
                if sink.assembly.is_some() {
                    all.push((spec, self.scenario.node_name(*to), &**source, &**sink));
                }
            }
        }
        all
    }

    fn frames(&self) -> Table {
        let (mut flow, mut node) = (Texts::default(), Texts::default());
        let (mut kind, mut fate) = (Texts::default(), Texts::default());
        let (mut frame, mut display, mut clip, mut q, mut size) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut pts, mut ready, mut sent, mut first, mut arrived, mut delay) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (spec, name, source, sink) in self.views() {
            let (Some(assembly), FlowKind::Video(video)) = (&sink.assembly, &spec.kind) else { continue };
            let fates = assembly.fates(&source.frames, video.playout);
            for (n, (row, what)) in source.frames.frames.iter().zip(fates).enumerate() {
                if row.ready < sink.joined || row.is_gap() {
                    continue;
                }
                let came = assembly.arrival(n as u32);
                let left = source.frames.packets.get(row.first_packet as usize).filter(|_| row.packets > 0);
                flow.push(&spec.name);
                node.push(name);
                frame.push(i64::from(row.coded.index));
                display.push(i64::from(row.coded.display));
                clip.push(i64::from(row.coded.clip));
                q.push(i64::from(row.coded.quantizer));
                size.push(row.coded.size.get() as i64);
                pts.push(source.shown_at(row.coded.display).as_secs_f64());
                ready.push(row.ready.as_secs_f64());
                sent.push(real(left.map(|(at, _)| at.as_secs_f64())));
                first.push(real(came.map(|(at, _)| at.as_secs_f64())));
                arrived.push(real(came.map(|(_, at)| at.as_secs_f64())));
                delay.push(ms(came.map(|(_, at)| at.since(row.ready))));
                kind.push(match row.coded.kind {
                    FrameKind::I => "I",
                    FrameKind::P => "P",
                    FrameKind::B => "B",
                });
                fate.push(what.name());
            }
        }
        vec![
            ("flow", flow.done()),
            ("node", node.done()),
            ("frame", Column::Whole(frame)),
            ("display", Column::Whole(display)),
            ("clip_frame", Column::Whole(clip)),
            ("pts_s", Column::Real(pts)),
            ("kind", kind.done()),
            ("q", Column::Whole(q)),
            ("size_bytes", Column::Whole(size)),
            ("ready_s", Column::Real(ready)),
            ("sent_s", Column::Real(sent)),
            ("first_s", Column::Real(first)),
            ("arrived_s", Column::Real(arrived)),
            ("delay_ms", Column::Real(delay)),
            ("fate", fate.done()),
        ]
    }

    fn missing(&self) -> Table {
        let (mut flow, mut node) = (Texts::default(), Texts::default());
        let (mut frame, mut offset, mut len) = (Vec::new(), Vec::new(), Vec::new());
        for (spec, name, source, sink) in self.views() {
            let Some(assembly) = &sink.assembly else { continue };
            for gap in assembly.missing(&source.frames) {
                flow.push(&spec.name);
                node.push(name);
                frame.push(i64::from(gap.frame));
                offset.push(i64::from(gap.offset));
                len.push(i64::from(gap.len));
            }
        }
        vec![
            ("flow", flow.done()),
            ("node", node.done()),
            ("frame", Column::Whole(frame)),
            ("offset", Column::Whole(offset)),
            ("len", Column::Whole(len)),
        ]
    }

    fn link_table(&self) -> Table {
        let (mut at, mut name, mut direction) = (Vec::new(), Texts::default(), Texts::default());
        let (mut rate, mut used, mut wait) = (Vec::new(), Vec::new(), Vec::new());
        let (mut queued, mut dropped) = (Vec::new(), Vec::new());
        let (steps, interval) = (self.steps(), self.interval());
        for (n, hop) in self.links.iter().enumerate() {
            if hop.link.counts().offered == 0 {
                continue;
            }
            for (i, chunk) in hop.series.chunks(steps).enumerate() {
                let span = self.step * chunk.len() as u64;
                let from = Time::ZERO + interval * i as u64;
                let bps = rate_of(chunk.iter().map(|p| p.bytes).sum(), span);
                let capacity = hop.link.capacity(from, from + span).map(|c| c.per(span).as_bps_f64());
                let last = chunk.last().copied().unwrap_or_default();
                at.push(from.as_secs_f64());
                name.push(&self.scenario.links[n / 2].name);
                direction.push(if n % 2 == 0 { "forward" } else { "back" });
                rate.push(bps);
                used.push(real(capacity.map(|c| bps / c)));
                wait.push(last.wait.as_millis_f64());
                queued.push(i64::from(last.queued));
                dropped.push(chunk.iter().map(|p| p.dropped).sum::<u64>() as i64);
            }
        }
        vec![
            ("t_s", Column::Real(at)),
            ("link", name.done()),
            ("direction", direction.done()),
            ("throughput_bps", Column::Real(rate)),
            ("utilisation_frac", Column::Real(used)),
            ("queue_ms", Column::Real(wait)),
            ("queue_packets", Column::Whole(queued)),
            ("dropped_packets", Column::Whole(dropped)),
        ]
    }

    fn tcp_table(&self) -> Table {
        let (mut at, mut flow) = (Vec::new(), Texts::default());
        let (mut cwnd, mut ssthresh, mut srtt) = (Vec::new(), Vec::new(), Vec::new());
        let (steps, interval) = (self.steps(), self.interval());
        for (spec, ends) in self.flows() {
            for source in &ends.sources {
                let samples = match &self.agents[source.0 as usize] {
                    Agent::TcpSource(source) => &source.samples,
                    Agent::KernelSource(source) => &source.samples,
                    _ => continue,
                };
                for (n, chunk) in samples.chunks(steps).enumerate() {
                    let Some(last) = chunk.last() else { continue };
                    at.push((interval * n as u64).as_secs_f64());
                    flow.push(&spec.name);
                    cwnd.push(last.cwnd);
                    ssthresh.push(real(Some(last.ssthresh)));
                    srtt.push(ms(last.srtt));
                }
            }
        }
        vec![
            ("t_s", Column::Real(at)),
            ("flow", flow.done()),
            ("cwnd_packets", Column::Real(cwnd)),
            ("ssthresh_packets", Column::Real(ssthresh)),
            ("srtt_ms", Column::Real(srtt)),
        ]
    }

    fn packets(&self) -> Table {
        let (mut at, mut direction, mut flow, mut node) =
            (Vec::new(), Texts::default(), Texts::default(), Texts::default());
        let (mut seq, mut size, mut frame, mut ecn, mut owd) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut kind, mut q) = (Texts::default(), Vec::new());
        for (spec, ends) in self.flows() {
            let sources = ends.sources.iter().map(|s| (spec.from, s, "s"));
            let sinks = spec.to.iter().zip(&ends.sinks).map(|(to, s)| (*to, s, "r"));
            let sent = ends.sources.first().and_then(|s| match &self.agents[s.0 as usize] {
                Agent::VideoSource(source) => Some(&source.frames.frames),
                _ => None,
            });
            for (place, agent, way) in sources.chain(sinks) {
                let Some(Some(log)) = self.logs.get(agent.0 as usize) else { continue };
                for row in log {
                    at.push(row.at().as_secs_f64());
                    direction.push(way);
                    flow.push(&spec.name);
                    node.push(self.scenario.node_name(place));
                    seq.push(row.seq() as i64);
                    size.push(i64::from(row.size()));
                    let index = row.frame();
                    let coded = index.and_then(|i| sent?.get(i as usize)).map(|frame| frame.coded);
                    frame.push(index.map_or(-1, i64::from));
                    kind.push_maybe(coded.map(|c| match c.kind {
                        FrameKind::I => "I",
                        FrameKind::P => "P",
                        FrameKind::B => "B",
                    }));
                    q.push(coded.map_or(-1, |c| i64::from(c.quantizer)));
                    ecn.push(if row.ce() { 3 } else { 0 });
                    owd.push(ms(row.delay()));
                }
            }
        }
        vec![
            ("t_s", Column::Real(at)),
            ("dir", direction.done()),
            ("flow", flow.done()),
            ("node", node.done()),
            ("seq", Column::Whole(seq)),
            ("size_bytes", Column::Whole(size)),
            ("frame", Column::Whole(frame)),
            ("ftype", kind.done()),
            ("q", Column::Whole(q)),
            ("ecn", Column::Whole(ecn)),
            ("owd_ms", Column::Real(owd)),
        ]
    }
}
