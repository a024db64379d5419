use crate::Steps;
use steadycast_units::{Chance, Span, Time};
use steadycast_words::{settings, words};

words! {
    /// How a variable delay is distributed.
    pub enum JitterDist {
        /// Many small, few large.
        Exponential = "exponential",
        /// Evenly between nothing and twice the mean.
        Uniform = "uniform",
        /// Around the mean with a standard deviation of a third of it, cut at zero and at twice the mean.
        Normal = "normal",
        /// The absolute value of a normal distribution around zero, cut at three of its standard deviations, each 1.25
        /// times the mean: NR-BPDV of RFC 8868, 4.5.
        HalfNormal = "half-normal",
    }
}

settings! {
    /// A random addition to each packet's delay.
    #[derive(Copy, Eq)]
    Jitter, short "mean" "\"5ms\"" {
        /// Its mean.
        mean: Span => "write for example mean = \"2ms\"",
        /// Its distribution; uniform is from 0 to twice the mean, normal has a standard deviation of a third of it,
        /// half-normal is a normal distribution's absolute value (RFC 8868, 4.5).
        dist: JitterDist = JitterDist::Exponential,
        /// Whether a packet may overtake another; otherwise it waits for the one before.
        reorder: bool = false,
    }
}

#[derive(Debug)]
pub(crate) struct Propagation {
    steps: Steps<Span>,
    delay: Span,
    valid: Time,
    jitter: Option<Box<(Jitter, Chance)>>,
    last: Time,
}

impl Propagation {
    pub(crate) fn new(steps: &Steps<Span>, jitter: Option<Jitter>, chance: Chance) -> Self {
        let jitter = jitter.map(|jitter| Box::new((jitter, chance)));
        Self { steps: steps.clone(), delay: Span::ZERO, valid: Time::ZERO, jitter, last: Time::ZERO }
    }

    /// When a packet that left at `departure` arrives.
    pub(crate) fn arrival(&mut self, departure: Time) -> Time {
        let at = self.apart(departure);
        if self.jitter.as_ref().is_some_and(|varies| varies.0.reorder) {
            return at;
        }
        self.last = self.last.max(at);
        self.last
    }

    /// The same for one for which nothing that comes after it waits.
    pub(crate) fn apart(&mut self, departure: Time) -> Time {
        if departure >= self.valid {
            self.delay = *self.steps.at(departure);
            self.valid = self.steps.next_change(departure);
        }
        departure + self.delay + self.jitter.as_mut().map_or(Span::ZERO, |varies| draw(varies.0, &mut varies.1))
    }
}

fn draw(jitter: Jitter, chance: &mut Chance) -> Span {
    match jitter.dist {
        JitterDist::Exponential => jitter.mean.scale(chance.exponential(1.0)),
        JitterDist::Uniform => jitter.mean.scale(2.0 * chance.unit()),
        JitterDist::Normal => jitter.mean.scale((1.0 + normal(chance) / 3.0).clamp(0.0, 2.0)),
        JitterDist::HalfNormal => {
            let deviation = std::f64::consts::FRAC_PI_2.sqrt();
            jitter.mean.scale(deviation * normal(chance).abs().min(3.0))
        }
    }
}

/// Standard normal, by Box and Muller; one of the two values is enough.
fn normal(chance: &mut Chance) -> f64 {
    let radius = (-2.0 * libm::log(chance.unit_open())).sqrt();
    radius * libm::cos(std::f64::consts::TAU * chance.unit())
}
