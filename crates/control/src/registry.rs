//! The list of controllers.

use crate::promise::SESSION;
use crate::{
    Need, Promise, ReceiverHalf, SenderHalf, asmp, fixed, gcc, lda_plus, multfrc, nada, pgmcc, rbuf, scream, steady,
    tfmcc, tfrc, tfrcp,
};
use std::sync::Arc;
use steadycast_settings::nearest;
use steadycast_units::Span;

pub use crate::entry::{
    BuildReceiver, BuildSender, Controller, Dashes, FeedbackTiming, Given, Mode, Param, ParamError, ParamErrorKind,
    Receivers, Setup, Value, Values, Within,
};

/// All controllers. To add a controller, add one line here.
pub const ALL: &[&Controller] = &[
    &fixed::CONTROLLER,
    &tfrc::CONTROLLER,
    &tfrcp::TFRCP,
    &tfrcp::EAI,
    &tfrcp::QAI,
    &tfrcp::EAI_CL,
    &tfrcp::QAI_CL,
    &rbuf::TYPE1,
    &rbuf::TYPE2,
    &rbuf::NO_CONTROL,
    &multfrc::MULTFRC,
    &multfrc::E_MULTFRC,
    &multfrc::AIO_TFRC,
    &multfrc::EAIO_TFRC,
    &asmp::CONTROLLER,
    &tfmcc::CONTROLLER,
    &pgmcc::CONTROLLER,
    &lda_plus::CONTROLLER,
    &scream::CONTROLLER,
    &nada::CONTROLLER,
    &gcc::CONTROLLER,
    &steady::CONTROLLER,
];

/// The defaults for a new entry, which is written as `Controller { name: "…", …, ..TEMPLATE }`.
pub const TEMPLATE: Controller = fixed::CONTROLLER;

/// The controller that replaces the configured controller if the receivers send only standard reports.
pub const FALLBACK: &Controller = &asmp::CONTROLLER;

/// The controllers that a scenario may select: those in [`ALL`], and those added with [`Registry::with`].
#[derive(Clone, Debug)]
pub struct Registry(Vec<&'static Controller>);

impl Default for Registry {
    fn default() -> Self {
        Self(ALL.to_vec())
    }
}

impl Registry {
    /// Adds a controller. Replaces a controller that has the same name.
    #[must_use]
    pub fn with(mut self, controller: &'static Controller) -> Self {
        self.0.retain(|known| known.name != controller.name);
        self.0.push(controller);
        self
    }

    /// Returns the names of the controllers for which `are` returns true.
    pub fn names(&self, are: impl Fn(&Controller) -> bool) -> Vec<&'static str> {
        self.0.iter().filter(|controller| are(controller)).map(|controller| controller.name).collect()
    }

    /// Finds a controller by its name.
    ///
    /// # Errors
    /// Returns an error if the name is unknown, or if it is the name of an external controller ([`Outside`]).
    pub fn find(&self, name: &str) -> Result<&'static Controller, ParamError> {
        self.0.iter().find(|c| c.name == name).copied().ok_or_else(|| {
            let names = self.names(|_| true);
            let (problem, remedy) = match (Outside::of(name), nearest(name, &names)) {
                // Live sessions can't run external controllers. Say so, instead of proposing a similar name.
                (Some(outside), _) => {
                    (format!("{} steers simulated and emulated flows alone", outside.about()), Self::choice(&names))
                }
                (None, Some(near)) => ("no such controller".into(), format!("did you mean \"{near}\"?")),
                (None, None) => ("no such controller".into(), Self::choice(&names)),
            };
            ParamError::new(ParamErrorKind::UnknownController, name, problem, remedy)
        })
    }

    fn choice(names: &[&str]) -> String {
        format!("there are: {}", names.join(", "))
    }

    /// Returns the promises of the session and of all controllers, without duplicates.
    pub fn promises(&self) -> Vec<&'static Promise> {
        let mut all: Vec<&Promise> = SESSION.to_vec();
        for promise in self.0.iter().flat_map(|controller| controller.promises) {
            if !all.contains(promise) {
                all.push(promise);
            }
        }
        all
    }
}

/// A controller that is not compiled in. The caller provides its factory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// A Python class, written as `file.py:Class`.
    Class,
    /// A program that is controlled through its standard input and output, written as `exec:WORDS`.
    Program,
}

impl Outside {
    /// The syntax of the names of external controllers.
    pub const FORMS: &str = "\"file.py:Class\" or \"exec:PROGRAM ARGUMENTS\"";

