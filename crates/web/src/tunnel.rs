//! An ICE (RFC 8445) and DTLS (RFC 5763) connection with a browser or server, which provides the SRTP keys.
//!
//! With a browser, this end is ICE-lite (RFC 8445, section 2.5): it answers checks, and sends nothing to an address
//! before a valid check from it. Until an address is validated, it gets at most three times the bytes that came from it
//! (RFC 9000, section 8).
//!
//! The DTLS cookie validates the browser's first address. A later address is validated by its response to a check of
//! this end, because the check's transaction ID can't be guessed (RFC 9000, sections 8.2 and 9.3). Until then, media go
//! to the previous address.
//!
//! The keys are used only if the browser's certificate has the fingerprint of its description.
//!
//! With a server (WHIP, RFC 9725) this end made the offer, sends the checks, and nominates an address that answers.
//!
//! After each call that changes the state, the caller drains [`Tunnel::poll`] and then reads [`Tunnel::wake`].

use crate::certificate::{Certificate, Fingerprint, fingerprint};
use crate::controlling::Controlling;
use crate::{Credentials, Role};
use dimpl::{Config, Dtls, SrtpProfile};
use is::stun::{StunMessage, TransId};
use is::{DefaultSha1HmacProvider, Sha1HmacProvider};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use steadycast_units::{Span, Time};

/// Maximum time for ICE and DTLS together.
pub const CONNECT_TIMEOUT: Span = Span::secs(15);
/// A browser's consent expires this long after its last check (RFC 7675, section 5.1).
pub const CONSENT_TIMEOUT: Span = Span::secs(30);
/// Least time without packets after which a browser counts as silent.
///
/// Chromium and Firefox send transport-wide feedback every 50 to 250 ms, a receiver report every second and a check
/// every 2.5 s. These are about twenty datagrams in four seconds. At 50 % loss, the probability that all of them are
/// lost is below 10⁻⁶.
pub const MIN_SILENCE: Span = Span::secs(4);
/// A browser counts as silent only after this multiple of its usual gap between packets, because a player may report
/// only every 5 s.
const SILENCE_GAPS: u64 = 2;
/// The usual gap is the second longest of this many recent gaps. The longest may be an outage of the network, and would
/// delay the detection of a browser that has died.
const RECENT_GAPS: usize = 32;
/// A browser is not moved while packets have arrived from its present address within this time.
const MIGRATION_HOLD: Span = Span::secs(1);
/// The amplification limit for an address that is not validated (RFC 9000, section 8.1).
const AMPLIFICATION: u64 = 3;
/// The initial retransmission timeout of this end's checks. It doubles with each retransmission.
const CHECK_RTO: Span = Span::millis(250);
/// Maximum number of addresses stored per browser.
const MAX_PATHS: usize = 4;
/// The PRIORITY of this end's checks, as of a host candidate (RFC 8445, section 5.1.2.1).
const PRIORITY: u32 = (126 << 24) | (65_535 << 8) | 255;
/// Initial timeout of a DTLS flight, and number of retransmissions. The timeout doubles, and the sum is 13 s.
const DTLS_RETRANSMISSION: (Duration, usize) = (Duration::from_millis(100), 6);

/// The protocol of a datagram, by its first byte (RFC 7983, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// STUN (first byte 0 to 3).
    Stun,
    /// DTLS (first byte 20 to 63).
    Dtls,
    /// RTP, RTCP, SRTP or SRTCP (first byte 128 to 191).
    Rtp,
    /// Another protocol, or an empty datagram.
    Other,
}

impl Protocol {
    /// Returns a datagram's protocol.
    pub const fn of(datagram: &[u8]) -> Self {
        match datagram {
            [0..=3, ..] => Self::Stun,
            [20..=63, ..] => Self::Dtls,
            [128..=191, ..] => Self::Rtp,
            _ => Self::Other,
        }
    }
}

