//! TLS: root and client certificates, and the classification of failed handshakes.

#[cfg(feature = "_http")]
mod connector;
mod named;

use std::error::Error;
use std::io::{self, Read as _};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, RootCertStore, Stream};

#[cfg(feature = "_http")]
pub(crate) use self::connector::TlsConnector;
use self::named::Named;
use astracer_model::destination::{ErrorKind, ExportError};

/// Certificates and a key, as the text of PEM files.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    /// The certificate authorities, or servers' own certificates, to trust instead of the system's.
    pub(crate) roots: Option<Vec<u8>>,
    /// Our certificate chain, our own certificate first, and its key.
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never shows the key.
        let Tls { roots, client } = self;
        let (roots, client) = (roots.is_some(), client.is_some());
        f.debug_struct("Tls").field("own_roots", &roots).field("client_certificate", &client).finish()
    }
}

/// The parsed certificates and key.
struct Parsed {
    roots: Vec<CertificateDer<'static>>,
    client: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
}

impl Tls {
    fn parse(&self) -> Result<Parsed, String> {
        let roots = match &self.roots {
            Some(pem) => certificates(pem, "the file of root certificates")?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        if roots.is_empty() {
            return Err("this system has no root certificates: set a file of CA certificates".to_owned());
        }
        let client = match &self.client {
            None => None,
            Some((chain, key)) => {
                let chain = certificates(chain, "the file of the client certificate")?;
                let key = PrivateKeyDer::from_pem_slice(key);
                let key =
                    key.map_err(|error| format!("cannot read the file of the client's key: {error}"))?;
                Some((chain, key))
            }
        };
        Ok(Parsed { roots, client })
    }

    /// Returns a client configuration. This finds errors that clients would otherwise find, or
    /// panic on, when they connect.
    pub(crate) fn client_config(&self) -> Result<Arc<ClientConfig>, String> {
        let Parsed { roots, client } = self.parse()?;
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        let builder = match self.roots {
            Some(_) => builder.dangerous().with_custom_certificate_verifier(verifier(roots)?),
            None => builder.with_root_certificates(store(roots)?),
        };
        let config = match client {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| format!("invalid client certificate or key: {error}"))?,
        };
        Ok(Arc::new(config))
    }

    /// Returns the configuration for gRPC, and the verifier if it trusts other certificates than
    /// the system's.
    #[cfg(feature = "otlp-grpc")]
    pub(crate) fn for_grpc(
        &self,
    ) -> Result<(tonic::transport::ClientTlsConfig, Option<Arc<dyn ServerCertVerifier>>), String> {
        use tonic::transport::{ClientTlsConfig, Identity};
        let (config, verifier) = match &self.roots {
            Some(_) => (ClientTlsConfig::new(), Some(verifier(self.parse()?.roots)?)),
            None => (ClientTlsConfig::new().with_native_roots(), None),
        };
        let config = match &self.client {
            Some((chain, key)) => config.identity(Identity::from_pem(chain, key)),
            None => config,
        };
        Ok((config, verifier))
    }
}

fn store(roots: Vec<CertificateDer<'static>>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    match store.add_parsable_certificates(roots).0 {
        0 => Err("none of the root certificates can be used".to_owned()),
        _ => Ok(store),
    }
}

/// A verifier that trusts certificates named by the user.
fn verifier(named: Vec<CertificateDer<'static>>) -> Result<Arc<dyn ServerCertVerifier>, String> {
    Ok(Arc::new(Named::new(store(named.clone())?, named)?))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err(format!("{what} contains no certificate")),
        Ok(all) => Ok(all),
        Err(error) => Err(format!("cannot read {what}: {error}")),
    }
}

/// Returns the TLS error inside an I/O error, if there is one.
pub(crate) fn of_io(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inside| of_error(inside))
}

/// Returns the TLS error among an error and its causes, if there is one.
pub(crate) fn of_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    match error.downcast_ref::<io::Error>() {
        // `source` of an I/O error skips the error inside it.
        Some(io) => of_io(io),
        None => of_error(error.source()?),
    }
}