    /// Parses the name of an external controller. Returns `None` if it has another form.
    pub fn of(name: &str) -> Option<Self> {
        if let Some(words) = name.strip_prefix("exec:") {
            return (!words.trim().is_empty()).then_some(Self::Program);
        }
        let (file, class) = name.split_once(".py:")?;
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let named = !class.is_empty() && class.bytes().all(word) && !class.as_bytes()[0].is_ascii_digit();
        (!file.is_empty() && named).then_some(Self::Class)
    }

    const fn about(self) -> &'static str {
        match self {
            Self::Class => "a class",
            Self::Program => "a program",
        }
    }
}

/// Finds one of [`ALL`] by its name.
///
/// # Errors
/// Returns the same errors as [`Registry::find`].
pub fn find(name: &str) -> Result<&'static Controller, ParamError> {
    Registry::default().find(name)
}

/// Checks that a session offers everything in `needs`, the requirements of the controller `name`.
///
/// # Errors
/// Returns an error if an item of `needs` is not in `offered`. The error lists the controllers that work without this
/// item.
pub fn check_needs(name: &str, needs: &[Need], offered: &[Need]) -> Result<(), ParamError> {
    let Some(need) = needs.iter().find(|need| !offered.contains(need)) else { return Ok(()) };
    let able = ALL.iter().filter(|c| {
        Values::resolve(c.params, Mode::Repaired, &[]).is_ok_and(|values| c.missing(&values, offered).is_none())
    });
    let able: Vec<_> = able.map(|c| c.name).collect();
    let problem = format!("it needs {need} ({}), which this session does not offer", need.about());
    let switch = ALL.iter().filter(|c| c.name == name).find_map(|c| {
        let works_without = |param: &&Param| {
            let given = [(param.name.to_owned(), Given::Switch(false))];
            Values::resolve(c.params, Mode::Repaired, &given).is_ok_and(|values| c.missing(&values, offered).is_none())
        };
        c.params.iter().filter(|param| param.within == Within::Either).find(works_without)
    });
    let switch = switch.map(|param| format!("set its parameter {} to false, ", param.name)).unwrap_or_default();
    let remedy = format!("{switch}offer {need}, or use a controller that works without: {}", able.join(", "));
    Err(ParamError::new(ParamErrorKind::UnmetNeed, name, problem, remedy))
}

/// Builds the parts of a controller for one session: one that runs at the sender, and one that runs at each receiver.
pub trait Factory: Send + Sync {
    /// Builds the part that runs at the sender.
    fn sender(&self, setup: &Setup) -> Box<dyn SenderHalf>;
    /// Builds the part that runs at a receiver.
    fn receiver(&self, setup: &Setup) -> Box<dyn ReceiverHalf>;
    /// Returns the properties of the controller that a session needs to know.
    fn terms(&self) -> Terms;
}

/// The properties of a controller that a session needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The identifier of the RTP header extension element. The value 0 means that there is none.
    pub extension: u8,
    /// The name in the controller's RTCP APP packets.
    pub app: [u8; 4],
    /// The event that triggers feedback.
    pub feedback: FeedbackTiming,
    /// Same as [`Controller::repeats`].
    pub repeats: bool,
    /// Same as [`Controller::slowest_feedback`].
    pub slowest_feedback: Span,
    /// Same as [`Controller::needs`].
    pub needs: &'static [Need],
    /// Whether the controller can serve one receiver or many.
    pub receivers: Receivers,
}

impl Terms {
    /// Returns the properties of a controller that schedules its own reports. Such a controller has no needs and no
    /// header extension.
    pub const fn plain(app: [u8; 4]) -> Self {
        let (feedback, receivers) = (FeedbackTiming::Clocked, Receivers::OneOrMany);
        let slowest_feedback = Span::MAX;
        Self { extension: 0, app, feedback, slowest_feedback, repeats: false, needs: &[], receivers }
    }

    /// Returns what the controller needs from the session. `group` tells whether it is a group or a unicast session.
    ///
    /// In a group, [`Need::PacketReports`] is left out if the controller is for [`Receivers::OneOrMany`]. The receivers
    /// of a group can't all send per-packet feedback, and such a controller works without it.
    pub fn needs_in(&self, group: bool) -> Vec<Need> {
        let without = group && self.receivers == Receivers::OneOrMany;
        self.needs.iter().copied().filter(|need| !(without && *need == Need::PacketReports)).collect()
    }
}

