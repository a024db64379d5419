//! SRTP and SRTCP (RFC 3711) with AES-CM and HMAC-SHA1-80, and replay protection.
//!
//! Why our own hundred lines: the library that was looked at, `webrtc-srtp`, brings an asynchronous runtime and eighty
//! more crates to a program that has none. The ciphers are RustCrypto's; the vectors of RFC 3711, appendix B, are the
//! tests.

use crate::sdp::unbase64;
use aes::Aes128;
use ctr::Ctr128BE;
use ctr::cipher::{KeyIvInit, StreamCipher};
use hmac::{Hmac, Mac};
use sha1::Sha1;
use std::collections::BTreeMap;
use steadycast_units::Time;

/// Bytes that protection adds to an RTP packet.
pub const RTP_TAG: usize = 10;
const TAG: usize = RTP_TAG;
/// SRTCP's index with the flag that says "encrypted".
const INDEX: usize = 4;
const ENCRYPTED: u32 = 1 << 31;
/// Sources whose state is kept: each has shown that it knows the key.
const SOURCES: usize = 4_096;
/// Packets that may come after a later one (RFC 3711, 3.3.2 asks for at least 64).
const WINDOW: u64 = 128;

/// A stream's numbers may have wrapped fewer times than this before one joins. Packets of 1000 bytes wrap after nine
/// minutes at 1 Mb/s.
const WRAPS: u64 = 32;
/// How often they may wrap, at the most, while nothing comes.
const MISSED: u64 = 4;

/// A master key with its salt.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey {
    key: [u8; 16],
    salt: [u8; 14],
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

impl MasterKey {
    /// Of 30 bytes in base64, as `openssl rand -base64 30` writes them and RFC 4568 carries them. `None` for anything
    /// else.
    pub fn read(text: &str) -> Option<Self> {
        let bytes = unbase64(text.trim())?;
        let (key, salt) = bytes.split_first_chunk::<16>()?;
        Some(Self { key: *key, salt: salt.try_into().ok()? })
    }

    /// Session key number `label` (RFC 3711, 4.3.1, with a key derivation rate of zero).
    fn derive<const N: usize>(&self, label: u8) -> [u8; N] {
        let mut iv = [0; 16];
        iv[..14].copy_from_slice(&self.salt);
        iv[7] ^= label;
        let mut out = [0; N];
        Ctr128BE::<Aes128>::new(&self.key.into(), &iv.into()).apply_keystream(&mut out);
        out
    }
}

/// The session keys of RTP or of RTCP.
struct Keys {
    cipher: [u8; 16],
    salt: [u8; 14],
    auth: Hmac<Sha1>,
}

impl Keys {
    fn new(master: &MasterKey, first_label: u8) -> Self {
        let auth: [u8; 20] = master.derive(first_label + 1);
        // HMAC takes keys of any length.
        let auth = Hmac::<Sha1>::new_from_slice(&auth).unwrap_or_else(|_| unreachable!("HMAC takes any key"));
        Self { cipher: master.derive(first_label), salt: master.derive(first_label + 2), auth }
    }

    /// Encrypts or decrypts (RFC 3711, 4.1.1).
    fn crypt(&self, ssrc: u32, index: u64, data: &mut [u8]) {
        let mut iv = [0; 16];
        iv[..14].copy_from_slice(&self.salt);
        for (byte, with) in iv[4..8].iter_mut().zip(ssrc.to_be_bytes()) {
            *byte ^= with;
        }
        for (byte, with) in iv[8..14].iter_mut().zip(&index.to_be_bytes()[2..]) {
            *byte ^= with;
        }
        Ctr128BE::<Aes128>::new(&self.cipher.into(), &iv.into()).apply_keystream(data);
    }

    fn tag(&self, message: &[u8], more: &[u8]) -> [u8; TAG] {
        let whole = self.auth.clone().chain_update(message).chain_update(more).finalize().into_bytes();
        let mut tag = [0; TAG];
        tag.copy_from_slice(&whole[..TAG]);
        tag
    }

    fn is_tag(&self, message: &[u8], more: &[u8], tag: &[u8]) -> bool {
        // Compares in constant time.
        self.auth.clone().chain_update(message).chain_update(more).verify_truncated_left(tag).is_ok()
    }
}

/// Which packets have come, up to the newest.
#[derive(Clone, Copy, Default)]
struct Replay {
    newest: Option<u64>,
    seen: u128,
}

