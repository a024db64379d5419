//! What simulcasts come to: their part of the summary, and the table of their receivers' moves.

use crate::share::{Claim, fair};
use crate::summary::number;
use crate::tables::{Column, Table, Texts, real};
use crate::{Agent, Record, Viewer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use steadycast_units::{Bytes, Rate, Span, Time};

impl Record<'_> {
    /// For each simulcast what its receivers got from all its groups together, beside what each could have had.
    pub(crate) fn simulcasts(&self) -> Value {
        let all = self.scenario.simulcasts.iter().enumerate().map(|(n, spec)| {
            let names: Vec<&str> = spec.flows.iter().map(|f| self.flow_name(f.0)).collect();
            let viewers: Vec<&Viewer> = self.viewers.iter().filter(|v| v.simulcast == n).collect();
            let seen: Vec<_> = viewers.iter().map(|viewer| self.viewer(n, viewer, &names)).collect();
            let rates = seen.iter().filter_map(|(_, rate, _)| *rate);
            let shares: Option<f64> = seen.iter().map(|(.., share)| *share).sum();
            let sum: f64 = rates.sum();
            let moves: usize = viewers.iter().map(|v| v.moves.len()).sum();
            json!({
                "name": spec.name,
                "flows": names,
                "throughput_bps": number((!seen.is_empty()).then(|| sum / seen.len() as f64)),
                "utilisation_frac": number(shares.map(|shares| sum / shares)),
                "moves_count": moves,
                "receivers": seen.into_iter().map(|(value, ..)| value).collect::<Vec<_>>(),
            })
        });
        Value::Array(all.collect())
    }

    fn flow_name(&self, n: u32) -> &str {
        &self.scenario.flows[n as usize].name
    }

    /// One receiver: its part of the summary, its rate, and its max–min share.
    fn viewer(&self, n: usize, viewer: &Viewer, names: &[&str]) -> (Value, Option<f64>, Option<f64>) {
        let spec = &self.scenario.simulcasts[n];
        let lowest = spec.flows[0].0 as usize;
        let ends = &self.flows[lowest];
        let span = ends.active(ends.means_from, self.now);
        let bytes = viewer.sinks.iter().filter_map(|sink| match &self.agents[sink.0 as usize] {
            Agent::VideoSink(sink) => Some(sink.intake.bytes),
            _ => None,
        });
        let bytes = bytes.fold(Bytes::ZERO, |sum, bytes| sum + bytes);
        let rate = (!span.is_zero()).then(|| bytes.per(span).as_bps_f64());
        let share = self.share_alone(n, viewer).map(Rate::as_bps_f64);
        let stays = viewer.stays(ends.means_from, self.now.min(ends.stop));
        let part = |stay: Span| number((!span.is_zero()).then(|| stay.ratio(span)));
        let time: BTreeMap<&str, Value> = names.iter().copied().zip(stays.into_iter().map(part)).collect();
        let value = json!({
            "name": self.receiver_name(viewer),
            "throughput_bps": number(rate),
            "fair_share_bps": number(share),
            "share_of_fair": number(rate.zip(share).map(|(rate, share)| rate / share)),
            "time_frac": time,
            "moves_count": viewer.moves.len(),
        });
        (value, rate, share)
    }

    fn receiver_name(&self, viewer: &Viewer) -> &str {
        let lowest = self.scenario.simulcasts[viewer.simulcast].flows[0];
        self.scenario.node_name(self.scenario.flows[lowest.0 as usize].to[viewer.receiver])
    }

    /// The max–min share that a receiver would have, were it the simulcast's only one.
    fn share_alone(&self, n: usize, viewer: &Viewer) -> Option<Rate> {
        let groups = &self.scenario.simulcasts[n].flows;
        let mut claims = self.claims();
        for flow in groups {
            claims[flow.0 as usize].links.clear();
        }
        claims[groups[0].0 as usize] = Claim { demand: None, links: viewer.way.clone() };
        fair(&claims, |l| self.capacity(l))[groups[0].0 as usize]
    }

    /// Who went where, when and why.
    pub(crate) fn moves(&self) -> Table {
        let (mut at, mut own, mut against) = (Vec::new(), Vec::new(), Vec::new());
        let [mut simulcast, mut receiver, mut from, mut to, mut why] = std::array::from_fn(|_| Texts::default());
        let mut all: Vec<_> = self.viewers.iter().flat_map(|v| v.moves.iter().map(move |m| (v, m))).collect();
        all.sort_by_key(|(_, m)| m.at);
        for (viewer, told) in all {
            let spec = &self.scenario.simulcasts[viewer.simulcast];
            at.push(told.at.since(Time::ZERO).as_secs_f64());
            simulcast.push(&spec.name);
            receiver.push(self.receiver_name(viewer));
            from.push(self.flow_name(spec.flows[told.from].0));
            to.push(self.flow_name(spec.flows[told.to].0));
            // Without any loss nothing bounds it.
            own.push(real((told.own < Rate::MAX).then(|| told.own.as_bps_f64())));
            against.push(told.against.as_bps_f64());
            why.push(told.why());
        }
        vec![
            ("t_s", Column::Real(at)),
            ("simulcast", simulcast.done()),
            ("receiver", receiver.done()),
            ("from", from.done()),
            ("to", to.done()),
            ("own_bps", Column::Real(own)),
            ("against_bps", Column::Real(against)),
            ("why", why.done()),
        ]
    }
}