/// A controller that wraps another controller. Its part at the sender contains the other controller's part.
pub trait Layer: Send + Sync {
    /// Returns the wrapped controller.
    fn own(&self) -> &dyn Factory;
    /// Builds the part that runs at the sender. It contains the wrapped controller's part.
    fn around(&self, setup: &Setup) -> Box<dyn SenderHalf>;
}

impl<L: Layer> Factory for L {
    fn sender(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        self.around(setup)
    }
    fn receiver(&self, setup: &Setup) -> Box<dyn ReceiverHalf> {
        self.own().receiver(setup)
    }
    fn terms(&self) -> Terms {
        self.own().terms()
    }
}

/// A controller and the values of its parameters.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The controller's entry in the registry.
    pub controller: &'static Controller,
    /// The values of the controller's parameters.
    pub values: Values,
}

impl Chosen {
    /// Selects the entry `name`. Its parameters have the values in `given`, else their defaults in `mode`.
    ///
    /// # Errors
    /// Returns the same errors as [`Chosen::shared`].
    pub fn new(name: &str, mode: Mode, given: &[(String, Given)]) -> Result<Self, ParamError> {
        Self::of(find(name)?, mode, given)
    }

    /// Selects `controller`. Its parameters have the values in `given`, else their defaults in `mode`.
    ///
    /// # Errors
    /// Returns an error if a parameter is unknown or its value is invalid.
    pub fn of(controller: &'static Controller, mode: Mode, given: &[(String, Given)]) -> Result<Self, ParamError> {
        Ok(Self { controller, values: Values::resolve(controller.params, mode, given)? })
    }

    /// Does the same as [`Chosen::new`], but returns a factory that all senders and receivers of a run share.
    ///
    /// # Errors
    /// Returns an error if the name is unknown, if a parameter is unknown, or if its value is invalid.
    pub fn shared(name: &str, mode: Mode, given: &[(String, Given)]) -> Result<Arc<dyn Factory>, ParamError> {
        Ok(Arc::new(Self::new(name, mode, given)?))
    }
}

