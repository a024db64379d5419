use crate::client::{Client, EPOCH, Version, address, certificate, credentials};
use crate::world::{CLIENT, SERVER, World, ends, rough};
use proptest::prelude::*;
use steadycast_link::Config;
use steadycast_units::{Seed, Span, Time};
use steadycast_web::{Output, PATIENCE, Protocol, SILENCE, State, Tunnel};

fn at(ms: u64) -> Time {
    Time::ZERO + Span::millis(ms)
}

/// The bound was that each of eight runs connects within 5 s; one took longer. Both ends double their waits, and a
/// flight of several datagrams arrives whole in half of the tries: of 60 runs 57 connected within 5 s, and all within
/// 15 s. With a probability of 0.05 for each, five of twelve take longer in one of 5,000 cases.
#[test]
fn at_a_loss_of_a_fifth_both_have_the_same_keys_within_seconds() {
    let mut soon = 0;
    for seed in 0..12 {
        let version = [Version::V12, Version::V13, Version::Either][seed as usize % 3];
        let mut world = World::honest(version, &rough(0.2), Seed(seed));
        world.run(at(5_000), World::connected);
        if world.connected() {
            soon += 1;
            assert_eq!(world.keys(), world.client.keys.as_ref());
            assert_eq!(world.tunnel.peer(), Some(address(CLIENT)));
        }
    }
    assert!(soon >= 8, "{soon}");
}

#[test]
fn a_browser_that_moves_is_followed_and_one_that_is_heard_stays() {
    let mut world = World::honest(Version::V13, &rough(0.0), Seed(1));
    world.run(at(3_000), World::connected);
    let moved = address("198.51.100.8:50001");
    world.client.moved(moved);
    let from = world.now;
    world.run(from + Span::secs(5), |world| world.tunnel.peer() == Some(moved));
    assert_eq!(world.tunnel.peer(), Some(moved));
    assert_eq!(world.said.last(), Some(&Output::Peer(moved)));
    // Its checks come again from where somebody would have its media sent to, and its reports from where it is.
    let stranger = address("203.0.113.9:9");
    let check = world.sent.iter().rfind(|(from, bytes)| *from == moved && Protocol::of(bytes) == Protocol::Stun);
    let check = check.unwrap().1.clone();
    for ms in (0..3_000).step_by(100) {
        let now = world.now + Span::millis(ms);
        world.tunnel.on_heard(now, moved);
        world.tunnel.on_datagram(now, stranger, &check);
    }
    assert_eq!(world.tunnel.peer(), Some(moved));
}

/// What ends without keys, and why.
fn refused(ends: steadycast_web::Ends, client: Client) -> World {
    let mut world = World::new(ends, client, &rough(0.0), Seed(1));
    world.run(at(20_000), |world| world.tunnel.state() == State::Ended);
    assert_eq!(world.tunnel.state(), State::Ended);
    assert_eq!(world.keys(), None);
    world
}

#[test]
fn checks_with_a_wrong_password_are_not_answered_and_the_tunnel_ends_after_its_patience() {
    let client = Client::new(address(CLIENT), address(SERVER), 2, &credentials(9), Version::Either);
    let world = refused(ends(2), client);
    assert_eq!((world.answered.len(), world.now), (0, Time::ZERO + PATIENCE));
    assert!(world.tunnel.refused() > 3);
    let why = "no check from the browser: is UDP port 40000 of 192.0.2.1 reachable from there?";
    assert_eq!(world.tunnel.why(), Some(why));
}

#[test]
fn a_certificate_that_the_offer_does_not_name_gets_no_keys() {
    for version in [Version::V12, Version::V13] {
        let client = Client::new(address(CLIENT), address(SERVER), 2, &credentials(1), version);
        let fingerprints = vec![certificate(3).fingerprint];
        let world = refused(steadycast_web::Ends { fingerprints, ..ends(2) }, client);
        assert_eq!(world.tunnel.why(), Some("the browser's certificate is not the one of its offer"));
    }
}

#[test]
fn what_was_recorded_of_another_session_opens_none() {
    let mut first = World::honest(Version::V12, &Config::default(), Seed(1));
    first.run(at(3_000), World::connected);
    // All of it again, against a tunnel of other credentials: not a byte comes back.
    let own = credentials(4);
    let other = steadycast_web::Ends { own, ..ends(2) };
    let mut tunnel = Tunnel::new(*EPOCH, Time::ZERO, other, &certificate(1)).unwrap();
    for (from, bytes) in &first.sent {
        tunnel.on_datagram(at(1), *from, bytes);
    }
    assert_eq!((tunnel.poll(), tunnel.refused()), (None, first.sent.len() as u64));
    // And against one that the same checks open: its cookie and its own random bytes are new.
    let mut again = World::honest(Version::V12, &Config::default(), Seed(2));
    for (from, bytes) in &first.sent {
        again.tunnel.on_datagram(at(1), *from, bytes);
        again.settle();
    }
    assert_eq!((again.tunnel.state() == State::Connected, again.keys()), (false, None));
}

#[test]
fn a_browser_that_checks_no_more_has_ended_after_its_silence() {
    let mut world = World::honest(Version::V13, &Config::default(), Seed(1));
    world.run(at(3_000), World::connected);
    let last = world.now;
    world.tunnel.on_wake(last + SILENCE + Span::secs(1));
    assert_eq!(world.tunnel.why(), Some("the browser has been silent for 30 s"));
    assert_eq!((world.tunnel.state(), world.tunnel.wake()), (State::Ended, Time::NEVER));
}

#[test]
fn an_end_here_is_told_to_the_browser_and_one_there_to_us() {
    for version in [Version::V12, Version::V13] {
        let mut world = World::honest(version, &Config::default(), Seed(1));
        world.run(at(3_000), World::connected);
        world.tunnel.close(world.now);
        world.settle();
        world.run(at(3_500), |world| world.client.closed);
        assert!(world.client.closed);
        assert_eq!((world.tunnel.state(), world.tunnel.why()), (State::Ended, None));

        let mut world = World::honest(version, &Config::default(), Seed(1));
        world.run(at(3_000), World::connected);
        world.client.dtls.close().unwrap();
        world.run(at(10_000), |world| world.tunnel.state() == State::Ended);
        assert_eq!((world.tunnel.state(), world.tunnel.why()), (State::Ended, None));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_byte_leaves_for_whoever_has_not_sent_a_right_check(
        datagrams in prop::collection::vec((0u8..64, prop::collection::vec(any::<u8>(), 0..80)), 1..20),
    ) {
        let mut tunnel = Tunnel::new(*EPOCH, Time::ZERO, ends(2), &certificate(1)).unwrap();
        let count = datagrams.len() as u64;
        for (first, rest) in datagrams {
            let bytes: Vec<u8> = [first].into_iter().chain(rest).collect();
            tunnel.on_datagram(at(1), address(CLIENT), &bytes);
            prop_assert_eq!(tunnel.poll(), None);
        }
        prop_assert_eq!((tunnel.refused(), tunnel.state()), (count, State::Checking));
    }
}