/// SRTP keying material that DTLS exported, in the order of RFC 5764, section 4.2.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// SRTP protection profile.
    pub profile: SrtpProfile,
    /// The client's key, the server's key, the client's salt, and the server's salt.
    pub material: Vec<u8>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({:?}, …)", self.profile)
    }
}

/// An output of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A datagram to this address.
    Send(SocketAddr, Vec<u8>),
    /// The browser's new address.
    Peer(SocketAddr),
    /// The SRTP keys. Media may be sent from now on.
    Keys(Keys),
}

/// The state of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No check has arrived.
    Checking,
    /// The DTLS handshake is running.
    Connecting,
    /// The keys are available.
    Connected,
    /// The connection has ended.
    Ended,
}

impl State {
    /// Returns the name in a session's status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Checking => "checking",
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Ended => "ended",
        }
    }
}

/// The parameters of both ends of a tunnel.
#[derive(Clone, Debug)]
pub struct TunnelParameters {
    /// This end's address, as the peer reaches it.
    pub local: SocketAddr,
    /// This end's credentials, which authenticate the peer's checks.
    pub own: Credentials,
    /// The peer's credentials.
    pub peer: Credentials,
    /// Accepted fingerprints of the peer's certificate.
    pub fingerprints: Vec<Fingerprint>,
    /// This end's role.
    pub role: Role,
}

impl TunnelParameters {
    /// Returns whether this end is the DTLS client.
    pub const fn is_dtls_client(&self) -> bool {
        matches!(self.role, Role::Offerer { is_dtls_client: true, .. })
    }
}

/// An address with valid checks.
struct Path {
    at: SocketAddr,
    /// The number of bytes received from the address.
    received: u64,
    /// The number of bytes sent to the address.
    sent: u64,
    is_valid: bool,
    /// Arrival time of the last valid check.
    checked: Time,
    /// Whether the browser has nominated this address.
    is_nominated: bool,
    /// The transaction ID of this end's check.
    transaction: Option<TransId>,
    /// When this end's check is retransmitted.
    again: Time,
    /// Timeout after the next retransmission.
    wait: Span,
}

/// A connection to a browser or server.
pub struct Tunnel {
    /// The instant of time zero.
    epoch: Instant,
    ends: TunnelParameters,
    /// The checks of this end, if it made the offer.
    controlling: Option<Box<Controlling>>,
    dtls: Dtls,
    dtls_wake: Time,
    state: State,
    /// Why the connection ended.
    why: Option<String>,
    peer: Option<SocketAddr>,
    /// Whether the peer's certificate matched.
    known: bool,
    began: Time,
    /// Arrival time of the last valid check from the browser's address.
    checked: Time,
    /// Arrival time of the last authentic packet from the browser's address.
    heard: Time,
    /// Arrival time of the last authentic packet from any address.
    last: Time,
    /// The recent times between authentic packets.
    gaps: VecDeque<Span>,
    /// The addresses in the order of their first check.
    paths: Vec<Path>,
    /// Number of paths so far.
    path_count: u64,
    /// The secret from which the checks' transaction IDs follow.
    secret: [u8; 20],
    /// Invalid checks, and datagrams from other addresses than the browser's.
    refused: u64,
    out: VecDeque<Output>,
    buffer: Vec<u8>,
}

