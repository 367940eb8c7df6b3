//! Flags for TLS on the listener of a service that clients reach directly.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use domain::Clock;
use gateway::{LOOK, Tls, TlsError, TlsOptions};

use super::ServeError;

/// The certificate of the service.
#[derive(Debug, Clone, Default, Args)]
pub struct TlsArgs {
    /// File of the service's certificate in PEM, with the chain below it: clients then use https. It is read again when
    /// it changes
    #[arg(long, value_name = "FILE", env = "OPENCODE_CLOUD_TLS_CERT", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// File of the certificate's private key in PEM
    #[arg(long, value_name = "FILE", env = "OPENCODE_CLOUD_TLS_KEY", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// Reads the certificate, if there is one.
    ///
    /// # Errors
    /// When a file cannot be used; the message names the flag.
    pub(crate) fn open(&self, clock: &Arc<dyn Clock>) -> Result<Option<Tls>, ServeError> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let (certificate, key) = (certificate.clone(), key.clone());
        let opened = Tls::open(TlsOptions { certificate, key, look: LOOK }, clock.clone()).map_err(
            |error| {
                let flag = match &error {
                    TlsError::NoKey(_) | TlsError::Mismatch { .. } => "--tls-key",
                    TlsError::Unreadable { path, .. } if Some(path) == self.tls_key.as_ref() => {
                        "--tls-key"
                    }
                    TlsError::Unreadable { .. }
                    | TlsError::NoCertificate(_)
                    | TlsError::Unusable { .. } => "--tls-cert",
                };
                ServeError::Usage(format!("{flag}: {error}"))
            },
        );
        opened.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use domain::SystemClock;

    use super::*;

    #[derive(Parser)]
    struct Probe {
        #[command(flatten)]
        tls: TlsArgs,
    }

    #[test]
    fn a_refused_certificate_is_named_with_its_flag() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let read = |words: &[&str]| Probe::try_parse_from([&["probe"], words].concat());
        assert!(read(&[]).expect("none").tls.open(&clock).expect("no TLS").is_none());
        assert!(read(&["--tls-cert=/nowhere"]).is_err(), "a certificate without its key");
        let both = read(&["--tls-cert=/nowhere", "--tls-key=/nowhere.key"]).expect("both");
        let refused = both.tls.open(&clock).expect_err("no file").to_string();
        assert_eq!(
            refused,
            "--tls-cert: cannot read /nowhere: there is no such file; name a file in PEM that the service's user can read"
        );
    }
}
