//! The recipe of `scenarios/traces/lte-synthetic.mahi`.

use std::fmt::Write;
use std::path::Path;
use steadycast_units::Seed;

/// 30 s in steps of 100 ms: the rate's logarithm wanders around that of 3.3 Mb/s (4.5 Mb/s on average), with two fades.
fn recipe() -> String {
    let mut chance = Seed(36).part("lte-synthetic");
    let (mut wander, mut credit, mut text) = (0.0, 0.0, String::new());
    for ms in 0..30_000u32 {
        if ms % 100 == 0 {
            // An autoregressive step: forgets itself within about two seconds.
            wander = 0.95 * wander + 0.18 * (chance.unit() + chance.unit() + chance.unit() - 1.5) * 2.0;
        }
        let fade = (9_000..9_500).contains(&ms) || (21_000..21_500).contains(&ms);
        let mbps = if fade { 0.2 } else { (3.3 * libm::exp(wander)).clamp(1.0, 12.0) };
        credit += mbps * 1e6 / 8.0 / 1000.0 / 1500.0;
        while credit >= 1.0 {
            credit -= 1.0;
            let _ = writeln!(text, "{}", ms + 1);
        }
    }
    // The last line is the period.
    text.push_str("30000\n");
    text
}

#[test]
fn the_synthetic_trace_is_what_its_recipe_makes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/traces/lte-synthetic.mahi");
    let made = recipe();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), made, "UPDATE_SNAPSHOTS=1 writes it");
    let mbps = made.lines().count() as f64 * 12_000.0 / 30.0 / 1e6;
    assert!((4.0..5.0).contains(&mbps), "{mbps} Mb/s on average");
}

#[test]
fn a_trace_may_begin_with_a_byte_order_mark_and_an_empty_one_is_said_to_be() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("traces");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("bom.mahi"), b"\xef\xbb\xbf10\n20\n").unwrap();
    std::fs::write(folder.join("empty.mahi"), b"").unwrap();
    let of = |trace: &str| {
        let text = format!(
            "duration = \"9s\"\n[topology]\nshape = \"dumbbell\"\nbottleneck = {{ trace = \"{trace}\" }}\n\
             [[flow]]\nname = \"c\"\nkind = \"cbr\"\nrate = \"1Mbps\"\n"
        );
        steadycast_scenario::Scenario::parse(&text, &folder.join("it.toml")).map(|loaded| loaded.scenario)
    };
    let rate = of("bom.mahi").unwrap().links.iter().filter_map(|link| link.forward.rate.mean()).min();
    assert_eq!(rate, Some(steadycast_units::Rate::bps(1_200_000)));
    let said = of("empty.mahi").unwrap_err().to_string();
    assert!(said.contains("the trace \"empty.mahi\" is empty; write it anew, or name another file"), "{said}");
}
