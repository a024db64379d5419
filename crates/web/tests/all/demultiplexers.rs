//! The demultiplexer of a shared port with generated datagrams.

use crate::client::credentials;
use is::stun::{StunMessage, TransId};
use is::{DefaultSha1HmacProvider, Sha1HmacProvider};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use steadycast_units::{Span, Time};
use steadycast_web::{Credentials, Demultiplexer, DropReason};

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 20] {
    DefaultSha1HmacProvider.sha1_hmac(key, parts)
}

/// Returns a check with this user name and password.
fn check(ufrag: &str, peer: &str, password: &str) -> Vec<u8> {
    let name = format!("{ufrag}:{peer}");
    let (message, mut bytes) = (StunMessage::binding_request(&name, TransId::new(), true, 1, 1, true), [0; 512]);
    let len = message.to_bytes(Some(password.as_bytes()), &mut bytes, hmac).unwrap();
    bytes[..len].to_vec()
}

/// Returns a valid check of the browser of a session.
fn valid(session: u8) -> Vec<u8> {
    let Credentials { ufrag, password } = credentials(session);
    check(&ufrag, &peer(session), &password)
}

/// Returns the user name of the browser of a session.
fn peer(session: u8) -> String {
    format!("browser{session}")
}

/// Returns a response, which has no user name.
fn response() -> Vec<u8> {
    let (message, mut bytes) = (StunMessage::binding_reply(TransId::new(), source(0)), [0; 128]);
    let len = message.to_bytes(Some(b"any"), &mut bytes, hmac).unwrap();
    bytes[..len].to_vec()
}

fn source(number: u32) -> SocketAddr {
    let ip = Ipv4Addr::from_bits(0x0a00_0000 + number / 100);
    (ip, 10_000 + (number % 100) as u16).into()
}

fn of(sessions: u8) -> Demultiplexer<u8> {
    let mut all = Demultiplexer::default();
    (0..sessions).for_each(|session| all.add(credentials(session), peer(session), session));
    all
}

fn at(ms: u64) -> Time {
    Time::ZERO + Span::millis(ms)
}

/// Datagrams that name no session.
const DTLS: [u8; 4] = [22, 254, 253, 0];
const RTCP: [u8; 8] = [0x80, 201, 0, 1, 0, 0, 0, 1];

/// The bindings by the rules of the module's documentation: address, session, time of the last valid check.
#[derive(Default)]
struct Model(Vec<(SocketAddr, u8, Time)>);

impl Model {
    fn owner(&self, from: SocketAddr) -> Option<(u8, Time)> {
        self.0.iter().find(|(address, ..)| *address == from).map(|(_, session, checked)| (*session, *checked))
    }

    fn check(&mut self, now: Time, from: SocketAddr, session: u8) -> Result<u8, DropReason> {
        if self.owner(from).is_some_and(|(owner, at)| owner != session && now.since(at) < Span::secs(10)) {
            return Err(DropReason::ForeignAddress);
        }
        self.0.retain(|(address, ..)| *address != from);
        self.0.push((from, session, now));
        let own = |(_, owner, _): &&(SocketAddr, u8, Time)| *owner == session;
        if self.0.iter().filter(own).count() > 4 {
            let oldest = self.0.iter().filter(own).min_by_key(|(_, _, at)| *at).unwrap().0;
            self.0.retain(|(address, ..)| *address != oldest);
        }
        Ok(session)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Browsers check from their own addresses and from each other's, strangers guess names and passwords, and all send
    /// DTLS, RTCP and responses from any address.
    #[test]
    fn a_datagram_reaches_the_session_that_a_valid_check_has_bound_its_address_to(
        sessions in 1u8..12,
        steps in prop::collection::vec((0u8..8, 0u8..16, 0u32..24, 1u64..4_000), 1..160),
    ) {
        let (mut all, mut model, mut now) = (of(sessions), Model::default(), Time::ZERO);
        let mut counts = BTreeMap::<DropReason, u64>::new();
        for (kind, session, number, later) in steps {
            now += Span::millis(later);
            let (session, from) = (session % sessions, source(number));
            let Credentials { ufrag, password } = credentials(session);
            let bound = |model: &Model| model.owner(from).map(|(owner, _)| owner).ok_or(DropReason::UnknownAddress);
            let (datagram, expected) = match kind {
                0 | 1 => (valid(session), model.check(now, from, session)),
                2 => (check(&ufrag, &peer(session), "another"), Err(DropReason::FailedIntegrity)),
                3 => (check(&ufrag, "another", &password), Err(DropReason::FailedIntegrity)),
                4 => (check("another", &peer(session), &password), Err(DropReason::UnknownUser)),
                5 => (DTLS.to_vec(), bound(&model)),
                6 => (RTCP.to_vec(), bound(&model)),
                _ => (response(), bound(&model)),
            };
            let found = all.route(now, from, &datagram).copied();
            prop_assert_eq!(found, expected, "{} of {} from {}", kind, session, number);
            if let Err(reason) = found {
                all.count(reason);
                *counts.entry(reason).or_default() += 1;
            }
            prop_assert_eq!(all.bound(), model.0.len());
        }
        for (reason, count) in all.dropped() {
            prop_assert_eq!(count, counts.get(&reason).copied().unwrap_or(0), "{}", reason.name());
        }
    }

    #[test]
    fn any_bytes_are_routed_or_counted_and_bind_nothing(
        datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 1..40),
        changes in prop::collection::vec((0usize..120, 1u8..=255), 1..40),
    ) {
        let mut all = of(3);
        for bytes in datagrams {
            prop_assert!(all.route(at(1), source(1), &bytes).is_err());
        }
        // A valid check with one changed byte is not valid.
        for (place, change) in changes {
            let mut bytes = valid(1);
            let place = place % bytes.len();
            bytes[place] ^= change;
            // The fingerprint at the end does not authenticate the message.
            if place < bytes.len() - 8 {
                prop_assert!(all.route(at(2), source(2), &bytes).is_err(), "byte {}", place);
            }
        }
        prop_assert_eq!(all.bound(), 0);
    }
}

