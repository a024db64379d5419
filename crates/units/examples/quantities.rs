//! Shows how amounts, rates and times are combined: `cargo run -p steadycast-units --example quantities`.

use steadycast_units::{Bytes, QuantityError, Rate, Seed, Span, Time};

fn main() -> Result<(), QuantityError> {
    let (packet, link): (Bytes, Rate) = (Bytes::new(1_200), "2Mbps".parse()?);
    let takes = packet.at(link);
    println!("{packet} take {takes} at {link}; in a second go {}", link.over(Span::secs(1)));
    assert_eq!(takes, Span::micros(4_800));
    assert_eq!(packet.per(takes), link);

    // The seed determines all random numbers, so they are the same on every machine. The program advances the time
    // itself and does not read a clock.
    let mut chance = Seed(7).part("arrivals");
    let mut now = Time::ZERO;
    for _ in 0..3 {
        now += Span::from_secs_f64(chance.exponential(0.1));
        println!("the next packet comes at {now}");
    }
    assert!(now > Time::ZERO && now < Time::ZERO + Span::secs(5));
    Ok(())
}
