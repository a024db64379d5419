//! Max–min fair shares of a run's flows over time.

use crate::activity::{overlap, within};
use crate::agent::{Recorded, SentStep};
use crate::{AgentIx, FlowEnds, Record, Viewer};
use steadycast_link::Link;
use steadycast_record::{ChangingClaims, Demand, Path, Shares};
use steadycast_scenario::{self as sc, FlowIx, FlowKind};
use steadycast_units::{Bytes, Rate, Span, Time};

const SECOND: Span = Span::secs(1);

/// A flow that claims a share of the links on its path. If each receiver has its own session, each session is a stream.
pub(crate) struct Stream {
    flow: usize,
    /// The links that the stream uses over time. A group without members uses none.
    path: Path,
    /// Periods in which the stream has data to send, in order.
    there: Vec<(Time, Time)>,
    /// When the measurement of the stream's share starts.
    from: Time,
    wants: Wants,
}

/// A flow's fair share, and the rate to compare with it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowShare {
    /// The mean max–min share while the flow competes with other flows. If the flow never competes, the mean is over
    /// the time of its presence. `None` if the share is unlimited.
    pub(crate) fair: Option<Rate>,
    /// How long the flow competes. `None` if links are not modelled, or if the flow is a group of a simulcast.
    pub(crate) competing: Option<Span>,
    /// The flow's rate while it competes.
    pub(crate) rate: CompetingRate,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum CompetingRate {
    /// The flow never competes.
    #[default]
    None,
    /// The flow competes all the time, so its mean rate is taken.
    OfAllTime,
    /// The rate in bit/s while the flow competes. `None` if no receiver measures it.
    Bps(Option<f64>),
}

/// How much a stream demands while it is present.
enum Wants {
    Always(Demand),
    /// The demand in each second of the run.
    BySecond(Vec<Demand>),
}

impl Stream {
    fn is_there(&self, at: Time) -> bool {
        // Look at the latest of the periods that have begun, because the periods are in order.
        let begun = self.there.partition_point(|(begin, _)| *begin <= at);
        begun > 0 && at < self.there[begun - 1].1
    }

    fn demand(&self, at: Time) -> Demand {
        match &self.wants {
            _ if !self.is_there(at) || self.path.at(at).is_empty() => Demand::Absent,
            Wants::Always(demand) => *demand,
            Wants::BySecond(seconds) => {
                let second = (at.as_nanos() / SECOND.as_nanos()) as usize;
                seconds.get(second).copied().unwrap_or(Demand::All)
            }
        }
    }
}

