//! A connection with a browser or a server. It consists of ICE (RFC 8445) and DTLS (RFC 5763) and provides the SRTP
//! keys.
//!
//! If the peer is a browser, this end is ICE-lite (RFC 8445, section 2.5). It answers checks, and sends nothing to an
//! address before a valid check has arrived from it. An address is validated when the peer has proven that it receives
//! there. Before that, this end sends at most three times the number of bytes that came from the address (RFC 9000,
//! section 8).
//!
//! The DTLS cookie validates the browser's first address. For a later address, this end sends a check of its own. The
//! browser's response validates the address, because the check's transaction ID can't be guessed (RFC 9000,
//! sections 8.2 and 9.3). Until then, media is sent to the previous address.
//!
//! The keys are used only if the browser's certificate has a fingerprint that is in the browser's session description.
//!
//! If the peer is a server (WHIP, RFC 9725), this end has made the offer. It then sends the checks and nominates an
//! address that answers.
//!
//! After each call that changes the state, the caller must call [`Tunnel::poll`] until it returns `None`, and then read
//! [`Tunnel::wake`].

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

/// Maximum duration of ICE and DTLS together.
pub const CONNECT_TIMEOUT: Span = Span::secs(15);
/// The browser's consent to receive media expires when no check has arrived for this time (RFC 7675, section 5.1).
pub const CONSENT_TIMEOUT: Span = Span::secs(30);
/// Minimum time without packets after which a browser is considered silent.
///
/// Chromium and Firefox send transport-wide feedback every 50 to 250 ms, a receiver report every second and a check
/// every 2.5 s. In four seconds, they send about twenty datagrams. At 50 % loss, the probability that all of them are
/// lost is below 10⁻⁶.
pub const MIN_SILENCE: Span = Span::secs(4);
/// A browser is considered silent only after this multiple of its usual gap between packets. A multiple is needed
/// because a player may send reports only every 5 s.
const SILENCE_GAPS: u64 = 2;
/// Number of recent gaps from which the usual gap is computed. The second longest gap is used. The longest gap may be a
/// network outage, and would delay the detection of a browser that has gone.
const RECENT_GAPS: usize = 32;
/// Media stays at the browser's current address while packets have arrived from there within this time.
const MIGRATION_HOLD: Span = Span::secs(1);
/// The amplification limit: how many times the received bytes may be sent to an address that is not validated
/// (RFC 9000, section 8.1).
const AMPLIFICATION: u64 = 3;
/// The initial retransmission timeout of the checks that this end sends. It doubles with each retransmission.
const CHECK_RTO: Span = Span::millis(250);
/// Maximum number of addresses stored per browser.
const MAX_PATHS: usize = 4;
/// The PRIORITY attribute of the checks that this end sends. It is the priority of a host candidate (RFC 8445,
/// section 5.1.2.1).
const PRIORITY: u32 = (126 << 24) | (65_535 << 8) | 255;
/// The initial timeout of a DTLS flight and its number of retransmissions. The timeout doubles each time, which gives
/// 13 s in all.
const DTLS_RETRANSMISSION: (Duration, usize) = (Duration::from_millis(100), 6);

/// The protocol of a datagram. The first byte determines it (RFC 7983, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// STUN (first byte 0 to 3).
    Stun,
    /// DTLS (first byte 20 to 63).
    Dtls,
    /// RTP, RTCP, SRTP or SRTCP (first byte 128 to 191).
    Rtp,
    /// Another protocol. Empty datagrams also have this value.
    Other,
}

impl Protocol {
    /// Returns the protocol of a datagram.
    pub const fn of(datagram: &[u8]) -> Self {
        match datagram {
            [0..=3, ..] => Self::Stun,
            [20..=63, ..] => Self::Dtls,
            [128..=191, ..] => Self::Rtp,
            _ => Self::Other,
        }
    }
}

/// The SRTP keying material that DTLS has exported. It has the order of RFC 5764, section 4.2.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// The SRTP protection profile.
    pub profile: SrtpProfile,
    /// The client's key, the server's key, the client's salt, and the server's salt.
    pub material: Vec<u8>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({:?}, …)", self.profile)
    }
}

