//! Generates `crates/capi/include/steadycast.h` from the library's source: `cargo run` in this folder.

use std::error::Error;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(fs::write(here.join(HEADER), made(here)?)?)
}

const HEADER: &str = "../../crates/capi/include/steadycast.h";

fn made(here: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_config(cbindgen::Config::from_file(here.join("cbindgen.toml"))?)
        .with_src(here.join("../../crates/capi/src/lib.rs"))
        .generate()?
        .write(&mut made);
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_the_one_that_the_source_makes() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let stands = fs::read(here.join(HEADER)).expect("the header stands there");
        assert!(stands == made(here).expect("the source is read"), "it is stale: `cargo run` in integrations/c");
    }
}
