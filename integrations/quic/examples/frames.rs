//! Sends frames as streams over a link of 5 Mb/s with a queue of 500 ms, in virtual time: `cargo run --example frames`.

#[path = "../tests/world/mod.rs"]
mod world;

use steadycast_quic::Decision;
use world::{LONG, LOSSY, Noq, Outcome, Quinn, over};

fn main() {
    let each = |decision: &Decision| println!("  {}  {}", decision.target, decision.why.rule);
    println!("noq, 5 Mb/s:");
    let noq = over::<Noq>(&LONG, 1, each);
    println!("quinn, 5 Mb/s:");
    let quinn = over::<Quinn>(&LONG, 1, each);
    for (who, Outcome { bps, delay, lost }) in
        [("noq", noq), ("quinn", quinn), ("noq, 2 Mb/s that loses 1 %", over::<Noq>(&LOSSY, 1, |_| ()))]
    {
        println!("{who}: {:.2} Mb/s in frames, {delay:.0?} for 95 of 100, {lost} packets lost", bps / 1e6);
    }
}
