//! A browser as the receiver of a live sender: its offer is answered, and media goes to it through a tunnel.

use crate::flow::{FLOW, FlowKeys, SOURCE};
use crate::{Clock, LiveError, MasterKey, Medium, Outbox, Srtp, SrtpProfile, Which, entropy};
use serde_json::{Value, json};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::LazyLock;
use steadycast_control::FeedbackFormat;
use steadycast_ends::{RemotePeer, VideoPlan};
use steadycast_session::{HeaderIds, SendTime};
use steadycast_units::{Span, Time};
use steadycast_web::{
    Agreed, Certificate, Credentials, Ends, Feedback, Keys, Output, Own, Protocol, Refusal, Stream, Tunnel, agree,
};

/// Whom a live sender sends to.
#[derive(Clone, Debug)]
pub enum To {
    /// A receiver's RTP address, or a group's.
    Address(SocketAddr),
    /// A browser.
    Browser {
        /// What it offers: a session description.
        offer: String,
        /// This machine's address, as the browser reaches it.
        media: IpAddr,
        /// UDP ports of which one is taken.
        ports: RangeInclusive<u16>,
    },
}

impl To {
    /// Its address, or that from which it is reached.
    pub(crate) const fn ip(&self) -> IpAddr {
        match self {
            Self::Address(at) => at.ip(),
            Self::Browser { media, .. } => *media,
        }
    }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(at) => at.fmt(f),
            Self::Browser { .. } => f.write_str("the browser"),
        }
    }
}

impl From<Refusal> for LiveError {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.place, refusal.problem, refusal.remedy)
    }
}

/// So long libwebrtc waits for a picture before it asks for a key frame; what comes late it shows late.
const WAITS: Span = Span::secs(3);

/// This program's certificate: in memory alone, and another one in each run.
fn certificate() -> Result<&'static Certificate, LiveError> {
    static ONE: LazyLock<Option<Certificate>> = LazyLock::new(|| Certificate::new(&entropy::secret().ok()?));
    ONE.as_ref().ok_or_else(|| LiveError::new("DTLS", "no certificate could be made", "try again"))
}

/// An offer that can be answered.
pub(crate) struct Taken {
    agreed: Agreed,
    own: Credentials,
    certificate: &'static Certificate,
}

impl Taken {
    /// What a browser offers for this medium.
    pub(crate) fn of(offer: &str, medium: &Medium) -> Result<Self, LiveError> {
        let config = medium.config();
        let agreed = agree(offer.as_bytes(), &Stream { format: medium.format(), config: &config })?;
        Ok(Self { agreed, own: Credentials::of(&entropy::secret()?), certificate: certificate()? })
    }

    /// The far end is a browser.
    pub(crate) fn apart(&self, apart: RemotePeer) -> RemotePeer {
        RemotePeer {
            // Where it is, its checks say.
            peer: None,
            // The largest of the profiles that DTLS may agree on.
            tag: SrtpProfile::Aes256Gcm.tag() as u64,
            payload_type: self.agreed.payload_type,
            again: self.agreed.repair.unwrap_or(apart.again),
            ids: self.ids(),
            authenticated: true,
            useful: Some(WAITS),
            ..apart
        }
    }

    /// With what the browser can do where the flow leaves it open: it reports single packets by RFC 8888, else by
    /// transport-wide numbers, and asks for what it lacks.
    ///
    /// # Errors
    /// The flow wants what the browser does not do.
    pub(crate) fn keys(&self, keys: FlowKeys) -> Result<FlowKeys, LiveError> {
        let Agreed { congestion, transport, repair, .. } = &self.agreed;
        let can = [("rfc8888", *congestion), ("twcc", transport.is_some())];
        if let Some((word, _)) = can.iter().find(|(word, can)| keys.is("feedback", word) && !can) {
            let remedy = "leave --feedback away, and it is chosen by the offer";
            return Err(LiveError::new("offer.feedback", format!("it has no {word}"), remedy));
        }
        let feedback = can.into_iter().find(|(_, can)| *can).map(|(word, _)| word);
        let keys = feedback.into_iter().fold(keys, |keys, word| keys.or("feedback", word));
        // Its parity is another one than ours.
        let again = repair.is_some() && !keys.is("repair", "none") && !keys.is("mode", "paper");
        Ok(keys.with("repair", if again { "rtx" } else { "none" }))
    }

