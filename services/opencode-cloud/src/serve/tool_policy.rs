//! Where tools may run while there is no sandbox.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sandbox::{Command, Outcome, Sandbox, SandboxError};
use store::{Store, StoreError};
use tasks::CancellationToken;

/// How long the last count of organisations is trusted.
const FRESH_FOR: Duration = Duration::from_secs(5);

/// The clients that can reach a service whose tools run without a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Only this machine: the service listens on loopback.
    ThisMachine,
    /// Other machines too, and the operator lets them run commands as the service's user.
    Trusted,
    /// Other machines too.
    Others,
}

impl Reach {
    /// Returns the reach of a service that listens on loopback or not. `trusted` is the operator's flag.
    pub(crate) fn of(is_loopback: bool, trusted: bool) -> Self {
        match (is_loopback, trusted) {
            (true, _) => Self::ThisMachine,
            (false, true) => Self::Trusted,
            (false, false) => Self::Others,
        }
    }
}

/// The reason why a command is refused without a sandbox.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(
        "commands are not run: this service can be reached from other machines, and its commands have no sandbox, so that \
         whoever has a key could run any as the service's user; bind it to 127.0.0.1, or say --trust-tools if they may"
    )]
    Others,
    #[error(
        "commands are not run: this service has several organisations, and its commands have no sandbox, so that each \
         organisation could read what is another's; run a service for each organisation"
    )]
    Organisations,
    #[error(
        "commands are not run: it is not known whether this service has several organisations: {0}; try again"
    )]
    Unknown(#[source] StoreError),
}

/// A sandbox that isolates nothing, but only runs commands where that harms nobody: for people of one organisation
/// who may run commands here anyway. Drains always run; a refused command is a failed call, and the model gets the
/// reason.
pub(crate) struct Unisolated<S> {
    inner: S,
    store: Store,
    reach: Reach,
    /// The time when there was last found to be only one organisation.
    alone: Mutex<Option<Instant>>,
}

impl<S> Unisolated<S> {
    pub(crate) fn new(inner: S, store: Store, reach: Reach) -> Self {
        Self { inner, store, reach, alone: Mutex::default() }
    }

    async fn refusal(&self) -> Option<Refusal> {
        if self.reach == Reach::Others {
            return Some(Refusal::Others);
        }
        let known = *self.alone.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.is_some_and(|known| known.elapsed() < FRESH_FOR) {
            return None;
        }
        match self.store.has_many_organisations().await {
            Ok(true) => Some(Refusal::Organisations),
            Ok(false) => {
                *self.alone.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
                    Some(Instant::now());
                None
            }
            Err(error) => Some(Refusal::Unknown(error)),
        }
    }
}

#[async_trait]
impl<S: Sandbox> Sandbox for Unisolated<S> {
    async fn run(
        &self,
        command: Command,
        cancel: &CancellationToken,
    ) -> Result<Outcome, SandboxError> {
        match self.refusal().await {
            None => self.inner.run(command, cancel).await,
            Some(refusal) => {
                tracing::warn!(%refusal, "a tool was refused");
                Err(SandboxError::Refused(refusal.to_string()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sandbox::{Environment, ProcessSandbox};
    use store::StoreOptions;

    use super::*;

    async fn asked(store: &Store, reach: Reach) -> String {
        // This supervisor does not exist: a command that may run fails with that error.
        let none = ProcessSandbox::new(
            "/no/supervisor".into(),
            Vec::<String>::new(),
            Environment::from_vars([]),
            std::env::temp_dir(),
        );
        let sandbox = Unisolated::new(none, store.clone(), reach);
        let command = Command::shell("true", std::env::temp_dir(), Duration::from_secs(1));
        let ended = sandbox.run(command, &CancellationToken::new()).await;
        ended.expect_err("there is no supervisor").to_string()
    }

    // Finding security 1: without a sandbox, one organisation's key opens all of them.
    #[tokio::test]
    async fn commands_without_a_sandbox_are_for_one_organisation_here() {
        let database = testkit::database().await.expect("a database");
        let store = Store::connect(&StoreOptions::new(database.store_url())).expect("a store");
        let key = |id: &str| store::NewKey {
            id: id.into(),
            hash: id.as_bytes().to_vec(),
            name: id.into(),
            scopes: vec!["*".into()],
            expires_ms: None,
        };
        let first = domain::OrgId::FIRST;
        for (org, id) in [(first, "key_a"), (first, "key_b")] {
            store.ensure_organisation(org, id.into(), 1).await.expect("an organisation");
            store.create_key(org, key(id), 1).await.expect("a key");
        }
        let reaches = [Reach::of(true, false), Reach::of(false, true)];
        for reach in reaches {
            let told = asked(&store, reach).await;
            assert!(told.contains("/no/supervisor"), "{reach:?}: {told}");
        }
        let told = asked(&store, Reach::of(false, false)).await;
        assert!(told.contains("--trust-tools") && told.contains("127.0.0.1"), "{told}");
        let other = domain::OrgId::random();
        store.ensure_organisation(other, "other".into(), 1).await.expect("another one");
        store.create_key(other, key("key_c"), 1).await.expect("a key");
        for reach in reaches {
            let told = asked(&store, reach).await;
            assert!(told.contains("a service for each organisation"), "{reach:?}: {told}");
        }
    }
}
