//! Checks expectations: whether the summary of a run will contain the figure that an expectation refers to.

use crate::model::{Flow, FlowKind, Link, Media, Repair, Simulcast, Workload};
use steadycast_control::registry::Registry;
use steadycast_record::{FIGURES, Figure, Of, When, find};
use steadycast_settings::tree::{Place, quoted};
use steadycast_settings::{Findings, Spanned, nearest, remedy};

/// The parts of a scenario to which an expectation can refer.
pub(crate) struct Scene<'a> {
    pub(crate) flows: &'a [Flow],
    pub(crate) links: &'a [Link],
    pub(crate) simulcasts: &'a [Simulcast],
    pub(crate) nodes: &'a [String],
    pub(crate) registry: &'a Registry,
    /// Whether the scenario has had no problem so far. An unknown name may be a consequence of an earlier problem.
    pub(crate) whole: bool,
}

/// Reports limits that no value can meet, because `max` is below `min`.
pub(crate) fn check_limits(min: Option<&Spanned<f64>>, max: Option<&Spanned<f64>>, out: &mut Findings) {
    if let (Some(min), Some(max)) = (min, max)
        && min.value > max.value
    {
        out.problem(&max.at, format!("max {} is below min {}", max.value, min.value), "exchange them");
    }
}

/// Returns whether a run of a scenario can produce the figure. It never produces figures of live sessions.
fn has(flow: Option<&Flow>, figure: &Figure) -> bool {
    // Figures of runs and links do not depend on the kind of a flow, so accept them.
    let Some(flow) = flow else { return true };
    let video = if let FlowKind::Video(video) = &flow.kind { Some(video) } else { None };
    match figure.when {
        When::Always | When::Simulcast | When::Emulated => true,
        When::Live => false,
        When::Video => video.is_some(),
        When::Tcp => matches!(flow.kind, FlowKind::Tcp(_)),
        When::Transfers => matches!(
            &flow.kind,
            FlowKind::Tcp(tcp) if matches!(tcp.source, Workload::File(_) | Workload::Transfers { .. })
        ),
        When::Pauses => flow.kind.pauses(),
        When::Datagrams => !matches!(flow.kind, FlowKind::Tcp(_)),
        When::Frames => video.is_some_and(|video| !matches!(video.media, Media::Greedy { .. })),
        When::Repaired => video.is_some_and(|video| video.repair != Repair::None),
        When::Padded => video.is_some_and(|video| video.padding),
        When::Audio => video.is_some_and(|video| video.audio.is_some()),
        When::EcnCapable => video.is_some_and(|video| video.ecn.is_capable()),
        When::Pictures => video.is_some_and(|video| matches!(video.media, Media::Clip { .. } | Media::Synthetic)),
    }
}

fn noun(of: Of) -> String {
    match of {
        Of::Run => "summary.json".into(),
        Of::Viewer => "a receiver of a simulcast".into(),
        Of::Invariant => "an invariant".into(),
        of => format!("a {}", of.name()),
    }
}

const FLOWS: &str = "flows";
const LINKS: &str = "links";
const SIMULCASTS: &str = "simulcasts";
const INVARIANTS: &str = "invariants";
const RECEIVERS: &str = "receivers.";
const WAYS: [&str; 2] = ["forward.", "back."];
/// What may follow the name of a flow, a simulcast or a link instead of a figure.
const LISTS_BELOW: [&str; 3] = [RECEIVERS, WAYS[0], WAYS[1]];

