//! Reads the transport attributes of a media section.

use crate::Credentials;
use crate::answer::{NegotiationError, refuse, value};
use crate::certificate::Fingerprint;
use crate::lines::{Lines, unhex};
use sdp_types::{Media, Session};

/// Maximum length of an ICE user name or password (RFC 8839, section 5.4).
const LONGEST_CREDENTIAL: usize = 256;

/// The transport attributes of a section. They can be in three places: in the section itself, at session level, or in
/// another section of its BUNDLE group (RFC 9143, section 7.1.3). Bundled sections share one transport.
pub(crate) struct Transport<'a> {
    own: Lines<'a>,
    shared: Option<Lines<'a>>,
    /// The `mid` values of the section's BUNDLE group.
    pub(crate) group: Option<Vec<&'a str>>,
}

impl<'a> Transport<'a> {
    pub(crate) fn of(session: &'a Session, media: &'a Media) -> Self {
        let mid = value(media, "mid");
        let group = session.get_attribute_values("group").flatten().find_map(|said| {
            let mids: Vec<&str> = said.strip_prefix("BUNDLE ")?.split_whitespace().collect();
            mids.iter().any(|of| Some(*of) == mid).then_some(mids)
        });
        let first = group.as_ref().and_then(|mids| mids.first());
        // The first section of a BUNDLE group contains the transport attributes of all its sections (RFC 9143).
        let tagged = first.and_then(|first| session.medias.iter().find(|media| value(media, "mid") == Some(first)));
        Self { own: Lines { session, media }, shared: tagged.map(|media| Lines { session, media }), group }
    }

    /// Returns all values of an attribute.
    pub(crate) fn values(&self, name: &'a str) -> Vec<&'a str> {
        let own: Vec<&str> = self.own.values(name).collect();
        if own.is_empty() { self.shared.iter().flat_map(|lines| lines.values(name)).collect() } else { own }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.own.media.has_attribute(name) || self.shared.is_some_and(|lines| lines.media.has_attribute(name))
    }

    /// Returns the peer's credentials and its certificate fingerprints.
    ///
    /// - `ice`: the place that an error about credentials reports
    /// - `fingerprint`: the place that an error about fingerprints reports
    /// - `remedy`: the remedy that both errors report
    pub(crate) fn peer(
        &self,
        ice: &'static str,
        fingerprint: &'static str,
        remedy: &'static str,
    ) -> Result<(Credentials, Vec<Fingerprint>), NegotiationError> {
        let one = |name: &'a str, least: usize| {
            let said = self.values(name).into_iter().next().unwrap_or_default();
            let fits = (least..=LONGEST_CREDENTIAL).contains(&said.len());
            // Reject other characters, because RFC 8839 does not allow them (`ice-char`). They could inject lines into
            // the description.
            let fits = fits && said.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/');
            if fits { Ok(said.to_owned()) } else { refuse(ice, format!("it has no a={name}"), remedy) }
        };
        let peer = Credentials { ufrag: one("ice-ufrag", 4)?, password: one("ice-pwd", 22)? };
        let one = |said: &str| {
            let (hash, digits) = said.split_once(' ')?;
            let bytes = unhex(&digits.trim().replace(':', ""))?;
            // Accept only SHA-256, because WebRTC ends use it.
            if hash.eq_ignore_ascii_case("sha-256") { bytes.try_into().ok() } else { None }
        };
        let all: Vec<Fingerprint> = self.values("fingerprint").into_iter().filter_map(one).collect();
        if all.is_empty() {
            return refuse(fingerprint, "it has no fingerprint by SHA-256", remedy);
        }
        Ok((peer, all))
    }
}
