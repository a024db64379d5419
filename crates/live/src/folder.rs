//! What a live session leaves behind, in the form in which a simulation leaves it.

use crate::{FrameRow, Peers};
use serde_json::{Map, Value, json};
use std::path::Path;
use steadycast_ends::{Agent, AgentIx, Column, FlowEnds, Record, Table};
use steadycast_media::Fate;
use steadycast_scenario::{Problems, Scenario};
use steadycast_units::{Bytes, Rate, Span, Time};

/// The series' step.
pub(crate) const STEP: Span = Span::millis(100);

/// What a session was, in the words of a scenario file.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    pub(crate) controller: String,
    pub(crate) mode: &'static str,
    /// As `key = value` of TOML.
    pub(crate) params: Vec<String>,
    pub(crate) packet: u64,
    /// As `greedy`, or a clip.
    pub(crate) clip: Option<String>,
    pub(crate) receivers: Vec<String>,
    pub(crate) group: bool,
}

impl Words {
    /// The scenario file of a session that lasted so long.
    pub(crate) fn scenario(&self, lasted: Span) -> String {
        let names = plain(&self.receivers);
        let quoted: Vec<String> = names.iter().map(|n| format!("\"{n}\"")).collect();
        let all = quoted.join(", ");
        let links: String = quoted.iter().map(|n| format!("[[link]]\nbetween = [\"sender\", {n}]\n\n")).collect();
        let media = match &self.clip {
            Some(clip) => format!("media = \"clip\"\nclip = {}", Value::String(clip.clone())),
            None => "media = \"greedy\"".to_owned(),
        };
        let params = match &self.params[..] {
            [] => String::new(),
            some => format!("params.{} = {{ {} }}\n", self.controller, some.join(", ")),
        };
        let cast = if self.group { "multicast" } else { "unicast" };
        format!(
            "format = 1\nname = \"live\"\nduration = \"{:.3}s\"\nnodes = [\"sender\", {all}]\n\n{links}\
             [[flow]]\nname = \"video\"\nkind = \"video\"\ncontroller = \"{}\"\nmode = \"{}\"\n{params}\
             from = \"sender\"\nto = [{all}]\ncast = \"{cast}\"\n{media}\npacket = \"{}B\"\n",
            lasted.as_secs_f64().max(0.001),
            self.controller,
            self.mode,
            self.packet,
        )
    }
}

/// Names as scenario files allow them, each once.
fn plain(names: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        let allowed = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c) { c } else { '-' };
        let name: String = name.to_ascii_lowercase().chars().map(allowed).take(40).collect();
        let name = match name.trim_matches(['-', '.']) {
            "" => "receiver",
            some => some,
        };
        let taken = |n: &str| n == "sender" || all.iter().any(|other| other == n);
        let mut unique = name.to_owned();
        let mut number = 1;
        while taken(&unique) {
            number += 1;
            unique = format!("{name}-{number}");
        }
        all.push(unique);
    }
    if all.is_empty() { vec!["receiver".into()] } else { all }
}

/// The record of one end of a session.
pub struct LiveRecord {
    scenario: Scenario,
    toml: String,
    agents: Vec<Agent>,
    flows: Vec<FlowEnds>,
    now: Time,
    /// What replaces or adds to the flow's keys in the summary.
    flow: Map<String, Value>,
    warnings: Vec<String>,
    /// Frames as a receiver saw them.
    frames: Vec<FrameRow>,
}

impl LiveRecord {
    pub(crate) fn new(
        words: &Words,
        agent: Agent,
        start: Time,
        now: Time,
        flow: Map<String, Value>,
        warnings: Vec<String>,
        frames: Vec<FrameRow>,
    ) -> Result<Self, Problems> {
        let toml = words.scenario(now.since(Time::ZERO));
        let scenario = Scenario::parse(&toml, Path::new("live.toml"))?.scenario;
        let (sources, sinks) = match &agent {
            Agent::VideoSource(_) => (vec![AgentIx(0)], Vec::new()),
            _ => (Vec::new(), vec![AgentIx(0)]),
        };
        let active = vec![(start, now)];
        let flows = vec![FlowEnds { start, stop: now, active, means_from: start, sources, sinks }];
        Ok(Self { scenario, toml, agents: vec![agent], flows, now, flow, warnings, frames })
    }