#[test]
fn a_hundred_viewers_are_told_apart_and_each_may_move() {
    let mut all = of(100);
    for session in 0..100 {
        assert_eq!(all.route(at(1), source(session.into()), &valid(session)), Ok(&session));
    }
    for session in 0..100 {
        let moved = source(1_000 + u32::from(session));
        assert_eq!(all.route(at(2), moved, &DTLS), Err(DropReason::UnknownAddress));
        assert_eq!(all.route(at(2), moved, &valid(session)), Ok(&session));
        assert_eq!(all.route(at(3), moved, &RTCP), Ok(&session));
        // Packets that the browser sent before its move may still arrive.
        assert_eq!(all.route(at(3), source(session.into()), &RTCP), Ok(&session));
    }
    assert_eq!(all.bound(), 200);
    all.remove(&credentials(7).ufrag);
    assert_eq!((all.bound(), all.route(at(4), source(7), &RTCP)), (198, Err(DropReason::UnknownAddress)));
    assert_eq!(all.route(at(4), source(7), &valid(7)), Err(DropReason::UnknownUser));
}

#[test]
fn an_active_browser_keeps_its_address_and_one_that_died_loses_it() {
    let mut all = of(2);
    assert_eq!(all.route(at(0), source(1), &valid(0)), Ok(&0));
    for ms in (0..60_000).step_by(500) {
        if ms % 2_500 == 0 {
            assert_eq!(all.route(at(ms), source(1), &valid(0)), Ok(&0));
        }
        assert_eq!(all.route(at(ms), source(1), &valid(1)), Err(DropReason::ForeignAddress));
        assert_eq!(all.route(at(ms), source(1), &RTCP), Ok(&0));
    }
    assert_eq!(all.route(at(57_500 + 10_000), source(1), &valid(1)), Ok(&1));
    assert_eq!(all.route(at(70_000), source(1), &DTLS), Ok(&1));
}

#[test]
fn a_flood_is_counted_by_reason_and_leaves_memory_and_viewers_as_they_are() {
    let mut all = of(10);
    for session in 0..10 {
        all.route(at(1), source(session.into()), &valid(session)).unwrap();
    }
    let strange =
        [check("another", "x", "y"), check(&credentials(3).ufrag, &peer(3), "y"), DTLS.to_vec(), vec![99; 64]];
    for n in 0..100_000u32 {
        let datagram = &strange[n as usize % strange.len()];
        let reason = all.route(at(2), source(1_000 + n), datagram).unwrap_err();
        all.count(reason);
        let session = (n % 10) as u8;
        assert_eq!(all.route(at(2), source(session.into()), &RTCP), Ok(&session));
    }
    let counts: BTreeMap<&str, u64> = all.dropped().into_iter().map(|(reason, count)| (reason.name(), count)).collect();
    for reason in ["unknown_user", "failed_integrity", "unknown_address", "other_protocol"] {
        assert_eq!(counts[reason], 25_000, "{reason}");
    }
    assert_eq!((counts["foreign_address"], counts["full_queue"], all.bound()), (0, 0, 10));
}