/// Performs a handshake and reads, as a request would; `offers_http2` as a gRPC request would.
/// Returns whether the server may speak HTTP/2, or the TLS error if the handshake fails with one.
pub(crate) fn probe(
    config: &Arc<ClientConfig>,
    host: &str,
    mut stream: TcpStream,
    offers_http2: bool,
) -> Result<bool, rustls::Error> {
    let Ok(name) = ServerName::try_from(host.to_owned()) else { return Ok(true) };
    let mut config = ClientConfig::clone(config);
    if offers_http2 {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    let mut connection = ClientConnection::new(Arc::new(config), name)?;
    let read = Stream::new(&mut connection, &mut stream).read(&mut [0]);
    match read.err().and_then(|error| of_io(&error).cloned()) {
        Some(error) => Err(error),
        None => Ok(connection.is_handshaking() || connection.alpn_protocol() == Some(b"h2")),
    }
}

/// The advice for a certificate that is expired or not yet valid.
const TIME_REMEDY: &str = "renew the server's certificate, or correct this machine's clock";

/// Classifies a failed handshake.
pub(crate) fn explain(target: &str, error: &rustls::Error) -> ExportError {
    use AlertDescription as Alert;
    use rustls::Error as Tls;
    let kind = match error {
        Tls::InvalidCertificate(_) => ErrorKind::UntrustedCertificate,
        Tls::InvalidMessage(_) => ErrorKind::PlainServer,
        // The server has no HTTP/2 behind TLS.
        Tls::AlertReceived(Alert::NoApplicationProtocol) => ErrorKind::HttpPort,
        Tls::AlertReceived(
            Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::NoCertificate
            | Alert::HandshakeFailure
            | Alert::DecryptError,
        ) => ErrorKind::ClientCertificate,
        // A server sends these alerts while it starts or shuts down. Nothing was wrong with our
        // request.
        Tls::AlertReceived(Alert::InternalError | Alert::UserCanceled) => ErrorKind::ConnectionLost,
        _ => ErrorKind::UnexpectedAnswer,
    };
    let of_time = matches!(
        error,
        Tls::InvalidCertificate(
            CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. }
        )
    );
    let error = ExportError::new(kind, target, format!("TLS: {error}"));
    match kind {
        // Retry, because the certificate may be renewed or the clock corrected.
        _ if of_time => error.retryable(None).with_remedy(TIME_REMEDY),
        ErrorKind::ConnectionLost => error.retryable(None),
        // No request was sent. A certificate may be about to be replaced, or another server may be
        // using the port.
        _ => error.doubtful(None),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::UnixTime;

    use super::*;

    #[test]
    fn a_server_that_fails_within_the_handshake_may_be_back() {
        for (alert, is_doubtful) in [
            (AlertDescription::InternalError, false),
            (AlertDescription::UserCanceled, false),
            (AlertDescription::ProtocolVersion, true),
            (AlertDescription::BadCertificate, true),
        ] {
            let error = explain("t", &rustls::Error::AlertReceived(alert));
            assert_eq!((error.may_retry(), error.is_doubtful()), (true, is_doubtful), "{error:?}");
        }
    }

    /// The certificate may be renewed, or a clock that started in 1970 may be set. Without retries,
    /// spooled spans became dead letters for this.
    #[test]
    fn a_certificate_out_of_its_time_may_be_good_later() {
        let now = UnixTime::since_unix_epoch(Duration::ZERO);
        let (time, not_before, not_after) = (now, now, now);
        for (reason, is_of_time) in [
            (CertificateError::Expired, true),
            (CertificateError::ExpiredContext { time, not_after }, true),
            (CertificateError::NotValidYet, true),
            (CertificateError::NotValidYetContext { time, not_before }, true),
            (CertificateError::UnknownIssuer, false),
            (CertificateError::Revoked, false),
            (CertificateError::NotValidForName, false),
        ] {
            let error = explain("t", &rustls::Error::InvalidCertificate(reason));
            assert_eq!((error.may_retry(), error.is_doubtful()), (true, !is_of_time), "{error:?}");
            assert_eq!(error.kind(), ErrorKind::UntrustedCertificate);
            assert_eq!(error.to_string().contains("this machine's clock"), is_of_time, "{error}");
        }
    }
}
