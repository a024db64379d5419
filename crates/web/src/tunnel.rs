//! ICE-lite (RFC 8445, section 2.5) and DTLS (RFC 5763) with one browser, until the keys of SRTP are there.
//!
//! This end answers checks, and sends none. Nothing leaves for an address before a check from there was right, so that
//! nobody is sent more than was sent to us; DTLS asks for a cookie besides. The browser's certificate is compared with
//! its fingerprint before its keys are handed on.
//!
//! After each call that changes something [`Tunnel::poll`] is called until it has nothing more to say, and
//! [`Tunnel::wake`] is asked again.

use crate::Credentials;
use crate::certificate::{Certificate, Fingerprint, fingerprint};
use dimpl::{Config, Dtls, SrtpProfile};
use is::stun::StunMessage;
use is::{DefaultSha1HmacProvider, Sha1HmacProvider};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use steadycast_units::{Span, Time};

/// How long ICE and DTLS may take together.
pub const PATIENCE: Span = Span::secs(15);
/// A browser that has sent no check for so long is gone. Browsers check every few seconds (RFC 7675 has 30 s, too).
pub const SILENCE: Span = Span::secs(30);
/// A browser whose address was heard of less than this long ago stays there, whatever another address says.
const SETTLED: Span = Span::secs(1);
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
    /// When the last right check came.
    checked: Time,
    /// When something right came from where the browser is.
    heard: Time,
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

    /// When it wants [`Tunnel::on_wake`].
    pub fn wake(&self) -> Time {
        if !self.out.is_empty() {
            return Time::ZERO;
        }
        match self.state {
            State::Checking | State::Connecting => self.dtls_wake.min(self.began + PATIENCE),
            State::Connected => self.dtls_wake.min(self.checked + SILENCE),
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
            State::Connecting | State::Connected => self.drive(now, |_| Ok(())),
            State::Checking | State::Ended => {}
        }
    }

    /// A datagram of STUN or of DTLS has come; what else comes is not for it.
    pub fn on_datagram(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) {
        if self.state == State::Ended {
            return;
        }
        let taken = match Protocol::of(datagram) {
            Protocol::Stun => self.on_check(now, from, datagram).is_some(),
            Protocol::Dtls if self.peer == Some(from) => {
                self.drive(now, |dtls| dtls.handle_packet(datagram));
                true
            }
            _ => false,
        };
        self.refused += u64::from(!taken);
    }

    /// Something came from this address that only the browser can have sent: its media's key protects it.
    pub fn on_heard(&mut self, now: Time, from: SocketAddr) {
        if self.peer == Some(from) {
            self.heard = now;
        }
    }

    /// Ends it: the browser is told.
    pub fn close(&mut self, now: Time) {
        if self.state != State::Ended {
            self.drive(now, Dtls::close);
            self.state = State::Ended;
        }
    }

    /// Answers a check that is signed as this browser's.
    fn on_check(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) -> Option<()> {
        let hmac = |key: &[u8], parts: &[&[u8]]| DefaultSha1HmacProvider.sha1_hmac(key, parts);
        let message = StunMessage::parse(datagram).ok().filter(StunMessage::is_binding_request)?;
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
        self.out.push_back(Output::Send(from, reply.get(..written.ok()?)?.to_vec()));
        self.checked = now;
        let nominated = message.use_candidate();
        // The browser moves when it says so. Whoever sends one of its checks again from elsewhere can't draw its media
        // away while it is heard where it is.
        let moves = self.peer != Some(from) && (self.peer.is_none() || now.since(self.heard) >= SETTLED);
        if nominated && moves {
            self.peer = Some(from);
            self.out.push_back(Output::Peer(from));
            if self.state == State::Checking {
                self.state = State::Connecting;
            }
        }
        if nominated && self.peer == Some(from) {
            self.heard = now;
        }
        Some(())
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
                    if let Some(peer) = self.peer {
                        self.out.push_back(Output::Send(peer, bytes.to_vec()));
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
