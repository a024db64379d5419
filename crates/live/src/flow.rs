//! Converts options and session descriptions to the keys that a flow has in a scenario file.

use crate::sdp::{Description, PacketFeedback};
use crate::{Clock, LATENCY, LiveError, source_specific};
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use steadycast_control::registry::Registry;
use steadycast_endpoints::{AUDIO_PAYLOAD_TYPE, RETRANSMISSION_PAYLOAD_TYPE, RemotePeer};
use steadycast_scenario::{Document, FlowKind, Loaded, Problem, Video};
use steadycast_session::{HeaderIds, OperatorControls};
use steadycast_units::{Bytes, Ecn, Rate, Span};

/// Name of the flow. The random numbers of its sender and receivers are derived from it.
pub(crate) const FLOW: &str = "video";
pub(crate) const SOURCE: &str = "video.src";
pub(crate) const SINK: &str = "video.dst1";

/// Size of the largest IP packet that a live session sends. It is the MTU of Ethernet.
pub(crate) const MTU: Bytes = Bytes::new(1_500);

/// Bandwidths of a session that are accepted, in bit/s.
const SESSION_BANDWIDTHS: RangeInclusive<u64> = 10_000..=10_000_000_000;

/// Returns the settings for a flow whose other end runs in another program, at an unknown address. `cname` is the
/// canonical name of this end, and `payload_type` is the payload type of the media.
pub(crate) fn remote_peer(cname: &str, clock: Clock, payload_type: u8) -> RemotePeer {
    RemotePeer {
        cname: cname.to_owned(),
        peer: None,
        tag: 0,
        epoch: clock.epoch(),
        payload_type,
        again: RETRANSMISSION_PAYLOAD_TYPE,
        audio: AUDIO_PAYLOAD_TYPE,
        audio_shares_feedback: true,
        ids: HeaderIds::default(),
        authenticated: false,
        floor: Rate::ZERO,
        // Assume the default latency of this program's receivers.
        playout: LATENCY,
        useful: None,
        operator: OperatorControls::default(),
    }
}

/// The keys of a `[[flow]]`, except its name, its kind, its sender and its receivers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowKeys(Map<String, Value>);

impl FlowKeys {
    /// Creates flow keys from their JSON form.
    pub const fn new(keys: Map<String, Value>) -> Self {
        Self(keys)
    }

    /// Sets a key if it has no value.
    #[must_use]
    pub(crate) fn or(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.entry(key).or_insert_with(|| value.into());
        self
    }

