//! SRTP and SRTCP (RFC 3711) with AES-CM and HMAC-SHA1-80 or AES-GCM (RFC 7714), and replay protection.
//!
//! This is our own implementation, because the library `webrtc-srtp` needs an asynchronous runtime and eighty more
//! crates. The ciphers are those of RustCrypto. The tests use the vectors of RFC 3711, appendix B, and RFC 7714,
//! sections 16 and 17.

use crate::sdp::unbase64;
use aes::cipher::consts::{U12, U16};
use aes::{Aes128, Aes256};
use aes_gcm::{AeadInOut, Aes128Gcm, Aes256Gcm};
use ctr::Ctr128BE;
use ctr::cipher::{KeyIvInit, StreamCipher};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use std::collections::BTreeMap;
use steadycast_units::Time;

/// The length of the SRTCP index in bytes, including the E flag.
const SRTCP_INDEX_LEN: usize = 4;
/// The E flag. It is set if the SRTCP packet is encrypted.
const ENCRYPTED: u32 = 1 << 31;
/// The number of leading SRTCP bytes that are not encrypted: the header and the first SSRC.
const RTCP_CLEAR: usize = 8;
/// Maximum number of sources. Only an authentic packet adds a source.
const MAX_SOURCES: usize = 4_096;
/// The size of the replay window in packets. RFC 3711, section 3.3.2, requires at least 64.
const REPLAY_WINDOW: u64 = 128;

/// Maximum number of rollover counters that are tried for an unknown source. At 1 Mb/s, the sequence number wraps every
/// nine minutes.
const MAX_JOIN_ROLLOVERS: u64 = 32;
/// Maximum number of further rollover counters that are tried for a known source after an outage, if the nearest
/// counter is wrong. A rollover is a wrap of the sequence number.
const MAX_OUTAGE_ROLLOVERS: u64 = 4;

/// The protection profiles of RFC 5764, section 4.1.2, and RFC 7714, section 14.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SrtpProfile {
    /// AES-CM with 128-bit keys, and HMAC-SHA1 truncated to 80 bits.
    Aes128CmSha1,
    /// AES-GCM with 128-bit keys.
    Aes128Gcm,
    /// AES-GCM with 256-bit keys.
    Aes256Gcm,
}

impl SrtpProfile {
    /// Returns the length of an RTP authentication tag in bytes.
    pub const fn tag(self) -> usize {
        if let Self::Aes128CmSha1 = self { 10 } else { 16 }
    }

    /// Returns the lengths of the master key and its salt in bytes.
    const fn lengths(self) -> (usize, usize) {
        match self {
            Self::Aes128CmSha1 => (16, 14),
            Self::Aes128Gcm => (16, 12),
            Self::Aes256Gcm => (32, 12),
        }
    }
}

/// A master key with its salt.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey {
    profile: SrtpProfile,
    key: Vec<u8>,
    /// The salt. AES-GCM has a salt of 12 bytes. RFC 7714 does not specify how it is extended to 14 bytes. As in
    /// libsrtp, zeros are appended.
    salt: [u8; 14],
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

impl MasterKey {
    /// Decodes 30 bytes from base64: a key of 16 bytes, followed by a salt of 14 bytes (RFC 4568). The command
    /// `openssl rand -base64 30` prints such a text.
    pub fn read(text: &str) -> Option<Self> {
        let bytes = unbase64(text.trim())?;
        let (key, salt) = bytes.split_at_checked(16)?;
        (salt.len() == 14).then(|| Self::of(SrtpProfile::Aes128CmSha1, key, salt))
    }

    /// Splits the keying material that DTLS exports into the client's and the server's master key (RFC 5764, section
    /// 4.2). Returns `None` if the material is too short.
    pub fn exported(profile: SrtpProfile, material: &[u8]) -> Option<[Self; 2]> {
        let (key, salt) = profile.lengths();
        let (keys, salts) = material.split_at_checked(2 * key)?;
        let ((client, server), salts) = (keys.split_at(key), salts.get(..2 * salt)?.split_at(salt));
        Some([Self::of(profile, client, salts.0), Self::of(profile, server, salts.1)])
    }

