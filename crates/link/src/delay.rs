use crate::Steps;
use steadycast_settings::{settings, words};
use steadycast_units::{Chance, Span, Time};

words! {
    /// How a variable delay is distributed.
    pub enum JitterDist {
        /// Exponentially distributed: many small delays and few large ones.
        Exponential = "exponential",
        /// Uniformly distributed between zero and twice the mean.
        Uniform = "uniform",
        /// Normally distributed around the mean, with a standard deviation of a third of the mean. The values are
        /// clamped to the range from zero to twice the mean.
        Normal = "normal",
        /// The absolute value of a normal distribution around zero (NR-BPDV of RFC 8868, 4.5). The standard deviation
        /// of the normal distribution is 1.25 times the mean jitter. Values are limited to three standard deviations.
        HalfNormal = "half-normal",
        /// The Wi-Fi delay model of the simulator of C4, a controller for media over QUIC. Most delays are around a
        /// millisecond. If the mean is above 1 ms, some delays are around 90 ms.
        Wifi = "wifi",
    }
}

settings! {
    /// A random addition to each packet's delay.
    #[derive(Copy, Eq)]
    Jitter, short "mean" "\"5ms\"" {
        /// The mean of the random delay.
        mean: Span => "write for example mean = \"2ms\"",
        /// The distribution of the random delay. uniform: from 0 to twice the mean. normal: with a standard deviation
        /// of a third of the mean. half-normal: the absolute value of a normal distribution (RFC 8868, 4.5). wifi:
        /// about 1 ms for most packets and about 90 ms for some, in the proportion that gives a mean of 1 to 85 ms
        /// (from the C4 draft). With another mean, wifi has the nearest that it can have.
        dist: JitterDist = JitterDist::Exponential,
        /// Whether a packet may overtake earlier packets. With false, a packet waits for the one before it.
        reorder: bool = false,
    }
}

#[derive(Debug)]
pub(crate) struct Propagation {
    steps: Steps<Span>,
    delay: Span,
    valid: Time,
    jitter: Option<Box<JitterState>>,
    last: Time,
}

#[derive(Debug)]
struct JitterState {
    steps: Steps<Option<Jitter>>,
    now: Option<Jitter>,
    valid: Time,
    chance: Chance,
}

impl JitterState {
    fn draw(&mut self, departure: Time) -> Span {
        if departure >= self.valid {
            self.now = *self.steps.at(departure);
            self.valid = self.steps.next_change(departure);
        }
        self.now.map_or(Span::ZERO, |jitter| draw(jitter, &mut self.chance))
    }
}

impl Propagation {
    /// Creates the propagation of a link. If there is no jitter, no random generator is stored, which saves memory.
    pub(crate) fn new(steps: &Steps<Span>, jitter: &Steps<Option<Jitter>>, chance: Chance) -> Self {
        let none = jitter.as_constant() == Some(&None);
        let jitter =
            (!none).then(|| Box::new(JitterState { steps: jitter.clone(), now: None, valid: Time::ZERO, chance }));
        Self { steps: steps.clone(), delay: Span::ZERO, valid: Time::ZERO, jitter, last: Time::ZERO }
    }

    /// Returns when a packet arrives. Packets arrive in order unless the jitter may reorder them.
    pub(crate) fn arrival(&mut self, departure: Time) -> Time {
        let at = self.unordered_arrival(departure);
        if self.jitter.as_ref().and_then(|varying| varying.now).is_some_and(|jitter| jitter.reorder) {
            return at;
        }
        // Delay the packet until the previous packet arrives.
        self.last = self.last.max(at);
        self.last
    }

    /// Returns when a packet arrives that later packets may overtake.
    pub(crate) fn unordered_arrival(&mut self, departure: Time) -> Time {
        if departure >= self.valid {
            self.delay = *self.steps.at(departure);
            self.valid = self.steps.next_change(departure);
        }
        departure + self.delay + self.jitter.as_mut().map_or(Span::ZERO, |varying| varying.draw(departure))
    }
}

fn draw(jitter: Jitter, chance: &mut Chance) -> Span {
    match jitter.dist {
        JitterDist::Exponential => jitter.mean.scale(chance.exponential(1.0)),
        JitterDist::Uniform => jitter.mean.scale(2.0 * chance.unit()),
        // Clamp symmetrically, which keeps the mean.
        JitterDist::Normal => jitter.mean.scale((1.0 + normal(chance) / 3.0).clamp(0.0, 2.0)),
        JitterDist::HalfNormal => {
            // The mean of |N(0, σ)| is σ·√(2/π), so σ = mean·√(π/2) ≈ 1.25 mean.
            let deviation = std::f64::consts::FRAC_PI_2.sqrt();
            jitter.mean.scale(deviation * normal(chance).abs().min(3.0))
        }
        JitterDist::Wifi => wifi(jitter.mean, chance),
    }
}

/// Draws a delay from the Wi-Fi model of the C4 simulator. The model was fitted to measurements (picoquic d199d45b,
/// picoquic/sim_link.c). For `mean` from 1 ms to 85 ms, the actual mean is 0.684 ms + 86.25 / 84 · (`mean` − 1 ms).
fn wifi(mean: Span, chance: &mut Chance) -> Span {
    const TURN: Span = Span::millis(1);
    const PAUSE: Span = Span::micros(7_500);
    let turns = poisson(E_TO_MINUS_1, chance);
    let mut delay = smoothed(TURN, turns, turns > 0, chance);
    // A pause has a mean of 12 · 7.5 − 7.5 / 2 = 86.25 ms. Calculate its probability with 84 ms, as picoquic does.
    if chance.happens(mean.saturating_sub(TURN).ratio(Span::millis(84))) {
        let pauses = poisson(E_TO_MINUS_12, chance);
        delay += smoothed(PAUSE, pauses, pauses > 1, chance);
    }
    delay
}

/// Returns `times` · `each`. If `partly`, subtracts a random part of `each`.
fn smoothed(each: Span, times: u64, partly: bool, chance: &mut Chance) -> Span {
    let part = if partly { chance.span_between(Span::ZERO, each) } else { Span::ZERO };
    (each * times).saturating_sub(part)
}

/// Probability of the value 0 in a Poisson distribution with a mean of 1.
const E_TO_MINUS_1: f64 = 0.367_879_441_171_442_33;
/// Probability of the value 0 in a Poisson distribution with a mean of 12.
const E_TO_MINUS_12: f64 = 6.144_212_353_328_21e-6;

/// Draws from a Poisson distribution by Knuth's method. `none` is the probability of the value 0, which defines the
/// mean.
fn poisson(none: f64, chance: &mut Chance) -> u64 {
    let (mut count, mut product) = (0, chance.unit());
    while product > none {
        product *= chance.unit();
        count += 1;
    }
    count
}

/// Draws from the standard normal distribution by the method of Box and Muller.
fn normal(chance: &mut Chance) -> f64 {
    let radius = (-2.0 * libm::log(chance.unit_open())).sqrt();
    radius * libm::cos(std::f64::consts::TAU * chance.unit())
}
