//! The repository's scenarios, for all tests.

use std::path::{Path, PathBuf};
use steadycast_control::registry;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_owned).unwrap_or_default()
}

pub(crate) fn all() -> Vec<PathBuf> {
    let mut all: Vec<_> = [root().join("scenarios"), root().join("papers/scenarios")]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten())
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    all.sort();
    all
}

/// Returns the text with unknown controllers replaced by one of the registry.
pub(crate) fn known(text: &str) -> String {
    let mut text = text.to_owned();
    for name in ["asmp", "tfrc", "tfmcc"] {
        if registry::find(name).is_err() {
            text = text.replace(&format!("controller = \"{name}\""), "controller = \"fixed\"");
            let dropped = |line: &&str| !line.starts_with(&format!("params.{name}"));
            text = text.lines().filter(dropped).collect::<Vec<_>>().join("\n");
        }
    }
    text
}