    fn of(profile: SrtpProfile, key: &[u8], salt: &[u8]) -> Self {
        let mut padded = [0; 14];
        padded[..salt.len()].copy_from_slice(salt);
        Self { profile, key: key.to_vec(), salt: padded }
    }

    /// Returns the protection profile.
    pub const fn profile(&self) -> SrtpProfile {
        self.profile
    }

    /// Derives a session key (RFC 3711, section 4.3.1; RFC 6188, section 2). The key derivation rate is zero.
    fn derive<const N: usize>(&self, label: u8) -> [u8; N] {
        let mut iv = [0; 16];
        iv[..14].copy_from_slice(&self.salt);
        iv[7] ^= label;
        let mut out = [0; N];
        match self.profile {
            SrtpProfile::Aes256Gcm => key_stream::<Ctr128BE<Aes256>>(&self.key, &iv, &mut out),
            _ => key_stream::<Ctr128BE<Aes128>>(&self.key, &iv, &mut out),
        }
        out
    }
}

/// Encrypts or decrypts `data` with AES in counter mode.
fn key_stream<C: KeyIvInit + StreamCipher>(key: &[u8], iv: &[u8; 16], data: &mut [u8]) {
    C::new_from_slices(key, iv).unwrap_or_else(|_| unreachable!("the lengths are the profile's")).apply_keystream(data);
}

/// The SSRC and the packet index, which determine the initialisation vector.
#[derive(Clone, Copy)]
struct PacketIndex {
    ssrc: u32,
    index: u64,
}

impl PacketIndex {
    /// Returns the initialisation vector (RFC 3711, section 4.1.1; RFC 7714, sections 8.1 and 9.1). It is the salt,
    /// whose last ten bytes are XORed with the SSRC and the index. Zeros fill the remaining bytes.
    fn iv(self, salt: &[u8]) -> [u8; 16] {
        let mut iv = [0; 16];
        iv[..salt.len()].copy_from_slice(salt);
        let place = self.ssrc.to_be_bytes().into_iter().chain(self.index.to_be_bytes().into_iter().skip(2));
        iv[salt.len() - 10..].iter_mut().zip(place).for_each(|(byte, with)| *byte ^= with);
        iv
    }

    /// Returns the rollover counter.
    fn wraps(self) -> [u8; 4] {
        ((self.index >> 16) as u32).to_be_bytes()
    }
}

struct Sealed<'a> {
    packet: &'a [u8],
    /// The number of leading bytes that are not encrypted.
    clear: usize,
    tag: &'a [u8],
    /// The SRTCP index with its E flag. Empty for SRTP.
    index: &'a [u8],
}

/// The session keys for RTP, or for RTCP.
enum Keys {
    Cm { cipher: [u8; 16], salt: [u8; 14], auth: Hmac<Sha1> },
    Gcm128 { cipher: Box<Aes128Gcm>, salt: [u8; 12] },
    Gcm256 { cipher: Box<Aes256Gcm>, salt: [u8; 12] },
}

impl Keys {
    fn new(master: &MasterKey, label: u8) -> Self {
        match master.profile {
            SrtpProfile::Aes128CmSha1 => {
                let auth: [u8; 20] = master.derive(label + 1);
                let auth = Hmac::<Sha1>::new_from_slice(&auth).unwrap_or_else(|_| unreachable!("HMAC takes any key"));
                Self::Cm { cipher: master.derive(label), salt: master.derive(label + 2), auth }
            }
            SrtpProfile::Aes128Gcm => {
                let cipher = Box::new(Aes128Gcm::new(&master.derive::<16>(label).into()));
                Self::Gcm128 { cipher, salt: master.derive(label + 2) }
            }
            SrtpProfile::Aes256Gcm => {
                let cipher = Box::new(Aes256Gcm::new(&master.derive::<32>(label).into()));
                Self::Gcm256 { cipher, salt: master.derive(label + 2) }
            }
        }
    }

    const fn profile(&self) -> SrtpProfile {
        match self {
            Self::Cm { .. } => SrtpProfile::Aes128CmSha1,
            Self::Gcm128 { .. } => SrtpProfile::Aes128Gcm,
            Self::Gcm256 { .. } => SrtpProfile::Aes256Gcm,
        }
    }

