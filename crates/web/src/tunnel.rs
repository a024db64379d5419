//! ICE-lite (RFC 8445, section 2.5) and DTLS (RFC 5763) with one browser, until the keys of SRTP are there.
//!
//! This end answers checks. Nothing leaves for an address before a check from there was right, and an address that has
//! not proved that it receives is sent at most three times the bytes that came from it (RFC 9000, section 8). The first
//! address proves it by DTLS, which asks for a cookie. A further one proves it by the answer to a check of this end,
//! whose transaction ID cannot be guessed (RFC 9000, sections 8.2 and 9.3); media stay at the old address until then.
//! The browser's certificate is compared with its fingerprint before its keys are handed on.
//!
//! After each call that changes something [`Tunnel::poll`] is called until it has nothing more to say, and
//! [`Tunnel::wake`] is asked again.

use crate::Credentials;
use crate::certificate::{Certificate, Fingerprint, fingerprint};
use dimpl::{Config, Dtls, SrtpProfile};
use is::stun::{StunMessage, TransId};
use is::{DefaultSha1HmacProvider, Sha1HmacProvider};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use steadycast_units::{Span, Time};

/// How long ICE and DTLS may take together.
pub const PATIENCE: Span = Span::secs(15);
/// The consent of a browser expires this long after its last check (RFC 7675, section 5.1).
pub const SILENCE: Span = Span::secs(30);
/// The least time after which a browser that sends nothing counts as silent.
///
/// Chromium and Firefox send transport-wide feedback every 50 to 250 ms, a receiver report every second and a check
/// every 2.5 s. Four seconds without any of them have a probability below 10⁻⁶ at a loss of half, since some twenty
/// datagrams have to be lost in a row.
pub const QUIET: Span = Span::secs(4);
/// A browser counts as silent only after this multiple of the longest gap that it has left so far: a player that
/// reports every 5 s is not taken for one that died.
const QUIET_GAPS: u64 = 2;
/// A browser stays at an address from which a packet arrived less than this long ago, even if another one is proved.
const SETTLED: Span = Span::secs(1);
/// The factor of what may be sent to an address that is not validated (RFC 9000, section 8.1).
const AMPLIFICATION: u64 = 3;
/// The time after which a check of this end is sent again, doubled after each one.
const CHECK_AGAIN: Span = Span::millis(250);
/// The number of addresses of one browser that are remembered.
const PATHS: usize = 4;
/// The PRIORITY of this end's checks: that of a host candidate (RFC 8445, section 5.1.2.1).
const PRIORITY: u32 = (126 << 24) | (65_535 << 8) | 255;
/// When a flight of DTLS is sent again first, and how often: the waits double, to 13 s in all.
const FLIGHT: (Duration, usize) = (Duration::from_millis(100), 6);

/// Which protocol a datagram is of, by its first byte (RFC 7983, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// STUN (0–3).
    Stun,
    /// DTLS (20–63).
    Dtls,
    /// RTP or RTCP, or their secure kind (128–191).
    Rtp,
    /// Any other, or nothing.
    Other,
}

impl Protocol {
    /// That of a datagram.
    pub const fn of(datagram: &[u8]) -> Self {
        match datagram {
            [0..=3, ..] => Self::Stun,
            [20..=63, ..] => Self::Dtls,
            [128..=191, ..] => Self::Rtp,
            _ => Self::Other,
        }
    }
}

/// What DTLS agreed on for SRTP: for [`SrtpProfile`], in the order of RFC 5764, section 4.2. The browser is the client,
/// this end the server.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// How packets are protected.
    pub profile: SrtpProfile,
    /// The client's key, the server's key, the client's salt, the server's salt.
    pub material: Vec<u8>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({:?}, …)", self.profile)
    }
}

/// What a tunnel lets go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A datagram for this address.
    Send(SocketAddr, Vec<u8>),
    /// From now on the browser is at this address.
    Peer(SocketAddr),
    /// It is connected: media may be sent with these keys.
    Keys(Keys),
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No check has come.
    Checking,
    /// DTLS is on its way.
    Connecting,
    /// The keys are there.
    Connected,
    /// Nothing more will come of it.
    Ended,
}

