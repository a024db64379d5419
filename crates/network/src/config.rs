//! From a scenario's link to the settings of its two directions.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use steadycast_link::{self as link, Steps};
use steadycast_scenario::{self as sc, DirIx};

/// Why a scenario's network can't be.
#[derive(Debug)]
pub enum BuildError {
    /// No way leads from a flow's source to a receiver.
    NoWay {
        /// The flow.
        flow: String,
        /// Its source.
        from: String,
        /// The receiver.
        to: String,
    },
    /// A recorded rate can't be changed, and none can begin on the way.
    TraceEvent {
        /// The link.
        link: String,
    },
    /// More than is numbered.
    TooMany(&'static str),
}

impl BuildError {
    /// The scenario's key, and what is wrong with it.
    pub fn told(&self) -> (String, String) {
        match self {
            Self::NoWay { flow, from, to } => (format!("flow.{flow}"), format!("no way leads from {from} to {to}")),
            Self::TraceEvent { link } => {
                let what = "a trace holds for a whole run; an event can set a constant rate on a link with a \
                    constant rate";
                (format!("link.{link}"), what.to_owned())
            }
            Self::TooMany(what) => ((*what).to_owned(), "the scenario has too many of them".to_owned()),
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, what) = self.told();
        write!(f, "{key}: {what}")
    }
}

impl Error for BuildError {}

pub(crate) fn link_config(
    direction: &sc::Direction,
    scenario: &sc::Scenario,
    way: DirIx,
) -> Result<link::Config, BuildError> {
    let mut delay = Steps::constant(direction.delay);
    let mut losses = Steps::constant(direction.loss.clone());
    let mut reorder = Steps::constant(direction.reorder);
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
        let rate = change.rate.as_ref().map(|new| new.mean().unwrap_or(link::Service::UNLIMITED));
        if let Some(rate) = rate {
            rates.get_or_insert(Steps::constant(link::Service::UNLIMITED)).then(event.at, rate);
        }
        if let Some(new) = change.delay {
            delay.then(event.at, new);
        }
        if let Some(new) = &change.loss {
            losses.then(event.at, new.clone());
        }
        if let Some(new) = change.reorder {
            reorder.then(event.at, new);
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
        jitter: direction.jitter,
        loss: losses,
        arq: direction.arq,
        reorder,
        duplicate,
        policer: direction.policer,
        bleach: direction.bleach,
        queue: direction.queue.clone(),
        mtu: direction.mtu,
    })
}
