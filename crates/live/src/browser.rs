//! A browser or a WHIP server as a peer. Parameters are negotiated, and media is sent over ICE and DTLS-SRTP.

use crate::flow::{FLOW, FlowKeys, SOURCE};
use crate::sdp::{AudioStream, Description, PacketFeedback, Retransmissions, Sources};
use crate::{Clock, LiveError, MasterKey, MediaPort, Medium, Outbox, Pair, Srtp, SrtpProfile, Which, entropy};
use serde_json::{Value, json};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use steadycast_control::FeedbackFormat;
use steadycast_endpoints::{RemotePeer, VideoPlan};
use steadycast_session::{HeaderIds, SendTime};
use steadycast_units::{Span, Time};
use steadycast_web::{
    Certificate, Credentials, EndCause, Feedback, Keys, LocalParameters, LocalSources, NegotiatedParameters,
    NegotiationError, Output, Protocol, Role, State, Stream, Tunnel, TunnelParameters, agree, agree_to_receive,
    propose,
};

/// A browser that publishes its media here (WHIP, RFC 9725).
#[derive(Clone, Debug)]
pub struct Publisher {
    /// The browser's offer, a session description.
    pub offer: String,
    /// The port that receives the browser's media.
    pub port: Arc<MediaPort>,
    /// Address at which the browser reaches this port.
    pub address: IpAddr,
    /// Other addresses of this port.
    pub others: Vec<IpAddr>,
    /// Whether to receive the browser's audio.
    pub audio: bool,
}

/// Where a live sender sends.
#[derive(Clone, Debug)]
pub enum Destination {
    /// The RTP address of a receiver or of a group.
    Address(SocketAddr),
    /// A browser.
    Browser {
        /// The browser's offer, a session description.
        offer: String,
        /// The port from which media is sent to the browser.
        port: Arc<MediaPort>,
        /// Address at which the browser reaches this port.
        address: IpAddr,
        /// Other addresses of this port.
        others: Vec<IpAddr>,
    },
    /// A server that the media is published to ([`LocalOffer`](crate::LocalOffer)). The value is the local address of
    /// the connection.
    Server(IpAddr),
}

impl Destination {
    /// Returns the address of the destination. If the destination is a browser or a server, returns the local address.
    pub(crate) const fn ip(&self) -> IpAddr {
        match self {
            Self::Address(at) => at.ip(),
            Self::Browser { address, .. } | Self::Server(address) => *address,
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(at) => at.fmt(f),
            Self::Browser { .. } => f.write_str("the browser"),
            Self::Server(_) => f.write_str("the server"),
        }
    }
}

impl From<NegotiationError> for LiveError {
    fn from(error: NegotiationError) -> Self {
        Self::new(error.place, error.problem, error.remedy)
    }
}

/// If no picture arrives for this time, libwebrtc requests a key frame. A retransmission is useful only before that.
const KEY_FRAME_WAIT: Span = Span::secs(3);

/// Returns the DTLS certificate of this program, which is created once per run.
fn certificate() -> Result<&'static Certificate, LiveError> {
    static ONE: LazyLock<Option<Certificate>> = LazyLock::new(|| Certificate::new(&entropy::secret().ok()?));
    ONE.as_ref().ok_or_else(|| LiveError::new("DTLS", "no certificate could be made", "try again"))
}

/// The parameters of an SDP offer. Either a peer has made the offer and this end can answer it, or this end has made
/// it.
#[derive(Clone, Debug)]
pub(crate) struct NegotiatedOffer {
    negotiated: NegotiatedParameters,
    own: Credentials,
    certificate: &'static Certificate,
}

impl NegotiatedOffer {
    /// Negotiates the offer of a browser that wants to receive `medium`.
    pub(crate) fn of(offer: &str, medium: &Medium, audio: bool) -> Result<Self, LiveError> {
        let config = medium.config();
        let negotiated = agree(offer.as_bytes(), &Stream { format: medium.format(), config: &config, audio })?;
        Ok(Self { negotiated, own: Credentials::of(&entropy::secret()?), certificate: certificate()? })
    }

