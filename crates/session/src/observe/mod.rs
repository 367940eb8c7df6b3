//! Reads the Context Sources: I/O before a decision, never with a transaction open.
//!
//! ```text
//! builtins ─────┐                          ┌ organisation's, then AGENTS.md of the directories above, nearest last
//! instructions ─┼─Registry→ Observation    ┘
//! nested ───────┘ (the Location's)           AGENTS.md of the directories in which the model has read
//! skills ────────────────────▶┘ which of them are told is the selected agent's, known when it is decided
//! ```
//!
//! The first of them that needs the Location's files reads all of them in one pass.
//!
//! Invariant: no source depends on which worker reads it.

mod builtins;
mod files;
mod instructions;
mod nested;
mod reads;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::settings::ProjectSettings;
use context::{Loaded, Producer, Registration, Registry, SourceKey};
use domain::{OrgId, SessionRef, TimestampMs, ToolSettled};
use history::History;
use jiff::tz::TimeZone;
use sandbox::HiddenPaths;
use session_rules::Observation;
use store::Store;
use tokio::sync::OnceCell;

use self::files::Seen;
use crate::runtime::Runtime;
use crate::workspace::Workspace;

/// How long a look at files may take. After that they are unavailable for now.
const PATIENCE: Duration = Duration::from_secs(5);

/// The name of instruction files.
const INSTRUCTION_FILE: &str = "AGENTS.md";

/// The place and the time at which a producer looks.
#[derive(Debug, Clone)]
pub struct ObservedAt {
    /// The owner of the Location.
    pub org: OrgId,
    /// The Location's real directory, if this worker has it. No text may name it.
    pub root: Option<PathBuf>,
    /// The Location's directory as the model sees it.
    pub shown: String,
    /// Whether the project reaches beyond the Location, up to the top of its git worktree.
    pub in_project: bool,
    /// Whether instruction files of the project count.
    pub project_instructions: bool,
    /// Paths that the model has read since the session came here, as it wrote them.
    pub reads: Arc<BTreeSet<String>>,
    /// The time, in Unix milliseconds.
    pub now_ms: TimestampMs,
    /// The zone of the dates that the model sees.
    pub zone: TimeZone,
    /// The paths of the Location's files that are not read.
    pub hidden: HiddenPaths,
    /// The store of the organisation's texts.
    pub store: Store,
    files: Arc<OnceCell<Result<Seen, String>>>,
}

impl ObservedAt {
    /// Returns the place of a session at its next boundary. `done` are results of its open turn that are not written
    /// yet.
    pub(crate) fn now(
        runtime: &Runtime,
        session: &SessionRef,
        workspace: &Workspace,
        history: &History,
        done: &[ToolSettled],
    ) -> Self {
        Self {
            org: session.org,
            root: workspace.root().map(ToOwned::to_owned),
            shown: workspace.shown().to_owned(),
            in_project: workspace.is_in_project(),
            project_instructions: runtime.settings.project_instructions,
            reads: Arc::new(reads::reads(history, done)),
            now_ms: runtime.clock.now_ms(),
            zone: runtime.settings.zone.clone(),
            hidden: runtime.settings.hidden.clone(),
            store: runtime.store.clone(),
            files: Arc::default(),
        }
    }

    /// Reads the Location's files in parallel to other work.
    pub(crate) async fn look_ahead(&self) {
        // An error is kept for the producer that asks.
        let _ = self.files().await;
    }

    /// Takes over the files that were read ahead, if they are the right ones.
    pub(crate) fn with_files_of(self, ahead: &Self) -> Self {
        if self.reads == ahead.reads {
            Self { files: Arc::clone(&ahead.files), ..self }
        } else {
            self
        }
    }

    /// Returns the settings in the project's files. `Err` says why they cannot be read now.
    pub(crate) async fn settings(&self) -> Result<&ProjectSettings, &str> {
        match self.files.get_or_init(|| files::look(self)).await {
            Ok(seen) => seen.settings.as_ref().map_err(String::as_str),
            Err(why) => Err(why),
        }
    }

    /// Returns the contents of the Location's files, read once for all producers. `Err` says why they cannot be read
    /// now.
    async fn files(&self) -> Result<&Seen, String> {
        self.files.get_or_init(|| files::look(self)).await.as_ref().map_err(Clone::clone)
    }
}

/// Reads the Context Sources.
pub(crate) async fn observe(at: ObservedAt, workspace: &Workspace) -> Observation {
    let seen = workspace.sources().observe(&at).await;
    let skills = match at.files().await {
        Ok(seen) => seen.skills.clone().map_or_else(Loaded::Unavailable, Loaded::Value),
        Err(why) => Loaded::Unavailable(why),
    };
    Observation::new(seen, at.reads).with_skills(skills)
}

/// A Location's System Context Registry, with the contributions of every Location.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub(crate) registry: Registry<ObservedAt>,
    _core: Arc<[Registration<ObservedAt>]>,
}

impl Sources {
    pub(crate) fn core() -> Self {
        let registry = Registry::new();
        let core: [(SourceKey, Arc<dyn Producer<ObservedAt>>); 3] = [
            (SourceKey::fixed("core/builtins"), Arc::new(builtins::Builtins)),
            (SourceKey::fixed("core/instructions"), Arc::new(instructions::Ambient::default())),
            (SourceKey::fixed("core/nested"), Arc::new(nested::Nested)),
        ];
        let core = core.map(|(key, producer)| {
            registry.register(key, producer).expect("a new registry has room and no such key")
        });
        Self { registry, _core: Arc::new(core) }
    }
}
