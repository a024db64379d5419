//! Problems in the text of a scenario. Each problem has a place and a remedy.

use crate::misplaced::{Around, Misplaced};
use crate::tree::{Item, Place};
use crate::{Declared, nearest};
use std::fmt;

/// A problem with its place and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file's name as the user gave it. It is `--set` if the command line caused the problem.
    pub file: String,
    /// The line number, which starts at 1. It is `None` if the problem has no line, for example in JSON or `--set`.
    pub line: Option<u32>,
    /// The key's path, for example `flow.video.controller`. It is empty if the text can't be parsed at all.
    pub key: String,
    /// The problem in words.
    pub what: String,
    /// The remedy in words.
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

/// All problems of a scenario, sorted by line. The list is never empty.
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

/// Maximum number of problems that are collected. More problems would not help the user to correct the file.
const MAX_PROBLEMS: usize = 100;

/// Maximum length of a quotation in characters. Longer texts are cut in the middle.
const LONGEST: usize = 400;

fn shortened(text: String) -> String {
    let count = text.chars().count();
    if count <= LONGEST {
        return text;
    }
    let first: String = text.chars().take(LONGEST / 2).collect();
    let last: String = text.chars().skip(count - LONGEST / 4).collect();
    format!("{first} … {last}")
}

/// Collects the problems and warnings that are found while a text is read.
pub struct Findings {
    file: String,
    /// The problems. A text with problems is invalid.
    pub problems: Vec<Problem>,
    /// The warnings about settings that are valid but probably not intended.
    pub warnings: Vec<Problem>,
    /// Paths of keys that a remedy already suggests. They are not reported as missing.
    excused: Vec<String>,
    /// The names that other programs use for keys. Each entry is our key and a list of the other names.
    other_words: &'static [(&'static str, &'static [&'static str])],
    /// The tables that are being read, from the outermost to the innermost.
    #[doc(hidden)]
    pub tables: Vec<Around>,
}

impl Findings {
    /// Returns an empty collection for the file `file`.
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

    /// Sets the names that other programs use for keys. Each entry is our key and a list of the other names. In place
    /// of our key, there may be a dotted path or a line `KEY = VALUE`.
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
        // The same problem can be found twice, because an entry that declares several links is read once for each link.
        if self.problems.len() < MAX_PROBLEMS && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Adds a problem. Its place is given by its line and the path of its key.
    pub fn raw(&mut self, line: Option<u32>, key: &str, what: String, remedy: String) {
        let what = shortened(what);
        let problem = Problem { file: self.file.clone(), line, key: key.to_owned(), what, remedy };
        self.push(problem);
    }
    /// Adds a problem at the place `at`.
    pub fn problem(&mut self, at: &Place, what: impl Into<String>, remedy: impl Into<String>) {
        let problem = self.make(at, what.into(), remedy.into());
        self.push(problem);
    }
    /// Adds a problem and returns `None`, because the value can't be used.
    pub fn refuse<T>(&mut self, at: &Place, what: impl Into<String>, remedy: impl Into<String>) -> Option<T> {
        self.problem(at, what, remedy);
        None
    }
    /// Adds a warning at the place `at`.
    pub fn warn(&mut self, at: &Place, what: impl Into<String>, remedy: impl Into<String>) {
        let warning = self.make(at, what.into(), remedy.into());
        if self.warnings.len() < MAX_PROBLEMS && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
    /// Reports that `key` is missing in `table`. Does nothing if a problem with this key was already reported, or if
    /// the remedy of another problem suggests this key.
    pub fn missing(&mut self, table: &Place, key: &str, remedy: &str) {
        let at = table.below(key);
        let is_reported = |k: &str| k == &*at.key;
        if !self.problems.iter().any(|p| is_reported(&p.key)) && !self.excused.iter().any(|k| is_reported(k)) {
            self.problem(&at, "missing", remedy);
        }
    }
    /// Reports that `key` is missing in `table`, and returns `None`.
    pub fn lack<T>(&mut self, table: &Place, key: &str, remedy: &str) -> Option<T> {
        self.missing(table, key, remedy);
        None
    }
    /// Returns whether a problem was reported for a key below this place.
    pub fn spoken_below(&self, at: &Place) -> bool {
        self.problems.iter().any(|p| p.key.strip_prefix(&*at.key).is_some_and(|rest| rest.starts_with('.')))
    }
    /// Reports a key that tables of the type `T` do not have.
    pub fn unknown_key<T: Declared>(&mut self, table: &Item, key: &str, item: &Item) {
        // Return early if the list is full, because finding a remedy is slow: it reads whole schemas.
        if self.problems.len() >= MAX_PROBLEMS {
            return;
        }
        let keys = T::keys();
        let misplaced = Misplaced::of::<T>(table, key, item, &keys);
        let remedy = misplaced.remedy(self.other_words, &self.tables);
        let (remedy, meant) = remedy.unwrap_or_else(|| (misplaced.list(&self.tables), String::new()));
        self.excused.push(table.at.below(&meant).key.to_string());
        self.problem(&item.at, "no such key", remedy);
    }
    /// Reports that `name` is not one of the `known` names. `what` is a noun for the thing that the name refers to.
    pub fn unknown_name(&mut self, at: &Place, what: &str, name: &str, known: &[&str]) {
        if self.problems.len() >= MAX_PROBLEMS {
            return;
        }
        let near = nearest(name, known);
        self.problem(at, format!("no {what} is called {}", crate::tree::quoted(name)), remedy(near, known));
    }
}

/// Returns a remedy. It suggests the word `near` if there is one, or else lists some of the `known` words.
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