impl Tunnel {
    /// Starts a tunnel. `epoch` is the instant of time zero.
    ///
    /// # Errors
    /// The certificate can't be used, which is a bug.
    pub fn new(
        epoch: Instant,
        now: Time,
        ends: TunnelParameters,
        certificate: &Certificate,
    ) -> Result<Self, dimpl::Error> {
        let (first, times) = DTLS_RETRANSMISSION;
        let config = Config::builder()
            // The cookie proves that the browser receives at its address, before this end sends a large flight.
            .use_server_cookie(true)
            // The certificate is required, so that its fingerprint can be verified.
            .require_client_certificate(true)
            .handshake_timeout(Duration::from_nanos(CONNECT_TIMEOUT.as_nanos()))
            .flight_start_rto(first)
            .flight_retries(times)
            .build()?;
        let start = instant(epoch, now);
        let mut dtls = Dtls::new_auto(Arc::new(config), certificate.dtls.clone(), start);
        dtls.set_active(ends.is_dtls_client());
        let controlling = Controlling::new(&ends).map(Box::new);
        if controlling.is_none() {
            dtls.handle_timeout(start)?;
        }
        // The secret differs per session, and the browser does not know it.
        let secret = hmac(&certificate.dtls.private_key, &[b"checks", ends.own.password.as_bytes()]);
        Ok(Self {
            epoch,
            ends,
            controlling,
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
            gaps: VecDeque::new(),
            paths: Vec::new(),
            path_count: 0,
            secret,
            refused: 0,
            out: VecDeque::new(),
            buffer: vec![0; 2_048],
        })
    }

    /// Returns the state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns why the connection ended, or `None` if one of the ends closed it.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Returns whether this end is the DTLS client.
    pub const fn is_dtls_client(&self) -> bool {
        self.ends.is_dtls_client()
    }

    /// Returns the peer's address.
    pub const fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns the number of invalid checks, and of datagrams from other addresses than the browser's.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the time since the browser's last packet.
    pub fn silent_for(&self, now: Time) -> Span {
        now.since(self.last)
    }

    /// Returns whether a connected browser has been silent for longer than a running one would be, see [`MIN_SILENCE`].
    pub fn is_silent(&self, now: Time) -> bool {
        self.state == State::Connected && self.silent_for(now) >= MIN_SILENCE.max(self.usual_gap() * SILENCE_GAPS)
    }

    /// Returns the second longest of the recent gaps.
    fn usual_gap(&self) -> Span {
        let longer = |(first, second): (Span, Span), gap: &Span| {
            if *gap > first { (*gap, first) } else { (first, second.max(*gap)) }
        };
        self.gaps.iter().fold((Span::ZERO, Span::ZERO), longer).1
    }

    /// Returns when [`Tunnel::on_wake`] is due.
    pub fn wake(&self) -> Time {
        if !self.out.is_empty() {
            return Time::ZERO;
        }
        let checks = self.controlling.as_ref().map_or_else(|| self.paths_wake(), |checks| checks.wake);
        match self.state {
            State::Checking | State::Connecting => self.dtls_wake.min(self.began + CONNECT_TIMEOUT).min(checks),
            State::Connected => self.dtls_wake.min(self.checked + CONSENT_TIMEOUT).min(checks),
            State::Ended => Time::NEVER,
        }
    }

