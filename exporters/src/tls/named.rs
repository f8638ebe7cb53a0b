//! Trust in a certificate because the user names exactly this one.
//!
//! A self-signed certificate is often marked as an authority, as `openssl req -x509` makes it. A
//! server that presents it is refused by the usual rules, although the user names its certificate
//! as the one to trust.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Trusts what the named authorities issued, and the named certificates themselves.
#[derive(Debug)]
pub(super) struct Named {
    usual: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl Named {
    pub(super) fn new(
        roots: RootCertStore,
        certificates: Vec<CertificateDer<'static>>,
    ) -> Result<Self, String> {
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), super::provider());
        let usual = usual.build().map_err(|error| error.to_string())?;
        Ok(Named { usual, certificates })
    }
}

impl ServerCertVerifier for Named {
    /// The usual rules check a certificate's time before they ask for its issuer, so an expired one
    /// stays refused.
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.usual.verify_server_cert(own, intermediates, name, ocsp, now) {
            // "Other" is webpki's error for an authority that is used as a server.
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::Other(_)))
                if self.certificates.iter().any(|named| named.as_ref() == own.as_ref()) =>
            {
                verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, own, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, own, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}
