//! Reads a scenario from a file, a text or JSON, and applies the keys that the command line sets.

use crate::Scenario;
use crate::file::{File, LinkExtra, OTHER_WORDS, Spec};
use crate::named::Named;
use crate::network::{Files, Layout};
use crate::tree::{self, give_paths};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use steadycast_control::registry::Registry;
use steadycast_settings::tree::{Item, MAX_TEXT, Value, from_json, from_toml};
use steadycast_settings::{Findings, FromToml, Problem, Problems};

/// A parsed but unchecked scenario, whose keys can still be set.
#[derive(Clone, Debug)]
pub struct Document {
    root: Item,
    file: String,
    folder: PathBuf,
    title: String,
    hash: Sha256,
    networks: Option<PathBuf>,
}

/// A checked scenario, together with its warnings, and the hash and folder of its source.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The scenario.
    pub scenario: Scenario,
    /// Settings that are valid but probably not intended.
    pub warnings: Vec<Problem>,
    /// SHA-256 of the text and of all later assignments ([`Document::set`]), in hexadecimal.
    pub sha256: String,
    /// The file's name as the caller gave it.
    pub file: String,
    pub(crate) root: Item,
    pub(crate) tables: File,
    pub(crate) layout: Layout,
    /// The folder to which paths in the scenario, including `file.py:Class`, are relative.
    pub folder: PathBuf,
}

impl Document {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// The file can't be read, or is not TOML.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        match text_of(path) {
            Ok(text) => Self::parse(&text, path),
            Err((line, what, remedy)) => {
                let mut out = Findings::new(&path.display().to_string());
                out.raw(line, "", what, remedy.into());
                Err(Problems(out.problems))
            }
        }
    }

    /// Parses a text. Relative paths in it start in the folder of the file `origin`, which need not exist.
    ///
    /// # Errors
    /// The text is not TOML.
    pub fn parse(text: &str, origin: &Path) -> Result<Self, Problems> {
        let mut out = Findings::new(&origin.display().to_string()).knowing(OTHER_WORDS);
        let root = from_toml(text, &mut out);
        Self::of(root, text.as_bytes(), origin, out)
    }

    /// Reads a document from JSON that has the same keys as a TOML file. Problems then contain the key, but no line.
    ///
    /// # Errors
    /// The value is nested too deeply.
    pub fn from_json(json: &serde_json::Value, origin: &Path) -> Result<Self, Problems> {
        let mut out = Findings::new(&origin.display().to_string()).knowing(OTHER_WORDS);
        let root = from_json(json, 0, &mut out);
        let text = if out.problems.is_empty() { json.to_string() } else { String::new() };
        Self::of(root, text.as_bytes(), origin, out)
    }

    fn of(root: Item, text: &[u8], origin: &Path, out: Findings) -> Result<Self, Problems> {
        if !out.problems.is_empty() {
            return Err(Problems(out.problems));
        }
        let mut read = Self::of_tree(root, origin);
        read.hash.update(text);
        Ok(read)
    }

    /// Creates a document from a tree. `origin` is the path of the tree's file, which need not exist.
    pub(crate) fn of_tree(root: Item, origin: &Path) -> Self {
        let absolute = std::path::absolute(origin).unwrap_or_else(|_| origin.to_owned());
        let title: String = origin
            .file_stem()
            .map(|s| s.to_string_lossy().to_lowercase())
            .unwrap_or_default()
            .chars()
            .filter(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-')
            .collect();
        // `Pattern::read` accepts at most 80 characters, and no hyphen at the beginning or the end.
        let title = title.trim_matches('-').chars().take(80).collect::<String>();
        Self {
            root,
            file: origin.display().to_string(),
            folder: absolute.parent().map(Path::to_owned).unwrap_or_default(),
            title: if title.is_empty() { "scenario".into() } else { title },
            hash: Sha256::new(),
            networks: None,
        }
    }

    /// Sets the folder of the network files that `network = "NAME"` refers to.
    pub fn with_networks(mut self, folder: &Path) -> Self {
        self.networks = Some(folder.to_owned());
        self
    }

    /// Sets a key. `assignment` is `flow.NAME.KEY=VALUE`, `link.NAME.KEY=VALUE`, `topology.KEY=VALUE`, or a top-level
    /// key with its value. VALUE is parsed as TOML. If that fails, it is taken as a string. With the key `clip`, all
    /// videos play this clip.
    ///
    /// In NAME, `*` matches any text. If a name contains a range, such as `tcp-[1-3]`, NAME can leave out the range and
    /// the hyphen before it: `tcp`.
    ///
    /// # Errors
    /// No such flow or link exists, or the path is not valid. [`Document::check`] reports wrong keys and values.
    pub fn set(&mut self, assignment: &str) -> Result<(), Problem> {
        let keys = [Spec::KEYS, LinkExtra::KEYS].concat();
        tree::set(&mut self.root, assignment, &self.folder, &keys)?;
        // Separate the assignments in the hash, so that two assignments and their concatenation have different hashes.
        self.hash.update(b"\0");
        self.hash.update(assignment.as_bytes());
        Ok(())
    }

    /// Checks and resolves the document.
    ///
    /// # Errors
    /// Returns all problems, not only the first one.
    pub fn check(self) -> Result<Loaded, Problems> {
        self.check_with(Registry::default())
    }

    /// Like [`Document::check`], but looks up the flows' controllers in `registry`.
    ///
    /// # Errors
    /// Returns all problems, not only the first one.
    pub fn check_with(mut self, registry: Registry) -> Result<Loaded, Problems> {
        let mut out = Findings::new(&self.file).knowing(OTHER_WORDS);
        give_paths(&mut self.root, "");
        let named = self.root.get("network").cloned();
        if let Some(network) = named.and_then(|n| Named::read(&n, &self.folder, self.networks.as_deref(), &mut out)) {
            self.hash.update(b"\0");
            self.hash.update(network.text.as_bytes());
            network.below(&mut self.root, &mut out);
        }
        // Stop if the network could not be read. Otherwise each reference to its nodes and links would add another
        // problem.
        if !out.problems.is_empty() {
            return Err(Problems(out.problems));
        }
        // Set the paths again, because the network has added flows and events without paths.
        give_paths(&mut self.root, "");
        let mut files = Files::new(&self.folder, registry);
        let tables = File::read(&self.root, &mut out);
        let Some(tables) = tables else { return Err(Problems(out.problems)) };
        let (scenario, layout) = crate::resolve::resolve(&tables, &self.title, &mut files, &mut out);
        // Sort problems by their line in the file. Problems without a line come last.
        out.problems.sort_by_key(|p| (p.line.is_none(), p.line));
        if !out.problems.is_empty() {
            return Err(Problems(out.problems));
        }
        let sha256 = self.hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        Ok(Loaded {
            scenario,
            warnings: out.warnings,
            sha256,
            file: self.file,
            root: self.root,
            tables,
            layout,
            folder: self.folder,
        })
    }
}

