//! TLS for a gateway that clients reach directly: one certificate, read again when its files change.
//!
//! `files ─read─▶ Pair ─check─▶ CertifiedKey ─▶ Shown ◀─ handshakes`
//!
//! Invariant: a handshake gets a certificate and the key that belongs to it. Files that do not fit together, as in the
//! middle of a renewal, change nothing.

use std::convert::Infallible;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use domain::Clock;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, ServerConfig};
use tokio_rustls::TlsAcceptor;
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// How often the files are read again, unless [`TlsOptions::look`] says otherwise.
pub const LOOK: Duration = Duration::from_secs(10);
/// The most bytes of either file.
const MAX_BYTES: u64 = 1024 * 1024;
/// A certificate that ends sooner than this is warned of.
const SOON: Duration = Duration::from_hours(14 * 24);
/// How often the end of a certificate is warned of.
const WARN_EVERY: Duration = Duration::from_hours(24);

/// Where a listener's certificate comes from.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// The chain in PEM, the server's own certificate first.
    pub certificate: PathBuf,
    /// Its private key in PEM.
    pub key: PathBuf,
    /// How often both files are read again.
    pub look: Duration,
}

/// The reason why a certificate cannot be used. Each is a sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {}; name a file in PEM that the service's user can read", path.display(), reason(.source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file of the certificate holds none.
    #[error("{} holds no certificate; it must hold the chain in PEM (BEGIN CERTIFICATE), the server's own first", .0.display())]
    NoCertificate(PathBuf),
    /// The file of the key holds none.
    #[error("{} holds no private key; it must hold one in PEM (BEGIN PRIVATE KEY), without a passphrase", .0.display())]
    NoKey(PathBuf),
    /// The key is another certificate's.
    #[error("the key {} does not match the certificate {}; give the two that were made together", key.display(), certificate.display())]
    Mismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// Certificate or key are of a kind that TLS cannot use here.
    #[error("{} with the key {} cannot be used for TLS: {source}; make them anew, with an ECDSA P-256 or an RSA key", certificate.display(), key.display())]
    Unusable {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The library's reason.
        source: rustls::Error,
    },
}

fn reason(error: &io::Error) -> String {
    let kind = error.kind();
    if kind == io::ErrorKind::NotFound {
        "there is no such file".to_owned()
    } else if kind == io::ErrorKind::PermissionDenied {
        "this user may not read it".to_owned()
    } else if kind == io::ErrorKind::IsADirectory {
        "it is a directory".to_owned()
    } else {
        error.to_string()
    }
}

/// A certificate that was read and checked, and follows its files once a gateway serves with it.
pub struct Tls {
    options: TlsOptions,
    pair: Pair,
    shown: Arc<Shown>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads both files, and warns if the certificate has expired or soon will.
    ///
    /// # Errors
    /// [`TlsError`] when the files are no certificate with its key.
    pub fn open(options: TlsOptions, clock: Arc<dyn Clock>) -> Result<Self, TlsError> {
        let pair = Pair::read(&options)?;
        let shown = Arc::new(Shown(RwLock::new(Arc::new(pair.check(&options)?))));
        let tls = Self { options, pair, shown, clock };
        tls.warn_of_its_end();
        Ok(tls)
    }

