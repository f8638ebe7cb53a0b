//! Certificates of one test, and servers that present them.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::server::Server;

/// A certificate and its key.
#[derive(Debug)]
pub struct Identity {
    certificate: rcgen::Certificate,
    key: rcgen::KeyPair,
}

impl Identity {
    /// A certificate for this name that it signed itself, and that may be marked as an authority's.
    pub fn self_signed(name: &str, is_authority: bool) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        if is_authority {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        Identity { certificate: params.self_signed(&key).unwrap(), key }
    }

    /// The certificate in PEM.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// The key in PEM.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }
}

/// A certificate authority.
#[derive(Debug)]
pub struct Authority {
    certificate: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Default for Authority {
    /// One whom nobody else trusts.
    fn default() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "an authority");
        let certificate = params.self_signed(&key).unwrap();
        Authority { certificate, issuer: rcgen::Issuer::new(params, key) }
    }
}

impl Authority {
    /// Its own certificate in PEM.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// Issues a certificate for this name.
    pub fn issue(&self, name: &str) -> Identity {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        Identity { certificate: params.signed_by(&key, &self.issuer).unwrap(), key }
    }

    /// An HTTPS server for `localhost` with a certificate of this authority, which may require
    /// those of clients too.
    pub fn server(&self, wants_clients: bool) -> Server {
        https(&self.issue("localhost"), wants_clients.then_some(self))
    }
}

/// An HTTPS server that presents this certificate, and may require those of an authority. It
/// answers 200.
pub fn https(own: &Identity, of_clients: Option<&Authority>) -> Server {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = if let Some(authority) = of_clients {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.der().clone()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let key = PrivateKeyDer::try_from(own.key.serialize_der()).unwrap();
    let chain = vec![CertificateDer::from(own.certificate.der().to_vec())];
    let config = Arc::new(builder.with_single_cert(chain, key).unwrap());
    Server::over([], move |stream| {
        Box::new(StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream))
    })
}