    /// Encrypts the packet that begins at `start`, except for its first `clear` bytes. Appends the tag and the SRTCP
    /// `index`.
    fn seal(&self, at: PacketIndex, bytes: &mut Vec<u8>, (start, clear): (usize, usize), index: &[u8]) {
        let (head, body) = bytes[start..].split_at_mut(clear);
        let tag = match self {
            Self::Cm { cipher, salt, auth } => {
                key_stream::<Ctr128BE<Aes128>>(cipher, &at.iv(salt), body);
                bytes.extend_from_slice(index);
                let signed = auth.clone().chain_update(&bytes[start..]);
                // Authenticate the rollover counter as well. SRTP does not send it (RFC 3711, section 4.2).
                let whole = if index.is_empty() { signed.chain_update(at.wraps()) } else { signed }.finalize();
                return bytes.extend_from_slice(&whole.into_bytes()[..self.profile().tag()]);
            }
            Self::Gcm128 { cipher, salt } => encrypted(&**cipher, &at.iv(salt), &[&*head, index].concat(), body),
            Self::Gcm256 { cipher, salt } => encrypted(&**cipher, &at.iv(salt), &[&*head, index].concat(), body),
        };
        bytes.extend_from_slice(&tag);
        bytes.extend_from_slice(index);
    }

    /// Verifies the tag in constant time, and decrypts the packet into `out`. Returns false if the tag is wrong.
    fn open(&self, at: PacketIndex, sealed: &Sealed<'_>, out: &mut Vec<u8>) -> bool {
        let Sealed { packet, clear, tag, index } = *sealed;
        if let Self::Cm { auth, .. } = self {
            let signed = auth.clone().chain_update(packet);
            // The tag also authenticates the rollover counter of SRTP or the index of SRTCP (RFC 3711, section 4.2).
            let signed = if index.is_empty() { signed.chain_update(at.wraps()) } else { signed.chain_update(index) };
            if signed.verify_truncated_left(tag).is_err() {
                return false;
            }
        }
        out.clear();
        out.extend_from_slice(packet);
        let (head, body) = out.split_at_mut(clear);
        match self {
            Self::Cm { cipher, salt, .. } => {
                key_stream::<Ctr128BE<Aes128>>(cipher, &at.iv(salt), body);
                true
            }
            Self::Gcm128 { cipher, salt } => decrypted(&**cipher, &at.iv(salt), &[&*head, index].concat(), body, tag),
            Self::Gcm256 { cipher, salt } => decrypted(&**cipher, &at.iv(salt), &[&*head, index].concat(), body, tag),
        }
    }

    /// Splits a datagram into the packet, the tag and the SRTCP index. `index` is the length of the SRTCP index in
    /// bytes.
    fn split<'a>(&self, datagram: &'a [u8], index: usize) -> Option<Sealed<'a>> {
        let (profile, end) = (self.profile(), datagram.len());
        let (packet, more) = datagram.split_at_checked(end.checked_sub(profile.tag() + index)?)?;
        // An HMAC tag comes after the index, because it authenticates the index. A GCM tag comes before the index (RFC
        // 7714, section 9.2).
        let (tag, index) = match profile {
            SrtpProfile::Aes128CmSha1 => (&more[index..], &more[..index]),
            _ => more.split_at(profile.tag()),
        };
        Some(Sealed { packet, clear: 0, tag, index })
    }
}

/// Encrypts `body` in place, and returns the tag (RFC 7714, section 5.2.1). The nonce consists of the first 12 bytes of
/// `iv`.
fn encrypted<C>(cipher: &C, iv: &[u8; 16], associated: &[u8], body: &mut [u8]) -> [u8; 16]
where
    C: AeadInOut<NonceSize = U12, TagSize = U16>,
{
    let sealed = cipher.encrypt_inout_detached(&nonce(iv).into(), associated, body.into());
    // The cipher fails only for more than 2³⁶ bytes.
    sealed.unwrap_or_else(|_| unreachable!("a datagram is short")).into()
}

