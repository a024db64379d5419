//! Results of simulcasts: their summary, and the table of moves between groups.

use crate::shares::Stream;
use crate::{Record, Viewer};
use steadycast_record::{Figures, Of, Table, moves, simulcast, viewer};
use steadycast_units::{Bytes, Rate, Span, Time};

impl Record<'_> {
    /// Returns the figures of each simulcast.
    pub(crate) fn simulcasts(&self) -> Vec<Figures> {
        let all = self.scenario.simulcasts.iter().enumerate().map(|(n, spec)| {
            let names: Vec<&str> = spec.flows.iter().map(|f| self.flow_name(f.0)).collect();
            let viewers: Vec<&Viewer> = self.viewers.iter().filter(|v| v.simulcast == n).collect();
            let mut streams = self.streams();
            let seen: Vec<_> = viewers.iter().map(|viewer| self.viewer(n, viewer, &names, &mut streams)).collect();
            let rates = seen.iter().filter_map(|(_, rate, _)| *rate);
            // If one share is unknown, the sum is `None` and so is the utilisation.
            let shares: Option<f64> = seen.iter().map(|(.., share)| *share).sum();
            let sum: f64 = rates.sum();
            let moves: usize = viewers.iter().map(|v| v.moves.len()).sum();
            let throughput = (!seen.is_empty()).then(|| sum / seen.len() as f64);
            let mut into = Figures::new(Of::Simulcast);
            into.put(&simulcast::NAME, spec.name.as_str());
            into.put(&simulcast::FLOWS, names);
            into.put(&simulcast::THROUGHPUT, throughput);
            into.put(&simulcast::UTILISATION, shares.map(|shares| sum / shares));
            into.put(&simulcast::MOVES, moves);
            into.put_list(&simulcast::RECEIVERS, seen.into_iter().map(|(figures, ..)| figures));
            into
        });
        all.collect()
    }

    fn flow_name(&self, n: u32) -> &str {
        &self.scenario.flows[n as usize].name
    }

    /// Returns the summary of a simulcast's receiver, its rate and its max–min share, both in bit/s.
    fn viewer(
        &self,
        n: usize,
        seen: &Viewer,
        names: &[&str],
        streams: &mut [Stream],
    ) -> (Figures, Option<f64>, Option<f64>) {
        let spec = &self.scenario.simulcasts[n];
        let lowest = spec.flows[0].0 as usize;
        let ends = &self.flows[lowest];
        let span = ends.active(ends.means_from, self.now);
        let bytes = seen.sinks.iter().filter_map(|sink| Some(self.recorded(*sink).intake()?.bytes));
        let bytes = bytes.fold(Bytes::ZERO, |sum, bytes| sum + bytes);
        let rate = (!span.is_zero()).then(|| bytes.per(span).as_bps_f64());
        let share = self.share_alone(n, seen, streams).map(Rate::as_bps_f64);
        let stays = seen.stays(ends.means_from, self.now.min(ends.stop));
        let part = |stay: Span| (!span.is_zero()).then(|| stay.ratio(span));
        let mut into = Figures::new(Of::Viewer);
        into.put(&viewer::NAME, self.receiver_name(seen));
        into.put(&viewer::THROUGHPUT, rate);
        into.put(&viewer::FAIR_SHARE, share);
        into.put(&viewer::SHARE_OF_FAIR, rate.zip(share).map(|(rate, share)| rate / share));
        into.put_by_flow(&viewer::TIME, names.iter().copied().zip(stays.into_iter().map(part)));
        into.put(&viewer::MOVES, seen.moves.len());
        (into, rate, share)
    }

    fn receiver_name(&self, viewer: &Viewer) -> &str {
        // Look in the lowest group, because all groups have the same receivers.
        let lowest = self.scenario.simulcasts[viewer.simulcast].flows[0];
        self.scenario.node_name(self.scenario.flows[lowest.0 as usize].to[viewer.receiver])
    }

    /// Writes the table of the receivers' moves between groups.
    pub(crate) fn moves(&self, into: &mut Table) {
        let mut all: Vec<_> = self.viewers.iter().flat_map(|v| v.moves.iter().map(move |m| (v, m))).collect();
        all.sort_by_key(|(_, m)| m.at);
        for (viewer, change) in all {
            let spec = &self.scenario.simulcasts[viewer.simulcast];
            into.real(&moves::T, change.at.since(Time::ZERO).as_secs_f64());
            into.text(&moves::SIMULCAST, &spec.name);
            into.text(&moves::RECEIVER, self.receiver_name(viewer));
            into.text(&moves::FROM, self.flow_name(spec.flows[change.from].0));
            into.text(&moves::TO, self.flow_name(spec.flows[change.to].0));
            // Leave out `Rate::MAX`, which means that the receiver has not observed a limit.
            into.real(&moves::OWN, (change.own < Rate::MAX).then(|| change.own.as_bps_f64()));
            into.real(&moves::AGAINST, change.against.as_bps_f64());
            into.text(&moves::WHY, change.why());
            into.end_row();
        }
    }
}
