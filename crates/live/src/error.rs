//! Why a live session can't start or had to end.

use std::io;
use steadycast_endpoints::BuildError;
use steadycast_scenario::Problem;

/// An error in a key, an address or an option.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}; {remedy}")]
pub struct LiveError {
    /// The key, address or option that is wrong.
    pub place: String,
    /// What is wrong with it.
    pub problem: String,
    /// What the user should do about it.
    pub remedy: String,
}

impl LiveError {
    pub(crate) fn new(place: impl ToString, problem: impl ToString, remedy: &str) -> Self {
        Self { place: place.to_string(), problem: problem.to_string(), remedy: remedy.to_owned() }
    }

    /// Creates the error that the record of a session can't be written. This only happens because of a bug.
    pub(crate) fn unwritten(what: &str) -> Self {
        Self::new("the record can't be written", what, "please report this")
    }

    /// If the place is a scenario key of the flow, replaces it with the attribute of the session description that set
    /// this key.
    pub(crate) fn of_description(self) -> Self {
        match self.place.strip_prefix("flow.video.") {
            Some(key) => Self { place: format!("the description's {key}"), ..self },
            None => self,
        }
    }
}

impl From<Problem> for LiveError {
    fn from(problem: Problem) -> Self {
        Self { place: problem.key, problem: problem.what, remedy: problem.remedy }
    }
}

impl From<BuildError> for LiveError {
    fn from(error: BuildError) -> Self {
        Self::new(error.key, error.what, "see steadycast --help")
    }
}

impl From<io::Error> for LiveError {
    fn from(error: io::Error) -> Self {
        Self::new("the session", error, "look at `ulimit -n`")
    }
}