    /// Returns the next output.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// Handles the timer of [`Tunnel::wake`].
    pub fn on_wake(&mut self, now: Time) {
        let peer = self.peer_name();
        match self.state {
            State::Checking if now >= self.began + CONNECT_TIMEOUT => self.end(self.unreached()),
            State::Connecting if now >= self.began + CONNECT_TIMEOUT => {
                self.end(format!("ICE reached {peer}, and DTLS did not connect in 15 s"));
            }
            // Media require consent, even if reports still arrive (RFC 7675).
            State::Connected if now >= self.checked + CONSENT_TIMEOUT => {
                self.end(format!("{peer} has been silent for 30 s"));
            }
            State::Checking | State::Connecting | State::Connected if self.controlling.is_some() => {
                let instant = instant(self.epoch, now);
                self.with_checks(now, |checks| checks.on_wake(instant));
                // Without a nominated address, DTLS has no destination.
                if self.state != State::Checking {
                    self.drive(now, |_| Ok(()));
                }
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

    /// Returns the peer's name in messages.
    const fn peer_name(&self) -> &'static str {
        if self.controlling.is_some() { "the server" } else { "the browser" }
    }

    /// Returns the reason for the end of a connection without a successful ICE check.
    fn unreached(&self) -> String {
        let (ip, port) = (self.ends.local.ip(), self.ends.local.port());
        match &self.ends.role {
            Role::Answerer => format!("no check from the browser: is UDP port {port} of {ip} reachable from there?"),
            Role::Offerer { candidates, .. } => {
                let all: Vec<String> = candidates.iter().map(SocketAddr::to_string).collect();
                format!("no answer to ICE checks in 15 s from {}: does UDP reach there from {ip}?", all.join(", "))
            }
        }
    }

    /// Runs `call` with the ICE agent of this end, if there is one, and processes the agent's output.
    fn with_checks(&mut self, now: Time, call: impl FnOnce(&mut Controlling)) {
        let epoch = self.epoch;
        let Some(checks) = self.controlling.as_deref_mut() else { return };
        call(checks);
        let nominated = checks.drain(&mut self.out);
        checks.wake = checks.next().map_or(now, |at| time(epoch, at));
        if let Some(at) = nominated.filter(|at| self.peer != Some(*at)) {
            self.move_to(now, at);
            if self.state == State::Checking {
                self.state = State::Connecting;
                // A DTLS client begins the handshake now.
                self.drive(now, |_| Ok(()));
            }
        }
    }

    /// Handles a STUN or DTLS datagram. Others must not be passed.
    pub fn on_datagram(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) {
        if self.state == State::Ended {
            return;
        }
        let taken = match Protocol::of(datagram) {
            Protocol::Stun => self.on_stun(now, from, datagram).is_some(),
            // Other hosts must not disturb the handshake.
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

    /// Handles an authentic SRTCP packet, which only the browser can have sent.
    pub fn on_authenticated(&mut self, now: Time, from: SocketAddr) {
        self.arrived(now);
        if self.peer == Some(from) {
            self.heard = now;
        }
    }

    /// Records a packet that only the browser can have sent.
    fn arrived(&mut self, now: Time) {
        if self.state == State::Connected {
            self.gaps.push_back(now.since(self.last));
            if self.gaps.len() > RECENT_GAPS {
                self.gaps.pop_front();
            }
        }
        self.last = now;
    }

    /// Closes the connection with a DTLS alert.
    pub fn close(&mut self, now: Time) {
        if self.state != State::Ended {
            self.drive(now, Dtls::close);
            self.state = State::Ended;
        }
    }

    /// Handles a check of the browser, or its response to a check of this end.
    fn on_stun(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) -> Option<()> {
        let message = StunMessage::parse(datagram).ok()?;
        if self.controlling.is_some() {
            return self.on_checks(now, from, message);
        }
        if message.is_successful_binding_response() {
            return self.on_answer(now, from, &message);
        }
        self.on_check(now, from, datagram.len(), &message)
    }

    /// Handles a server's response to a check of this end, or a check of its own.
    fn on_checks(&mut self, now: Time, from: SocketAddr, message: StunMessage<'_>) -> Option<()> {
        let (local, instant) = (self.ends.local, instant(self.epoch, now));
        let mut authentic = None;
        self.with_checks(now, |checks| authentic = checks.on_message(instant, from, local, message));
        let is_response = authentic?;
        self.arrived(now);
        if is_response && self.peer.is_some_and(|peer| peer == from) {
            // A response is consent to receive media (RFC 7675, section 5.1).
            (self.checked, self.heard) = (now, now);
        }
        Some(())
    }

    /// Responds to a check, if it has the browser's credentials.
    fn on_check(&mut self, now: Time, from: SocketAddr, len: usize, message: &StunMessage<'_>) -> Option<()> {
        if !is_authentic_check(message, &self.ends.own, &self.ends.peer.ufrag) {
            return None;
        }
        let password = self.ends.own.password.as_bytes();
        let mut reply = [0; 128];
        let written = StunMessage::binding_reply(message.trans_id(), from).to_bytes(Some(password), &mut reply, hmac);
        let reply = reply.get(..written.ok()?)?;
        let n = self.path(now, from);
        if let Some(path) = self.paths.get_mut(n) {
            path.received += len as u64;
            path.checked = now;
            // A nomination remains valid, because full agents other than libwebrtc nominate only once (RFC 8445,
            // section 8.1.1).
            path.is_nominated |= message.use_candidate();
        }
        self.send(from, reply);
        self.arrived(now);
        let nominated = message.use_candidate();
        // The first nominated address is used at once, because DTLS validates it.
        if nominated && self.peer.is_none() {
            self.move_to(now, from);
            if self.state == State::Checking {
                self.state = State::Connecting;
            }
        }
        if self.peer == Some(from) {
            self.checked = now;
            // A later `heard` would delay a move to another address. A browser that is leaving this address may still
            // send checks without a nomination.
            self.heard = if nominated { now } else { self.heard };
        } else if nominated {
            self.check(now, n);
            self.settle(now);
        }
        Some(())
    }

    /// Validates an address by the browser's response to a check of this end.
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

    /// Returns the index of an address's path, which is added if it is new.
    fn path(&mut self, now: Time, at: SocketAddr) -> usize {
        if let Some(n) = self.paths.iter().position(|path| path.at == at) {
            return n;
        }
        if self.paths.len() == MAX_PATHS {
            // The path with the oldest check is dropped, but never the browser's present one.
            let oldest = (0..MAX_PATHS).filter(|n| self.paths.get(*n).is_some_and(|path| self.peer != Some(path.at)));
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
            wait: CHECK_RTO,
        });
        self.paths.len() - 1
    }

    /// Sends a check, to which only a browser that receives at this address can respond.
    fn check(&mut self, now: Time, n: usize) {
        let Some(path) = self.paths.get_mut(n).filter(|path| !path.is_valid) else { return };
        let Some(transaction) = path.transaction else { return };
        let TunnelParameters { own, peer, .. } = &self.ends;
        // The receiver's user name comes first (RFC 8445, section 7.2.2).
        let name = format!("{}:{}", peer.ufrag, own.ufrag);
        let (mut bytes, password) = ([0; 640], peer.password.as_bytes());
        let message = StunMessage::binding_request(&name, transaction, false, 0, PRIORITY, false);
        let Ok(len) = message.to_bytes(Some(password), &mut bytes, hmac) else { return };
        (path.again, path.wait) = (now + path.wait, path.wait * 2);
        let at = path.at;
        let is_sent = bytes.get(..len).is_some_and(|bytes| self.send(at, bytes));
        if let Some(path) = self.paths.get_mut(n).filter(|_| !is_sent) {
            // The amplification limit is reached. The browser's next check allows another try.
            (path.again, path.wait) = (Time::NEVER, CHECK_RTO);
        }
    }

    /// Moves to the validated address that the browser nominated last, if no packets arrive from the present one.
    ///
    /// An attacker can replay a check from another address, and may even make the browser respond, but can't divert the
    /// media while packets arrive from the browser's present address.
    fn settle(&mut self, now: Time) {
        if now.since(self.heard) >= MIGRATION_HOLD
            && let Some(at) = self.next().filter(|_| self.state != State::Ended)
        {
            self.move_to(now, at);
        }
    }

    /// Returns the validated and nominated address to which the browser has moved.
    ///
    /// The address's latest check arrived after the last packet from `self.peer`.
    fn next(&self) -> Option<SocketAddr> {
        let fit = |path: &&Path| {
            path.is_valid && path.is_nominated && path.checked > self.heard && self.peer != Some(path.at)
        };
        self.paths.iter().filter(fit).max_by_key(|path| path.checked).map(|path| path.at)
    }

    fn move_to(&mut self, now: Time, at: SocketAddr) {
        self.peer = Some(at);
        (self.heard, self.checked) = (now, now);
        // An older nomination must not cause a move back.
        self.paths.iter_mut().for_each(|path| path.is_nominated = path.at == at);
        self.out.push_back(Output::Peer(at));
    }

    /// Returns when the next check of a path or the move to another path is due.
    fn paths_wake(&self) -> Time {
        let again = self.paths.iter().map(|path| path.again).min().unwrap_or(Time::NEVER);
        self.next().map_or(again, |_| again.min(self.heard + MIGRATION_HOLD))
    }

    /// Sends a datagram within the address's amplification limit. Returns whether it was sent.
    fn send(&mut self, to: SocketAddr, bytes: &[u8]) -> bool {
        if self.controlling.is_some() {
            // No limit applies, because `controlling` nominates only addresses that have answered a check.
            self.out.push_back(Output::Send(to, bytes.to_vec()));
            return true;
        }
        let Some(path) = self.paths.iter_mut().find(|path| path.at == to) else { return false };
        let sent = path.sent + bytes.len() as u64;
        if !path.is_valid && sent > AMPLIFICATION * path.received {
            return false;
        }
        path.sent = sent;
        self.out.push_back(Output::Send(to, bytes.to_vec()));
        true
    }

    /// Calls DTLS, and processes its output.
    fn drive(&mut self, now: Time, what: impl FnOnce(&mut Dtls) -> Result<(), dimpl::Error>) {
        let done = self.dtls.handle_timeout(instant(self.epoch, now)).and_then(|()| what(&mut self.dtls));
        // The output includes an alert if DTLS has failed.
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
                        let said = if self.controlling.is_some() { "answer" } else { "offer" };
                        return self.end(format!("{}'s certificate is not the one of its {said}", self.peer_name()));
                    }
                }
                dimpl::Output::KeyingMaterial(bytes, profile) => {
                    // The certificate comes before the keys, unless DTLS has an error or is attacked.
                    if !self.known || self.state != State::Connecting {
                        return self.end("DTLS gave keys to a stranger".into());
                    }
                    self.state = State::Connected;
                    // The handshake validates the address where it began. After a move, the present address is already
                    // valid.
                    let peer = self.peer;
                    self.paths.iter_mut().filter(|path| Some(path.at) == peer).for_each(|path| path.is_valid = true);
                    self.out.push_back(Output::Keys(Keys { profile, material: bytes.to_vec() }));
                }
                dimpl::Output::CloseNotify if self.controlling.is_some() => {
                    return self.end("it has ended the session".into());
                }
                dimpl::Output::CloseNotify => {
                    self.state = State::Ended;
                    return;
                }
                // No application data is exchanged over DTLS.
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

/// Returns whether a message is a check from this peer for the end with the credentials `own`.
pub(crate) fn is_authentic_check(message: &StunMessage<'_>, own: &Credentials, peer_ufrag: &str) -> bool {
    // An ICE-lite end is always controlled, so a check must not contain ICE-CONTROLLED.
    message.is_binding_request()
        && message.split_username() == Some((&own.ufrag, peer_ufrag))
        && message.ice_controlled().is_none()
        && message.verify(own.password.as_bytes(), hmac)
}

fn instant(epoch: Instant, time: Time) -> Instant {
    epoch + Duration::from_nanos(time.as_nanos())
}

fn time(epoch: Instant, instant: Instant) -> Time {
    let since = instant.saturating_duration_since(epoch).as_nanos();
    Time::from_nanos(u64::try_from(since).unwrap_or(u64::MAX))
}

/// Returns the HMAC of STUN's MESSAGE-INTEGRITY.
fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 20] {
    DefaultSha1HmacProvider.sha1_hmac(key, parts)
}

/// Returns a transaction ID that can't be computed without the secret.
fn transaction(secret: &[u8], number: u64) -> Option<TransId> {
    // The crate `is` creates a `TransId` only by parsing a message, so a message without attributes is built (RFC 8489,
    // section 5).
    let mut header = [0, 0x11, 0, 0, 0x21, 0x12, 0xa4, 0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let hash = hmac(secret, &[&number.to_be_bytes()]);
    header.iter_mut().skip(8).zip(hash).for_each(|(byte, hashed)| *byte = hashed);
    StunMessage::parse(&header).ok().map(|message| message.trans_id())
}