impl State {
    /// Its name in a status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Checking => "checking",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Ended => "ended",
        }
    }
}

/// Between which two a tunnel is.
#[derive(Clone, Debug)]
pub struct Ends {
    /// This end's address, as the browser knows it.
    pub local: SocketAddr,
    /// With what the browser's checks must be signed.
    pub own: Credentials,
    /// Who the browser is in its checks.
    pub peer: Credentials,
    /// The browser's certificate is one of these.
    pub fingerprints: Vec<Fingerprint>,
}

/// An address from which right checks came.
struct Path {
    at: SocketAddr,
    /// Bytes that arrived from there, and bytes that were sent there.
    received: u64,
    sent: u64,
    /// The address has proved that it receives.
    is_valid: bool,
    /// When the last right check arrived from there.
    checked: Time,
    /// The browser has nominated this address.
    is_nominated: bool,
    /// The transaction ID of this end's check.
    transaction: Option<TransId>,
    /// When the check is sent again, and the time until the one after that.
    again: Time,
    wait: Span,
}

/// One browser's way to this end.
pub struct Tunnel {
    /// Time zero, as the crates count.
    epoch: Instant,
    ends: Ends,
    dtls: Dtls,
    dtls_wake: Time,
    state: State,
    /// Why it has ended.
    why: Option<String>,
    peer: Option<SocketAddr>,
    /// It was known by its fingerprint.
    known: bool,
    began: Time,
    /// When the last right check arrived from the browser's address.
    checked: Time,
    /// When a right packet arrived from the browser's address.
    heard: Time,
    /// When a right packet arrived from any address, and the longest time between two of them.
    last: Time,
    longest_gap: Span,
    /// The addresses from which right checks came, in the order of their first one.
    paths: Vec<Path>,
    /// The number of paths so far, and the secret from which their transaction IDs are derived.
    path_count: u64,
    secret: [u8; 20],
    /// Checks that were not right, and datagrams from where no browser is.
    refused: u64,
    out: VecDeque<Output>,
    buffer: Vec<u8>,
}

impl Tunnel {
    /// A tunnel that begins now. `epoch` stands for time zero.
    ///
    /// # Errors
    /// The certificate can't be used: a bug.
    pub fn new(epoch: Instant, now: Time, ends: Ends, certificate: &Certificate) -> Result<Self, dimpl::Error> {
        let (first, times) = FLIGHT;
        let config = Config::builder()
            .use_server_cookie(true)
            .require_client_certificate(true)
            .handshake_timeout(Duration::from_nanos(PATIENCE.as_nanos()))
            .flight_start_rto(first)
            .flight_retries(times)
            .build()?;
        let start = instant(epoch, now);
        let mut dtls = Dtls::new_auto(Arc::new(config), certificate.dtls.clone(), start);
        dtls.handle_timeout(start)?;
        // Another one in each session, which the browser can't know.
        let secret = hmac(&certificate.dtls.private_key, &[b"checks", ends.own.password.as_bytes()]);
        Ok(Self {
            epoch,
            ends,
            dtls,
            dtls_wake: Time::NEVER,
            state: State::Checking,
            why: None,
            peer: None,
            known: false,
            began: now,
            checked: now,
            heard: now,
            last: now,
            longest_gap: Span::ZERO,
            paths: Vec::new(),
            path_count: 0,
            secret,
            refused: 0,
            out: VecDeque::new(),
            buffer: vec![0; 2_048],
        })
    }

    /// How far it has come.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Why it has ended, where neither end has closed it.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Where the browser is.
    pub const fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Checks that were not right, and datagrams from where no browser is.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the time since the last packet of the browser.
    pub fn silent_for(&self, now: Time) -> Span {
        now.since(self.last)
    }

    /// Whether a connected browser has sent nothing for longer than a live one would: see [`QUIET`].
    pub fn is_silent(&self, now: Time) -> bool {
        self.state == State::Connected && self.silent_for(now) >= QUIET.max(self.longest_gap * QUIET_GAPS)
    }