    #[must_use]
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    #[must_use]
    pub(crate) fn without(mut self, key: &str) -> Self {
        self.0.remove(key);
        self
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn is(&self, key: &str, value: &str) -> bool {
        self.0.get(key).and_then(Value::as_str) == Some(value)
    }

    /// Adds the default keys of a sender.
    #[must_use]
    pub(crate) fn of_sender(self, to: IpAddr, pictures: bool) -> Self {
        let paper = self.is("mode", "paper");
        let keys = self.or("media", "greedy").or("defences", !paper);
        let keys = keys.or("repair", if pictures && !paper { "auto" } else { "none" });
        // Allow padding only with retransmissions, because padding uses the retransmission stream.
        let again = !to.is_multicast() && (keys.is("repair", "auto") || keys.is("repair", "rtx"));
        let keys = keys.or("padding", again);
        // Receivers of a source-specific group do not get each other's reports, so they report to the sender only.
        if source_specific(to) { keys.or("rtcp", json!({ "reports": "source" })) } else { keys }
    }

    /// Returns the keys of a receiver's flow, as the session description implies them.
    ///
    /// # Errors
    /// The session bandwidth is out of range.
    pub(crate) fn described(description: &Description) -> Result<Self, LiveError> {
        let number = |key: &str| description.private_value(key).and_then(|text| text.parse::<u64>().ok());
        let bandwidth = number("session-bw").or(of_reports(description)).unwrap_or(2_000_000);
        if !SESSION_BANDWIDTHS.contains(&bandwidth) {
            let what = format!("{bandwidth} is no bandwidth of a session");
            let remedy = "take 10000 to 10000000000 bits per second";
            return Err(LiveError::new("the description's session-bw", what, remedy));
        }
        let address = description.address.ip();
        let reports = if source_specific(address) { "source" } else { "group" };
        // If the description contains no controller, as with a standard sender, take `fixed`. Its receivers send only
        // standard reports.
        let controller = description.private_value("controller").unwrap_or("fixed");
        let param = |(key, text): &(String, String)| Some((key.strip_prefix("param.")?.to_owned(), value(text)));
        let params: Map<String, Value> = description.ours.iter().filter_map(param).collect();
        let repair = match (&description.repair, &description.parity) {
            // Ignore retransmissions in a group, because a sender does not retransmit to a group.
            (Some(_), Some(_)) if !address.is_multicast() => "auto",
            (Some(_), None) if !address.is_multicast() => "rtx",
            (_, Some(_)) => "parity",
            _ => "none",
        };
        let keys = json!({
            "controller": controller,
            "mode": description.private_value("mode").unwrap_or("repaired"),
            "params": { controller: params },
            "packet": format!("{}B", number("packet").unwrap_or(1_000)),
            "rtcp": { "session_bw": format!("{bandwidth}bps"), "reports": reports },
            "repair": repair,
        });
        let Value::Object(keys) = keys else { return Ok(Self::default()) };
        let feedback = match description.feedback {
            None => None,
            Some(PacketFeedback::Congestion) => Some("rfc8888"),
            Some(PacketFeedback::Transport(_)) => Some("twcc"),
        };
        let ecn = match description.ecn {
            Ecn::Ect0 => Some("ect0"),
            Ecn::Ect1 => Some("ect1"),
            Ecn::NotEct | Ecn::Ce => None,
        };
        let said = [("feedback", feedback), ("ecn", ecn)];
        let said = said.into_iter().filter_map(|(key, word)| Some((key.to_owned(), word?.into())));
        // Set the media, because the default is a clip and a description does not contain a file.
        Ok(Self(keys.into_iter().chain(said).collect()).or("media", "greedy"))
    }

    /// Returns a scenario that has this flow. The flow's receivers are `receivers`.
    ///
    /// # Errors
    /// Returns the error of the first wrong key.
    pub(crate) fn scenario(&self, receivers: &[String], group: bool, lasted: Span) -> Result<Loaded, LiveError> {
        // Check the controller first, because a scenario's error also offers classes and programs. A live session has
        // none.
        if let Some(name) = self.0.get("controller").and_then(Value::as_str) {
            let place = format!("flow.{FLOW}.controller");
            Registry::default().find(name).map_err(|error| LiveError::new(place, error.problem, &error.remedy))?;
        }
        let to = plain(receivers);
        let mut flow = self.0.clone();
        let ends = json!({
            "name": FLOW, "kind": "video", "from": SENDER, "to": to,
            "cast": if group { "multicast" } else { "unicast" },
        });
        flow.extend(ends.as_object().cloned().unwrap_or_default());
        let nodes: Vec<&str> = [SENDER].into_iter().chain(to.iter().map(String::as_str)).collect();
        let links: Vec<Value> = to.iter().map(|end| json!({ "between": [SENDER, end] })).collect();
        let scenario = json!({
            "format": 1,
            "name": "live",
            "duration": format!("{:.3}s", lasted.as_secs_f64().max(0.001)),
            "nodes": nodes,
            "link": links,
            "flow": [flow],
        });
        let read = Document::from_json(&scenario, Path::new("live.toml")).and_then(Document::check);
        read.map_err(|problems| problems.0.into_iter().next().map_or_else(no_video, |p| self.typed(p).into()))
    }

    /// Rewrites a problem with the size of packets. The user of a live session has not written a scenario, and its
    /// problem would name a link.
    fn typed(&self, problem: Problem) -> Problem {
        if problem.key.rsplit('.').next() != Some("packet") {
            return problem;
        }
        let packet: Option<Bytes> = self.0.get("packet").and_then(|size| size.as_str()?.parse().ok());
        let what = match packet.filter(|packet| *packet > MTU) {
            Some(packet) => format!("a packet of {packet} does not fit into Ethernet's MTU of {MTU}"),
            None => problem.what,
        };
        Problem { what, remedy: format!("take 100 to {} bytes", MTU.get()), ..problem }
    }
}

/// Returns the scenario of a session that has ended, with the `receivers` that have reported. `checked` is the scenario
/// with which the session started.
///
/// The flow's keys are taken from `checked` and are not checked again, because a clip may have been deleted during the
/// session.
pub(crate) fn ended(checked: &Loaded, receivers: &[String], group: bool, lasted: Span) -> Result<Loaded, LiveError> {
    let keys = FlowKeys::default().or("media", "greedy").or("controller", video(checked)?.controller.name());
    let mut loaded = keys.scenario(receivers, group, lasted)?;
    for (flow, start) in loaded.scenario.flows.iter_mut().zip(&checked.scenario.flows) {
        flow.kind = start.kind.clone();
    }
    Ok(loaded)
}

/// Computes the session bandwidth from the RTCP bandwidth of the receivers (RFC 3556). Receivers get three quarters of
/// 5 % (RFC 3550, section 6.2), so the factor is 80 / 3.
fn of_reports(description: &Description) -> Option<u64> {
    let bandwidth = description.reports.filter(|rate| *rate > Rate::ZERO)?.as_bps().saturating_mul(80) / 3;
    Some(bandwidth.clamp(*SESSION_BANDWIDTHS.start(), *SESSION_BANDWIDTHS.end()))
}

const SENDER: &str = "sender";

pub(crate) fn video(loaded: &Loaded) -> Result<&Video, LiveError> {
    match loaded.scenario.flows.first().map(|flow| &flow.kind) {
        Some(FlowKind::Video(video)) => Ok(video),
        _ => Err(no_video()),
    }
}

/// Returns the error that the flow of a session is not a video. This only happens because of a bug.
fn no_video() -> LiveError {
    LiveError::new("the session", "its flow is no video", "please report this")
}

fn value(text: &str) -> Value {
    match (text.parse::<f64>(), text) {
        (Ok(number), _) => json!(number),
        (_, "true") => json!(true),
        (_, "false") => json!(false),
        _ => json!(text),
    }
}

/// Changes names so that they are valid and unique names of nodes in a scenario.
fn plain(names: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        let allowed = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c) { c } else { '-' };
        // Replace other characters, because canonical names come from the network.
        let name: String = name.to_ascii_lowercase().chars().map(allowed).take(40).collect();
        let name = match name.trim_matches(['-', '.']) {
            "" => "receiver",
            some => some,
        };
        let taken = |n: &str| n == SENDER || all.iter().any(|other| other == n);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_session_has_a_record_whoever_has_received_it_and_wherever_its_clip_is_by_now() {
        for (n, group) in [(0, false), (1, false), (2, false), (5, false), (0, true), (3, true)] {
            let clip = std::env::temp_dir().join(format!("steadycast-ended-{}-{n}-{group}.mkv", std::process::id()));
            fs::write(&clip, "a clip").unwrap();
            let to: IpAddr = if group { "239.1.2.3" } else { "10.0.0.1" }.parse().unwrap();
            let keys = FlowKeys::default().or("media", "clip").or("clip", clip.display().to_string());
            let keys = keys.or("controller", if group { "asmp" } else { "steady" }).of_sender(to, true);
            let checked = keys.scenario(&[], group, Span::ZERO).unwrap();
            fs::remove_file(&clip).unwrap();
            // Use equal names with upper case and spaces, because canonical names come from the network.
            let names: Vec<String> = (0..n).map(|n| format!("Desk {}", n / 2)).collect();
            let loaded = ended(&checked, &names, group, Span::secs(7)).unwrap();
            let flow = &loaded.scenario.flows[0];
            assert_eq!((flow.to.len(), loaded.scenario.duration), (names.len().max(1), Span::secs(7)));
            assert_eq!(flow.kind, checked.scenario.flows[0].kind);
            // When the clip is back at its place, the scenario in the record can be run.
            fs::write(&clip, "a clip").unwrap();
            let read = Document::parse(&loaded.resolved_toml(), Path::new("x.toml")).and_then(Document::check);
            fs::remove_file(&clip).unwrap();
            assert_eq!(read.unwrap().scenario.flows[0].kind, flow.kind);
        }
    }

    #[test]
    fn a_controller_that_a_live_session_lacks_is_answered_by_those_that_it_has() {
        for name in ["unheard-of", "law.py:Law", "exec:./law"] {
            let keys = FlowKeys::default().or("media", "greedy").or("controller", name);
            let said = keys.scenario(&[], false, Span::ZERO).unwrap_err().to_string();
            assert!(said.starts_with("flow.video.controller: ") && said.contains("there are: "), "{said}");
            assert!(!said.contains("file.py:Class") && !said.contains("exec:PROGRAM"), "{said}");
        }
    }

    #[test]
    fn a_packet_that_is_too_large_is_told_without_a_link_that_the_user_has_not_written() {
        for size in [1_501, 9_000] {
            let keys = FlowKeys::default().or("media", "greedy").or("controller", "steady");
            let keys = keys.or("packet", format!("{size}B"));
            let said = keys.scenario(&[], false, Span::ZERO).unwrap_err().to_string();
            assert!(said.contains("Ethernet's MTU of 1500B; take 100 to 1500 bytes"), "{said}");
            assert!(!said.contains("link"), "{said}");
        }
    }
}