impl Record<'_> {
    pub(crate) fn fair_shares(&self) -> Vec<FlowShare> {
        let streams = if self.links.is_empty() { Vec::new() } else { self.streams() };
        let mut each: Vec<Vec<(&Stream, Shares)>> = vec![Vec::new(); self.flows.len()];
        for (stream, shares) in streams.iter().zip(self.shares_of(&streams)) {
            each[stream.flow].push((stream, shares));
        }
        each.into_iter().enumerate().map(|(n, shares)| self.flow_share(n, &shares)).collect()
    }

    fn flow_share(&self, n: usize, streams: &[(&Stream, Shares)]) -> FlowShare {
        // A simulcast claims one share for all its groups. A single group therefore has no share of its own.
        if streams.is_empty() || self.scenario.group_of(FlowIx(n as u32)).is_some() {
            return FlowShare::default();
        }
        let shares = || streams.iter().map(|(_, shares)| shares);
        let time: Span = shares().map(|stream| stream.time_competing).sum();
        let throughout = shares().all(|stream| stream.time_competing == stream.time_there);
        if time.is_zero() {
            let fair = mean(shares().map(|stream| stream.there));
            return FlowShare { fair, competing: Some(Span::ZERO), rate: CompetingRate::None };
        }
        // Leave out a stream that never competes, because its `competing` has no value.
        let fair = mean(shares().filter(|stream| !stream.time_competing.is_zero()).map(|stream| stream.competing));
        let is_steady = streams.iter().all(|(stream, _)| stream.path.as_constant().is_some());
        let rate = if throughout && is_steady {
            CompetingRate::OfAllTime
        } else {
            CompetingRate::Bps(self.rate_at(n, streams))
        };
        FlowShare { fair, competing: Some(time / streams.len() as u64), rate }
    }

    /// Returns the mean rate of the receivers while their streams compete, in bit/s.
    ///
    /// The series has no times of packets. The bytes of a bin are therefore counted in proportion: the time in which
    /// the stream competes, divided by the time in which it has data to send.
    fn rate_at(&self, n: usize, streams: &[(&Stream, Shares)]) -> Option<f64> {
        let ends = &self.flows[n];
        let step = self.step.as_nanos();
        // Packets of short periods arrive after their period. Bins of a second contain both the period and the packets.
        let bin = if self.scenario.flows[n].kind.pauses() { step.max(SECOND.as_nanos()) } else { step };
        let rate = |(stream, shares): &(&Stream, Shares), bytes: &[f64]| {
            let span: Span = shares.times.iter().map(|(begin, end)| end.since(*begin)).sum();
            let (competing, present) = (time_by_bin(&shares.times, bin), time_by_bin(&stream.there, bin));
            let counted = bytes.iter().enumerate().map(|(place, bytes)| {
                let place = (place as u64 * step / bin) as usize;
                let part = |times: &[u64]| times.get(place).copied().unwrap_or(0) as f64;
                if part(&present) > 0.0 { bytes * part(&competing) / part(&present) } else { 0.0 }
            });
            let bytes: f64 = counted.sum();
            (!span.is_zero()).then(|| bytes * 8.0 / span.as_secs_f64())
        };
        // There is one stream for all receivers, or one per receiver.
        if let [stream] = streams {
            return rate(stream, &self.bins(ends));
        }
        let of_sink = |(stream, sink): (&(&Stream, Shares), &AgentIx)| {
            let samples = self.recorded(*sink).intake()?.samples.all();
            rate(stream, &samples.iter().map(|point| point.bytes as f64).collect::<Vec<_>>())
        };
        let rates: Vec<f64> = streams.iter().zip(&ends.sinks).filter_map(of_sink).collect();
        (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
    }

    /// Returns the max–min share that a simulcast's receiver would have if the simulcast had no other receivers. The
    /// share is a mean over time.
    pub(crate) fn share_alone(&self, n: usize, viewer: &Viewer, streams: &mut [Stream]) -> Option<Rate> {
        if self.links.is_empty() {
            return None;
        }
        let lowest = self.scenario.simulcasts[n].flows.first()?.0 as usize;
        let place = streams.iter().position(|stream| stream.flow == lowest)?;
        // Put only this receiver's path into the simulcast's stream, and restore the stream's path afterwards.
        let others = std::mem::replace(&mut streams[place].path, Path::constant(viewer.way.clone()));
        let share = self.shares_of(streams).swap_remove(place).there;
        streams[place].path = others;
        share
    }

    pub(crate) fn streams(&self) -> Vec<Stream> {
        let mut streams = Vec::new();
        for (n, (spec, ways)) in self.scenario.flows.iter().zip(&self.ways).enumerate() {
            let group = self.scenario.group_of(FlowIx(n as u32));
            // A simulcast is one stream. It has the index of its lowest group, so skip the higher groups.
            if group.is_some_and(|(_, place)| place > 0) {
                continue;
            }
            let ends = &self.flows[n];
            for (place, path) in ways.iter().enumerate() {
                let sinks = if ways.len() > 1 { ends.sinks.get(place..=place) } else { ends.sinks.get(..) };
                let (source, sinks) = (ends.source_of(place), sinks.unwrap_or_default());
                let there = if group.is_some() { self.active(ends) } else { self.there(spec, ends, source) };
                // If the receiver has its own session, measure from the receiver's join on.
                let own =
                    sinks.first().filter(|_| ways.len() > 1).map_or(Time::ZERO, |sink| self.recorded(*sink).joined());
                let wants = match group {
                    // The lowest group's rate is no limit, because a receiver can change to a higher group.
                    Some(_) => Wants::Always(Demand::All),
                    None => self.wants(spec, source, &there),
                };
                streams.push(Stream { flow: n, path: path.clone(), there, from: ends.means_from.max(own), wants });
            }
        }
        streams
    }

    fn shares_of(&self, streams: &[Stream]) -> Vec<Shares> {
        let (claims, link) = (claims(streams), |l: u32| self.links.get(l as usize).map(|record| record.link));
        let from: Vec<Time> = streams.iter().map(|stream| stream.from).collect();
        let begin = from.iter().min().copied().unwrap_or(Time::ZERO);
        claims.over_time(
            &self.edges(streams, &claims, begin),
            &from,
            |n, begin, _| streams[n].demand(begin),
            |l, begin, end| link(l).and_then(|link| link.throughput_limit(begin, end)),
        )
    }

    /// Returns the mean share of each stream in each `interval`. The outer list has an entry per flow. The entry has
    /// one series, or a series per receiver if each receiver has its own session. It is empty for the groups of a
    /// simulcast.
    pub(crate) fn shares_by_interval(&self, interval: Span) -> Vec<Vec<Vec<Option<Rate>>>> {
        let mut each = vec![Vec::new(); self.flows.len()];
        if self.links.is_empty() {
            return each;
        }
        let streams = self.streams();
        let (claims, link) = (claims(&streams), |l: u32| self.links.get(l as usize).map(|record| record.link));
        let shares = claims.by_interval(
            &self.edges(&streams, &claims, Time::ZERO),
            interval,
            |n, begin, _| streams[n].demand(begin),
            |l, begin, end| link(l).and_then(|link| link.throughput_limit(begin, end)),
        );
        for (stream, shares) in streams.iter().zip(shares) {
            if self.scenario.group_of(FlowIx(stream.flow as u32)).is_none() {
                each[stream.flow].push(shares);
            }
        }
        each
    }

    /// Returns the times at which a presence, a demand or a capacity may change, from `begin` until now.
    fn edges(&self, streams: &[Stream], claims: &ChangingClaims, begin: Time) -> Vec<Time> {
        let used = claims.links();
        let links = || used.iter().filter_map(|l| self.links.get(*l as usize)).map(|record| record.link);
        let mut edges = vec![begin, self.now];
        edges.extend(claims.changes());
        for stream in streams {
            edges.push(stream.from);
            edges.extend(stream.there.iter().flat_map(|(begin, end)| [*begin, *end]));
        }
        for link in links() {
            let next = |at: &Time| Some(link.next_change(*at)).filter(|next| *next < self.now);
            edges.extend(std::iter::successors(next(&begin), next));
        }
        let by_second = streams.iter().any(|stream| matches!(stream.wants, Wants::BySecond(_)));
        if by_second || links().any(Link::is_traced) {
            // Add the start of each second, because demands per second and traced capacities may change there.
            edges.extend((0..=self.now.as_nanos() / SECOND.as_nanos()).map(|n| Time::ZERO + SECOND * n));
        }
        edges.retain(|edge| (begin..=self.now).contains(edge));
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    fn active(&self, ends: &FlowEnds) -> Vec<(Time, Time)> {
        let until_now = ends.active.iter().map(|(begin, end)| (*begin, (*end).min(self.now)));
        until_now.filter(|(begin, end)| begin < end).collect()
    }

    /// Returns the periods in which a stream is active and has data to send.
    fn there(&self, spec: &sc::Flow, ends: &FlowEnds, source: Option<AgentIx>) -> Vec<(Time, Time)> {
        let active = self.active(ends);
        let Some(source) = source else { return active };
        let busy = match self.agents[source.0 as usize].video_source() {
            Some(video) => Some(&video.sending),
            None if spec.kind.pauses() => self.recorded(source).activity(),
            None => None,
        };
        // A source that always has data has no record of its activity. It is present whenever the flow is active.
        let Some(busy) = busy else { return active };
        overlap(busy.stretches(), &active).collect()
    }

    /// Returns a stream's demand while it is present.
    ///
    /// The demand is usually the highest rate that the source can use. In some seconds, the encoder or the cap limits
    /// the rate for at least half of the time in which the stream is present. The demand in these seconds is the rate
    /// that was sent, whether it arrived or not.
    fn wants(&self, spec: &sc::Flow, source: Option<AgentIx>, there: &[(Time, Time)]) -> Wants {
        let at_most = |rate: Option<Rate>| Wants::Always(rate.map_or(Demand::All, Demand::AtMost));
        let video = source.and_then(|source| self.agents[source.0 as usize].video_source());
        let (FlowKind::Video(_), Some(video)) = (&spec.kind, video) else {
            return at_most(spec.kind.rate_while_active());
        };
        let self_limited = video.self_limited(self.now);
        // If neither the encoder nor the cap limited the rate, the demand is constant.
        if self_limited.iter().all(|span| span.is_zero()) {
            return at_most(Some(video.most));
        }
        let second = |(n, (self_limited, sent)): (usize, (&Span, Bytes))| {
            let begin = Time::ZERO + SECOND * n as u64;
            let present = within(there.iter().copied(), begin, begin + SECOND);
            Demand::AtMost(if *self_limited * 2 >= present { sent.per(present) } else { video.most })
        };
        let sent = self.sent_by_second(&video.sent(), self_limited.len());
        Wants::BySecond(self_limited.iter().zip(sent).enumerate().map(second).collect())
    }

    /// Returns the bytes that a source sent in each second.
    fn sent_by_second(&self, steps: &[SentStep], seconds: usize) -> Vec<Bytes> {
        let mut sent = vec![Bytes::ZERO; seconds];
        // If a step is longer than a second, spread its bytes evenly over its seconds.
        let parts = (self.step.as_nanos() / SECOND.as_nanos()).max(1);
        for (n, step) in steps.iter().enumerate() {
            let first = (self.step * n as u64).as_nanos() / SECOND.as_nanos();
            let seconds = sent.iter_mut().skip(first as usize).take(parts as usize);
            seconds.for_each(|sent| *sent += Bytes::new(step.bytes / parts));
        }
        sent
    }
}

/// Returns how much of each bin of `bin` nanoseconds is within the periods, in nanoseconds.
fn time_by_bin(periods: &[(Time, Time)], bin: u64) -> Vec<u64> {
    let mut bins = Vec::new();
    for (begin, end) in periods.iter().map(|(begin, end)| (begin.as_nanos(), end.as_nanos())) {
        for place in begin / bin..end.div_ceil(bin) {
            if bins.len() <= place as usize {
                bins.resize(place as usize + 1, 0);
            }
            bins[place as usize] += ((place + 1) * bin).min(end) - (place * bin).max(begin);
        }
    }
    bins
}

fn claims(streams: &[Stream]) -> ChangingClaims {
    ChangingClaims::new(&streams.iter().map(|stream| &stream.path).collect::<Vec<_>>())
}

/// Returns the mean of the shares. Returns `None` if a share is unlimited.
fn mean(shares: impl Iterator<Item = Option<Rate>>) -> Option<Rate> {
    let known: Option<Vec<u64>> = shares.map(|share| share.map(Rate::as_bps)).collect();
    let known = known.filter(|known| !known.is_empty())?;
    Some(Rate::bps(known.iter().sum::<u64>() / known.len() as u64))
}