    /// When it wants [`Tunnel::on_wake`].
    pub fn wake(&self) -> Time {
        if !self.out.is_empty() {
            return Time::ZERO;
        }
        match self.state {
            State::Checking | State::Connecting => self.dtls_wake.min(self.began + PATIENCE).min(self.paths_wake()),
            State::Connected => self.dtls_wake.min(self.checked + SILENCE).min(self.paths_wake()),
            State::Ended => Time::NEVER,
        }
    }

    /// What it lets go, until there is nothing more.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// The time of [`Tunnel::wake`] has come.
    pub fn on_wake(&mut self, now: Time) {
        match self.state {
            State::Checking if now >= self.began + PATIENCE => {
                let (ip, port) = (self.ends.local.ip(), self.ends.local.port());
                self.end(format!("no check from the browser: is UDP port {port} of {ip} reachable from there?"));
            }
            State::Connecting if now >= self.began + PATIENCE => {
                self.end("the browser's checks came, and DTLS did not connect in 15 s".into());
            }
            State::Connected if now >= self.checked + SILENCE => {
                self.end("the browser has been silent for 30 s".into());
            }
            State::Connecting | State::Connected => {
                for n in 0..self.paths.len() {
                    if self.paths.get(n).is_some_and(|path| path.again <= now) {
                        self.check(now, n);
                    }
                }
                self.settle(now);
                self.drive(now, |_| Ok(()));
            }
            State::Checking | State::Ended => {}
        }
    }

    /// A datagram of STUN or of DTLS has come; what else comes is not for it.
    pub fn on_datagram(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) {
        if self.state == State::Ended {
            return;
        }
        let taken = match Protocol::of(datagram) {
            Protocol::Stun => self.on_stun(now, from, datagram).is_some(),
            Protocol::Dtls if self.peer == Some(from) => {
                if let Some(path) = self.paths.iter_mut().find(|path| path.at == from) {
                    path.received += datagram.len() as u64;
                }
                self.drive(now, |dtls| dtls.handle_packet(datagram));
                true
            }
            _ => false,
        };
        self.refused += u64::from(!taken);
    }

    /// Something came from this address that only the browser can have sent: its media's key protects it.
    pub fn on_heard(&mut self, now: Time, from: SocketAddr) {
        self.arrived(now);
        if self.peer == Some(from) {
            self.heard = now;
        }
    }

    /// Notes that a packet which only the browser can have made arrived.
    fn arrived(&mut self, now: Time) {
        if self.state == State::Connected {
            self.longest_gap = self.longest_gap.max(now.since(self.last));
        }
        self.last = now;
    }

    /// Ends it: the browser is told.
    pub fn close(&mut self, now: Time) {
        if self.state != State::Ended {
            self.drive(now, Dtls::close);
            self.state = State::Ended;
        }
    }

    /// Takes a message of STUN: a check of the browser, or its answer to a check of this end.
    fn on_stun(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) -> Option<()> {
        let message = StunMessage::parse(datagram).ok()?;
        if message.is_successful_binding_response() {
            return self.on_answer(now, from, &message);
        }
        self.on_check(now, from, datagram.len(), &message)
    }

    /// Answers a check that is signed as this browser's.
    fn on_check(&mut self, now: Time, from: SocketAddr, len: usize, message: &StunMessage<'_>) -> Option<()> {
        if !message.is_binding_request() {
            return None;
        }
        let (own, peer) = message.split_username()?;
        let Ends { own: credentials, peer: theirs, .. } = &self.ends;
        let password = credentials.password.as_bytes();
        // Both names are checked, and the role: an ICE-lite end is always the one that is controlled.
        let named = own == credentials.ufrag && peer == theirs.ufrag && message.ice_controlled().is_none();
        if !named || !message.verify(password, hmac) {
            return None;
        }
        let mut reply = [0; 128];
        let written = StunMessage::binding_reply(message.trans_id(), from).to_bytes(Some(password), &mut reply, hmac);
        let reply = reply.get(..written.ok()?)?;
        let n = self.path(now, from);
        if let Some(path) = self.paths.get_mut(n) {
            path.received += len as u64;
            path.checked = now;
            // Full agents other than libwebrtc nominate once (RFC 8445, section 8.1.1).
            path.is_nominated |= message.use_candidate();
        }
        self.send(from, reply);
        self.arrived(now);
        let nominated = message.use_candidate();
        if nominated && self.peer.is_none() {
            self.move_to(now, from);
            if self.state == State::Checking {
                self.state = State::Connecting;
            }
        }
        if self.peer == Some(from) {
            self.checked = now;
            self.heard = if nominated { now } else { self.heard };
        } else if nominated {
            self.check(now, n);
            self.settle(now);
        }
        Some(())
    }

