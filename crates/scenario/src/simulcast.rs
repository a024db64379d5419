//! Simulcasts: multicast groups that carry the same video at different rates. Each receiver chooses one of the groups.

use crate::file::SimulcastTable;
use crate::model::{Cast, Event, EventKind, Flow, FlowIx, FlowKind, Simulcast};
use crate::name::Pattern;
use std::collections::BTreeSet;
use steadycast_control::registry::Registry;
use steadycast_control::simulcast::MOST_GROUPS;
use steadycast_settings::tree::{Place, quoted};
use steadycast_settings::{Findings, Spanned};
use steadycast_units::{Rate, Span};

const UP: std::ops::RangeInclusive<f64> = 1.0..=10.0;

/// Checks the file's simulcasts, and returns them. `find` returns the flows in a simulcast's list, or adds a problem.
pub(crate) fn simulcasts(
    tables: &[Spanned<SimulcastTable>],
    flows: &[Flow],
    events: &[Event],
    find: impl Fn(&SimulcastTable, &mut Findings) -> Option<Vec<FlowIx>>,
    registry: &Registry,
    out: &mut Findings,
) -> Vec<Simulcast> {
    let (mut all, mut names, mut taken) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for table in tables {
        let Some(name) = &table.name else {
            out.missing(&table.here, "name", "write for example name = \"layers\"");
            continue;
        };
        match Pattern::read_or_report(name, &name.at, out) {
            Some(read) if read.is_range() => out.problem(&name.at, "a simulcast has one name", "leave the range out"),
            Some(_) if !names.insert(name.value.clone()) => {
                out.problem(&name.at, format!("there is another {}", quoted(name)), "give it another name");
            }
            _ => {}
        }
        let up = table.up.as_ref().map_or(1.2, |given| given.value);
        if let Some(given) = table.up.as_ref().filter(|given| !UP.contains(&given.value)) {
            out.problem(&given.at, format!("{} is not between 1 and 10", given.value), "write for example up = 1.2");
        }
        let hold = table.hold.as_ref().map_or(Span::secs(10), |given| given.value);
        if let Some(given) =
            table.hold.as_ref().filter(|given| !(Span::millis(1)..=Span::secs(3600)).contains(&given.value))
        {
            out.problem(
                &given.at,
                format!("{hold} is not between 1ms and an hour"),
                "write for example hold = \"10s\"",
            );
        }
        let Some(found) = find(table, out) else { continue };
        let at = table.flows.as_ref().map_or(&table.here, |given| &given.at);
        for flow in &found {
            let name = quoted(&flows[flow.0 as usize].name);
            if !taken.insert(*flow) {
                out.problem(at, format!("{name} is in a simulcast already"), "name each flow once");
            }
            if events.iter().any(|event| concerns(event, *flow)) {
                let what = format!("an event joins, leaves, starts or stops {name}");
                out.problem(at, what, "leave the event out: its receivers move by themselves");
            }
        }
        let groups: Vec<&Flow> = found.iter().map(|flow| &flows[flow.0 as usize]).collect();
        check(&groups, at, registry, out);
        // The list is empty if all its flows have `count = 0`. There is no simulcast in that case.
        if !found.is_empty() {
            all.push(Simulcast { name: name.value.clone(), flows: found, up, hold });
        }
    }
    all
}

fn concerns(event: &Event, flow: FlowIx) -> bool {
    match event.kind {
        EventKind::Join { flow: named, .. } | EventKind::Leave { flow: named, .. } => named == flow,
        EventKind::StartFlow(named) | EventKind::StopFlow(named) => named == flow,
        EventKind::Set(_) => false,
    }
}

/// Checks that receivers can choose between these groups. Adds only the first problem.
fn check(groups: &[&Flow], at: &Place, registry: &Registry, out: &mut Findings) {
    let [lowest, ..] = groups else { return };
    if !(2..=MOST_GROUPS).contains(&groups.len()) {
        let what = format!("{} groups", groups.len());
        return out.problem(at, what, format!("name 2 to {MOST_GROUPS} flows, the one of the lowest rate first"));
    }
    let mut below: (Option<Rate>, Option<Rate>) = (None, None);
    for (place, flow) in groups.iter().enumerate() {
        let name = quoted(&flow.name);
        let FlowKind::Video(video) = &flow.kind else {
            return out.problem(at, format!("{name} is no video"), "name flows with kind = \"video\"");
        };
        if flow.cast != Cast::Multicast {
            return out.problem(at, format!("{name} is no group"), "write cast = \"multicast\" in its [[flow]]");
        }
        if (flow.from, &flow.to) != (lowest.from, &lowest.to) {
            let what = format!("{name} and {} are not from one source to the same receivers", quoted(&lowest.name));
            return out.problem(at, what, "write the same from and to in both");
        }
        if (&flow.start, flow.stop) != (&lowest.start, lowest.stop) {
            let what = format!("{name} and {} do not start and stop together", quoted(&lowest.name));
            return out.problem(at, what, "write the same start and stop in both");
        }
        if !video.controller.entry().is_some_and(|controller| controller.own_rate) {
            let able = registry.names(|controller| controller.own_rate);
            let name = quoted(video.controller.name());
            let what = format!("receivers of {name} know no rate of their own to choose by");
            return out.problem(at, what, format!("take one of: {}", able.join(", ")));
        }
        if place > 0 && video.floor.is_none() {
            let what = format!("{name} has no floor, so nobody would ever leave it");
            return out.problem(at, what, "write floor = RATE in its [[flow]]: below it, it is not worth to be in it");
        }
        for (key, rate, before) in [("floor", video.floor, &mut below.0), ("cap", video.cap, &mut below.1)] {
            if let (Some(rate), Some(before)) = (rate, *before)
                && rate <= before
            {
                let what = format!("{name} has a {key} of {rate}, no more than {before} of one below it");
                return out.problem(at, what, "name the flows from the lowest rate to the highest");
            }
            // A group without this key does not change the value for the next comparison.
            *before = rate.or(*before);
        }
    }
}
