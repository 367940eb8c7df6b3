//! Reads everything of a Location's files for one boundary in one pass, because each pass takes a thread and wakes
//! the drain.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ::settings::ProjectSettings;
use checkouts::{add_skill_remarks, project_settings, read_repository};
use context::{InstructionFile, Skill};
use sandbox::HiddenPaths;
use tokio::time::timeout;
use tools::{FoundSkill, SkillPlaces, project_top};

use super::{ObservedAt, PATIENCE, instructions, nested};

/// The result of one pass.
#[derive(Debug)]
pub(super) struct Seen {
    /// Whether the Location is a git checkout, and its branch.
    pub(super) repository: (bool, Option<String>),
    /// The project's instructions, from its top down to the Location. `Err` says why they cannot be read now.
    pub(super) project: Result<Vec<InstructionFile>, String>,
    /// The instructions of directories below in which the model has read.
    pub(super) nested: Result<Vec<InstructionFile>, String>,
    /// All skills, whoever may load them.
    pub(super) skills: Result<Arc<[Skill]>, String>,
    /// The settings in the project's files.
    pub(super) settings: Result<ProjectSettings, String>,
}

/// The settings of a pass.
struct Pass {
    root: PathBuf,
    shown: PathBuf,
    in_project: bool,
    project_instructions: bool,
    reads: Arc<BTreeSet<String>>,
    hidden: HiddenPaths,
}

/// Looks once, on a thread that may block. `Err` says why nothing could be read now.
pub(super) async fn look(at: &ObservedAt) -> Result<Seen, String> {
    let pass = Pass {
        root: at.root.clone().ok_or("the workspace is not here")?,
        shown: PathBuf::from(&at.shown),
        in_project: at.in_project,
        project_instructions: at.project_instructions,
        reads: Arc::clone(&at.reads),
        hidden: at.hidden.clone(),
    };
    let looking = tokio::task::spawn_blocking(move || pass.look());
    match timeout(PATIENCE, looking).await {
        Ok(looked) => looked.map_err(|failed| failed.to_string()),
        Err(_elapsed) => Err(format!("its files did not answer within {} s", PATIENCE.as_secs())),
    }
}

impl Pass {
    fn look(&self) -> Seen {
        let Self { root, shown, in_project, project_instructions, reads, hidden } = self;
        let repository = read_repository(root, *in_project, hidden);
        if !project_instructions {
            let (project, nested, skills) = (Ok(Vec::new()), Ok(Vec::new()), Ok(Arc::default()));
            let settings = Ok(ProjectSettings::default());
            return Seen { repository, project, nested, skills, settings };
        }
        let top = if *in_project { project_top(root) } else { root };
        let skills = SkillPlaces { root, top, shown, hidden }.find();
        let settings = project_settings(root, top, hidden).map(|mut settings| {
            add_skill_remarks(&mut settings, skills.as_deref().unwrap_or_default());
            settings
        });
        Seen {
            repository,
            project: instructions::upward(root, top, shown, hidden).map_err(said),
            nested: nested::found(root, shown, reads, hidden).map_err(said),
            skills: skills.map(usable).map_err(said),
            settings: settings.map_err(said),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` calls")]
fn said(error: io::Error) -> String {
    error.to_string()
}

/// Returns the skills that a model can be shown. People are told of the others.
fn usable(found: Vec<FoundSkill>) -> Arc<[Skill]> {
    let told = |skill: FoundSkill| Skill::new(&skill.name, &skill.description.ok()?).ok();
    found.into_iter().filter_map(told).collect()
}
