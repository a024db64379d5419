// There is no code here: see Cargo.toml.
