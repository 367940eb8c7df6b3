//! In which sandbox the commands of models run, and where that is not enough.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sandbox::{
    CellOptions, Command, DiskLimits, Environment, Exits, FoundTier, Limits, Outcome, Reach,
    Sandbox, SandboxError, Tier, TierOptions, Toolchains, find_tier,
};
use store::{Store, StoreError};
use tasks::CancellationToken;

use super::args::DrainArgs;
use super::rights::{EXECUTABLE, launcher_words, started_launcher};

/// How long it is believed that there is one organisation.
const FRESH_FOR: Duration = Duration::from_secs(5);

/// The operator's demands on the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CommandPolicy {
    /// The least tier in which a command runs for one organisation.
    require: Tier,
    /// Better ones are not tried.
    at_most: Tier,
    uids: (u32, u32),
    /// How far commands are to get into networks.
    network: Reach,
    /// How much of the disks they may take.
    disk: DiskLimits,
    /// Whether they may change the `.git` of a checkout in tier C.
    open_git: bool,
}

impl DrainArgs {
    /// In which sandbox commands run. `alone`: whoever can reach the service is the one who runs it.
    pub(crate) fn commands(&self, alone: bool) -> CommandPolicy {
        let usual = if alone { Tier::C } else { Tier::A };
        let (require, at_most) = if self.trust_tools {
            (Tier::None, Tier::None)
        } else {
            (self.sandbox_require.unwrap_or(usual), self.sandbox_at_most.unwrap_or(Tier::A))
        };
        let (uids, network) = (self.sandbox_uids, self.network.network);
        let (disk, open_git) = (self.disk.limits(), self.open_git);
        CommandPolicy { require, at_most, uids, network, disk, open_git }
    }
}

impl CommandPolicy {
    /// The policy of workers on loopback that one person runs: the best that this machine gives.
    pub(crate) fn of_a_dev_cluster(network: Reach, disk: DiskLimits) -> Self {
        let (require, at_most, uids) = (Tier::C, Tier::A, super::args::UIDS);
        Self { require, at_most, uids, network, disk, open_git: false }
    }

    /// Finds the best sandbox of this machine. `spool`: for large outputs; `workspaces`: where they will be; `exits`: who
    /// serves the ways out of cells.
    pub(crate) async fn find(
        self,
        spool: &Path,
        workspaces: &Path,
        exits: Option<Arc<dyn Exits>>,
    ) -> FoundTier {
        find_tier(&self.options(spool, workspaces, exits)).await
    }

    fn options(
        self,
        spool: &Path,
        workspaces: &Path,
        exits: Option<Arc<dyn Exits>>,
    ) -> TierOptions {
        let this = PathBuf::from(EXECUTABLE);
        TierOptions {
            cells: CellOptions {
                launcher: this.clone(),
                prefix: launcher_words(),
                started: started_launcher(),
                environment: Environment::from_vars(std::env::vars_os()),
                toolchains: Toolchains::find(std::env::vars_os()),
                spool_directory: spool.to_path_buf(),
                uids: self.uids,
                limits: Limits::of_this_machine(),
                exits,
            },
            supervisor: this,
            supervisor_prefix: vec![OsString::from(crate::TOOL_SUPERVISOR)],
            probe_directory: workspaces.to_path_buf(),
            disk: self.disk,
            open_git: self.open_git,
            at_most: self.at_most,
            landlock_at_most: None,
        }
    }

    /// Whether commands of one organisation run in this tier.
    pub(crate) fn is_enough(self, tier: Tier) -> bool {
        tier >= self.require
    }

    /// One line for the start: tier, reason, remedy.
    pub(crate) fn told(self, found: &FoundTier) -> String {
        let mut line = match found.tier {
            Tier::A => {
                "sandbox: tier A, commands run in namespaces as users of their own".to_owned()
            }
            Tier::B => {
                "sandbox: tier B, commands run in namespaces as the service's user".to_owned()
            }
            Tier::C => "sandbox: tier C, commands run behind landlock and seccomp".to_owned(),
            Tier::None => "sandbox: NONE, commands run as the service's user".to_owned(),
        };
        if self.at_most == Tier::None {
            line += ", as --trust-tools says";
        }
        for weaker in &found.weaker {
            line += &format!("; {weaker}");
        }
        for (tier, why) in &found.refused {
            line += &format!("; not {tier}: {why}{}", remedy(*tier));
        }
        match (self.network, found.tier) {
            (Reach::None, _) => {}
            (_, Tier::None) => line += "; commands have the machine's own network",
            (asked, Tier::C) => {
                line += &format!(
                    "; network: none, since tier C has no way to open {asked}: landlock knows ports and no hosts"
                );
            }
            (asked, Tier::A | Tier::B) => line += &format!("; network: {asked}"),
        }
        if !self.is_enough(found.tier) {
            line += &format!("; commands are REFUSED, since tier {} is required", self.require);
        }
        line
    }
}

/// The change that makes a tier possible.
fn remedy(tier: Tier) -> &'static str {
    match tier {
        Tier::A => {
            " (root, in a container with CAP_SYS_ADMIN, and workspaces on ext4, xfs or btrfs give it)"
        }
        Tier::B => {
            " (user namespaces give it: sysctl kernel.unprivileged_userns_clone=1 or \
             kernel.apparmor_restrict_unprivileged_userns=0; in a container also an unmasked /proc)"
        }
        Tier::C | Tier::None => "",
    }
}