    /// Negotiates the offer of a browser that wants to publish.
    pub(crate) fn to_receive(publisher: &Publisher) -> Result<Self, LiveError> {
        let negotiated = agree_to_receive(publisher.offer.as_bytes(), publisher.audio)?;
        Ok(Self { negotiated, own: Credentials::of(&entropy::secret()?), certificate: certificate()? })
    }

    /// Creates an offer to a WHIP server. `keys` sets the feedback format and whether there is audio.
    pub(crate) fn to_server(medium: &Medium, keys: &FlowKeys) -> Result<Self, LiveError> {
        if keys.is("feedback", "own") {
            return Err(LiveError::new("--feedback own", "a WHIP server has no such reports", "take twcc or rfc8888"));
        }
        let (config, audio) = (medium.config(), keys.has("audio"));
        let is_congestion = keys.is("feedback", "rfc8888");
        let feedback = if is_congestion { Feedback::Congestion } else { Feedback::Transport };
        let negotiated = propose(&Stream { format: medium.format(), config: &config, audio }, feedback)?;
        Ok(Self { negotiated, own: Credentials::of(&entropy::secret()?), certificate: certificate()? })
    }

    /// Completes this offer with the server's answer. `address` is the local address.
    pub(crate) fn accepted(mut self, answer: &str, medium: &Medium, address: IpAddr) -> Result<Self, LiveError> {
        let (config, audio) = (medium.config(), self.negotiated.audio.is_some());
        let stream = Stream { format: medium.format(), config: &config, audio };
        self.negotiated = self.negotiated.accept(answer.as_bytes(), &stream)?;
        if let Role::Offerer { candidates, .. } = &self.negotiated.role
            && !candidates.iter().any(|at| at.is_ipv4() == address.is_ipv4())
        {
            let (family, other) = if address.is_ipv4() { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
            let remedy = format!("give the URL with a name or an address of {other}");
            return Err(LiveError::new("answer.candidates", format!("it has no address of {family}"), &remedy));
        }
        Ok(self)
    }

    /// Describes the media that a publishing browser sends. `address` is where they arrive.
    pub(crate) fn description(&self, address: SocketAddr) -> Description {
        let negotiated = &self.negotiated;
        let cname = String::new();
        let sources = negotiated.offered_sources.map(|(media, repair)| Sources { media, repair, cname });
        let again = |payload_type| Retransmissions { payload_type, kept: None, sources };
        let audio = negotiated.audio.as_ref();
        Description {
            mux: true,
            payload_type: negotiated.payload_type,
            feedback: self.feedback(),
            repair: negotiated.repair.map(again),
            audio: audio.map(|audio| AudioStream {
                payload_type: audio.payload_type,
                port: address.port(),
                source: None,
            }),
            key_frames: true,
            ..Description::bare(address, Some(negotiated.format))
        }
    }

    /// Returns the format of per-packet feedback. If the peer supports both, RFC 8888 is preferred to transport-wide
    /// feedback.
    fn feedback(&self) -> Option<PacketFeedback> {
        let congestion = self.negotiated.congestion.then_some(PacketFeedback::Congestion);
        congestion.or(self.negotiated.transport.map(PacketFeedback::Transport))
    }

    /// Returns the answer to a browser that publishes.
    pub(crate) fn receiver_answer(&self, address: SocketAddr, others: &[SocketAddr], session: u64) -> String {
        let feedback = self.feedback().map_or(FeedbackFormat::Own, PacketFeedback::format);
        // Do not negotiate send times, because the session takes them from the media clock.
        let own = LocalParameters { send_time: false, ..self.local((address, others), feedback, session, true) };
        self.negotiated.describe(&own)
    }

    /// Returns the parameters of this end. They contain no SSRCs.
    fn local<'a>(
        &'a self,
        (address, others): (SocketAddr, &'a [SocketAddr]),
        feedback: FeedbackFormat,
        session: u64,
        key_frames: bool,
    ) -> LocalParameters<'a> {
        LocalParameters {
            session,
            address,
            others,
            credentials: &self.own,
            fingerprint: self.certificate.fingerprint,
            feedback: match feedback {
                FeedbackFormat::Rfc8888 => Feedback::Congestion,
                FeedbackFormat::TransportWide => Feedback::Transport,
                _ => Feedback::Standard,
            },
            send_time: true,
            key_frames,
            sources: None,
        }
    }

