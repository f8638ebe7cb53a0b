//! TLS for senders, and certificates of senders.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

/// The certificate that a receiver presents, and the authority whose certificates senders must
/// present.
#[derive(Clone)]
pub struct Tls(pub(crate) Arc<ServerConfig>);

/// Omits the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

impl Tls {
    /// Returns the settings of a receiver with this certificate chain, its own certificate first,
    /// and its key. With `clients`, senders must present a certificate that one of these
    /// authorities issued (mTLS). All are in PEM.
    ///
    /// # Errors
    ///
    /// If something cannot be read or does not fit together; the text says what.
    pub fn new(chain: &[u8], key: &[u8], clients: Option<&[u8]>) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates(chain, "the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key: {error}"))?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = rustls::RootCertStore::empty();
                for root in certificates(pem, "the senders' authority")? {
                    roots.add(root).map_err(|error| format!("the senders' authority: {error}"))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| error.to_string())?)
            }
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| format!("the certificate and its key: {error}"))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls(Arc::new(config)))
    }
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| format!("{what}: {error}"))?;
    if found.is_empty() { Err(format!("{what}: no certificate in PEM")) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use astracer_testing::{Authority, Identity};

    use super::*;

    #[test]
    fn settings_that_do_not_fit_together_are_named() {
        let authority = Authority::default();
        let own = authority.issue("localhost");
        let (chain, key, ca) = (own.pem(), own.key_pem(), authority.pem());
        let other = Identity::self_signed("other", false).key_pem();
        let new = |chain: &str, key: &str, ca: Option<&str>| {
            Tls::new(chain.as_bytes(), key.as_bytes(), ca.map(str::as_bytes)).map(|tls| format!("{tls:?}"))
        };
        for ca in [None, Some(&*ca)] {
            assert_eq!(new(&chain, &key, ca).as_deref(), Ok("Tls(..)"));
        }
        for (fault, says) in [
            (new("", &key, None), "the certificate: no certificate"),
            (new(&key, &key, None), "the certificate: no certificate"),
            (new(&chain, &chain, None), "the key: "),
            (new(&chain, &other, None), "the certificate and its key: "),
            (new(&chain, &key, Some("")), "the senders' authority: no certificate"),
        ] {
            let fault = fault.expect_err(says);
            assert!(fault.starts_with(says), "{fault}");
        }
    }
}