/// An output of a tunnel, which the caller has to process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A datagram that has to be sent to the given address.
    Send(SocketAddr, Vec<u8>),
    /// The address of the peer from now on.
    Peer(SocketAddr),
    /// The SRTP keys. Media may be sent from now on.
    Keys(Keys),
}

/// What ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// This end closed the connection.
    Closed,
    /// The peer closed the connection, which is a regular end.
    ClosedByPeer,
    /// The connection was not established, or was lost.
    Failed,
}

impl EndCause {
    /// Returns the cause's name in the status of a session.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::ClosedByPeer => "closed by peer",
            Self::Failed => "failed",
        }
    }
}

/// The state of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No address has been nominated by a successful ICE check yet.
    Checking,
    /// The DTLS handshake is running.
    Connecting,
    /// The DTLS handshake is complete, and the keys are available.
    Connected,
    /// The connection has ended.
    Ended,
}

impl State {
    /// Returns the state's name in the status of a session.
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
    /// The address at which the peer reaches this end.
    pub local: SocketAddr,
    /// This end's credentials, which authenticate the peer's checks.
    pub own: Credentials,
    /// The peer's credentials.
    pub peer: Credentials,
    /// The accepted fingerprints. The peer's certificate must have one of them.
    pub fingerprints: Vec<Fingerprint>,
    /// The role of this end.
    pub role: Role,
}

impl TunnelParameters {
    /// Returns whether this end is the DTLS client.
    pub const fn is_dtls_client(&self) -> bool {
        matches!(self.role, Role::Offerer { is_dtls_client: true, .. })
    }
}

/// A network path to the browser: an address from which valid checks have arrived.
struct Path {
    at: SocketAddr,
    /// Number of bytes received from the address.
    received: u64,
    /// Number of bytes sent to the address.
    sent: u64,
    is_valid: bool,
    /// When the last valid check arrived from the address.
    checked: Time,
    /// Whether the browser has nominated this address.
    is_nominated: bool,
    /// The transaction ID of the check that this end sends to the address.
    transaction: Option<TransId>,
    /// When the check of this end is retransmitted.
    again: Time,
    /// The timeout after the next retransmission of the check.
    wait: Span,
}

/// A connection with a browser or a server.
pub struct Tunnel {
    /// The instant that corresponds to [`Time::ZERO`].
    epoch: Instant,
    ends: TunnelParameters,
    /// Sends and processes ICE checks, if this end made the offer.
    controlling: Option<Box<Controlling>>,
    dtls: Dtls,
    dtls_wake: Time,
    state: State,
    /// Why the connection has ended.
    why: Option<String>,
    end_cause: Option<EndCause>,
    peer: Option<SocketAddr>,
    /// Whether the peer's certificate had an accepted fingerprint.
    known: bool,
    began: Time,
    /// When the last valid check arrived from the address in `peer`.
    checked: Time,
    /// When the last authentic packet arrived from the address in `peer`.
    heard: Time,
    /// When the last authentic packet arrived from any address.
    last: Time,
    /// The recent gaps between authentic packets.
    gaps: VecDeque<Span>,
    /// The paths, in the order in which their first checks arrived.
    paths: Vec<Path>,
    /// Number of paths that have been created so far.
    path_count: u64,
    /// The secret from which the transaction IDs of this end's checks are computed.
    secret: [u8; 20],
    /// Number of invalid STUN messages, plus the number of DTLS datagrams from addresses that are not the peer's.
    refused: u64,
    out: VecDeque<Output>,
    buffer: Vec<u8>,
}