/// Checks that `path` leads to a number in the summary of a run. Adds a problem to `out` if not.
pub(crate) fn check(path: &str, at: &Place, scene: &Scene<'_>, out: &mut Findings) {
    let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if path.split('.').any(str::is_empty) || !path.bytes().all(letter) {
        let what = format!("{} is no path", quoted(path));
        out.problem(at, what, "write for example \"flows.tcp.share_of_fair\"");
        return;
    }
    let Some((head, rest)) = path.split_once('.') else { return figure(Of::Run, None, path, at, out) };
    match head {
        FLOWS => {
            let names = scene.flows.iter().map(|flow| flow.name.as_str());
            let Some((n, rest)) = named("flow", Of::Flow, names, rest, at, scene, out) else { return };
            let flow = &scene.flows[n];
            let Some(rest) = rest.strip_prefix(RECEIVERS) else {
                return match path_of_heading(flow, rest, scene.nodes) {
                    Some(path) => {
                        let what = format!("a flow has no {}", quoted(rest));
                        out.problem(at, what, format!("did you mean {}?", quoted(&path)));
                    }
                    None => figure(Of::Flow, Some(flow), rest, at, out),
                };
            };
            let nodes = flow.to.iter().map(|node| scene.nodes[node.0 as usize].as_str());
            if let Some((_, rest)) = named("receiver", Of::Receiver, nodes, rest, at, scene, out) {
                figure(Of::Receiver, Some(flow), rest, at, out);
            }
        }
        LINKS => {
            let names = scene.links.iter().map(|link| link.name.as_str());
            let Some((_, rest)) = named("link", Of::Link, names, rest, at, scene, out) else { return };
            // Remove the direction from the path. It may be left out and is then `forward`, as in
            // `steadycast_record::flat`.
            let rest = WAYS.iter().find_map(|way| rest.strip_prefix(way)).unwrap_or(rest);
            figure(Of::Link, None, rest, at, out);
        }
        SIMULCASTS => {
            let names = scene.simulcasts.iter().map(|simulcast| simulcast.name.as_str());
            let Some((n, rest)) = named("simulcast", Of::Simulcast, names, rest, at, scene, out) else { return };
            let Some(rest) = rest.strip_prefix(RECEIVERS) else { return figure(Of::Simulcast, None, rest, at, out) };
            // Take the receivers of the first flow, because all groups of a simulcast have the same receivers.
            let lowest = scene.simulcasts[n].flows.first().map(|flow| &scene.flows[flow.0 as usize]);
            let nodes = lowest.into_iter().flat_map(|flow| &flow.to).map(|node| scene.nodes[node.0 as usize].as_str());
            if let Some((_, rest)) = named("receiver", Of::Viewer, nodes, rest, at, scene, out) {
                figure(Of::Viewer, None, rest, at, out);
            }
        }
        // Accept the id of any invariant, because it is known only at the end of a run which invariants were checked.
        INVARIANTS => match rest.rsplit_once('.') {
            Some((id, rest)) => {
                promise(id, at, scene.registry, out);
                figure(Of::Invariant, None, rest, at, out);
            }
            None => out.problem(
                at,
                format!("{} is no path to a figure", quoted(path)),
                "write for example \"invariants.rtcp.share.broken\"",
            ),
        },
        _ if heads().contains(&head) => figure(Of::Run, None, path, at, out),
        _ => {
            let what = format!("summary.json has no {}", quoted(head));
            out.problem(at, what, remedy(nearest(head, &heads()), &heads()));
        }
    }
}

/// Returns the path of the figure that the user probably means by `word`. `word` may be the heading of a column in a
/// table, or the key of a receiver's figure. Returns `None` if there is no such figure, or if `word` already is the
/// path of a flow's figure.
fn path_of_heading(flow: &Flow, word: &str, nodes: &[String]) -> Option<String> {
    // Do not suggest anything, because `word` already is the path of a figure.
    if find(Of::Flow, word).is_some() {
        return None;
    }
    let called = word.replace('_', " ");
    let fits = |figure: &&Figure| {
        let short = figure.short.is_some_and(|short| short.eq_ignore_ascii_case(&called));
        figure.unit.is_number() && (short || figure.is_at(word) || figure.key == word)
    };
    let of = |of: Of| {
        let figure = FIGURES.iter().filter(|figure| figure.of == of).find(fits)?;
        // Keep a path that already leads to a value. Otherwise, suggest p95 for a distribution, because this is usually
        // the quantile that a table shows.
        Some(if figure.is_at(word) {
            word.to_owned()
        } else {
            paths(figure).into_iter().min_by_key(|p| !p.ends_with(".p95"))?
        })
    };
    if let Some(path) = of(Of::Flow) {
        return Some(format!("{FLOWS}.{}.{path}", flow.name));
    }
    let node = nodes.get(flow.to.first()?.0 as usize)?;
    Some(format!("{FLOWS}.{}.{RECEIVERS}{node}.{}", flow.name, of(Of::Receiver)?))
}

