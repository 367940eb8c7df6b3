//! Reports of errors and panics to Sentry.

use ::reports::{Reports, Settings};
use clap::Args;

use super::ServeError;

const DSN: &str = "SENTRY_DSN";
const ENVIRONMENT: &str = "SENTRY_ENVIRONMENT";

/// Where reports of errors go.
#[derive(Clone, Default, Args)]
#[command(next_help_heading = "Telemetry")]
pub struct ReportArgs {
    /// Report errors and panics to this Sentry project, without their texts [default: nothing is sent]
    #[arg(long, value_name = "DSN", env = DSN, hide_env_values = true)]
    pub sentry_dsn: Option<String>,
    /// Name of this deployment in Sentry, such as `staging`
    #[arg(long, value_name = "NAME", env = ENVIRONMENT)]
    pub sentry_environment: Option<String>,
}

impl std::fmt::Debug for ReportArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReportArgs")
            .field("has_dsn", &self.sentry_dsn.is_some())
            .field("sentry_environment", &self.sentry_environment)
            .finish()
    }
}

impl ReportArgs {
    /// Begins to report, if a DSN is given. Reports go on until the result is dropped.
    ///
    /// # Errors
    /// When the DSN cannot be read. A Sentry that is away is no error.
    pub(crate) fn start(&self, role: &'static str) -> Result<Option<Reports>, ServeError> {
        let Some(dsn) = &self.sentry_dsn else { return Ok(None) };
        let release = env!("CARGO_PKG_VERSION");
        let environment = self.sentry_environment.as_deref();
        let started = ::reports::start(Settings { dsn, role, release, environment });
        started.map(Some).map_err(|error| ServeError::Usage(format!("--sentry-dsn: {error}")))
    }

    /// Returns the same settings as environment variables for another process; the DSN is secret.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, String)> {
        let (dsn, environment) = (self.sentry_dsn.clone(), self.sentry_environment.clone());
        let dsn = dsn.map(|dsn| (DSN, dsn));
        dsn.into_iter().chain(environment.map(|named| (ENVIRONMENT, named)))
    }
}
