//! Computes a hash of each controller's sources, and a hash of all other sources of the Python module. The measurements
//! of a controller stay valid as long as both hashes are unchanged.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let crates = PathBuf::from("..");
    let control = crates.join("control/src");
    let registry = fs::read_to_string(control.join("registry.rs"))?;
    let modules = registered(&registry);
    let rest = rest(&crates, &control, &modules)?;
    let each: Vec<String> = modules.iter().map(|m| closure(&control, m, &modules)).collect::<io::Result<_>>()?;

    let source = format!(
        "/// Hash of everything but the controllers' files.\nconst REST: &str = {rest:?};\n\
         /// One hash per controller, in the registry's order. It includes the files of the controllers that it uses.\n\
         const EACH: [&str; {}] = {each:?};\n",
        each.len()
    );
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("sources.rs"), source)?;
    println!("cargo::rustc-env=BUILD={}", build()?);
    println!("cargo::rerun-if-changed=..");
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    Ok(())
}

/// Returns a text with the compiler's version and the optimization level. Counts of instructions are comparable only if
/// both are the same.
fn build() -> io::Result<String> {
    let said = Command::new(env::var_os("RUSTC").unwrap_or("rustc".into())).arg("--version").output()?.stdout;
    let level = env::var("OPT_LEVEL").unwrap_or_default();
    let text = format!("{}, opt-level {level}", String::from_utf8_lossy(&said).trim());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    // The parent of Cargo's folder `build` has the name of the profile. For the profile "dev", this name is "debug".
    let folder = out.ancestors().find(|part| part.ends_with("build")).and_then(Path::parent).and_then(Path::file_name);
    // Add the name of any other profile, because it can set other optimization levels for single crates.
    Ok(match folder.and_then(|name| name.to_str()) {
        None | Some("debug" | "release") => text,
        Some(profile) => format!("{text}, profile {profile}"),
    })
}

/// Returns the module of each controller, in the order of `registry::ALL`.
fn registered(registry: &str) -> Vec<String> {
    let list = registry.split("pub const ALL").nth(1).and_then(|s| s.split("];").next()).unwrap_or_default();
    let lines = list.lines().filter_map(|line| line.trim().strip_prefix('&')?.split_once("::"));
    lines.map(|(module, _)| module.to_owned()).collect()
}

/// Returns the hash of all compiled files that belong to no controller.
fn rest(crates: &Path, control: &Path, modules: &[String]) -> io::Result<String> {
    let own: BTreeSet<PathBuf> =
        modules.iter().flat_map(|m| [control.join(m), control.join(format!("{m}.rs"))]).collect();
    let mut files = vec![PathBuf::from("../../Cargo.lock")];
    for folder in sorted(crates)? {
        walk(&folder.join("src"), &mut files)?;
    }
    files.retain(|file| !file.ancestors().any(|part| own.contains(part)));
    hash(&files)
}

/// Returns the hash of a controller's files and of the files of all controllers that it uses.
fn closure(control: &Path, module: &str, modules: &[String]) -> io::Result<String> {
    let (mut found, mut open) = (BTreeSet::new(), vec![module.to_owned()]);
    while let Some(next) = open.pop() {
        let (file, folder) = (control.join(format!("{next}.rs")), control.join(&next));
        let mut files = Vec::new();
        walk(if file.exists() { &file } else { &folder }, &mut files)?;
        for file in files {
            let text = fs::read_to_string(&file)?;
            if found.insert(file) {
                open.extend(modules.iter().filter(|m| names(&text, m)).cloned());
            }
        }
    }
    hash(&found.into_iter().collect::<Vec<_>>())
}

/// Returns whether `text` refers to an item of `module`, in the form `module::…`.
fn names(text: &str, module: &str) -> bool {
    let path = format!("{module}::");
    text.match_indices(&path).any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Adds to `files` all files in the folder `place`, in order. If `place` is a file, adds it. Adds nothing if `place`
/// does not exist.
fn walk(place: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if place.is_dir() {
        for entry in sorted(place)? {
            walk(&entry, files)?;
        }
    } else if place.is_file() {
        files.push(place.to_owned());
    }
    Ok(())
}

fn sorted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = fs::read_dir(folder)?.map(|e| Ok(e?.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

/// Returns a hash of the names and the contents of files. The hash may change with the compiler's version, because
/// `DefaultHasher` may change.
fn hash(files: &[PathBuf]) -> io::Result<String> {
    let mut hasher = DefaultHasher::new();
    for file in files {
        hasher.write(file.to_string_lossy().as_bytes());
        hasher.write_u8(0);
        let bytes = fs::read(file)?;
        hasher.write_usize(bytes.len());
        hasher.write(&bytes);
    }
    Ok(format!("{:016x}", hasher.finish()))
}