impl Replay {
    fn fresh(&self, index: u64) -> bool {
        match self.newest {
            None => true,
            Some(newest) if index > newest => true,
            Some(newest) => newest - index < WINDOW && self.seen >> (newest - index) & 1 == 0,
        }
    }

    fn mark(&mut self, index: u64) {
        let newest = self.newest.unwrap_or(index);
        if index >= newest {
            let ahead = index - newest;
            self.seen = if ahead < WINDOW { self.seen << ahead } else { 0 } | 1;
            self.newest = Some(index);
        } else {
            self.seen |= 1 << (newest - index);
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Source {
    rtp: Replay,
    rtcp: Replay,
}

/// Packets of which more than one index may be tried, in each second: whoever makes SSRCs up is not to keep an end
/// busy.
const GUESSED: u32 = 200;

/// How many were tried in a second that is counted from the clock's beginning.
#[derive(Default)]
struct Guessed {
    second: u64,
    packets: u32,
}

impl Guessed {
    fn may(&mut self, now: Time) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second {
            *self = Self { second, packets: 0 };
        }
        self.packets = self.packets.saturating_add(1);
        self.packets <= GUESSED
    }
}

/// Protects what leaves and opens what arrives, for one end of a session in which all share a master key.
pub struct Srtp {
    rtp: Keys,
    rtcp: Keys,
    sources: BTreeMap<u32, Source>,
    /// The sources whose media is opened; empty: all.
    described: Vec<u32>,
    /// Of what leaves, by SSRC: the extended number of the newest packet, and the next index of RTCP.
    sent: BTreeMap<u32, (u64, u32)>,
    scratch: Vec<u8>,
    guessed: Guessed,
    refused: u64,
}

/// The place at which an RTP packet's payload begins.
fn payload_at(packet: &[u8]) -> Option<usize> {
    let flags = *packet.first()?;
    let mut at = 12 + 4 * usize::from(flags & 0x0f);
    if flags & 0x10 != 0 {
        let words = packet.get(at + 2..at + 4)?;
        at += 4 + 4 * usize::from(u16::from_be_bytes([words[0], words[1]]));
    }
    (flags >> 6 == 2 && at <= packet.len()).then_some(at)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The number nearest to `near` with these 16 bits (RFC 3711, 3.3.1).
fn extend(seq: u16, near: u64) -> u64 {
    let ahead = i64::from(seq.wrapping_sub(near as u16) as i16);
    near.checked_add_signed(ahead).unwrap_or(u64::from(seq))
}

impl Srtp {
    /// With this key.
    pub fn new(master: &MasterKey) -> Self {
        let (sources, sent) = (BTreeMap::new(), BTreeMap::new());
        let (scratch, guessed, described) = (Vec::new(), Guessed::default(), Vec::new());
        let (rtp, rtcp) = (Keys::new(master, 0), Keys::new(master, 3));
        Self { rtp, rtcp, sources, described, sent, scratch, guessed, refused: 0 }
    }

    /// Opens media of these sources alone, unless there are none: each session has SSRCs of its own, and whoever
    /// recorded another one with this key need not know it to send all of that again.
    #[must_use]
    pub fn of_sources(self, described: Vec<u32>) -> Self {
        Self { described, ..self }
    }

    /// Datagrams that were not opened: of another key, changed on the way, or come for the second time.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Protects the RTP packet that stands in `bytes` from `start` on.
    pub fn protect_rtp(&mut self, bytes: &mut Vec<u8>, start: usize) {
        let packet = &mut bytes[start..];
        let (Some(at), Some(ssrc)) = (payload_at(packet), word(packet, 8)) else { return };
        let seq = u16::from_be_bytes([packet[2], packet[3]]);
        let (newest, _) = self.sent.entry(ssrc).or_insert((u64::from(seq), 0));
        let index = extend(seq, *newest);
        *newest = index.max(*newest);
        self.rtp.crypt(ssrc, index, &mut packet[at..]);
        let tag = self.rtp.tag(packet, &((index >> 16) as u32).to_be_bytes());
        bytes.extend_from_slice(&tag);
    }

    /// Protects the compound that stands in `bytes` from `start` on.
    pub fn protect_rtcp(&mut self, bytes: &mut Vec<u8>, start: usize) {
        let packet = &mut bytes[start..];
        let Some(ssrc) = word(packet, 4) else { return };
        let (_, next) = self.sent.entry(ssrc).or_insert((0, 0));
        let index = *next & !ENCRYPTED;
        *next = index + 1;
        self.rtcp.crypt(ssrc, u64::from(index), &mut packet[8..]);
        bytes.extend_from_slice(&(index | ENCRYPTED).to_be_bytes());
        let tag = self.rtcp.tag(&bytes[start..], &[]);
        bytes.extend_from_slice(&tag);
    }

    /// The RTP packet in a datagram; `None` when it is not to be believed.
    pub fn open_rtp(&mut self, now: Time, datagram: &[u8]) -> Option<&[u8]> {
        let opened = self.try_rtp(now, datagram);
        self.refused += u64::from(opened.is_none());
        opened.map(|()| self.scratch.as_slice())
    }

    fn try_rtp(&mut self, now: Time, datagram: &[u8]) -> Option<()> {
        let (packet, tag) = datagram.split_at_checked(datagram.len().checked_sub(TAG)?)?;
        let (at, ssrc) = (payload_at(packet)?, word(packet, 8)?);
        if !self.described.is_empty() && !self.described.contains(&ssrc) {
            return None;
        }
        let seq = u16::from_be_bytes([packet[2], packet[3]]);
        let known = self.sources.get(&ssrc).copied().unwrap_or_default();
        let right = |index: &u64| {
            known.rtp.fresh(*index) && self.rtp.is_tag(packet, &((index >> 16) as u32).to_be_bytes(), tag)
        };
        let nearest = known.rtp.newest.map(|newest| extend(seq, newest));
        // Nobody says how often the numbers have wrapped before one joined, or in a long outage: the tag tells which
        // guess is right.
        let (first, wraps) = nearest.map_or((seq.into(), 0..WRAPS), |nearest| (nearest, 1..MISSED + 1));
        let index = match nearest.filter(right) {
            Some(index) => index,
            None if self.guessed.may(now) => wraps.map(|wraps| first + (wraps << 16)).find(right)?,
            None => return None,
        };
        self.source(ssrc).rtp.mark(index);
        self.scratch.clear();
        self.scratch.extend_from_slice(packet);
        self.rtp.crypt(ssrc, index, &mut self.scratch[at..]);
        Some(())
    }

    /// The compound in a datagram; `None` when it is not to be believed.
    pub fn open_rtcp(&mut self, datagram: &[u8]) -> Option<&[u8]> {
        let opened = self.try_rtcp(datagram);
        self.refused += u64::from(opened.is_none());
        opened.map(|()| self.scratch.as_slice())
    }

    fn try_rtcp(&mut self, datagram: &[u8]) -> Option<()> {
        let (signed, tag) = datagram.split_at_checked(datagram.len().checked_sub(TAG)?)?;
        let (packet, index) = signed.split_at_checked(signed.len().checked_sub(INDEX)?)?;
        let (ssrc, flagged) = (word(packet, 4)?, word(index, 0)?);
        let index = u64::from(flagged & !ENCRYPTED);
        // What this end has sent itself is sent back to it by somebody who need not have the key. Another one with its
        // SSRC is heard as soon as it has sent more.
        let own = self.sent.get(&ssrc).is_some_and(|(_, next)| index < u64::from(*next));
        let known = self.sources.get(&ssrc).copied().unwrap_or_default();
        if own || !known.rtcp.fresh(index) || !self.rtcp.is_tag(signed, &[], tag) {
            return None;
        }
        self.source(ssrc).rtcp.mark(index);
        self.scratch.clear();
        self.scratch.extend_from_slice(packet);
        if flagged & ENCRYPTED != 0 {
            self.rtcp.crypt(ssrc, index, self.scratch.get_mut(8..)?);
        }
        Some(())
    }

    fn source(&mut self, ssrc: u32) -> &mut Source {
        if self.sources.len() >= SOURCES && !self.sources.contains_key(&ssrc) {
            self.sources.pop_first();
        }
        self.sources.entry(ssrc).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_units::Span;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        std::array::from_fn(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap())
    }

    /// RFC 3711, B.3.
    fn master() -> MasterKey {
        MasterKey { key: bytes("E1F97A0D3E018BE0D64FA32C06DE4139"), salt: bytes("0EC675AD498AFEEBB6960B3AABE6") }
    }

    #[test]
    fn session_keys_are_those_of_appendix_b3() {
        let master = master();
        assert_eq!(master.derive::<16>(0), bytes("C61E7A93744F39EE10734AFE3FF7A087"));
        assert_eq!(master.derive::<14>(2), bytes("30CBBC08863D8C85D49DB34A9AE1"));
        let auth = bytes::<20>("CEBE321F6FF7716B6FD4AB49AF256A156D38BAA4");
        assert_eq!(master.derive::<20>(1), auth);
    }

    #[test]
    fn the_key_stream_is_that_of_appendix_b2() {
        let auth = Hmac::<Sha1>::new_from_slice(&[0; 20]).unwrap();
        let (cipher, salt) = (bytes("2B7E151628AED2A6ABF7158809CF4F3C"), bytes("F0F1F2F3F4F5F6F7F8F9FAFBFCFD"));
        let keys = Keys { cipher, salt, auth };
        let mut stream = [0; 48];
        keys.crypt(0, 0, &mut stream);
        assert_eq!(stream[..16], bytes::<16>("E03EAD0935C95E80E166B16DD92B4EB4"));
        assert_eq!(stream[16..32], bytes::<16>("D23513162B02D0F72A43A2FE4A5F97AB"));
        assert_eq!(stream[32..], bytes::<16>("41E95B3BB0A2E8DD477901E4FCA894C0"));
    }

    fn rtp(seq: u16) -> Vec<u8> {
        let mut packet = vec![0x90, 96, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4, 0xbe, 0xde, 0, 1, 0x10, 7, 0, 0];
        packet[2..4].copy_from_slice(&seq.to_be_bytes());
        packet.extend_from_slice(b"payload");
        packet
    }

    #[test]
    fn what_is_protected_is_opened_once_across_the_wrap_and_out_of_order() {
        let (mut sender, mut receiver) = (Srtp::new(&master()), Srtp::new(&master()));
        let mut sent = Vec::new();
        for n in 0..200_000u32 {
            let mut bytes = rtp((n + 65_000) as u16);
            sender.protect_rtp(&mut bytes, 0);
            if n % 1_000 < 3 {
                assert_ne!(bytes[20..27], *b"payload");
                assert_eq!(bytes.len(), rtp(0).len() + RTP_TAG);
                sent.push(((n + 65_000) as u16, bytes));
            }
        }
        for three in sent.chunks(3) {
            for place in [0, 2, 1] {
                let (seq, packet) = &three[place];
                assert_eq!(receiver.open_rtp(Time::ZERO, packet), Some(rtp(*seq).as_slice()));
                assert_eq!(receiver.open_rtp(Time::ZERO, packet), None, "a replay");
            }
        }
        assert_eq!(receiver.open_rtp(Time::ZERO, &sent[0].1), None, "long ago");
    }

    #[test]
    fn media_of_a_source_that_is_not_described_is_not_opened_though_its_key_is_right() {
        let mut packet = rtp(9);
        Srtp::new(&master()).protect_rtp(&mut packet, 0);
        let opens = |described| Srtp::new(&master()).of_sources(described).open_rtp(Time::ZERO, &packet).is_some();
        assert_eq!([vec![], vec![7, 0x0102_0304], vec![7]].map(opens), [true, true, false]);
    }

    #[test]
    fn whoever_joins_after_the_numbers_have_wrapped_opens_what_comes() {
        let mut sender = Srtp::new(&master());
        let mut last = Vec::new();
        for n in 0..200_000u32 {
            last = rtp(n as u16);
            sender.protect_rtp(&mut last, 0);
        }
        assert_eq!(Srtp::new(&master()).open_rtp(Time::ZERO, &last), Some(rtp(199_999u32 as u16).as_slice()));
    }

    #[test]
    fn an_outage_of_more_than_half_of_the_numbers_does_not_end_a_stream() {
        let (mut sender, mut receiver) = (Srtp::new(&master()), Srtp::new(&master()));
        let mut refused = Vec::new();
        for n in 0..600_000u32 {
            let mut bytes = rtp(n as u16);
            sender.protect_rtp(&mut bytes, 0);
            // After 40,000 and 110,000 packets that were lost it goes on; after 440,000 it does not.
            if matches!(n, 0..10 | 40_010..40_020 | 150_000..150_010 | 590_000..590_010) {
                if receiver.open_rtp(Time::ZERO, &bytes) != Some(rtp(n as u16).as_slice()) {
                    refused.push(n);
                }
                assert_eq!(receiver.open_rtp(Time::ZERO, &bytes), None, "a replay of {n}");
            }
        }
        assert_eq!(refused, (590_000..590_010).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_changed_or_has_another_key_is_refused() {
        let other = MasterKey { key: [1; 16], ..master() };
        let (mut sender, mut receiver) = (Srtp::new(&master()), Srtp::new(&other));
        let mut packet = rtp(1);
        sender.protect_rtp(&mut packet, 0);
        assert_eq!(receiver.open_rtp(Time::ZERO, &packet), None);
        let mut receiver = Srtp::new(&master());
        for place in 0..packet.len() {
            let mut changed = packet.clone();
            changed[place] ^= 1;
            assert_eq!(receiver.open_rtp(Time::ZERO, &changed), None, "byte {place}");
        }
        for len in 0..packet.len() {
            assert_eq!(receiver.open_rtp(Time::ZERO, &packet[..len]), None);
            assert_eq!(receiver.open_rtcp(&packet[..len]), None);
        }
        assert_eq!(receiver.open_rtp(Time::ZERO, &packet), Some(rtp(1).as_slice()));
    }

    #[test]
    fn whoever_makes_sources_up_is_looked_at_two_hundred_times_a_second() {
        let (mut sender, mut receiver) = (Srtp::new(&master()), Srtp::new(&master()));
        let at = |ms| Time::ZERO + Span::millis(ms);
        let mut next = 0;
        let mut packet = || {
            let mut bytes = rtp(next);
            sender.protect_rtp(&mut bytes, 0);
            next += 1;
            bytes
        };
        assert!(receiver.open_rtp(at(0), &packet()).is_some());
        for ssrc in 0..300u16 {
            let mut made_up = rtp(ssrc);
            made_up[8..10].copy_from_slice(&ssrc.to_be_bytes());
            made_up.extend([0; RTP_TAG]);
            assert!(receiver.open_rtp(at(999), &made_up).is_none());
        }
        // Who is known is heard all the same; who is new waits for the next second.
        assert!(receiver.open_rtp(at(999), &packet()).is_some());
        let mut other = rtp(7);
        other[8] = 9;
        Srtp::new(&master()).protect_rtp(&mut other, 0);
        assert!(receiver.open_rtp(at(999), &other).is_none());
        assert!(receiver.open_rtp(at(1_000), &other).is_some());
    }

    #[test]
    fn compounds_are_protected_too_and_carry_their_index() {
        let (mut sender, mut receiver) = (Srtp::new(&master()), Srtp::new(&master()));
        let plain = [0x80, 201, 0, 1, 5, 6, 7, 8, 0x81, 202, 0, 1, 5, 6, 7, 8];
        let mut last = Vec::new();
        for n in 0..3u8 {
            let mut bytes = b"before".to_vec();
            bytes.extend_from_slice(&plain);
            sender.protect_rtcp(&mut bytes, 6);
            let datagram = &bytes[6..];
            assert_eq!(datagram[16..20], [0x80, 0, 0, n]);
            assert_eq!(receiver.open_rtcp(datagram), Some(plain.as_slice()));
            assert_eq!(receiver.open_rtcp(datagram), None, "a replay");
            assert_ne!(datagram[8..16], plain[8..16]);
            last = datagram.to_vec();
        }
        last[17] ^= 1;
        assert_eq!(receiver.open_rtcp(&last), None);
        assert_eq!(receiver.refused(), 4);
    }

    #[test]
    fn ones_own_compounds_are_not_opened_and_those_of_another_with_the_same_ssrc_are() {
        let (mut own, mut other) = (Srtp::new(&master()), Srtp::new(&master()));
        let sent = |by: &mut Srtp| {
            let mut bytes = vec![0x80, 201, 0, 1, 5, 6, 7, 8];
            by.protect_rtcp(&mut bytes, 0);
            bytes
        };
        // More of them than a window holds.
        let all: Vec<Vec<u8>> = (0..300).map(|_| sent(&mut own)).collect();
        assert!(all.iter().all(|bytes| own.open_rtcp(bytes).is_none()), "sent back");
        // Of two with one SSRC the one that has sent less hears the other, and takes another SSRC.
        sent(&mut other);
        assert!(other.open_rtcp(&all[299]).is_some());
        assert_eq!(other.open_rtcp(&all[299]), None, "a replay");
    }

    #[test]
    fn keys_are_thirty_bytes_in_base64_and_are_never_shown() {
        let key = MasterKey::read("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwd\n").unwrap();
        assert_eq!((key.key[15], key.salt[0], key.salt[13]), (15, 16, 29));
        assert_eq!(format!("{key:?}"), "MasterKey(…)");
        for wrong in ["", "AAEC", "not base64!", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g"] {
            assert!(MasterKey::read(wrong).is_none(), "{wrong}");
        }
    }
}
