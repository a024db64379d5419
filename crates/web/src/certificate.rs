//! The DTLS certificate of this end.

use p256::SecretKey;
use p256::ecdsa::{DerSignature, SigningKey};
use p256::pkcs8::EncodePrivateKey;
use sha2::{Digest, Sha256};
use std::str::FromStr;
use x509_cert::TbsCertificate;
use x509_cert::builder::profile::BuilderProfile;
use x509_cert::builder::{Builder, CertificateBuilder};
use x509_cert::der::{DateTime, Encode};
use x509_cert::ext::Extension;
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{SubjectPublicKeyInfo, SubjectPublicKeyInfoRef};
use x509_cert::time::{Time, Validity};

/// The SHA-256 hash of a certificate. Peers authenticate each other with it (RFC 8122).
pub type Fingerprint = [u8; 32];

/// A self-signed certificate with a P-256 key. Its name and its dates have no meaning, because peers check only its
/// fingerprint.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate and its private key.
    pub dtls: dimpl::DtlsCertificate,
    /// The fingerprint, which the session description contains.
    pub fingerprint: Fingerprint,
}

pub(crate) fn fingerprint(certificate: &[u8]) -> Fingerprint {
    Sha256::digest(certificate).into()
}

/// A certificate profile without extensions. The name is both issuer and subject.
struct Plain(Name);

impl BuilderProfile for Plain {
    fn get_issuer(&self, subject: &Name) -> Name {
        subject.clone()
    }

    fn get_subject(&self) -> Name {
        self.0.clone()
    }

    fn build_extensions(
        &self,
        _: SubjectPublicKeyInfoRef<'_>,
        _: SubjectPublicKeyInfoRef<'_>,
        _: &TbsCertificate,
    ) -> x509_cert::builder::Result<Vec<Extension>> {
        Ok(Vec::new())
    }
}

impl Certificate {
    /// Creates a certificate. Returns `None` if `secret` is not a valid P-256 key. About one of 2³² random values is
    /// invalid.
    pub fn new(secret: &[u8; 32]) -> Option<Self> {
        let secret = SecretKey::from_slice(secret).ok()?;
        let signer = SigningKey::from(&secret);
        let private_key = secret.to_pkcs8_der().ok()?.as_bytes().to_vec();
        let date = |year, month, day, hour, minute, second| DateTime::new(year, month, day, hour, minute, second).ok();
        // The last date means "no well-defined expiration date" (RFC 5280, section 4.1.2.5), so the certificate never
        // expires.
        let (from, until) = (date(2000, 1, 1, 0, 0, 0)?, date(9999, 12, 31, 23, 59, 59)?);
        let builder = CertificateBuilder::new(
            Plain(Name::from_str("CN=steadycast").ok()?),
            SerialNumber::from(1u32),
            Validity::new(Time::from(from), Time::from(until)),
            SubjectPublicKeyInfo::from_key(signer.verifying_key()).ok()?,
        );
        let certificate = builder.ok()?.build::<_, DerSignature>(&signer).ok()?.to_der().ok()?;
        let fingerprint = fingerprint(&certificate);
        Some(Self { dtls: dimpl::DtlsCertificate { certificate, private_key }, fingerprint })
    }
}
