//! Warnings about feedback and TCP windows that distort the results of a run.

use crate::shares::FlowShare;
use crate::{FlowEnds, Record};
use steadycast_record::Path;
use steadycast_scenario::{self as sc, FlowKind};
use steadycast_tcp::{LINUX_WINDOW, MAX_WINDOW};
use steadycast_units::{Bytes, Span, Time, counted};

/// Maximum share of a return link's capacity that reports may use. Above it, reports delay other traffic.
const MAX_RETURN_LINK_SHARE: f64 = 0.5;

impl Record<'_> {
    /// Returns a warning for each TCP flow whose window is too small. The window is too small if it is below the
    /// bandwidth-delay product of the flow's fair share.
    pub(crate) fn window_warnings(&self, shares: &[FlowShare]) -> Vec<String> {
        let flows = self.scenario.flows.iter().zip(shares).zip(&self.ways);
        // Use the kernel's maximum window unless TCP is simulated, because the two maximum windows differ.
        let most = if self.world == "simulated" { MAX_WINDOW } else { LINUX_WINDOW };
        let each = flows.filter_map(|((flow, share), ways)| {
            let FlowKind::Tcp(tcp) = &flow.kind else { return None };
            let delay = |way: u32| {
                let link = self.scenario.links.get(way as usize / 2);
                link.map_or(Span::ZERO, |link| if way.is_multiple_of(2) { link.forward.delay } else { link.back.delay })
            };
            // Add the delays of both directions. A direction and its reverse differ only in the lowest bit of their
            // indices (`DirIx::reverse`).
            let round: Span =
                ways.iter().flat_map(Path::iter).flat_map(|(_, way)| way).map(|way| delay(*way) + delay(way ^ 1)).sum();
            let config = &tcp.config;
            let (name, packet) = (&flow.name, config.packet.get());
            let (needs, holds) = (share.fair?.over(round).get(), u64::from(config.window.min(most)) * packet);
            (holds < needs).then(|| {
                let remedy = match needs.div_ceil(packet) {
                    packets if packets > most.into() => "no larger one is opened here; shorten the round trip".into(),
                    packets => format!("make flow.{name}.window \"{packets}p\" or more"),
                };
                format!(
                    "flow.{name}: its window holds {holds} bytes, and its fair share {needs} in a round trip of \
                     {round}: the window limits it, and not the network; {remedy}"
                )
            })
        });
        each.collect()
    }

    pub(crate) fn feedback_warnings(&self) -> Vec<String> {
        let videos = self.scenario.flows.iter().enumerate().filter_map(|(n, flow)| match &flow.kind {
            FlowKind::Video(_) => Some((n, flow)),
            _ => None,
        });
        let each = videos.flat_map(|(n, flow)| {
            let ends = &self.flows[n];
            let filled = self.way_back_is_full(n, flow, ends);
            self.untold(flow, ends).into_iter().chain(filled)
        });
        each.collect()
    }

    /// Returns warnings about packets and messages that receivers had no room to report.
    fn untold(&self, flow: &sc::Flow, ends: &FlowEnds) -> Vec<String> {
        let sinks = ends.sinks.iter().filter_map(|sink| self.agents[sink.0 as usize].video_sink());
        let (packets, messages) = sinks.map(|sink| sink.untold()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let name = &flow.name;
        let untold = (packets > 0).then(|| {
            format!(
                "flow.{name}: no report told of {} that arrived, since reports have 5 % of the bandwidth; make \
                 flow.{name}.packet larger, or flow.{name}.rtcp.session_bw higher",
                counted(packets, "packet")
            )
        });
        let refused = (messages > 0).then(|| {
            format!(
                "flow.{name}: no datagram had room for {} of its receivers; make the controller's reports shorter, or \
                 the links' mtu larger",
                counted(messages, "message")
            )
        });
        untold.into_iter().chain(refused).collect()
    }

    /// Returns a warning if the reports of a flow's only receiver fill a link on the way back.
    fn way_back_is_full(&self, n: usize, flow: &sc::Flow, ends: &FlowEnds) -> Option<String> {
        // Check a single receiver only, because the reports of several receivers use different links.
        let [sink] = ends.sinks[..] else { return None };
        let said = self.agents[sink.0 as usize].video_sink()?.rtcp_bytes;
        let share = |way: &u32| {
            let back = way ^ 1;
            let link = self.links.get(back as usize)?.link;
            let could = link.capacity(Time::ZERO, self.now).filter(|could| *could > Bytes::ZERO)?;
            Some((said.as_f64() / could.as_f64(), back))
        };
        let (most, back) = self
            .ways
            .get(n)?
            .iter()
            .flat_map(Path::iter)
            .flat_map(|(_, way)| way)
            .filter_map(share)
            .max_by(|a, b| a.0.total_cmp(&b.0))?;
        let link = &self.scenario.links[back as usize / 2].name;
        (most > MAX_RETURN_LINK_SHARE).then(|| {
            format!(
                "flow.{}: its reports want {:.0} % of the way back over link \"{link}\", and wait there for each \
                 other; give that direction a higher rate (link.back.rate), or take a controller that reports less",
                flow.name,
                most * 100.0
            )
        })
    }
}
