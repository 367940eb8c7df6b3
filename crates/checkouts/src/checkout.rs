//! Looks into directories for callers that must not block: a few looks at a time, each with a bound on its time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandbox::{HiddenPaths, Sandbox};
use settings::ProjectSettings;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tools::{SkillPlaces, project_top};
use workspaces::ChangesAsked;

use crate::changes::{AskedTree, WorkingChange, run_git};
use crate::names::{FoundName, NameSearch};
use crate::repository::read_repository;
use crate::settings_files::{add_skill_remarks, project_settings};

/// The most looks at a time. Others wait.
const LOOKS: usize = 4;
/// The longest time for a look, with the wait for its turn.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest time for a search of names. Then the best of those that were found are the answer.
const SEARCH: Duration = Duration::from_secs(2);
/// The most bytes of a skill's text.
const SKILL_BYTES: usize = 64 * 1024;

/// Why a directory could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// It holds the service's own data or somebody's credentials.
    #[error("the directory holds the service's own data or somebody's credentials")]
    Hidden,
    /// It took too long, or too much is looked at just now.
    #[error("the directory's files did not answer in time")]
    Slow,
    /// It cannot be read.
    #[error("the directory cannot be read: {0}")]
    Unreadable(#[from] io::Error),
}

/// A git checkout, and its branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckoutBranch {
    /// The branch; `None` while a commit is checked out, or where the `.git` is not to be followed.
    pub branch: Option<String>,
}

/// A skill that a model is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownSkill {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// The path of its file.
    pub file: PathBuf,
    /// The beginning of its text.
    pub text: String,
}

/// The directories of this machine, as the service may look into them. Every directory that is given is a real path. Cheap to
/// clone.
#[derive(Clone)]
pub struct Checkouts {
    hidden: HiddenPaths,
    /// Where git runs.
    sandbox: Option<Arc<dyn Sandbox>>,
    reads_projects: bool,
    looks: Arc<Semaphore>,
}

impl Checkouts {
    /// Makes them. `hidden` is what sessions do not see; without a `sandbox` nobody is asked for changes; `reads_projects`: whether
    /// skills and settings of projects count.
    pub fn new(
        hidden: HiddenPaths,
        sandbox: Option<Arc<dyn Sandbox>>,
        reads_projects: bool,
    ) -> Self {
        Self { hidden, sandbox, reads_projects, looks: Arc::new(Semaphore::new(LOOKS)) }
    }

    /// Returns the branch of the checkout that a directory belongs to; `None` outside of one.
    ///
    /// # Errors
    /// The directory could not be looked at.
    pub async fn read_branch(&self, directory: &Path) -> Result<Option<CheckoutBranch>, LookError> {
        self.look_into(directory, |root, hidden| {
            let (is_checkout, branch) = read_repository(project_top(root), true, hidden);
            Ok(is_checkout.then_some(CheckoutBranch { branch }))
        })
        .await
    }

    /// Returns the settings in a directory's files; none where projects' files do not count.
    ///
    /// # Errors
    /// The directory could not be looked at.
    pub async fn read_settings(&self, directory: &Path) -> Result<ProjectSettings, LookError> {
        if !self.reads_projects {
            return Ok(ProjectSettings::default());
        }
        self.look_into(directory, |root, hidden| {
            let top = project_top(root);
            let mut settings = project_settings(root, top, hidden)?;
            let skills = SkillPlaces { root, top, shown: root, hidden }.find();
            add_skill_remarks(&mut settings, skills.as_deref().unwrap_or_default());
            Ok(settings)
        })
        .await
    }

    /// Returns the skills that a model is offered in a directory, by name.
    ///
    /// # Errors
    /// The directory could not be looked at.
    pub async fn read_skills(&self, directory: &Path) -> Result<Vec<ShownSkill>, LookError> {
        if !self.reads_projects {
            return Ok(Vec::new());
        }
        self.look_into(directory, |root, hidden| {
            let places = SkillPlaces { root, top: project_top(root), shown: root, hidden };
            let mut shown = Vec::new();
            for skill in places.find()? {
                let Ok(description) = skill.description.clone() else { continue };
                let Some((mut text, _)) = places.text(&skill)? else { continue };
                text.truncate(text.floor_char_boundary(SKILL_BYTES));
                let file = skill.shown_file();
                shown.push(ShownSkill { name: skill.name, description, file, text });
            }
            Ok(shown)
        })
        .await
    }

    /// Finds names in a directory. `shows` says whether a file's name may be shown, by its path below the directory.
    ///
    /// # Errors
    /// The directory could not be looked at.
    pub async fn find_names(
        &self,
        directory: &Path,
        search: NameSearch,
        shows: impl Fn(&Path) -> bool + Send + 'static,
    ) -> Result<Vec<FoundName>, LookError> {
        let cancel = CancellationToken::new();
        let searched = self.look_into(directory, {
            let cancel = cancel.clone();
            move |root, hidden| Ok(search.find(root, hidden, shows, &cancel)?)
        });
        // A caller that has gone ends its search too.
        let _gone = cancel.clone().drop_guard();
        let mut searched = std::pin::pin!(searched);
        if let Ok(found) = timeout(SEARCH, &mut searched).await {
            return found;
        }
        cancel.cancel();
        searched.await
    }

    /// Returns the changes of a directory's working tree, as git tells them; `None` where git cannot be asked: outside of a
    /// checkout, where the `.git` is elsewhere, without a sandbox, or if it did not answer in time. `shows` says whether a file may be
    /// shown, by its path below the directory. `context`: the lines around a change, `None` for no patches.
    ///
    /// # Errors
    /// The directory could not be looked at.
    pub async fn read_changes(
        &self,
        directory: &Path,
        context: Option<u32>,
        shows: impl Fn(&Path) -> bool + Send + 'static,
    ) -> Result<Option<Vec<WorkingChange>>, LookError> {
        let Some(sandbox) = &self.sandbox else { return Ok(None) };
        let asked = ChangesAsked { context };
        let command = self.look_into(directory, move |root, hidden| {
            Ok(AskedTree { top: project_top(root), root, hidden }.build_command(asked))
        });
        let Some(command) = command.await? else { return Ok(None) };
        let place = timeout(PATIENCE, self.looks.acquire()).await;
        let Ok(Ok(permit)) = place else { return Err(LookError::Slow) };
        let answer = run_git(&**sandbox, command).await;
        drop(permit);
        let Some(answer) = answer else { return Ok(None) };
        let changes = self.look_into(directory, move |root, hidden| {
            let tree = AskedTree { top: project_top(root), root, hidden };
            Ok(tree.read_answer(&answer, asked, shows))
        });
        changes.await.map(Some)
    }

    /// Looks on a thread that may block.
    async fn look_into<T: Send + 'static>(
        &self,
        directory: &Path,
        look: impl FnOnce(&Path, &HiddenPaths) -> Result<T, LookError> + Send + 'static,
    ) -> Result<T, LookError> {
        let (root, hidden) = (directory.to_path_buf(), self.hidden.clone());
        let looks = self.looks.clone();
        let looked = async move {
            let permit = looks.acquire_owned().await.map_err(|_closed| LookError::Slow)?;
            let looking = tokio::task::spawn_blocking(move || {
                let _until_it_ends = permit;
                if hidden.around(&root).is_some() {
                    return Err(LookError::Hidden);
                }
                look(&root, &hidden)
            });
            looking.await.map_err(|failed| LookError::Unreadable(io::Error::other(failed)))?
        };
        timeout(PATIENCE, looked).await.map_err(|_elapsed| LookError::Slow)?
    }
}