    /// Returns `apart` with the values that the negotiation has determined.
    pub(crate) fn apart(&self, apart: RemotePeer) -> RemotePeer {
        RemotePeer {
            // Leave the peer's address open, because it is unknown until ICE has checked a pair.
            peer: None,
            // Assume the largest tag, because DTLS negotiates the SRTP profile later.
            tag: SrtpProfile::Aes256Gcm.tag() as u64,
            payload_type: self.negotiated.payload_type,
            again: self.negotiated.repair.unwrap_or(apart.again),
            audio: self.negotiated.audio.as_ref().map_or(apart.audio, |audio| audio.payload_type),
            audio_shares_feedback: self.negotiated.audio.as_ref().is_some_and(|audio| audio.shares_feedback),
            ids: self.ids(),
            authenticated: true,
            useful: Some(KEY_FRAME_WAIT),
            ..apart
        }
    }

    /// Adds to the flow's scenario keys what the browser supports. Removes audio if the browser does not accept it.
    ///
    /// # Errors
    /// The flow requires a feature that the browser does not support.
    pub(crate) fn keys(&self, keys: FlowKeys) -> Result<FlowKeys, LiveError> {
        let NegotiatedParameters { congestion, transport, repair, audio, .. } = &self.negotiated;
        let keys = if audio.is_some() { keys } else { keys.without("audio") };
        // RFC 8888 comes first, because it includes ECN.
        let can = [("rfc8888", *congestion), ("twcc", transport.is_some())];
        if let Some((word, _)) = can.iter().find(|(word, can)| keys.is("feedback", word) && !can) {
            let remedy = "leave --feedback out; the browser's offer then decides";
            return Err(LiveError::new("offer.feedback", format!("it has no {word}"), remedy));
        }
        let feedback = can.into_iter().find(|(_, can)| *can).map(|(word, _)| word);
        let keys = feedback.into_iter().fold(keys, |keys, word| keys.or("feedback", word));
        // Repair with RTX only, because browsers use other parity formats (FlexFEC, ULPFEC).
        let again = repair.is_some() && !keys.is("repair", "none") && !keys.is("mode", "paper");
        Ok(keys.with("repair", if again { "rtx" } else { "none" }))
    }

    fn ids(&self) -> HeaderIds {
        let send_time = self.negotiated.send_time.map_or(SendTime::Omitted, SendTime::Absolute);
        HeaderIds { transport: self.negotiated.transport.unwrap_or(HeaderIds::default().transport), send_time }
    }

    /// Registers the session at the shared port. From now on, the port accepts the browser's ICE checks.
    pub(crate) fn attach(&self, port: &MediaPort, local: IpAddr) -> Result<Pair, LiveError> {
        port.attach(self.own.clone(), self.negotiated.peer.ufrag.clone(), local)
    }

    /// Returns the session description of a sender, which is an answer to a browser or an offer to a server.
    pub(crate) fn describe(
        &self,
        address: SocketAddr,
        others: &[SocketAddr],
        plan: &VideoPlan,
        session: u64,
        key_frames: bool,
    ) -> String {
        let media = plan.sender(SOURCE).identity;
        let sources = LocalSources {
            media: media.ssrc,
            repair: plan.repair(FLOW).map(|repair| repair.ssrc),
            audio: plan.audio(FLOW).map(|audio| audio.ssrc),
            cname: &media.cname,
        };
        let own = self.local((address, others), plan.feedback(), session, key_frames);
        self.negotiated.describe(&LocalParameters { sources: Some(sources), ..own })
    }