    /// In which elements of the header extension packets carry what it reads.
    fn ids(&self) -> HeaderIds {
        let send_time = self.agreed.send_time.map_or(SendTime::Omitted, SendTime::Absolute);
        HeaderIds { transport: self.agreed.transport.unwrap_or(HeaderIds::default().transport), send_time }
    }

    /// The answer of an end at this address that sends as planned, in this session.
    pub(crate) fn answer(&self, at: SocketAddr, plan: &VideoPlan, session: u64, key_frames: bool) -> String {
        let media = plan.sender(SOURCE).identity;
        self.agreed.answer(&Own {
            session,
            address: at,
            credentials: &self.own,
            fingerprint: self.certificate.fingerprint,
            feedback: match plan.feedback() {
                FeedbackFormat::Rfc8888 => Feedback::Congestion,
                FeedbackFormat::TransportWide => Feedback::Transport,
                _ => Feedback::Standard,
            },
            send_time: true,
            key_frames,
            media: media.ssrc,
            repair: plan.repair(FLOW).map(|repair| repair.ssrc),
            cname: &media.cname,
        })
    }

    /// The way to the browser that sent it.
    pub(crate) fn way(self, clock: &Clock, local: SocketAddr) -> Result<Way, LiveError> {
        let Self { agreed: Agreed { peer, fingerprints, .. }, own, certificate } = self;
        let ends = Ends { local, own, peer, fingerprints };
        let tunnel = Tunnel::new(clock.zero(), clock.now(), ends, certificate);
        let tunnel = tunnel.map_err(|error| LiveError::new("DTLS", error, "please report this"))?;
        Ok(Way { tunnel, home: None })
    }
}

/// The way to a browser. It has one address for the session, wherever it moves: who it is, its keys say.
pub(crate) struct Way {
    /// ICE and DTLS.
    pub(crate) tunnel: Tunnel,
    home: Option<SocketAddr>,
}

impl Way {
    /// Returns how far it has come, for a status.
    pub(crate) fn status(&self, now: Time) -> Value {
        let tunnel = &self.tunnel;
        let address = tunnel.peer().map(|at| at.to_string());
        json!({
            "state": tunnel.state().name(), "why": tunnel.why(), "address": address,
            "silent_s": tunnel.silent_for(now).as_secs_f64(), "is_silent": tunnel.is_silent(now),
        })
    }

    /// A datagram has come: where it comes from, as the session knows it, if it is the session's.
    pub(crate) fn sort(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) -> Option<SocketAddr> {
        match Protocol::of(bytes) {
            Protocol::Stun | Protocol::Dtls => self.tunnel.on_datagram(now, from, bytes),
            Protocol::Rtp => return self.home,
            Protocol::Other => {}
        }
        None
    }

    /// Takes what the tunnel lets go; the protection of media, when its keys have come.
    pub(crate) fn drain(&mut self, now: Time, out: &mut Outbox) -> Option<Srtp> {
        let mut connected = None;
        while let Some(output) = self.tunnel.poll() {
            match output {
                Output::Send(to, bytes) => out.push(Which::Rtp, Some(to), |all| all.extend_from_slice(&bytes)),
                Output::Peer(at) => {
                    self.home.get_or_insert(at);
                    out.redirect(at);
                }
                Output::Keys(keys) => match protection(&keys) {
                    Some(srtp) => connected = Some(srtp),
                    None => self.tunnel.close(now),
                },
            }
        }
        connected
    }
}

/// The keys of what goes out and of what comes in.
fn protection(keys: &Keys) -> Option<Srtp> {
    use steadycast_web::SrtpProfile as Agreed;
    let profile = match keys.profile {
        Agreed::AES128_CM_SHA1_80 => SrtpProfile::Aes128CmSha1,
        Agreed::AEAD_AES_128_GCM => SrtpProfile::Aes128Gcm,
        Agreed::AEAD_AES_256_GCM => SrtpProfile::Aes256Gcm,
        _ => return None,
    };
    let [client, server] = MasterKey::exported(profile, &keys.material)?;
    Some(Srtp::pair(&server, &client))
}
