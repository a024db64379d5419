use crate::path::{Path, Run, at};
use std::fmt::Write as _;
use steadycast_tcp::{Config, Congestion, Preset};
use steadycast_units::{Rate, Span};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/table.txt");

/// 10 Mb/s, 44 ms of round trip, 60 s: a change of behaviour is a readable difference of this table.
fn table() -> String {
    let mut table = String::from(
        "variant        buffer  loss     kb/s  repeated  time-outs  recoveries  srtt/ms\n\
         --------------------------------------------------------------------------\n",
    );
    let variants = [
        ("ns2 reno", Preset::Ns2, Congestion::Reno),
        ("ns2 newreno", Preset::Ns2, Congestion::NewReno),
        ("ns2 sack", Preset::Ns2, Congestion::Sack),
        ("ns2 cubic", Preset::Ns2, Congestion::Cubic),
        ("ns2old newreno", Preset::Ns2Old, Congestion::NewReno),
        ("linux newreno", Preset::Linux, Congestion::NewReno),
        ("linux cubic", Preset::Linux, Congestion::Cubic),
    ];
    for (name, preset, congestion) in variants {
        for buffer in [10, 50, 200] {
            for loss in [0.0, 0.001, 0.01, 0.03] {
                let mut config = Config::new(preset, congestion);
                config.window = config.window.max(400);
                config.sack |= congestion == Congestion::Cubic;
                let path = Path { loss, ..Path::new(Rate::mbps(10), Span::millis(22), buffer) };
                let mut run = Run::new(&config, &path).untraced();
                run.until(at(60.0));
                let sender = &run.sender;
                let kbps = run.receiver.distinct.as_f64() * 8.0 / 60.0 / 1e3;
                let srtt = sender.srtt().unwrap_or_default().as_millis_f64();
                let (again, timeouts, recoveries) = (sender.retransmitted, sender.timeouts, sender.fast_recoveries());
                writeln!(
                    table,
                    "{name:<14}  {buffer:>5} {loss:>5}  {kbps:>7.0}  {again:>8}  {timeouts:>9}  {recoveries:>10}  \
                     {srtt:>7.1}"
                )
                .expect("a string takes all");
            }
        }
    }
    table
}

#[test]
fn the_table_of_buffers_losses_and_variants_is_as_recorded() {
    let now = table();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(FILE, &now).expect("the table is written");
    }
    let recorded = std::fs::read_to_string(FILE).unwrap_or_default();
    let mut differences = String::new();
    for (old, new) in recorded.lines().zip(now.lines()).filter(|(old, new)| old != new) {
        write!(differences, "- {old}\n+ {new}\n").expect("a string takes all");
    }
    assert!(recorded == now, "{differences}\nUPDATE_SNAPSHOTS=1 cargo test -p steadycast-tcp records the new table");
}
