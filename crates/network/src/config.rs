//! From a scenario's link to the settings of its two directions.

use std::sync::Arc;
use steadycast_link::{self as link, Steps};
use steadycast_scenario::{self as sc, DirIx};
use steadycast_units::Rate;

/// Why a scenario's network can't be.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No way leads from a flow's source to a receiver.
    #[error("flow.{flow}: no way leads from {from} to {to}")]
    NoWay {
        /// The flow.
        flow: String,
        /// Its source.
        from: String,
        /// The receiver.
        to: String,
    },
    /// A recorded rate can't be changed, and none can begin on the way.
    #[error(
        "link.{link}: a trace holds for a whole run; an event can set a constant rate on a link with a constant rate"
    )]
    TraceEvent {
        /// The link.
        link: String,
    },
    /// More than is numbered.
    #[error("the scenario has too many {0}")]
    TooMany(&'static str),
}

fn amount(limit: sc::Limit) -> link::Amount {
    match limit {
        sc::Limit::Packets(n) => link::Amount::Packets(n),
        sc::Limit::Bytes(b) => link::Amount::Bytes(b),
    }
}

fn loss(spec: &sc::Loss) -> link::Loss {
    match spec {
        sc::Loss::None => link::Loss::None,
        sc::Loss::Bernoulli { p } => link::Loss::Bernoulli { p: *p },
        sc::Loss::Run { mean } => link::Loss::Run { mean: *mean },
        sc::Loss::Gilbert { p_bad, p_good, loss_good, loss_bad } => {
            link::Loss::Gilbert { p_bad: *p_bad, p_good: *p_good, loss_good: *loss_good, loss_bad: *loss_bad }
        }
        sc::Loss::List { packets } => link::Loss::List { packets: packets.to_vec() },
    }
}

fn codel(spec: &sc::CoDel) -> link::CoDel {
    link::CoDel { limit: amount(spec.limit), target: spec.target, interval: spec.interval, ecn: spec.ecn }
}

fn queue(spec: &sc::Queue) -> link::Queue {
    match spec {
        sc::Queue::DropTail { limit } => link::Queue::DropTail(amount(*limit)),
        sc::Queue::CoDel(spec) => link::Queue::CoDel(codel(spec)),
        sc::Queue::FqCoDel { codel: spec, flows, quantum } => {
            link::Queue::FqCoDel(link::FqCoDel { codel: codel(spec), flows: *flows, quantum: *quantum })
        }
        sc::Queue::Red(red) => {
            // Thresholds in bytes count as so many mean packets.
            let packets = |l: sc::Limit| match l {
                sc::Limit::Packets(n) => f64::from(n),
                sc::Limit::Bytes(b) => b.as_f64() / red.mean_packet.as_f64(),
            };
            link::Queue::Red(link::Red {
                limit: amount(red.limit),
                min: packets(red.min),
                max: packets(red.max),
                max_p: red.max_p,
                weight: red.weight,
                gentle: red.gentle,
                by_bytes: matches!(red.min, sc::Limit::Bytes(_)),
                mean_packet: red.mean_packet,
                ecn: red.ecn,
            })
        }
    }
}

/// What a link's direction is, with all that the scenario's events change on it.
pub(crate) fn link_config(
    direction: &sc::Direction,
    scenario: &sc::Scenario,
    way: DirIx,
) -> Result<link::Config, BuildError> {
    let mut delay = Steps::constant(direction.delay);
    let mut losses = Steps::constant(loss(&direction.loss));
    let late = |r: &sc::Reorder| link::Reorder { p: r.p, by: r.by };
    let mut reorder = Steps::constant(late(&direction.reorder));
    let mut duplicate = Steps::constant(direction.duplicate);
    let mut rates = match &direction.rate {
        sc::RateSpec::Constant(rate) => Some(Steps::constant(*rate)),
        _ => None,
    };
    for event in &scenario.events {
        let sc::What::Set(change) = &event.what else { continue };
        let this_way = if way.is_back() { change.direction.back() } else { change.direction.forward() };
        if change.link != way.link() || !this_way {
            continue;
        }
        let traced = |rate: &sc::RateSpec| matches!(rate, sc::RateSpec::Trace(_));
        if change.rate.as_ref().is_some_and(|new| traced(new) || traced(&direction.rate)) {
            return Err(BuildError::TraceEvent { link: scenario.links[way.link().0 as usize].name.clone() });
        }
        if let Some(sc::RateSpec::Constant(rate)) = &change.rate {
            // A link without a rate gets one: until then it is as fast as can be told.
            rates.get_or_insert(Steps::constant(Rate::bps(1_000_000_000_000))).then(event.at, *rate);
        }
        if let Some(new) = change.delay {
            delay.then(event.at, new);
        }
        if let Some(new) = &change.loss {
            losses.then(event.at, loss(new));
        }
        if let Some(new) = &change.reorder {
            reorder.then(event.at, late(new));
        }
        if let Some(new) = change.duplicate {
            duplicate.then(event.at, new);
        }
    }
    Ok(link::Config {
        service: match (&direction.rate, rates) {
            (sc::RateSpec::Trace(trace), _) => {
                link::Service::Trace(link::Opportunities { at: Arc::clone(&trace.opportunities), looped: trace.looped })
            }
            (_, Some(steps)) => link::Service::Rate(steps),
            (_, None) => link::Service::Unlimited,
        },
        delay,
        jitter: direction.jitter.as_ref().map(|j| link::Jitter {
            mean: j.mean,
            shape: match j.dist {
                sc::JitterDist::Exponential => link::JitterShape::Exponential,
                sc::JitterDist::Uniform => link::JitterShape::Uniform,
                sc::JitterDist::Normal => link::JitterShape::Normal,
            },
            reorder: j.reorder,
        }),
        loss: losses,
        arq: direction.arq.as_ref().map(|a| link::Arq { tries: a.tries, per_try: a.per_try }),
        reorder,
        duplicate,
        queue: queue(&direction.queue),
        mtu: direction.mtu,
    })
}