    /// The browser's answer to a check of this end validates the address that it comes from.
    fn on_answer(&mut self, now: Time, from: SocketAddr, message: &StunMessage<'_>) -> Option<()> {
        let path =
            self.paths.iter_mut().find(|path| path.at == from && path.transaction == Some(message.trans_id()))?;
        if !message.verify(self.ends.peer.password.as_bytes(), hmac) {
            return None;
        }
        (path.is_valid, path.again) = (true, Time::NEVER);
        self.arrived(now);
        self.settle(now);
        Some(())
    }

    /// Returns the index of an address's path, which is added where there is none.
    fn path(&mut self, now: Time, at: SocketAddr) -> usize {
        if let Some(n) = self.paths.iter().position(|path| path.at == at) {
            return n;
        }
        if self.paths.len() == PATHS {
            // The one whose check is oldest makes room, except for the browser's own.
            let oldest = (0..PATHS).filter(|n| self.paths.get(*n).is_some_and(|path| self.peer != Some(path.at)));
            if let Some(n) = oldest.min_by_key(|n| self.paths.get(*n).map(|path| path.checked)) {
                self.paths.remove(n);
            }
        }
        self.path_count += 1;
        self.paths.push(Path {
            at,
            received: 0,
            sent: 0,
            is_valid: false,
            checked: now,
            is_nominated: false,
            transaction: transaction(&self.secret, self.path_count),
            again: Time::NEVER,
            wait: CHECK_AGAIN,
        });
        self.paths.len() - 1
    }

    /// Sends a check of this end, which only a browser that receives at this path's address can answer.
    fn check(&mut self, now: Time, n: usize) {
        let Some(path) = self.paths.get_mut(n).filter(|path| !path.is_valid) else { return };
        let Some(transaction) = path.transaction else { return };
        let Ends { own, peer, .. } = &self.ends;
        let name = format!("{}:{}", peer.ufrag, own.ufrag);
        let (mut bytes, password) = ([0; 640], peer.password.as_bytes());
        let message = StunMessage::binding_request(&name, transaction, false, 0, PRIORITY, false);
        let Ok(len) = message.to_bytes(Some(password), &mut bytes, hmac) else { return };
        (path.again, path.wait) = (now + path.wait, path.wait * 2);
        let at = path.at;
        let is_sent = bytes.get(..len).is_some_and(|bytes| self.send(at, bytes));
        if let Some(path) = self.paths.get_mut(n).filter(|_| !is_sent) {
            // The next check of the browser makes room for another one.
            (path.again, path.wait) = (Time::NEVER, CHECK_AGAIN);
        }
    }

    /// Moves to the address that the browser nominated last, if it is validated and nothing comes from the present one.
    ///
    /// A third party that sends a check again from elsewhere cannot draw media away while the browser's packets arrive
    /// from its address, even if it has the browser answer.
    fn settle(&mut self, now: Time) {
        if now.since(self.heard) >= SETTLED
            && let Some(at) = self.next().filter(|_| self.state != State::Ended)
        {
            self.move_to(now, at);
        }
    }

    /// Returns the validated address with the latest check since the last packet from the present address.
    fn next(&self) -> Option<SocketAddr> {
        let fit = |path: &&Path| {
            path.is_valid && path.is_nominated && path.checked > self.heard && self.peer != Some(path.at)
        };
        self.paths.iter().filter(fit).max_by_key(|path| path.checked).map(|path| path.at)
    }

    fn move_to(&mut self, now: Time, at: SocketAddr) {
        self.peer = Some(at);
        (self.heard, self.checked) = (now, now);
        self.paths.iter_mut().for_each(|path| path.is_nominated = path.at == at);
        self.out.push_back(Output::Peer(at));
    }