impl Tunnel {
    /// Creates a tunnel. `epoch` is the instant that corresponds to [`Time::ZERO`].
    ///
    /// # Errors
    /// Returns an error if the certificate can't be used. This would be a bug.
    pub fn new(
        epoch: Instant,
        now: Time,
        ends: TunnelParameters,
        certificate: &Certificate,
    ) -> Result<Self, dimpl::Error> {
        let (first, times) = DTLS_RETRANSMISSION;
        let config = Config::builder()
            // With a cookie, the browser proves that it receives at its address before this end sends a large flight.
            .use_server_cookie(true)
            // Require a certificate from the client, so that its fingerprint can be verified.
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
        // Derive a secret that is different in each session and unknown to the browser.
        let secret = hmac(&certificate.dtls.private_key, &[b"checks", ends.own.password.as_bytes()]);
        Ok(Self {
            epoch,
            ends,
            controlling,
            dtls,
            dtls_wake: Time::NEVER,
            state: State::Checking,
            why: None,
            end_cause: None,
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

    /// Returns the state of the connection.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns what ended the connection. Returns `None` if it has not ended.
    pub const fn end_cause(&self) -> Option<EndCause> {
        self.end_cause
    }

    /// Returns why the connection has ended, as text. Returns `None` if it has not ended, if this end closed it, or if
    /// a browser closed it.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Returns whether this end is the DTLS client.
    pub const fn is_dtls_client(&self) -> bool {
        self.ends.is_dtls_client()
    }

    /// Returns the address of the peer. Returns `None` before it is known.
    pub const fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Returns the number of invalid STUN messages, plus the number of DTLS datagrams from addresses that are not the
    /// peer's.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the time since the last authentic packet of the browser.
    pub fn silent_for(&self, now: Time) -> Span {
        now.since(self.last)
    }

    /// Returns whether a connected browser has sent nothing for longer than a running browser would. See
    /// [`MIN_SILENCE`].
    pub fn is_silent(&self, now: Time) -> bool {
        self.state == State::Connected && self.silent_for(now) >= MIN_SILENCE.max(self.usual_gap() * SILENCE_GAPS)
    }

    /// Returns the usual gap between packets, which is the second longest of the recent gaps.
    fn usual_gap(&self) -> Span {
        let longer = |(first, second): (Span, Span), gap: &Span| {
            if *gap > first { (*gap, first) } else { (first, second.max(*gap)) }
        };
        self.gaps.iter().fold((Span::ZERO, Span::ZERO), longer).1
    }

    /// Returns when [`Tunnel::on_wake`] must be called.
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

    /// Returns the next output. Returns `None` if there is none.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// Handles the expiry of the timer of [`Tunnel::wake`].
    pub fn on_wake(&mut self, now: Time) {
        let peer = self.peer_name();
        match self.state {
            State::Checking if now >= self.began + CONNECT_TIMEOUT => self.end(self.unreached()),
            State::Connecting if now >= self.began + CONNECT_TIMEOUT => {
                self.end(format!("ICE reached {peer}, and DTLS did not connect in 15 s"));
            }
            // Without consent, media must stop, even if reports still arrive (RFC 7675).
            State::Connected if now >= self.checked + CONSENT_TIMEOUT => {
                self.end(format!("{peer} has been silent for 30 s"));
            }
            State::Checking | State::Connecting | State::Connected if self.controlling.is_some() => {
                let instant = instant(self.epoch, now);
                self.with_checks(now, |checks| checks.on_wake(instant));
                // Run DTLS only after an address is nominated. Before that, DTLS has no destination.
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

    /// Returns a name for the peer that is used in messages.
    const fn peer_name(&self) -> &'static str {
        if self.controlling.is_some() { "the server" } else { "the browser" }
    }

    /// Returns the reason to report if the connection ends without a successful ICE check.
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

    /// Runs `call` with the ICE agent of this end and processes the agent's output. Does nothing if there is no agent.
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
                // Run DTLS now, because a DTLS client begins the handshake.
                self.drive(now, |_| Ok(()));
            }
        }
    }

    /// Handles a STUN or DTLS datagram. Datagrams of other protocols must not be passed.
    pub fn on_datagram(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) {
        if self.state == State::Ended {
            return;
        }
        let taken = match Protocol::of(datagram) {
            Protocol::Stun => self.on_stun(now, from, datagram).is_some(),
            // Accept DTLS only from the peer's address, so that other hosts can't disturb the handshake.
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

    /// Handles the arrival of an authentic SRTCP packet. Only the browser can have sent it.
    pub fn on_authenticated(&mut self, now: Time, from: SocketAddr) {
        self.arrived(now);
        if self.peer == Some(from) {
            self.heard = now;
        }
    }

    /// Records that a packet has arrived that only the browser can have sent.
    fn arrived(&mut self, now: Time) {
        if self.state == State::Connected {
            self.gaps.push_back(now.since(self.last));
            if self.gaps.len() > RECENT_GAPS {
                self.gaps.pop_front();
            }
        }
        self.last = now;
    }

    /// Closes the connection and sends a DTLS alert.
    pub fn close(&mut self, now: Time) {
        if self.state != State::Ended {
            self.drive(now, Dtls::close);
            self.state = State::Ended;
            self.end_cause.get_or_insert(EndCause::Closed);
        }
    }

    /// Handles a STUN message: a check of the peer, or its response to a check of this end. Returns `None` if the
    /// message is invalid.
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

    /// Handles a STUN message of a server: a response to a check of this end, or a check of the server.
    fn on_checks(&mut self, now: Time, from: SocketAddr, message: StunMessage<'_>) -> Option<()> {
        let (local, instant) = (self.ends.local, instant(self.epoch, now));
        let mut authentic = None;
        self.with_checks(now, |checks| authentic = checks.on_message(instant, from, local, message));
        let is_response = authentic?;
        self.arrived(now);
        if is_response && self.peer.is_some_and(|peer| peer == from) {
            // A response from the peer's address is its consent to receive media (RFC 7675, section 5.1).
            (self.checked, self.heard) = (now, now);
        }
        Some(())
    }

    /// Responds to a check of the browser. Returns `None` if the check does not have the browser's credentials.
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
            // Keep an earlier nomination. Full agents other than libwebrtc nominate an address only once (RFC 8445,
            // section 8.1.1).
            path.is_nominated |= message.use_candidate();
        }
        self.send(from, reply);
        self.arrived(now);
        let nominated = message.use_candidate();
        // Use the first nominated address without a check, because the DTLS cookie validates it.
        if nominated && self.peer.is_none() {
            self.move_to(now, from);
            if self.state == State::Checking {
                self.state = State::Connecting;
            }
        }
        if self.peer == Some(from) {
            self.checked = now;
            // Update `heard` only for a nomination, because a later `heard` delays a move to another address. A browser
            // that is leaving this address may still send checks from it, but without a nomination.
            self.heard = if nominated { now } else { self.heard };
        } else if nominated {
            self.check(now, n);
            self.settle(now);
        }
        Some(())
    }

    /// Handles the browser's response to a check of this end. A valid response validates the address.
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

    /// Returns the index of the path to the address `at`. Adds a path if the address is new.
    fn path(&mut self, now: Time, at: SocketAddr) -> usize {
        if let Some(n) = self.paths.iter().position(|path| path.at == at) {
            return n;
        }
        if self.paths.len() == MAX_PATHS {
            // Remove the path with the oldest check, but never the path that is in use.
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

    /// Sends a check on path `n`. Only a browser that receives at the path's address can respond to it.
    fn check(&mut self, now: Time, n: usize) {
        let Some(path) = self.paths.get_mut(n).filter(|path| !path.is_valid) else { return };
        let Some(transaction) = path.transaction else { return };
        let TunnelParameters { own, peer, .. } = &self.ends;
        // The user name of the check's receiver comes first (RFC 8445, section 7.2.2).
        let name = format!("{}:{}", peer.ufrag, own.ufrag);
        let (mut bytes, password) = ([0; 640], peer.password.as_bytes());
        let message = StunMessage::binding_request(&name, transaction, false, 0, PRIORITY, false);
        let Ok(len) = message.to_bytes(Some(password), &mut bytes, hmac) else { return };
        (path.again, path.wait) = (now + path.wait, path.wait * 2);
        let at = path.at;
        let is_sent = bytes.get(..len).is_some_and(|bytes| self.send(at, bytes));
        if let Some(path) = self.paths.get_mut(n).filter(|_| !is_sent) {
            // The check was not sent, because the amplification limit is reached. Stop the timer. The browser's next
            // check allows another try.
            (path.again, path.wait) = (Time::NEVER, CHECK_RTO);
        }
    }

    /// Moves to the validated address that the browser nominated last. Does so only if no packets arrive from the
    /// current address.
    ///
    /// An attacker can replay a check from another address, and may even make the browser respond. This alone does not
    /// divert the media, as long as packets arrive from the browser's current address.
    fn settle(&mut self, now: Time) {
        if now.since(self.heard) >= MIGRATION_HOLD
            && let Some(at) = self.next().filter(|_| self.state != State::Ended)
        {
            self.move_to(now, at);
        }
    }

    /// Returns the address to which the browser has moved. The address must be validated and nominated.
    ///
    /// The latest check from this address must have arrived after the last packet from `self.peer`.
    fn next(&self) -> Option<SocketAddr> {
        let fit = |path: &&Path| {
            path.is_valid && path.is_nominated && path.checked > self.heard && self.peer != Some(path.at)
        };
        self.paths.iter().filter(fit).max_by_key(|path| path.checked).map(|path| path.at)
    }

    fn move_to(&mut self, now: Time, at: SocketAddr) {
        self.peer = Some(at);
        (self.heard, self.checked) = (now, now);
        // Forget older nominations, because they must not cause a move back.
        self.paths.iter_mut().for_each(|path| path.is_nominated = path.at == at);
        self.out.push_back(Output::Peer(at));
    }

    /// Returns when the next check of a path is due, or the move to another path if that is earlier.
    fn paths_wake(&self) -> Time {
        let again = self.paths.iter().map(|path| path.again).min().unwrap_or(Time::NEVER);
        self.next().map_or(again, |_| again.min(self.heard + MIGRATION_HOLD))
    }

    /// Sends a datagram, if the amplification limit of the address allows it. Returns whether it was sent.
    fn send(&mut self, to: SocketAddr, bytes: &[u8]) -> bool {
        if self.controlling.is_some() {
            // There is no limit here, because `controlling` nominates only addresses that have answered a check.
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

    /// Runs DTLS with the call `what` and processes its output.
    fn drive(&mut self, now: Time, what: impl FnOnce(&mut Dtls) -> Result<(), dimpl::Error>) {
        let done = self.dtls.handle_timeout(instant(self.epoch, now)).and_then(|()| what(&mut self.dtls));
        // Send the output even after an error, because it contains the DTLS alert.
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
                    // DTLS reports the certificate before the keys. Close the connection if it does not, because the
                    // peer is then unproven.
                    if !self.known || self.state != State::Connecting {
                        return self.end("DTLS gave keys to a stranger".into());
                    }
                    self.state = State::Connected;
                    // The handshake validates the address at which it began. If the peer has moved since then, its
                    // current address is already valid.
                    let peer = self.peer;
                    self.paths.iter_mut().filter(|path| Some(path.at) == peer).for_each(|path| path.is_valid = true);
                    self.out.push_back(Output::Keys(Keys { profile, material: bytes.to_vec() }));
                }
                dimpl::Output::CloseNotify => {
                    let why = self.controlling.is_some().then(|| "it has ended the session".to_owned());
                    return self.end_as(EndCause::ClosedByPeer, why);
                }
                // Ignore other output, because no application data is exchanged over DTLS.
                _ => {}
            }
        }
    }

    fn end(&mut self, why: String) {
        self.end_as(EndCause::Failed, Some(why));
    }

    fn end_as(&mut self, cause: EndCause, why: Option<String>) {
        if self.state != State::Ended {
            (self.state, self.end_cause, self.why) = (State::Ended, Some(cause), why);
        }
    }
}

/// Returns whether a message is an authentic check. It must be for the end with the credentials `own`, and its sender
/// must have the user name `peer_ufrag`.
pub(crate) fn is_authentic_check(message: &StunMessage<'_>, own: &Credentials, peer_ufrag: &str) -> bool {
    // An ICE-lite end is always the controlled agent. Therefore the check must not contain ICE-CONTROLLED.
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

/// Computes the HMAC that STUN's MESSAGE-INTEGRITY contains.
fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 20] {
    DefaultSha1HmacProvider.sha1_hmac(key, parts)
}

/// Returns the transaction ID of the check on a path. `number` is the number of the path. The ID can't be computed
/// without the secret.
fn transaction(secret: &[u8], number: u64) -> Option<TransId> {
    // Build the header of a message without attributes and parse it (RFC 8489, section 5). The crate `is` has no other
    // way to create a `TransId`.
    let mut header = [0, 0x11, 0, 0, 0x21, 0x12, 0xa4, 0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let hash = hmac(secret, &[&number.to_be_bytes()]);
    header.iter_mut().skip(8).zip(hash).for_each(|(byte, hashed)| *byte = hashed);
    StunMessage::parse(&header).ok().map(|message| message.trans_id())
}