/// Returns a file's text, or the line, problem and remedy if it can't be read.
pub(crate) fn text_of(path: &Path) -> Result<String, (Option<u32>, String, &'static str)> {
    let other = |what| (None, what, "name a scenario file, for example scenarios/home.toml");
    let unread = |error: std::io::Error| other(format!("can't be read ({})", error.kind()));
    let meta = std::fs::metadata(path).map_err(unread)?;
    if !meta.is_file() {
        return Err(other("is not a file".into()));
    }
    if meta.len() > MAX_TEXT as u64 {
        return Err((None, format!("has {} bytes", meta.len()), "a scenario has at most 4 MiB"));
    }
    String::from_utf8(std::fs::read(path).map_err(unread)?).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        // Report the line of the first invalid byte.
        let line = error.as_bytes()[..good].iter().filter(|b| **b == b'\n').count() as u32 + 1;
        (Some(line), "not a text in UTF-8".into(), "save it as UTF-8")
    })
}

impl Scenario {
    /// Reads, checks and resolves the file at `path`.
    ///
    /// # Errors
    /// Returns all problems, not only the first one.
    pub fn read(path: &Path) -> Result<Loaded, Problems> {
        Document::read(path)?.check()
    }

    /// Parses, checks and resolves a text. Relative paths in it start in the folder of the file `origin`, which need
    /// not exist.
    ///
    /// # Errors
    /// Returns all problems, not only the first one.
    pub fn parse(text: &str, origin: &Path) -> Result<Loaded, Problems> {
        Document::parse(text, origin)?.check()
    }

    /// Checks and resolves a scenario from JSON that has the same keys as a TOML file.
    ///
    /// # Errors
    /// Returns all problems, not only the first one.
    pub fn from_json(json: &serde_json::Value, origin: &Path) -> Result<Loaded, Problems> {
        Document::from_json(json, origin)?.check()
    }
}

impl Loaded {
    /// Returns the line of each key, for error messages. The line is `None` if the key comes from JSON or from `set`.
    pub fn places(&self) -> BTreeMap<String, Option<u32>> {
        fn walk(item: &Item, all: &mut BTreeMap<String, Option<u32>>) {
            all.entry(item.at.key.to_string()).or_insert(item.at.line);
            match &item.value {
                Value::List(list) => list.iter().for_each(|i| walk(i, all)),
                Value::Table(table) => table.iter().for_each(|(_, i)| walk(i, all)),
                _ => {}
            }
        }
        let mut all = BTreeMap::new();
        walk(&self.root, &mut all);
        // Remove the root, because it is not a key.
        all.remove("");
        all
    }

    /// Returns a problem at the key `path` of this scenario. The problem contains the key's line if the line is known.
    pub fn problem(&self, path: &str, what: &str, remedy: &str) -> Problem {
        let line = self.places().get(path).copied().flatten();
        Problem { file: self.file.clone(), line, key: path.to_owned(), what: what.into(), remedy: remedy.into() }
    }
}