fn heads() -> Vec<&'static str> {
    let of_run = FIGURES.iter().filter(|figure| figure.of == Of::Run && figure.unit.is_number());
    let mut all = vec![FLOWS, LINKS, SIMULCASTS, INVARIANTS];
    all.extend(of_run.map(Figure::head));
    // Remove duplicates. Figures that have the same first key are adjacent.
    all.dedup();
    all
}

/// Splits `path` after the name that it begins with. Takes the longest matching name, because names can contain dots.
/// Returns the index of the name and the rest of the path.
fn named<'a, 'p>(
    what: &str,
    of: Of,
    names: impl Iterator<Item = &'a str>,
    path: &'p str,
    at: &Place,
    scene: &Scene<'_>,
    out: &mut Findings,
) -> Option<(usize, &'p str)> {
    let all: Vec<&str> = names.collect();
    let behind = |name: &str| path.strip_prefix(name)?.strip_prefix('.');
    let fits = all.iter().enumerate().filter_map(|(n, name)| Some((n, behind(name)?)));
    let found = fits.min_by_key(|(_, rest)| rest.len());
    if found.is_none() && all.contains(&path) {
        let given = format!("{} is a {what}, not a figure", quoted(path));
        out.problem(at, given, "go on with a figure, for example \".throughput_bps\"");
    } else if found.is_none() && scene.whole {
        // For the message, guess where the unknown name ends. It ends where a figure or a list of objects begins.
        let goes_on = |rest: &str| find(of, rest).is_some() || LISTS_BELOW.iter().any(|way| rest.starts_with(way));
        let mut dots = path.match_indices('.').map(|(dot, _)| dot);
        let end = dots.clone().find(|dot| goes_on(&path[dot + 1..])).or(dots.next()).unwrap_or(path.len());
        out.unknown_name(at, what, &path[..end], &all[..all.len().min(2000)]);
    }
    found
}

fn promise(id: &str, at: &Place, registry: &Registry, out: &mut Findings) {
    let all: Vec<&str> = registry.promises().into_iter().map(|promise| promise.id).collect();
    if !all.contains(&id) {
        out.problem(at, format!("no promise is called {}", quoted(id)), remedy(nearest(id, &all), &all));
    }
}

/// Checks that `path` is the path of a figure of the object type `of`, and that the figure is a number. Adds a problem
/// to `out` if not. `flow` is the flow that has the figure. For a receiver, it is the flow that the receiver receives.
fn figure(of: Of, flow: Option<&Flow>, path: &str, at: &Place, out: &mut Findings) {
    let known = || FIGURES.iter().filter(|figure| figure.of == of && has(flow, figure) && figure.unit.is_number());
    match find(of, path) {
        Some(figure) if !figure.unit.is_number() => {
            let what = format!("{} is not a number ({})", quoted(path), figure.unit.name());
            out.problem(at, what, "name a figure that is a number");
        }
        Some(figure) if !has(flow, figure) => {
            let what = format!("{} has no {}", noun(of), quoted(path));
            out.problem(at, what, format!("that is a figure of {}", figure.when.name()));
        }
        Some(figure) => {
            if figure.when == When::Emulated {
                out.warn(at, format!("only {} have {}", figure.when.name(), quoted(path)), "it fails in others");
            }
        }
        None => {
            let longer: Vec<String> = known().flat_map(paths).collect();
            // Suggest the quantiles if `path` leads to a distribution.
            let below: Vec<&str> = longer
                .iter()
                .map(String::as_str)
                .filter(|key| key.strip_prefix(path).is_some_and(|r| r.starts_with('.')))
                .collect();
            let (what, remedy) = if below.is_empty() {
                let all: Vec<&str> = longer.iter().map(String::as_str).collect();
                (format!("{} has no {}", noun(of), quoted(path)), remedy(nearest(path, &all), &all))
            } else {
                (format!("{} is several figures", quoted(path)), remedy(None, &below))
            };
            out.problem(at, what, remedy);
        }
    }
}

fn paths(figure: &Figure) -> Vec<String> {
    match figure.parts.names() {
        [] => vec![figure.key.to_owned()],
        parts => parts.iter().map(|part| format!("{}.{part}", figure.key)).collect(),
    }
}