    /// Returns when a check is due, or a move.
    fn paths_wake(&self) -> Time {
        let again = self.paths.iter().map(|path| path.again).min().unwrap_or(Time::NEVER);
        self.next().map_or(again, |_| again.min(self.heard + SETTLED))
    }

    /// Sends a datagram, unless the address is not validated and has been sent as much as is allowed.
    fn send(&mut self, to: SocketAddr, bytes: &[u8]) -> bool {
        let Some(path) = self.paths.iter_mut().find(|path| path.at == to) else { return false };
        let sent = path.sent + bytes.len() as u64;
        if !path.is_valid && sent > AMPLIFICATION * path.received {
            return false;
        }
        path.sent = sent;
        self.out.push_back(Output::Send(to, bytes.to_vec()));
        true
    }

    /// Has DTLS do something, and takes what it lets go.
    fn drive(&mut self, now: Time, what: impl FnOnce(&mut Dtls) -> Result<(), dimpl::Error>) {
        let done = self.dtls.handle_timeout(instant(self.epoch, now)).and_then(|()| what(&mut self.dtls));
        // What it wrote before an error is an alert for the browser.
        self.drain();
        if let Err(error) = done {
            self.end(format!("DTLS failed: {error}"));
        }
    }

    fn drain(&mut self) {
        loop {
            match self.dtls.poll_output(&mut self.buffer) {
                dimpl::Output::Packet(bytes) => {
                    let bytes = bytes.to_vec();
                    if let Some(peer) = self.peer {
                        self.send(peer, &bytes);
                    }
                }
                dimpl::Output::BufferTooSmall { needed } => self.buffer.resize(needed, 0),
                dimpl::Output::Timeout(at) => {
                    self.dtls_wake = time(self.epoch, at);
                    return;
                }
                dimpl::Output::PeerCert(certificate) => {
                    self.known = self.ends.fingerprints.contains(&fingerprint(certificate));
                    if !self.known {
                        return self.end("the browser's certificate is not the one of its offer".into());
                    }
                }
                dimpl::Output::KeyingMaterial(bytes, profile) => {
                    if !self.known || self.state != State::Connecting {
                        return self.end("DTLS gave keys to a stranger".into());
                    }
                    self.state = State::Connected;
                    // The browser has answered what was sent to this address alone, or to one that is validated.
                    let peer = self.peer;
                    self.paths.iter_mut().filter(|path| Some(path.at) == peer).for_each(|path| path.is_valid = true);
                    self.out.push_back(Output::Keys(Keys { profile, material: bytes.to_vec() }));
                }
                dimpl::Output::CloseNotify => {
                    self.state = State::Ended;
                    return;
                }
                // The moment of the keys is that of the connection; nobody speaks by DTLS itself here.
                _ => {}
            }
        }
    }

    fn end(&mut self, why: String) {
        if self.state != State::Ended {
            self.state = State::Ended;
            self.why = Some(why);
        }
    }
}

/// The instant of a time.
fn instant(epoch: Instant, time: Time) -> Instant {
    epoch + Duration::from_nanos(time.as_nanos())
}

/// The time of an instant.
fn time(epoch: Instant, instant: Instant) -> Time {
    let since = instant.saturating_duration_since(epoch).as_nanos();
    Time::from_nanos(u64::try_from(since).unwrap_or(u64::MAX))
}

/// The keyed hash of STUN's message integrity.
fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 20] {
    DefaultSha1HmacProvider.sha1_hmac(key, parts)
}

/// Returns the transaction ID of this number, which only a holder of the secret can work out.
fn transaction(secret: &[u8], number: u64) -> Option<TransId> {
    // An indication without attributes (RFC 8489, section 5): the crate makes a given transaction ID only of a message.
    let mut header = [0, 0x11, 0, 0, 0x21, 0x12, 0xa4, 0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let hash = hmac(secret, &[&number.to_be_bytes()]);
    header.iter_mut().skip(8).zip(hash).for_each(|(byte, hashed)| *byte = hashed);
    StunMessage::parse(&header).ok().map(|message| message.trans_id())
}
