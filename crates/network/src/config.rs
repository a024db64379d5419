use steadycast_endpoints::BuildError;
use steadycast_link::{self as link, BernoulliLoss, Loss, Steps};
use steadycast_scenario::{self as sc, DirIx};
use steadycast_units::{Rate, Span};

pub(crate) fn link_config(
    direction: &sc::Direction,
    scenario: &sc::Scenario,
    direction_ix: DirIx,
) -> Result<link::Config, BuildError> {
    let mut delay = match &direction.delay_trace {
        Some(series) => series.steps(scenario.duration, Span::from_secs_f64),
        None => Steps::constant(direction.delay),
    };
    let mut jitter = Steps::constant(direction.jitter);
    let mut losses = match &direction.loss_trace {
        Some(series) => series.steps(scenario.duration, |p| Loss::Bernoulli(BernoulliLoss { p })),
        None => Steps::constant(direction.loss.clone()),
    };
    let mut reorder = Steps::constant(direction.reorder);
    let mut duplicate = Steps::constant(direction.duplicate);
    let mut rates = match &direction.rate {
        sc::RateSpec::Constant(rate) => Some(Steps::constant(*rate)),
        _ => None,
    };
    for event in &scenario.events {
        let sc::EventKind::Set(change) = &event.kind else { continue };
        // Ignore the event if it is for another link, or only for the other direction.
        let applies = if direction_ix.is_back() { change.direction.back() } else { change.direction.forward() };
        if change.link != direction_ix.link() || !applies {
            continue;
        }
        let traced = matches!(direction.rate, sc::RateSpec::Trace(..) | sc::RateSpec::Table(_));
        let delayed = change.delay.is_some() && direction.delay_trace.is_some();
        let lost = change.loss.is_some() && direction.loss_trace.is_some();
        if change.rate.is_some() && traced || delayed || lost {
            let what = "a trace holds for a whole run; an event can set a constant rate on a link with a constant rate";
            return Err(BuildError::new(format!("link.{}", scenario.links[direction_ix.link().0 as usize].name), what));
        }
        let rate = change.rate.map(|new| new.as_option().copied().unwrap_or(link::Service::UNLIMITED));
        if let Some(rate) = rate {
            // A link that has no rate is unlimited until this event.
            rates.get_or_insert(Steps::constant(link::Service::UNLIMITED)).then(event.at, rate);
        }
        if let Some(new) = change.delay {
            delay.then(event.at, new);
        }
        if let Some(new) = change.jitter {
            jitter.then(event.at, Some(new).filter(|new| !new.mean.is_zero()));
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
            (sc::RateSpec::Trace(trace, _), _) => link::Service::Trace(trace.clone()),
            (sc::RateSpec::Table(series), _) => {
                let steps = series.steps(scenario.duration, |bps| Rate::bps(bps.round() as u64));
                link::Service::Table { steps, mean: direction.rate.mean().unwrap_or_default() }
            }
            (_, Some(steps)) => link::Service::Rate(steps),
            (_, None) => link::Service::Unlimited,
        },
        delay,
        jitter,
        loss: losses,
        arq: direction.arq,
        reorder,
        duplicate,
        policer: direction.policer,
        shaper: direction.shaper,
        bleach: direction.bleach,
        queue: direction.queue.clone(),
        mtu: direction.mtu,
    })
}
