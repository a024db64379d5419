//! What is wrong with a scenario, said so that a reader can put it right.

use crate::misplaced::{Around, Misplaced};
use crate::tree::{Item, Place};
use crate::{Declared, nearest};
use std::fmt;

/// One thing that is wrong, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named; `--set` for what came from the command line.
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

/// Everything that is wrong with a scenario, by line; never empty.
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

/// More than this says nothing that the first ones don't.
const MAX_PROBLEMS: usize = 100;

/// Characters of a text of which only both ends are told when it is longer: it quotes what somebody wrote.
const LONGEST: usize = 400;

/// The text, or its two ends.
fn shortened(text: String) -> String {
    let count = text.chars().count();
    if count <= LONGEST {
        return text;
    }
    let first: String = text.chars().take(LONGEST / 2).collect();
    let last: String = text.chars().skip(count - LONGEST / 4).collect();
    format!("{first} … {last}")
}

/// Where a reading collects what it finds.
pub struct Findings {
    file: String,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// What is allowed but probably not meant.
    pub warnings: Vec<Problem>,
    /// Keys that a misspelt one most likely meant: they are not missed a second time.
    excused: Vec<String>,
    /// What a key is called here, and what others call it.
    other_words: &'static [(&'static str, &'static [&'static str])],
    /// The tables that are being read, from the outermost on.
    #[doc(hidden)]
    pub tables: Vec<Around>,
}

impl Findings {
    /// Nothing yet, in the file of this name.
    pub fn new(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            problems: Vec::new(),
            warnings: Vec::new(),
            excused: Vec::new(),
            other_words: &[],
            tables: Vec::new(),
        }
    }

    /// The same, which knows what others call a key: (our word, theirs). Ours may be a dotted path to a key of a table,
    /// or a line: KEY = VALUE.
    pub fn knowing(mut self, other_words: &'static [(&'static str, &'static [&'static str])]) -> Self {
        self.other_words = other_words;
        self
    }

    fn make(&self, at: &Place, what: String, remedy: String) -> Problem {
        let file = if at.set { "--set".to_owned() } else { self.file.clone() };
        Problem { file, line: at.line, key: at.key.to_string(), what: shortened(what), remedy }
    }
    fn push(&mut self, problem: Problem) {
        let problem = Problem { key: shortened(problem.key), ..problem };
        // Links that share a text are read more than once.
        if self.problems.len() < MAX_PROBLEMS && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// A problem with its place in figures and letters.
    pub fn raw(&mut self, line: Option<u32>, key: &str, what: String, remedy: String) {
        let what = shortened(what);
        let problem = Problem { file: self.file.clone(), line, key: key.to_owned(), what, remedy };
        self.push(problem);
    }
    /// A problem.
    pub fn problem(&mut self, at: &Place, what: impl Into<String>, remedy: impl Into<String>) {
        let problem = self.make(at, what.into(), remedy.into());
        self.push(problem);
    }
    /// A problem that leaves nothing to go on with.
    pub fn refuse<T>(&mut self, at: &Place, what: impl Into<String>, remedy: impl Into<String>) -> Option<T> {
        self.problem(at, what, remedy);
        None
    }
    /// A warning.
    pub fn warn(&mut self, at: &Place, what: impl Into<String>, remedy: impl Into<String>) {
        let warning = self.make(at, what.into(), remedy.into());
        if self.warnings.len() < MAX_PROBLEMS && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
    /// A key that has to be there and is not, unless it was there and already found wrong.
    pub fn missing(&mut self, table: &Place, key: &str, remedy: &str) {
        let at = table.below(key);
        let said = |k: &str| k == &*at.key;
        if !self.problems.iter().any(|p| said(&p.key)) && !self.excused.iter().any(|k| said(k)) {
            self.problem(&at, "missing", remedy);
        }
    }
    /// A missing key without which there is nothing to go on with.
    pub fn lack<T>(&mut self, table: &Place, key: &str, remedy: &str) -> Option<T> {
        self.missing(table, key, remedy);
        None
    }
    /// Whether something below this place was found wrong already.
    pub fn spoken_below(&self, at: &Place) -> bool {
        self.problems.iter().any(|p| p.key.strip_prefix(&*at.key).is_some_and(|rest| rest.starts_with('.')))
    }
    /// A key that a table of `T` has not.
    pub fn unknown_key<T: Declared>(&mut self, table: &Item, key: &str, item: &Item) {
        if self.problems.len() >= MAX_PROBLEMS {
            return;
        }
        let keys = T::keys();
        let remedy = Misplaced::of::<T>(table, key, item, &keys).remedy(self.other_words, &self.tables);
        let (remedy, meant) = remedy.unwrap_or_else(|| (self::remedy(None, &keys), String::new()));
        self.excused.push(table.at.below(&meant).key.to_string());
        self.problem(&item.at, "no such key", remedy);
    }
    /// A name that is not among those there are.
    pub fn unknown_name(&mut self, at: &Place, what: &str, name: &str, known: &[&str]) {
        if self.problems.len() >= MAX_PROBLEMS {
            return;
        }
        let near = nearest(name, known);
        self.problem(at, format!("no {what} is called {}", crate::tree::quoted(name)), remedy(near, known));
    }
}

/// The nearest known word, or some of those there are.
pub fn remedy(near: Option<&str>, known: &[&str]) -> String {
    match near {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if known.is_empty() => "there are none".into(),
        None => {
            let more = if known.len() > 30 { ", …" } else { "" };
            format!("there are: {}{more}", known.iter().take(30).copied().collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_wrote_is_quoted_to_a_bound_with_both_its_ends() {
        let mut findings = Findings::new("a.toml");
        for length in [0, LONGEST - 3, LONGEST - 2, LONGEST - 1, 5_000] {
            findings.raw(None, &length.to_string(), format!("<{}>", "ü".repeat(length)), String::new());
        }
        for (problem, whole) in findings.problems.iter().zip([true, true, true, false, false]) {
            let count = problem.what.chars().count();
            assert!(count <= LONGEST && problem.what.starts_with('<') && problem.what.ends_with('>'));
            assert_eq!(!problem.what.contains('…'), whole, "{count}");
        }
        assert_eq!(findings.problems.len(), 5);
    }
}