    /// Returns the acceptor of handshakes. It speaks TLS 1.2 and 1.3, and offers HTTP/1.1 only.
    ///
    /// # Errors
    /// When the library lacks one of these versions.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
        let mut config = config.with_no_client_auth().with_cert_resolver(self.shown.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Reads the files again and again, for ever. New connections get a changed certificate.
    pub(crate) async fn follow(mut self) -> Result<(), Infallible> {
        let (mut failures, mut unwarned) = (0_u32, Duration::ZERO);
        loop {
            tokio::time::sleep(self.options.look).await;
            match self.look().await {
                Ok(false) => failures = 0,
                Ok(true) => {
                    failures = 0;
                    unwarned = Duration::ZERO;
                    tracing::info!("the certificate for TLS was read again");
                    self.warn_of_its_end();
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    // A renewal writes two files, and a look may come in between: the next one sees both.
                    if failures == 2 {
                        tracing::warn!(%error, "the certificate for TLS stays as it is");
                    }
                }
            }
            unwarned += self.options.look;
            if unwarned >= WARN_EVERY {
                unwarned = Duration::ZERO;
                self.warn_of_its_end();
            }
        }
    }

    /// Reads the files, and returns whether they had changed.
    async fn look(&mut self) -> Result<bool, TlsError> {
        let options = self.options.clone();
        let read = tokio::task::spawn_blocking(move || Pair::read(&options)).await;
        // The only other end of that task is a panic, which its thread has told already.
        let Ok(read) = read else { return Ok(false) };
        let pair = read?;
        if pair == self.pair {
            return Ok(false);
        }
        let fresh = Arc::new(pair.check(&self.options)?);
        *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        self.pair = pair;
        Ok(true)
    }

    fn warn_of_its_end(&self) {
        let key = self.shown.current();
        let Some(end) = key.cert.first().and_then(not_after) else { return };
        let now = Duration::from_millis(self.clock.now_ms().unsigned_abs());
        let certificate = self.options.certificate.display();
        match Remaining::of(end, now) {
            Remaining::Nothing => {
                tracing::warn!(%certificate, "the certificate for TLS has expired, so clients refuse it; renew it");
            }
            Remaining::Days(days) => {
                tracing::warn!(%certificate, days, "the certificate for TLS expires soon; renew it");
            }
            Remaining::Enough => {}
        }
    }
}

/// The time that a certificate is still valid.
#[derive(Debug, PartialEq, Eq)]
enum Remaining {
    Nothing,
    /// Less than [`SOON`]: so many whole days.
    Days(u64),
    Enough,
}

impl Remaining {
    /// Both times count from 1970.
    fn of(end: Duration, now: Duration) -> Self {
        match end.checked_sub(now) {
            None => Self::Nothing,
            Some(left) if left < SOON => Self::Days(left.as_secs() / (24 * 60 * 60)),
            Some(_) => Self::Enough,
        }
    }
}

/// Returns when a certificate ends, as time since 1970; `None` if that cannot be read.
fn not_after(certificate: &CertificateDer<'_>) -> Option<Duration> {
    let certificate = Certificate::from_der(certificate).ok()?;
    Some(certificate.tbs_certificate().validity().not_after.to_unix_duration())
}

/// The bytes of both files.
#[derive(PartialEq, Eq)]
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Pair {
    fn read(options: &TlsOptions) -> Result<Self, TlsError> {
        let read = |path: &Path| {
            let mut bytes = Vec::new();
            let read = File::open(path)
                .and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes))
                .map_err(|source| TlsError::Unreadable { path: path.to_owned(), source });
            read.map(|_| bytes)
        };
        Ok(Self { certificate: read(&options.certificate)?, key: read(&options.key)? })
    }

    /// Returns the certificate with its key, if they are one.
    fn check(&self, options: &TlsOptions) -> Result<CertifiedKey, TlsError> {
        let TlsOptions { certificate, key, .. } = options;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .map_err(|_| TlsError::NoCertificate(certificate.clone()))?;
        if chain.is_empty() {
            return Err(TlsError::NoCertificate(certificate.clone()));
        }
        let private =
            PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| TlsError::NoKey(key.clone()))?;
        CertifiedKey::from_der(chain, private, &aws_lc_rs::default_provider()).map_err(|source| {
            let (certificate, key) = (certificate.clone(), key.clone());
            if source == rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) {
                TlsError::Mismatch { key, certificate }
            } else {
                TlsError::Unusable { certificate, key, source }
            }
        })
    }
}

/// The certificate that handshakes get.
struct Shown(RwLock<Arc<CertifiedKey>>);

impl Shown {
    fn current(&self) -> Arc<CertifiedKey> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shown")
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

#[cfg(test)]
mod tests;