    fn record(&self) -> Record<'_> {
        Record {
            world: "live",
            scenario: &self.scenario,
            agents: &self.agents,
            flows: &self.flows,
            viewers: &[],
            links: Vec::new(),
            ways: vec![Vec::new()],
            logs: &[],
            hops: 0,
            step: STEP,
            now: self.now,
        }
    }

    /// Whether this is a receiver's, and no packet of media ever came that could be read.
    pub fn silent(&self) -> bool {
        self.agents.iter().any(|agent| matches!(agent, Agent::VideoSink(sink) if sink.intake.bytes == Bytes::ZERO))
    }

    /// The session as a scenario file.
    pub fn toml(&self) -> &str {
        &self.toml
    }

    /// The summary.
    pub fn summary(&self, complete: bool) -> Value {
        let mut summary = self.record().summary(complete);
        if let Some(flow) = summary.pointer_mut("/flows/0").and_then(Value::as_object_mut) {
            for (key, value) in &self.flow {
                match (flow.get_mut(key).and_then(Value::as_array_mut), value.as_array()) {
                    // What the record has of a receiver stays, unless the session knows better.
                    (Some(old), Some(new)) if old.len() == new.len() => {
                        for (old, new) in old.iter_mut().zip(new) {
                            if let (Some(old), Some(new)) = (old.as_object_mut(), new.as_object()) {
                                old.extend(new.clone());
                            }
                        }
                    }
                    _ => {
                        flow.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        summary["warnings"] = json!(self.warnings);
        summary
    }

    /// A table of the record.
    pub fn table(&self, name: &str) -> Option<Table> {
        let table = self.record().table(name)?;
        if name != "frames" || self.frames.is_empty() {
            return Some(table);
        }
        let rows = self.frames.len();
        let text = |word: &str| Column::Text { codes: vec![0; rows], texts: vec![word.to_owned()] };
        let real = |of: fn(&FrameRow) -> f64| Column::Real(self.frames.iter().map(of).collect());
        let node = self.scenario.flows[0].to.first().map_or("receiver", |n| self.scenario.node_name(*n));
        let filled = |(key, column): (&'static str, Column)| {
            let column = match key {
                "flow" => text("video"),
                "node" => text(node),
                "frame" | "display" => Column::Whole((0..rows as i64).collect()),
                "pts_s" => real(|f| f.ticks as f64 / 90_000.0),
                "size_bytes" => Column::Whole(self.frames.iter().map(|f| f.size.get() as i64).collect()),
                "first_s" => real(|f| f.came.0.as_secs_f64()),
                "arrived_s" => real(|f| f.came.1.as_secs_f64()),
                "fate" => Column::Text {
                    codes: self.frames.iter().map(|f| f.fate as u32).collect(),
                    texts: [Fate::Ok, Fate::Lost, Fate::Late, Fate::Undecodable].map(|f| f.name().to_owned()).into(),
                },
                _ => match column {
                    Column::Real(_) => Column::Real(vec![f64::NAN; rows]),
                    Column::Whole(_) => Column::Whole(vec![-1; rows]),
                    // Nobody has said it: null.
                    Column::Text { .. } => Column::Text { codes: vec![u32::MAX; rows], texts: Vec::new() },
                },
            };
            (key, column)
        };
        Some(table.into_iter().map(filled).collect())
    }
}

/// What the reports of its receivers say, as the flow's part of a sender's summary: what nobody reports is null.
pub(crate) fn reported(peers: &Peers, first_seq: u16, start: Time, sent: Rate) -> (Vec<String>, Vec<Value>) {
    let (mut names, mut rows) = (Vec::new(), Vec::new());
    for (_, peer) in peers.iter() {
        let Some(block) = peer.block.filter(|_| peer.reports > 0) else { continue };
        // One that was there from the start is owed all packets, one that joined later those since its first report.
        let early = peer.first.since(start) < Span::secs(10);
        let (from, before) = match peer.begin {
            Some(begin) if !early => (begin.highest_seq, begin.cumulative_lost),
            _ => (u32::from(first_seq), 0),
        };
        let expected = block.highest_seq.wrapping_sub(from);
        let lost = block.cumulative_lost - before;
        let loss =
            (expected > 0 && expected < 1 << 31).then(|| (f64::from(lost) / f64::from(expected)).clamp(0.0, 1.0));
        let jitter = f64::from(block.jitter) / 90.0;
        names.push(peer.cname.clone());
        rows.push(json!({
            "name": peer.cname,
            "address": peer.address.to_string(),
            "throughput_bps": loss.map(|l| sent.as_bps_f64() * (1.0 - l)),
            "loss_frac": loss,
            "jitter_ms": jitter,
            "rtt_ms": peer.rtt.map(|r| r.as_millis_f64()),
            "delay_ms": { "p50": null, "p95": null, "p99": null, "max": null },
            "feedback_packets": peer.reports,
            "standard": !peer.ours,
            "left": peer.left,
            "frames": null,
        }));
    }
    (names, rows)
}

/// How long it took until a second of the series reached a rate, and the variation of whole seconds.
pub(crate) fn series(bytes: &[u64]) -> (Option<f64>, Option<f64>) {
    let per = (Span::secs(1).as_nanos() / STEP.as_nanos()) as usize;
    let rate = |window: &[u64]| window.iter().sum::<u64>() as f64 * 8.0;
    let ramp = bytes.windows(per).position(|w| rate(w) >= 1e6);
    let ramp = ramp.map(|n| (n + per) as f64 * STEP.as_secs_f64());
    let seconds: Vec<f64> = bytes.chunks_exact(per).map(rate).collect();
    let n = seconds.len() as f64;
    let mean = seconds.iter().sum::<f64>() / n;
    let variance = seconds.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / n;
    (ramp, (mean > 0.0).then(|| variance.sqrt() / mean))
}
