//! A controller that a program registers runs in a scenario like a built-in one.

#[path = "../../examples/own.rs"]
mod example;

#[test]
fn a_registered_controller_and_tcp_fill_the_link_and_neither_starves() {
    let got = example::run().expect("its scenario is in order");
    let names: Vec<_> = got.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["video", "tcp"]);
    // Together at least nine tenths of 2 Mb/s, and each flow a tenth.
    let all: f64 = got.iter().map(|(_, bps)| bps).sum();
    assert!((1.8e6..=2.0e6).contains(&all), "{got:?}");
    assert!(got.iter().all(|(_, bps)| (0.2e6..=1.8e6).contains(bps)), "{got:?}");
}
