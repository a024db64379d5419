use steadycast_tcp::{Ack, Block, Config, ConfigError, Congestion, Poll, Preset, Receiver, Sender};
use steadycast_units::{Bytes, Span, Time};

#[test]
fn each_preset_is_valid_with_each_congestion_control_and_names_read_back() {
    for preset in Preset::ALL {
        assert_eq!(preset.name().parse(), Ok(preset));
        for congestion in Congestion::ALL {
            assert_eq!(congestion.to_string().parse(), Ok(congestion));
            assert_eq!(Config::new(preset, congestion).check(), Ok(()));
        }
    }
    assert_eq!(
        "bbr".parse::<Congestion>().unwrap_err().to_string(),
        "there is no congestion control “bbr”: use reno, newreno, sack or cubic"
    );
}

#[test]
fn what_does_not_fit_together_is_named() {
    let good = Config::new(Preset::Ns2, Congestion::NewReno);
    let wrong = |config: Config| config.check().unwrap_err().to_string();
    assert_eq!(
        wrong(Config { packet: Bytes::new(40), ..good.clone() }),
        "a packet of 40B has no room for payload behind 40B of headers"
    );
    assert_eq!(wrong(Config { window: 0, ..good.clone() }), "window is 0 segments: it must be 1 … 1048576");
    assert!(wrong(Config { min_rto: Span::secs(61), ..good.clone() }).contains("61s is longer than the maximum 60s"));
    let long = Config { bytes: Some(Bytes::new(u64::MAX)), ..good };
    assert_eq!(long.check(), Err(ConfigError::TooLong(Bytes::new(u64::MAX))));
}

#[test]
fn a_config_of_nonsense_makes_a_connection_that_works_within_bounds() {
    let config = Config {
        packet: Bytes::ZERO,
        header: Bytes::new(100),
        window: 0,
        initial_window: 0,
        initial_ssthresh: Some(0),
        bytes: Some(Bytes::new(3)),
        min_rto: Span::MAX,
        max_rto: Span::ZERO,
        tick: Span::MAX,
        tick_phase: Span::MAX,
        delayed_ack: true,
        delayed_ack_timeout: Span::ZERO,
        ..Config::new(Preset::Linux, Congestion::Cubic)
    };
    let (mut sender, mut receiver) = (Sender::new(&config), Receiver::new(&config));
    let mut now = Time::ZERO;
    let mut sent = 0;
    loop {
        now += Span::micros(1);
        match sender.poll(now) {
            Poll::Send(segment) => {
                sent += 1;
                let ack = receiver.on_segment(now, &segment).or_else(|| receiver.on_timer(now));
                sender.on_ack(now, &ack.expect("an acknowledgment"));
            }
            Poll::Wait { .. } => unreachable!("each segment is acknowledged at once"),
            Poll::Done => break,
        }
    }
    assert_eq!(sent, 4); // the SYN and three segments of one byte
}

#[test]
fn blocks_make_an_acknowledgment_longer_in_linux_and_not_in_ns2() {
    let block = Block { start: 3, end: 5 };
    let ack = |sacks| Ack { next: 1, sacks, echo: Time::ZERO, ece: false };
    let (none, two) = (ack([Block::default(); 3]), ack([block, block, Block::default()]));
    let ns2 = Config::new(Preset::Ns2, Congestion::Sack);
    assert_eq!((ns2.len_of(&none), ns2.len_of(&two)), (Bytes::new(40), Bytes::new(40)));
    let linux = Config::new(Preset::Linux, Congestion::Cubic);
    assert_eq!((linux.len_of(&none), linux.len_of(&two)), (Bytes::new(52), Bytes::new(72)));
}