    pub(crate) fn connection(self, clock: &Clock, local: SocketAddr) -> Result<BrowserConnection, LiveError> {
        let Self { negotiated: NegotiatedParameters { peer, fingerprints, role, .. }, own, certificate } = self;
        let reporter = matches!(role, Role::Offerer { .. }).then(Reporter::default);
        let ends = TunnelParameters { local, own, peer, fingerprints, role };
        let tunnel = Tunnel::new(clock.zero(), clock.now(), ends, certificate);
        let tunnel = tunnel.map_err(|error| LiveError::new("DTLS", error, "please report this"))?;
        Ok(BrowserConnection { tunnel, home: None, reporter })
    }
}

/// The ICE and DTLS connection to a browser.
pub(crate) struct BrowserConnection {
    pub(crate) tunnel: Tunnel,
    /// The first address of the browser. It identifies the browser in the session even after the browser has moved.
    home: Option<SocketAddr>,
    /// Gives the reports of a server one SSRC. `None` if the peer is a browser.
    reporter: Option<Reporter>,
}

/// Gives all reports of a server the same SSRC. A server may use several SSRCs. They would count as several receivers,
/// although DTLS has authenticated only one peer.
#[derive(Default)]
struct Reporter {
    ssrc: Option<[u8; 4]>,
}

impl Reporter {
    /// Sets the SSRC of each packet to the first SSRC that was seen and is not 0. The SSRC is the second word of a
    /// packet (RFC 3550, section 6).
    fn unify(&mut self, mut compound: &mut [u8]) {
        while let Some(&[_, _, high, low]) = compound.first_chunk() {
            let len = 4 * (1 + usize::from(u16::from_be_bytes([high, low])));
            let Some((packet, rest)) = std::mem::take(&mut compound).split_at_mut_checked(len) else { return };
            if let Some(word) = packet.get_mut(4..8) {
                let own = <[u8; 4]>::try_from(&*word).ok().filter(|word| *word != [0; 4]);
                self.ssrc = self.ssrc.or(own);
                if let Some(ssrc) = self.ssrc {
                    word.copy_from_slice(&ssrc);
                }
            }
            compound = rest;
        }
    }
}

impl BrowserConnection {
    /// Returns whether media may be exchanged.
    pub(crate) fn is_open(&self) -> bool {
        self.tunnel.state() == State::Connected
    }

    /// Returns whether the connection has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.tunnel.state() == State::Ended
    }

    pub(crate) fn status(&self, now: Time) -> Value {
        let tunnel = &self.tunnel;
        let address = tunnel.peer().map(|at| at.to_string());
        json!({
            "state": tunnel.state().name(), "end": tunnel.end_cause().map(EndCause::name), "why": tunnel.why(),
            "address": address,
            "silent_s": tunnel.silent_for(now).as_secs_f64(), "is_silent": tunnel.is_silent(now),
        })
    }

    /// Demultiplexes a datagram (RFC 7983). If it is RTP or RTCP, returns the browser's first address.
    pub(crate) fn sort(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) -> Option<SocketAddr> {
        match Protocol::of(bytes) {
            Protocol::Stun | Protocol::Dtls => self.tunnel.on_datagram(now, from, bytes),
            // Accept the packet here, because SRTP authenticates it later.
            Protocol::Rtp => return self.home,
            Protocol::Other => {}
        }
        None
    }

    pub(crate) fn unify_reports(&mut self, compound: &mut [u8]) {
        if let Some(reporter) = &mut self.reporter {
            reporter.unify(compound);
        }
    }

    /// Sends what the tunnel has to send. Returns the SRTP context once the tunnel has its keys.
    pub(crate) fn drain(&mut self, now: Time, out: &mut Outbox) -> Option<Srtp> {
        let mut connected = None;
        while let Some(output) = self.tunnel.poll() {
            match output {
                Output::Send(to, bytes) => out.push(Which::Rtp, Some(to), |all| all.extend_from_slice(&bytes)),
                Output::Peer(at) => {
                    // Keep the first address, so that a browser that has moved does not look like a new receiver.
                    self.home.get_or_insert(at);
                    out.redirect(at);
                }
                Output::Keys(keys) => match protection(&keys, self.tunnel.is_dtls_client()) {
                    Some(srtp) => connected = Some(srtp),
                    // Close the connection, because media must not be sent unprotected.
                    None => self.tunnel.close(now),
                },
            }
        }
        connected
    }
}