/// Decrypts `body` in place. Returns false if the tag is wrong (RFC 7714, section 5.2.2).
fn decrypted<C>(cipher: &C, iv: &[u8; 16], associated: &[u8], body: &mut [u8], tag: &[u8]) -> bool
where
    C: AeadInOut<NonceSize = U12, TagSize = U16>,
{
    let tag = tag.first_chunk::<16>().map(|tag| (*tag).into());
    tag.is_some_and(|tag| cipher.decrypt_inout_detached(&nonce(iv).into(), associated, body.into(), &tag).is_ok())
}

fn nonce(iv: &[u8; 16]) -> [u8; 12] {
    std::array::from_fn(|n| iv[n])
}

/// The replay window: the newest packet index, and one bit per index of the window. A bit is set if the packet with
/// this index was received.
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
            Some(newest) => newest - index < REPLAY_WINDOW && self.seen >> (newest - index) & 1 == 0,
        }
    }

    fn mark(&mut self, index: u64) {
        let newest = self.newest.unwrap_or(index);
        if index >= newest {
            let ahead = index - newest;
            self.seen = if ahead < REPLAY_WINDOW { self.seen << ahead } else { 0 } | 1;
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

/// Maximum number of packets per second for which several rollover counters are tried. The limit bounds the CPU time
/// that forged SSRCs cost.
const MAX_GUESSES_PER_SECOND: u32 = 200;

/// Counts the packets of the current second for which several rollover counters are tried.
#[derive(Default)]
struct GuessLimit {
    second: u64,
    packets: u32,
}

impl GuessLimit {
    fn may(&mut self, now: Time) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second {
            *self = Self { second, packets: 0 };
        }
        self.packets = self.packets.saturating_add(1);
        self.packets <= MAX_GUESSES_PER_SECOND
    }
}

struct Direction {
    rtp: Keys,
    rtcp: Keys,
}

impl Direction {
    fn new(master: &MasterKey) -> Self {
        Self { rtp: Keys::new(master, 0), rtcp: Keys::new(master, 3) }
    }
}

/// The SRTP context of one endpoint. Either all members share one master key, or each direction has its own.
pub struct Srtp {
    outgoing: Direction,
    incoming: Direction,
    sources: BTreeMap<u32, Source>,
    /// The SSRCs whose media is accepted. If the list is empty, all SSRCs are accepted.
    described: Vec<u32>,
    /// For each outgoing SSRC, the newest extended sequence number and the next SRTCP index.
    sent: BTreeMap<u32, (u64, u32)>,
    scratch: Vec<u8>,
    guessed: GuessLimit,
}

/// Returns the offset of an RTP packet's payload.
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

/// Returns the extended sequence number nearest to `near` (RFC 3711, section 3.3.1).
fn extend(seq: u16, near: u64) -> u64 {
    let ahead = i64::from(seq.wrapping_sub(near as u16) as i16);
    near.checked_add_signed(ahead).unwrap_or(u64::from(seq))
}

impl Srtp {
    /// Creates a context with one key for both directions.
    pub fn new(master: &MasterKey) -> Self {
        Self::pair(master, master)
    }

    /// Creates a context with one key per direction (see [`MasterKey::exported`]).
    pub fn pair(outgoing: &MasterKey, incoming: &MasterKey) -> Self {
        let (sources, sent) = (BTreeMap::new(), BTreeMap::new());
        let (scratch, guessed, described) = (Vec::new(), GuessLimit::default(), Vec::new());
        let (outgoing, incoming) = (Direction::new(outgoing), Direction::new(incoming));
        Self { outgoing, incoming, sources, described, sent, scratch, guessed }
    }

    /// Restricts the accepted media to the SSRCs in `described`, so that packets of another session can't be replayed.
    /// An empty list accepts all SSRCs.
    #[must_use]
    pub fn of_sources(self, described: Vec<u32>) -> Self {
        Self { described, ..self }
    }

    /// Encrypts and authenticates the RTP packet that begins at `start` in `bytes`.
    pub fn protect_rtp(&mut self, bytes: &mut Vec<u8>, start: usize) {
        let packet = &bytes[start..];
        let (Some(at), Some(ssrc)) = (payload_at(packet), word(packet, 8)) else { return };
        let seq = u16::from_be_bytes([packet[2], packet[3]]);
        let (newest, _) = self.sent.entry(ssrc).or_insert((u64::from(seq), 0));
        let index = extend(seq, *newest);
        *newest = index.max(*newest);
        self.outgoing.rtp.seal(PacketIndex { ssrc, index }, bytes, (start, at), &[]);
    }

    /// Encrypts and authenticates the RTCP compound that begins at `start` in `bytes`.
    pub fn protect_rtcp(&mut self, bytes: &mut Vec<u8>, start: usize) {
        let Some(ssrc) = word(&bytes[start..], 4) else { return };
        let (_, next) = self.sent.entry(ssrc).or_insert((0, 0));
        // The index has only 31 bits, because the highest bit is the E flag.
        let index = *next & !ENCRYPTED;
        *next = index + 1;
        let at = PacketIndex { ssrc, index: index.into() };
        self.outgoing.rtcp.seal(at, bytes, (start, RTCP_CLEAR), &(index | ENCRYPTED).to_be_bytes());
    }

    /// Decrypts an RTP packet. Returns `None` if it is not authentic, has arrived before, or has an SSRC that is not
    /// accepted.
    pub fn open_rtp(&mut self, now: Time, datagram: &[u8]) -> Option<&[u8]> {
        let sealed = self.incoming.rtp.split(datagram, 0)?;
        let packet = sealed.packet;
        let (sealed, ssrc) = (Sealed { clear: payload_at(packet)?, ..sealed }, word(packet, 8)?);
        if !self.described.is_empty() && !self.described.contains(&ssrc) {
            return None;
        }
        let seq = u16::from_be_bytes([packet[2], packet[3]]);
        let known = self.sources.get(&ssrc).copied().unwrap_or_default();
        let mut right = |index: &u64| {
            let at = PacketIndex { ssrc, index: *index };
            // Check for a replay first, because this is cheaper than the authentication.
            known.rtp.fresh(*index) && self.incoming.rtp.open(at, &sealed, &mut self.scratch)
        };
        let nearest = known.rtp.newest.map(|newest| extend(seq, newest));
        // Try several rollover counters. The counter is unknown if the sequence number wrapped before the join or
        // during an outage. Only the right counter gives a valid authentication tag.
        let (first, wraps) =
            nearest.map_or((seq.into(), 0..MAX_JOIN_ROLLOVERS), |nearest| (nearest, 1..MAX_OUTAGE_ROLLOVERS + 1));
        let index = match nearest.filter(&mut right) {
            Some(index) => index,
            None if self.guessed.may(now) => wraps.map(|wraps| first + (wraps << 16)).find(&mut right)?,
            None => return None,
        };
        // Only an authentic packet may advance the replay window (RFC 3711, section 3.3).
        self.source(ssrc).rtp.mark(index);
        Some(&self.scratch)
    }

    /// Decrypts an RTCP compound. Returns `None` if it is not authentic, has arrived before, or is our own.
    pub fn open_rtcp(&mut self, datagram: &[u8]) -> Option<&[u8]> {
        let sealed = self.incoming.rtcp.split(datagram, SRTCP_INDEX_LEN)?;
        let packet = sealed.packet;
        let (ssrc, flagged) = (word(packet, 4)?, word(sealed.index, 0)?);
        // Without the E flag the packet is authenticated but not encrypted.
        let clear = if flagged & ENCRYPTED == 0 { packet.len() } else { RTCP_CLEAR };
        let (sealed, index) = (Sealed { clear, ..sealed }, u64::from(flagged & !ENCRYPTED));
        // Reject our own packets if they are sent back to us. A packet with our SSRC is our own if we have sent its
        // index. Otherwise, another member uses our SSRC.
        let own = self.sent.get(&ssrc).is_some_and(|(_, next)| index < u64::from(*next));
        let known = self.sources.get(&ssrc).copied().unwrap_or_default();
        let at = PacketIndex { ssrc, index };
        if own || !known.rtcp.fresh(index) || !self.incoming.rtcp.open(at, &sealed, &mut self.scratch) {
            return None;
        }
        // Only an authentic packet may advance the replay window (RFC 3711, section 3.3).
        self.source(ssrc).rtcp.mark(index);
        Some(&self.scratch)
    }

    fn source(&mut self, ssrc: u32) -> &mut Source {
        // Remove a source if the table is full. Only members that have the key can add sources.
        if self.sources.len() >= MAX_SOURCES && !self.sources.contains_key(&ssrc) {
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

    /// Returns the master key of RFC 3711, B.3.
    fn master() -> MasterKey {
        let salt = bytes::<14>("0EC675AD498AFEEBB6960B3AABE6");
        MasterKey::of(SrtpProfile::Aes128CmSha1, &bytes::<16>("E1F97A0D3E018BE0D64FA32C06DE4139"), &salt)
    }

    /// Returns one master key per profile.
    fn masters() -> [MasterKey; 3] {
        let (key, salt): ([u8; 32], [u8; 14]) = (std::array::from_fn(|n| n as u8), [7; 14]);
        [SrtpProfile::Aes128CmSha1, SrtpProfile::Aes128Gcm, SrtpProfile::Aes256Gcm].map(|profile| {
            let (of_key, of_salt) = profile.lengths();
            MasterKey::of(profile, &key[..of_key], &salt[..of_salt])
        })
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
        let keys = Keys::Cm { cipher, salt, auth };
        let mut stream = vec![0; 48];
        keys.seal(PacketIndex { ssrc: 0, index: 0 }, &mut stream, (0, 0), &[]);
        assert_eq!(stream[..16], bytes::<16>("E03EAD0935C95E80E166B16DD92B4EB4"));
        assert_eq!(stream[16..32], bytes::<16>("D23513162B02D0F72A43A2FE4A5F97AB"));
        assert_eq!(stream[32..48], bytes::<16>("41E95B3BB0A2E8DD477901E4FCA894C0"));
    }

    /// Compares with the test vectors of RFC 6188, sections 7.2 and 7.4.
    #[test]
    fn session_keys_of_256_bits_are_those_of_rfc_6188() {
        let key = bytes::<32>("F0F04914B513F2763A1B1FA130F10E2998F6F6E43E4309D1E622A0E332B9F1B6");
        let master = MasterKey {
            profile: SrtpProfile::Aes256Gcm,
            key: key.to_vec(),
            salt: bytes("3B04803DE51EE7C96423AB5B78D2"),
        };
        let cipher = bytes::<32>("5BA1064E30EC51613CAD926C5A28EF731EC7FB397F70A960653CAF06554CD8C4");
        assert_eq!(master.derive::<32>(0), cipher);
        assert_eq!(master.derive::<14>(2), bytes("FA31791685CA444A9E07C6C64E93"));
    }

    fn unhex(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().filter_map(|c| Some(c.to_digit(16)? as u8)).collect();
        digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect()
    }

    /// Returns the session keys of RFC 7714, sections 16 and 17. The key is 00 01 02 …, and the salt is "Quid pro quo".
    fn quid_pro_quo() -> [Keys; 2] {
        let (key, salt): ([u8; 32], _) = (std::array::from_fn(|n| n as u8), *b"Quid pro quo");
        let half: [u8; 16] = std::array::from_fn(|n| key[n]);
        [
            Keys::Gcm128 { cipher: Box::new(Aes128Gcm::new(&half.into())), salt },
            Keys::Gcm256 { cipher: Box::new(Aes256Gcm::new(&key.into())), salt },
        ]
    }

    #[test]
    fn packets_under_gcm_are_those_of_rfc_7714() {
        let header = unhex("8040f17b 8041f8d3 5501a0b2");
        let plain = [&header[..], b"Gallia est omnis divisa in partes tres"].concat();
        let sealed = [
            "f24de3a3 fb34de6c acba861c 9d7e4bca be633bd5 0d294e6f 42a5f47a 51c7d19b 36de3adf 8833
             899d7f27 beb16a91 52cf765e e4390cce",
            "32b1de78 a822fe12 ef9f78fa 332e33aa b1801238 9a58e2f3 b50b2a02 76ffae0f 1ba63799 b87b
             7aa3db36 dfffd6b0 f9bb7878 d7a76c13",
        ];
        for (keys, sealed) in quid_pro_quo().iter().zip(sealed) {
            let at = PacketIndex { ssrc: 0x5501_a0b2, index: 0xf17b };
            let mut packet = plain.clone();
            keys.seal(at, &mut packet, (0, 12), &[]);
            assert_eq!(packet, [&header[..], &unhex(sealed)].concat());
            let (mut out, split) = (Vec::new(), keys.split(&packet, 0).unwrap());
            assert!(keys.open(at, &Sealed { clear: 12, ..split }, &mut out) && out == plain);
        }
    }

    #[test]
    fn compounds_under_gcm_are_those_of_rfc_7714() {
        let plain = unhex(
            "81c8000d 4d617273 4e545031 4e545032 52545020 0000042a 0000e930 4c756e61 deadbeef deadbeef deadbeef
             deadbeef deadbeef",
        );
        // `whole` has the encrypted packet for each key. `tags` has, for each key, the tag of the packet that is only
        // authenticated.
        let whole = [
            "81c8000d 4d617273 63e94885 dcdab67c a727d766 2f6b7e99 7ff5c0f7 6c06f32d c676a5f1 730d6fda 4ce09b46
             86303ded 0bb9275b c84aa458 96cf4d2f c5abf872 45d9eade 800005d4",
            "81c8000d 4d617273 d50ae4d1 f5ce5d30 4ba297e4 7d470c28 2c3ece5d bffe0a50 a2eaa5c1 110555be 8415f658
             c61de047 6f1b6fad 1d1eb30c 4446839f 57ff6f6c b26ac3be 800005d4",
        ];
        let tags = ["841dd968 3dd78ec9 2ae58790 125f62b3", "91db4afb feee5a97 8fab4393 ed2615fe"];
        for ((keys, whole), tag) in quid_pro_quo().iter().zip(whole).zip(tags) {
            let at = PacketIndex { ssrc: 0x4d61_7273, index: 0x5d4 };
            let signed = [&plain[..], &unhex(tag), &unhex("000005d4")].concat();
            for (datagram, clear, index) in [(unhex(whole), RTCP_CLEAR, "800005d4"), (signed, plain.len(), "000005d4")]
            {
                let mut packet = plain.clone();
                keys.seal(at, &mut packet, (0, clear), &unhex(index));
                assert_eq!(packet, datagram);
                let (mut out, split) = (Vec::new(), keys.split(&packet, SRTCP_INDEX_LEN).unwrap());
                assert!(keys.open(at, &Sealed { clear, ..split }, &mut out) && out == plain);
            }
        }
    }

    #[test]
    fn two_ends_with_separate_keys_accept_the_peer_and_reject_reflections_in_every_profile() {
        for profile in masters().map(|master| master.profile) {
            let (key, salt) = profile.lengths();
            let material: Vec<u8> = (0..2 * (key + salt)).map(|n| n as u8).collect();
            let [client, server] = MasterKey::exported(profile, &material).unwrap();
            // The two keys come before the two salts (RFC 5764, section 4.2).
            assert_eq!((client.key[0], usize::from(server.key[0])), (0, key));
            assert_eq!((usize::from(client.salt[0]), usize::from(server.salt[0])), (2 * key, 2 * key + salt));
            assert!(MasterKey::exported(profile, &material[1..]).is_none());
            let (mut own, mut other) = (Srtp::pair(&server, &client), Srtp::pair(&client, &server));
            for (sends, hears) in [(0, 1), (1, 0)] {
                let compound = [0x80, 201, 0, 1, 5, 6, 7, sends as u8, 0x81, 202, 0, 1, 5, 6, 7, sends as u8];
                let ends = [&mut own, &mut other];
                let (mut media, mut report) = (rtp(7), compound.to_vec());
                ends[sends].protect_rtp(&mut media, 0);
                ends[sends].protect_rtcp(&mut report, 0);
                assert_eq!(media.len() - rtp(7).len(), profile.tag());
                assert_eq!(report.len() - compound.len(), profile.tag() + SRTCP_INDEX_LEN);
                assert_eq!(ends[sends].open_rtp(Time::ZERO, &media), None, "its own");
                assert_eq!(ends[hears].open_rtp(Time::ZERO, &media), Some(rtp(7).as_slice()));
                assert_eq!(ends[hears].open_rtcp(&report), Some(compound.as_slice()));
                assert_eq!(ends[hears].open_rtcp(&report), None, "a replay");
            }
        }
    }

    fn rtp(seq: u16) -> Vec<u8> {
        let mut packet = vec![0x90, 96, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4, 0xbe, 0xde, 0, 1, 0x10, 7, 0, 0];
        packet[2..4].copy_from_slice(&seq.to_be_bytes());
        packet.extend_from_slice(b"payload");
        packet
    }

    #[test]
    fn protected_packets_are_accepted_once_across_the_wrap_and_reordered() {
        let (mut sender, mut receiver) = (Srtp::new(&master()), Srtp::new(&master()));
        let mut sent = Vec::new();
        for n in 0..200_000u32 {
            let mut bytes = rtp((n + 65_000) as u16);
            sender.protect_rtp(&mut bytes, 0);
            if n % 1_000 < 3 {
                assert_ne!(bytes[20..27], *b"payload");
                assert_eq!(bytes.len(), rtp(0).len() + 10);
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
    fn a_receiver_that_joins_after_rollovers_accepts_packets() {
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
            // The stream continues after 40,000 and 110,000 lost packets, but not after 440,000.
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
    fn modified_packets_and_other_keys_are_rejected_in_every_profile() {
        for master in masters() {
            let other = MasterKey { key: vec![1; master.key.len()], ..master.clone() };
            let (mut sender, mut receiver) = (Srtp::new(&master), Srtp::new(&other));
            let (mut packet, mut compound) = (rtp(1), vec![0x80, 201, 0, 1, 5, 6, 7, 8, 0x81, 202, 0, 1, 5, 6, 7, 8]);
            sender.protect_rtp(&mut packet, 0);
            sender.protect_rtcp(&mut compound, 0);
            assert_eq!(receiver.open_rtp(Time::ZERO, &packet), None);
            assert_eq!(receiver.open_rtcp(&compound), None);
            let mut receiver = Srtp::new(&master);
            for place in 0..packet.len().max(compound.len()) {
                let changed =
                    |packet: &[u8]| packet.iter().enumerate().map(|(n, b)| b ^ u8::from(n == place)).collect();
                let (one, two): (Vec<u8>, Vec<u8>) = (changed(&packet), changed(&compound));
                assert!(one == packet || receiver.open_rtp(Time::ZERO, &one).is_none(), "byte {place}");
                assert!(two == compound || receiver.open_rtcp(&two).is_none(), "byte {place}");
            }
            for len in 0..packet.len() {
                assert_eq!(receiver.open_rtp(Time::ZERO, &packet[..len]), None);
                assert_eq!(receiver.open_rtcp(&packet[..len]), None);
            }
            assert_eq!(receiver.open_rtp(Time::ZERO, &packet), Some(rtp(1).as_slice()));
        }
    }

    #[test]
    fn forged_sources_are_tried_at_most_two_hundred_times_a_second() {
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
            made_up.extend([0; 10]);
            assert!(receiver.open_rtp(at(999), &made_up).is_none());
        }
        // Packets of a known source are accepted at any time. A new source is accepted only in the next second.
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
    }

    #[test]
    fn ones_own_compounds_are_not_opened_and_those_of_another_with_the_same_ssrc_are() {
        let (mut own, mut other) = (Srtp::new(&master()), Srtp::new(&master()));
        let sent = |by: &mut Srtp| {
            let mut bytes = vec![0x80, 201, 0, 1, 5, 6, 7, 8];
            by.protect_rtcp(&mut bytes, 0);
            bytes
        };
        // Send more packets than the replay window covers.
        let all: Vec<Vec<u8>> = (0..300).map(|_| sent(&mut own)).collect();
        assert!(all.iter().all(|bytes| own.open_rtcp(bytes).is_none()), "sent back");
        // Two endpoints have the same SSRC. The endpoint that has sent fewer packets accepts the packets of the other
        // endpoint. This lets it detect the collision and change its SSRC.
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
