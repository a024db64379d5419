//! Why a live session can't begin, or had to end.

use std::io;
use steadycast_ends::BuildError;
use steadycast_scenario::Problem;

/// Where something is wrong, what it is, and what would help.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}; {remedy}")]
pub struct LiveError {
    /// The key, the address or the option that it is about.
    pub place: String,
    /// What is wrong.
    pub problem: String,
    /// What would help.
    pub remedy: String,
}

impl LiveError {
    pub(crate) fn new(place: impl ToString, problem: impl ToString, remedy: &str) -> Self {
        Self { place: place.to_string(), problem: problem.to_string(), remedy: remedy.to_owned() }
    }

    /// The record is not what a scenario can say: a bug.
    pub(crate) fn unwritten(what: &str) -> Self {
        Self::new("the record can't be written", what, "please report this")
    }

    /// A key of the flow is what a description says.
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