impl Factory for Chosen {
    fn sender(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        (self.controller.sender)(setup, &self.values)
    }
    fn receiver(&self, setup: &Setup) -> Box<dyn ReceiverHalf> {
        (self.controller.receiver)(setup, &self.values)
    }
    fn terms(&self) -> Terms {
        let Controller { extension, app, feedback, slowest_feedback, repeats, receivers, .. } = *self.controller;
        let needs = (self.controller.needs)(&self.values);
        Terms { extension, app, feedback, slowest_feedback, repeats, needs, receivers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_units::Rate;

    #[test]
    fn names_colours_and_wire_names_are_unique() {
        for (i, a) in ALL.iter().enumerate() {
            for b in &ALL[i + 1..] {
                assert_ne!(a.name, b.name);
                assert_ne!((a.colour, a.dashes), (b.colour, b.dashes), "{} and {}", a.name, b.name);
            }
        }
    }

    #[test]
    fn a_half_keeps_an_eye_on_the_promises_of_its_entry_and_on_no_others() {
        for controller in ALL {
            let values = Values::resolve(controller.params, Mode::Repaired, &[]).unwrap();
            let groups: &[bool] = if controller.receivers == Receivers::One { &[false] } else { &[false, true] };
            let mut kept = Vec::new();
            for &group in groups {
                let chance = steadycast_units::Seed(1).part("half");
                let setup = Setup { group, ..Setup::unicast(Rate::kbps(50), Rate::mbps(5), chance) };
                let (sender, receiver) = ((controller.sender)(&setup, &values), (controller.receiver)(&setup, &values));
                kept.extend(sender.checks().iter().chain(receiver.checks()).map(|check| check.promise));
            }
            let name = controller.name;
            assert!(kept.iter().all(|promise| controller.promises.contains(promise)), "{name}: {kept:?}");
            assert!(controller.promises.iter().all(|promise| kept.contains(promise)), "{name}: {kept:?}");
        }
    }

    #[test]
    fn a_session_s_floor_lets_a_packet_leave_each_3_s_but_as_printed_and_never_exceeds_its_cap() {
        let floor = |mode, floor: u64, cap: u64| {
            let setup = Setup::unicast(Rate::bps(floor), Rate::bps(cap), steadycast_units::Seed(1).part("floor"));
            Setup { mode, ..setup }.alive().floor.as_bps()
        };
        // At the floor of 2,666 bit/s, one packet of 1000 bytes is sent in 3 s.
        let cases = [(0, 1_000_000, 2_666), (5_000, 1_000_000, 5_000), (0, 100, 100)];
        for (given, cap, least) in cases {
            assert_eq!(floor(Mode::Repaired, given, cap), least);
            assert_eq!(floor(Mode::Paper, given, cap), given);
        }
    }

    #[test]
    fn promises_are_described_once_under_names_that_a_path_can_hold() {
        let all = Registry::default().promises();
        for (n, promise) in all.iter().enumerate() {
            assert!(all[..n].iter().all(|other| other.id != promise.id), "{} is two promises", promise.id);
            let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-');
            assert!(promise.id.bytes().all(letter) && promise.id.split('.').count() == 2, "{}", promise.id);
            assert!(!promise.about.is_empty() && !promise.about.ends_with('.'), "{}", promise.about);
        }
        assert!(ALL.iter().all(|c| c.promises.iter().all(|promise| all.contains(promise))));
    }

    #[test]
    fn the_controller_that_takes_over_can_serve_any_receivers() {
        assert!(FALLBACK.standard_reports && FALLBACK.receivers == Receivers::OneOrMany);
    }

    /// Checks the number of parameters, because `docs/embedding-reference.md` promises that their names are stable.
    #[test]
    fn what_can_be_set_is_little_enough_to_be_promised() {
        for controller in ALL {
            let modern = ["scream", "nada", "gcc", "steady"].contains(&controller.name);
            let most = if modern { 12 } else { 17 };
            assert!(controller.params.len() <= most, "{}", controller.name);
        }
        let all: usize = ALL.iter().map(|c| c.params.len()).sum();
        assert!((100..=200).contains(&all), "{all}");
    }

    #[test]
    fn every_default_lies_in_its_own_range() {
        for controller in ALL {
            for param in controller.params {
                for mode in [Mode::Repaired, Mode::Paper] {
                    let fits = match (param.within, param.default(mode)) {
                        (Within::Range(..), Value::Rate(Rate::ZERO)) => true,
                        (Within::Range(least, most), value) => (least..=most).contains(&value),
                        (Within::Among(words), Value::Choice(word)) => words.contains(&word),
                        (Within::Either, Value::Switch(_)) => true,
                        _ => false,
                    };
                    assert!(fits, "{}.{} in {mode:?}", controller.name, param.name);
                }
            }
        }
    }

    #[test]
    fn what_a_session_lacks_is_an_error_that_says_what_it_is_and_who_works_without() {
        let scream = Chosen::new("scream", Mode::Repaired, &[]).unwrap();
        assert_eq!(check_needs("scream", scream.terms().needs, &[Need::PacketReports]), Ok(()));
        let error = check_needs("scream", scream.terms().needs, &[Need::Probes]).unwrap_err();
        assert_eq!(
            error.problem,
            "it needs packet reports (reports that list which packets arrived, and when: RFC 8888), which this session \
             does not offer"
        );
        assert!(error.remedy.contains("tfrc") && !error.remedy.contains("scream"), "{}", error.remedy);
        for controller in ALL.iter().filter(|c| c.standard_reports) {
            let values = Values::resolve(controller.params, Mode::Repaired, &[]).unwrap();
            // Offer arrival times, because the receivers of a session measure them.
            assert_eq!(controller.missing(&values, &[Need::ArrivalTimes]), None, "{}", controller.name);
        }
    }

    #[test]
    fn a_controller_of_ones_own_is_found_beside_the_others_or_in_the_place_of_its_namesake() {
        static OWN: Controller = Controller { name: "own", ..fixed::CONTROLLER };
        static NAMESAKE: Controller = Controller { about: "another", ..fixed::CONTROLLER };
        let registry = Registry::default().with(&OWN).with(&NAMESAKE);
        assert_eq!(registry.names(|_| true).len(), ALL.len() + 1);
        assert_eq!(registry.find("own").map(|c| c.name), Ok("own"));
        assert_eq!(registry.find("fixed").map(|c| c.about), Ok("another"));
        assert_eq!(registry.find("owm").unwrap_err().remedy, "did you mean \"own\"?");
        assert!(find("own").is_err());
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_nearest() {
        assert_eq!(find("fixd").unwrap_err().remedy, "did you mean \"fixed\"?");
        let unknown = find("bbr").unwrap_err().remedy;
        assert!(unknown.starts_with("there are: ") && unknown.contains("tfmcc"), "no name is near: {unknown}");
    }

    #[test]
    fn a_parameter_out_of_range_is_named_with_its_range() {
        let given = [("rate".to_owned(), Given::Text("4".into()))];
        let error = Chosen::shared("fixed", Mode::Repaired, &given).err().map(|e| e.to_string());
        assert!(error.is_some_and(|e| e.contains("kbps")));
    }
}