fn protection(keys: &Keys, is_dtls_client: bool) -> Option<Srtp> {
    use steadycast_web::SrtpProfile as NegotiatedProfile;
    let profile = match keys.profile {
        NegotiatedProfile::AES128_CM_SHA1_80 => SrtpProfile::Aes128CmSha1,
        NegotiatedProfile::AEAD_AES_128_GCM => SrtpProfile::Aes128Gcm,
        NegotiatedProfile::AEAD_AES_256_GCM => SrtpProfile::Aes256Gcm,
        _ => return None,
    };
    let [client, server] = MasterKey::exported(profile, &keys.material)?;
    // Each end sends with the key that belongs to its DTLS role.
    Some(if is_dtls_client { Srtp::pair(&client, &server) } else { Srtp::pair(&server, &client) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadycast_web::SrtpProfile as NegotiatedProfile;

    #[test]
    fn both_dtls_roles_send_with_the_key_that_the_other_one_opens() {
        for (profile, len) in [
            (NegotiatedProfile::AES128_CM_SHA1_80, 2 * (16 + 14)),
            (NegotiatedProfile::AEAD_AES_128_GCM, 2 * (16 + 12)),
            (NegotiatedProfile::AEAD_AES_256_GCM, 2 * (32 + 12)),
        ] {
            let keys = Keys { profile, material: (0..len).collect() };
            let ends = || [true, false].map(|is_dtls_client| protection(&keys, is_dtls_client).unwrap());
            for from in [0, 1] {
                let mut ends = ends();
                let mut datagram = packet(201, 11, 6);
                ends[from].protect_rtcp(&mut datagram, 0);
                let opened = ends[1 - from].open_rtcp(&datagram).map(<[u8]>::to_vec);
                assert_eq!(opened, Some(packet(201, 11, 6)), "{profile:?} {from}");
                assert_eq!(ends[from].open_rtcp(&datagram), None, "a reflection");
            }
        }
    }

    /// Returns an RTCP packet of type `kind` from `ssrc`. It has `words` further words.
    fn packet(kind: u8, ssrc: u32, words: u16) -> Vec<u8> {
        let length = (1 + words).to_be_bytes();
        [&[0x80, kind, length[0], length[1]][..], &ssrc.to_be_bytes(), &vec![7; usize::from(words) * 4]].concat()
    }

    #[test]
    fn reports_of_several_ssrcs_become_those_of_the_first_one_and_nothing_else_changes() {
        let mut reporter = Reporter::default();
        let mut compounds = [
            packet(206, 0, 1),
            [packet(201, 11, 6), packet(202, 11, 2)].concat(),
            packet(205, 22, 4),
            [packet(206, 0, 1), packet(205, 33, 3)].concat(),
        ];
        compounds.iter_mut().for_each(|compound| reporter.unify(compound));
        let expected = [
            packet(206, 0, 1),
            [packet(201, 11, 6), packet(202, 11, 2)].concat(),
            packet(205, 11, 4),
            [packet(206, 11, 1), packet(205, 11, 3)].concat(),
        ];
        assert_eq!(compounds, expected);
    }

    #[test]
    fn a_compound_whose_lengths_are_wrong_stays_as_it_is_from_there_on() {
        let whole = [packet(201, 11, 6), packet(205, 22, 4)].concat();
        for len in 0..whole.len() {
            let mut cut = whole[..len].to_vec();
            Reporter { ssrc: Some([0, 0, 0, 9]) }.unify(&mut cut);
            let intact = if len < 32 { 0 } else { 32 };
            assert_eq!(cut[intact..], whole[intact..len], "{len}");
        }
    }
}
