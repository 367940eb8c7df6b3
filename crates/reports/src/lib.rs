//! Reports of our own errors and panics to Sentry. They are off unless an operator names a DSN.
//!
//! ```text
//! error! of our crates ─▶ layer ─┐
//! panic ─▶ hook of the library ──┴─▶ scrub ─▶ rate ─▶ the library's thread ─▶ Sentry
//! ```
//!
//! Invariant: an event is made anew from a list of what may leave: its place in the source, the stack, release, role,
//! environment, level, and an organisation as a keyed hash. Texts of errors, of panics and of requests never leave.
//! Invariant: nobody waits for a report. At most [`A_MINUTE`] leave in a minute; the next one says how many did not.
//!
//! Absent: traces, which go to a collector by OTLP, and metrics.

mod layer;
mod rate;
mod scrub;

use std::sync::{Arc, OnceLock};

use sentry::integrations::panic::PanicIntegration;
use sentry::protocol::Event;
use sentry::{ClientInitGuard, ClientOptions, Integration};

pub use layer::ErrorLayer;
pub use rate::A_MINUTE;

/// Where reports go, and what they say of this process.
#[derive(Clone, Copy)]
pub struct Settings<'s> {
    /// The address of a Sentry project with its public key.
    pub dsn: &'s str,
    /// The role of this process, such as `gateway`.
    pub role: &'static str,
    /// The version of this executable.
    pub release: &'static str,
    /// The operator's name for this deployment, such as `production`.
    pub environment: Option<&'s str>,
}

/// A reason why reports cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The text is no DSN. It is not repeated, since it may hold a key.
    #[error("it is no Sentry DSN; write it as Sentry shows it, like https://KEY@HOST/PROJECT")]
    Dsn,
}

/// Reports that are on. Dropping it sends those that wait, for two seconds at most.
#[must_use = "reports end when this is dropped"]
pub struct Reports(#[expect(dead_code, reason = "it sends when it is dropped")] ClientInitGuard);

/// The key of hashes, which the layer has once reports are on.
static ON: OnceLock<layer::OrgKey> = OnceLock::new();

/// Begins to report errors and panics of this process. Only the first call of a process counts for [`ErrorLayer`].
///
/// # Errors
/// [`ReportError::Dsn`]. A Sentry that is away is no error.
pub fn start(settings: Settings<'_>) -> Result<Reports, ReportError> {
    let dsn: sentry::types::Dsn = settings.dsn.parse().map_err(|_unread| ReportError::Dsn)?;
    let rate = rate::Rate::default();
    let role = settings.role;
    let mut options = ClientOptions::new()
        // The library's own list adds the host's name, the system and the request.
        .default_integrations(false)
        .integrations([Arc::new(PanicIntegration::new()) as Arc<dyn Integration>])
        .max_breadcrumbs(0)
        .dsn(settings.dsn)
        .release(settings.release)
        .before_send(move |event: Event<'static>| {
            let suppressed = rate.admit()?;
            Some(scrub::scrubbed(&event, role, suppressed))
        });
    options.environment = settings.environment.map(|named| named.to_owned().into());
    let guard = sentry::init(options);
    let _first = ON.set(layer::OrgKey::new(dsn.public_key()));
    Ok(Reports(guard))
}
