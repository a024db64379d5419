//! Runs the parsers on the inputs that fuzzing has found.

#[path = "../../../fuzz/src/targets.rs"]
#[allow(unreachable_pub, clippy::type_complexity, reason = "public for the fuzzers")]
mod targets;

use std::path::Path;

#[test]
fn the_parsers_survive_the_fuzzing_corpora() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in targets::TARGETS {
        let folder = corpus.join(name);
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let mut inputs: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "{name}");
        for path in inputs {
            let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let outcome = std::panic::catch_unwind(|| target(&bytes));
            assert!(outcome.is_ok(), "{}", path.display());
        }
    }
}
