use crate::{Problem, Scenario};

/// A scenario with what its reading brought to light.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The scenario.
    pub scenario: Scenario,
    /// What is allowed but probably not meant.
    pub warnings: Vec<Problem>,
    /// SHA-256 in hexadecimal of the text, and of every `--set` behind it.
    pub sha256: String,
    /// The file, as it was named.
    pub file: String,
}
