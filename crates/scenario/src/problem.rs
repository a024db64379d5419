//! What is wrong with a scenario, said so that a reader can put it right.

use std::fmt;

/// One thing that is wrong, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named; or what else the scenario came from.
    pub file: String,
    /// The line, from 1; `None` for what has none (JSON, `--set`).
    pub line: Option<u32>,
    /// The key's path, for example `flow.video.controller`; empty where a text can't be read at all.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}; {}", self.what, self.remedy)
    }
}

/// Everything that is wrong with a scenario, in the order of its lines; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