/// Why a command is not run.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(
        "commands are not run: the best sandbox of this machine is of tier {tier}, and {require} is required here{reasons}; \
         mend that, or say --sandbox-require {tier} if whoever has a key may run commands so"
    )]
    TooLittle { tier: Tier, require: Tier, reasons: String },
    #[error(
        "commands are not run: this machine gives no sandbox{0}; mend that, or say --trust-tools if whoever has a key may run \
         any command as the service's user"
    )]
    Nothing(String),
    #[error(
        "commands are not run: this service has several organisations, and its sandbox is of tier {tier}, in which one \
         organisation could read what is another's{reasons}; give it tier A, or run a service for each organisation"
    )]
    Organisations { tier: Tier, reasons: String },
    #[error(
        "commands are not run: it is not known whether this service has several organisations: {0}; try again"
    )]
    Unknown(#[source] StoreError),
}

/// Runs commands in the sandbox that was found, where that is enough. Drains run in any case: a refused command is a failed
/// call, told to the model.
pub(crate) struct Guarded {
    sandbox: Arc<dyn Sandbox>,
    tier: Tier,
    require: Tier,
    /// Why it is not a better one.
    reasons: String,
    store: Store,
    /// When there was found to be one organisation.
    alone: Mutex<Option<Instant>>,
}

impl Guarded {
    pub(crate) fn new(found: FoundTier, store: Store, policy: CommandPolicy) -> Self {
        let FoundTier { tier, sandbox, refused, .. } = found;
        let reason = |(tier, why): &(Tier, String)| format!("; not {tier}: {why}{}", remedy(*tier));
        let reasons = refused.iter().map(reason).collect();
        Self { sandbox, tier, require: policy.require, reasons, store, alone: Mutex::default() }
    }

    async fn refusal(&self) -> Option<Refusal> {
        let (tier, reasons) = (self.tier, self.reasons.clone());
        if tier < self.require {
            return Some(match tier {
                Tier::None => Refusal::Nothing(reasons),
                Tier::A | Tier::B | Tier::C => {
                    Refusal::TooLittle { tier, require: self.require, reasons }
                }
            });
        }
        if tier == Tier::A {
            return None;
        }
        let known = *self.alone.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.is_some_and(|known| known.elapsed() < FRESH_FOR) {
            return None;
        }
        match self.store.has_many_organisations().await {
            Ok(true) => Some(Refusal::Organisations { tier, reasons }),
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
impl Sandbox for Guarded {
    fn shows_outputs(&self) -> bool {
        self.sandbox.shows_outputs()
    }

    async fn run(
        &self,
        command: Command,
        cancel: &CancellationToken,
    ) -> Result<Outcome, SandboxError> {
        match self.refusal().await {
            None => self.sandbox.run(command, cancel).await,
            Some(refusal) => {
                tracing::warn!(%refusal, "a tool was refused");
                Err(SandboxError::Refused(refusal.to_string()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sandbox::ProcessSandbox;
    use store::StoreOptions;

    use super::*;

    async fn asked(store: &Store, tier: Tier, require: Tier) -> String {
        // A supervisor that does not exist: a command that may run says so.
        let none = ProcessSandbox::new(
            "/no/supervisor".into(),
            Vec::<String>::new(),
            Environment::from_vars([]),
            std::env::temp_dir(),
        );
        let (sandbox, weaker) = (Arc::new(none), Vec::new());
        let refused = vec![(Tier::A, "no root".to_owned())];
        let found = FoundTier { tier, sandbox, refused, weaker };
        let (at_most, uids, network) = (Tier::A, (200_000, 2), Reach::Packages);
        let policy = CommandPolicy {
            require,
            at_most,
            uids,
            network,
            disk: DiskLimits::default(),
            open_git: false,
        };
        let told = policy.told(&found);
        assert_eq!(told.contains("REFUSED"), tier < require, "{told}");
        assert_eq!(told.contains("; network: packages"), tier >= Tier::B, "{told}");
        assert_eq!(told.contains("has no way to open packages"), tier == Tier::C, "{told}");
        let sandbox = Guarded::new(found, store.clone(), policy);
        let command = Command::shell("true", std::env::temp_dir(), Duration::from_secs(1));
        let ended = sandbox.run(command, &CancellationToken::new()).await;
        ended.expect_err("there is no supervisor").to_string()
    }

    // Finding security 1: without a sandbox, one organisation's key opens all of them.
    #[tokio::test]
    async fn commands_below_tier_a_are_for_one_organisation() {
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
        for tier in Tier::ALL {
            let told = asked(&store, tier, tier).await;
            assert!(told.contains("/no/supervisor"), "{tier}: {told}");
        }
        let told = asked(&store, Tier::B, Tier::A).await;
        assert!(told.contains("--sandbox-require B") && told.contains("no root"), "{told}");
        let told = asked(&store, Tier::None, Tier::C).await;
        assert!(told.contains("--trust-tools") && told.contains("no root"), "{told}");
        let other = domain::OrgId::random();
        store.ensure_organisation(other, "other".into(), 1).await.expect("another one");
        store.create_key(other, key("key_c"), 1).await.expect("a key");
        for tier in [Tier::B, Tier::C, Tier::None] {
            let told = asked(&store, tier, Tier::None).await;
            assert!(told.contains("a service for each organisation"), "{tier}: {told}");
        }
        let told = asked(&store, Tier::A, Tier::A).await;
        assert!(told.contains("/no/supervisor"), "tier A keeps organisations apart: {told}");
    }
}
