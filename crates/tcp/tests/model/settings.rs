use steadycast_settings::{Declared, Findings, Settings, tree};
use steadycast_tcp::{Ack, Block, Config, ConfigError, Congestion, Hystart, Poll, Preset, Receiver, Sender};
use steadycast_units::{Bytes, Span, Time};

/// Reads the keys of a flow.
fn read(text: &str) -> Result<Config, String> {
    let mut out = Findings::new("flow.toml");
    let config = Config::read(&tree::from_toml(text, &mut out), &mut out);
    let problems: Vec<_> = out.problems.iter().map(|p| p.what.clone()).collect();
    config.filter(|_| problems.is_empty()).ok_or_else(|| problems.join(", "))
}

fn written(config: &Config) -> String {
    config.table().iter().map(|(key, item)| format!("{key} = {}\n", item.value.to_toml())).collect()
}

#[test]
fn each_preset_is_valid_with_each_congestion_control_and_reads_back_as_it_was_written() {
    for preset in Preset::ALL {
        for congestion in Congestion::ALL {
            let config = Config::new(preset, congestion);
            assert_eq!(config.check(), Ok(()));
            let named = format!("preset = \"{}\"\ncongestion = \"{}\"", preset.word(), congestion.name());
            assert_eq!(read(&named).as_ref(), Ok(&config), "a preset without further keys is its defaults");
            assert_eq!(read(&written(&config)).as_ref(), Ok(&config), "{}", written(&config));
        }
    }
    assert_eq!(read(""), Ok(Config::new(Preset::Linux, Congestion::Cubic)));
    assert_eq!(read("preset = \"ns2\""), Ok(Config::new(Preset::Ns2, Congestion::Reno)));
}

#[test]
fn keys_override_the_preset_and_only_what_they_name() {
    let said = read(
        "preset = \"ns2\"\ncongestion = \"newreno\"\nwindow = \"7p\"\ninitial_window = \"3p\"\nmin_rto = \"1s\"\n\
         max_rto = \"9s\"\ninit_rto = \"2s\"\ntick = \"1ms\"\ndelayed_ack = true\nsack = true\ntimestamps = \
         true\necn = true",
    );
    let expected = Config {
        window: 7,
        initial_window: 3,
        min_rto: Span::secs(1),
        max_rto: Span::secs(9),
        init_rto: Span::secs(2),
        tick: Span::millis(1),
        delayed_ack: true,
        sack: true,
        timestamps: true,
        ecn: true,
        ..Config::new(Preset::Ns2, Congestion::NewReno)
    };
    assert_eq!(said, Ok(expected));
}

#[test]
fn hystart_is_cubics_and_can_be_switched_off_or_on() {
    let hystart = |text: &str| read(text).map(|config| config.hystart);
    assert_eq!(hystart(""), Ok(Hystart::Classic));
    assert_eq!(hystart("hystart = false"), Ok(Hystart::Off));
    assert_eq!(hystart("hystart = \"rfc9406\""), Ok(Hystart::PlusPlus));
    assert_eq!(hystart("congestion = \"newreno\""), Ok(Hystart::Off));
    assert_eq!(hystart("congestion = \"newreno\"\nhystart = true"), Ok(Hystart::Off));
    assert_eq!(hystart("preset = \"ns2\"\ncongestion = \"cubic\""), Ok(Hystart::Off));
    assert_eq!(hystart("preset = \"ns2\"\ncongestion = \"cubic\"\nhystart = true"), Ok(Hystart::Classic));
}

#[test]
fn a_kernels_own_congestion_control_is_read_and_not_modelled() {
    let config = read("congestion = \"bic\"").expect("a kernel may have it");
    assert_eq!(config.congestion, Congestion::Kernel("bic"));
    assert_eq!(config.check(), Err(ConfigError::NotModelled("bic")));
    assert_eq!(read("congestion = \"cubik\""), Err("no congestion control is called \"cubik\"".into()));
}

#[test]
fn keys_that_do_not_fit_together_are_refused() {
    assert_eq!(read("min_rto = \"200s\""), Err("min_rto is above max_rto, 120s".into()));
    assert_eq!(read("max_rto = \"100ms\""), Err("below min_rto 200ms or init_rto 1s".into()));
    assert_eq!(read("min_rto = \"0s\""), Err("a time of 0".into()));
    assert_eq!(read("window = \"0p\""), Err("0 packets is out of range".into()));
    assert!(read("congestion = \"sack\"\nsack = false").is_err());
}

#[test]
fn the_schema_has_the_keys_that_are_read_and_no_others() {
    let schema = Config::schema();
    let keys: Vec<_> = schema["properties"].as_object().expect("a table").keys().map(String::as_str).collect();
    let mut known = Config::names();
    known.sort_unstable();
    assert_eq!(keys, known);
    assert!(!keys.contains(&"restart_window"), "what only a preset says is no key");
}

#[test]
fn more_payload_than_can_be_numbered_is_refused() {
    let long = Config { bytes: Some(Bytes::new(u64::MAX)), ..Config::new(Preset::Ns2, Congestion::NewReno) };
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
    let ack = |sacks| Ack { next: 1, sacks, echo: Time::ZERO, ece: false, marks: 0 };
    let (none, two) = (ack([Block::default(); 3]), ack([block, block, Block::default()]));
    let ns2 = Config::new(Preset::Ns2, Congestion::Sack);
    assert_eq!((ns2.len_of(&none), ns2.len_of(&two)), (Bytes::new(40), Bytes::new(40)));
    let linux = Config::new(Preset::Linux, Congestion::Cubic);
    assert_eq!((linux.len_of(&none), linux.len_of(&two)), (Bytes::new(52), Bytes::new(72)));
}
