//! A call, its context, and its outcome.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use domain::{RuleAction, ToolOutcomeKind};
use sandbox::{Cell, LiveOutput, LocationLock, Output};
use serde_json::{Value, json};
use snapshots::Touched;
use tokio_util::sync::CancellationToken;

use crate::bound::Limits;
use crate::outputs::ManagedOutputs;
use crate::skill::SkillScope;
use crate::todo::TaskList;

/// A tool's definition for providers. Identical on every worker, because it is part of the prompt's cached
/// prefix.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// The name that the model calls.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// JSON Schema of its structured result, which only clients see. A tool without one has no structured result.
    pub result_schema: Option<Value>,
}

/// Makes the JSON Schema of an object that has these properties and no others.
pub(crate) fn fields(required: &[&str], properties: &Value) -> Value {
    let required = Value::from(required);
    json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false})
}

/// A call as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Our id for the call.
    pub id: String,
    /// The tool's name, which may be unknown.
    pub name: String,
    /// The arguments, valid JSON or not.
    pub arguments: String,
}

/// The Location in which a call runs, and its bounds.
#[derive(Clone)]
pub struct ToolContext {
    /// The Location's directory on this worker.
    pub root: PathBuf,
    /// The directory's name as shown to the model: `/workspace`, or the real path.
    pub shown_root: String,
    /// Ends the call, whose outcome is then *interrupted*.
    pub cancel: CancellationToken,
    /// The Managed Tool Output Files that this session may read.
    pub outputs: Arc<dyn ManagedOutputs>,
    /// The session's list of tasks, if it can have one.
    pub tasks: Option<Arc<dyn TaskList>>,
    /// The Location's lock on a shared disk.
    pub lock: Option<LocationLock>,
    /// The cell in which its commands run.
    pub cell: Cell,
    /// The limits of one settlement. Tools shape their results to fit.
    pub limits: Limits,
    /// The skills that it may load, if any.
    pub skills: Option<SkillScope>,
    /// The files that `read` may show, and the files and pages to which a call may lead.
    pub reads: ReadRules,
    /// Takes the end of a command's output while it runs.
    pub live: LiveOutput,
}

/// Judges a file, given by its path below the Location's directory, or a page, given by its address.
type Judge = dyn Fn(&str) -> RuleAction + Send + Sync;

/// Returns whether rules about a tool keep a file, given by its path below the Location's directory, out of its results.
type HideResult = dyn Fn(&str, &str) -> bool + Send + Sync;

/// Says whether the model may know of a skill.
type ShowSkill = dyn Fn(&str) -> bool + Send + Sync;

/// The rules about files and skills that a tool shows, and about files and pages to which it comes, though the call does not name them.
/// Cheap to clone. The default allows all.
#[derive(Clone, Default)]
pub struct ReadRules {
    reads: Option<Arc<Judge>>,
    edits: Option<Arc<Judge>>,
    pages: Option<Arc<Judge>>,
    results: Option<Arc<HideResult>>,
    skills: Option<Arc<ShowSkill>>,
}

impl ReadRules {
    /// Makes the rules of a call, with those about files that `read` may show.
    pub fn new(judge: impl Fn(&str) -> RuleAction + Send + Sync + 'static) -> Self {
        Self { reads: Some(Arc::new(judge)), ..Self::default() }
    }

    /// Adds the rules about files that may be changed.
    #[must_use]
    pub fn with_edits(self, judge: impl Fn(&str) -> RuleAction + Send + Sync + 'static) -> Self {
        Self { edits: Some(Arc::new(judge)), ..self }
    }

    /// Adds the rules about pages that may be fetched.
    #[must_use]
    pub fn with_pages(self, judge: impl Fn(&str) -> RuleAction + Send + Sync + 'static) -> Self {
        Self { pages: Some(Arc::new(judge)), ..self }
    }

    /// Adds the rules about files in the results of searches.
    #[must_use]
    pub fn with_results(self, hide: impl Fn(&str, &str) -> bool + Send + Sync + 'static) -> Self {
        Self { results: Some(Arc::new(hide)), ..self }
    }

    /// Returns whether rules about a tool that searches keep a path below the Location's directory out of its results.
    pub(crate) fn hides_result(&self, tool: &str, path: &Path) -> bool {
        let path = path.strip_prefix(".").unwrap_or(path);
        self.results.as_ref().is_some_and(|hide| hide(tool, &path.to_string_lossy()))
    }

    /// Adds which skills the model may know of.
    #[must_use]
    pub fn with_skills(self, shows: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { skills: Some(Arc::new(shows)), ..self }
    }

    /// Returns whether the model may know of a skill.
    pub(crate) fn shows_skill(&self, name: &str) -> bool {
        self.skills.as_ref().is_none_or(|shows| shows(name))
    }

    /// Judges a path below the Location's directory.
    pub(crate) fn judge(&self, path: &Path) -> RuleAction {
        judge_path(self.reads.as_deref(), path)
    }

    /// Checks an address to which a page redirects. Returns in words why it is not fetched.
    pub(crate) fn check_page(&self, address: &str) -> Result<(), String> {
        match self.pages.as_ref().map_or(RuleAction::Allow, |judge| judge(address)) {
            RuleAction::Allow => Ok(()),
            RuleAction::Deny => Err(format!(
                "it redirects to {address}, which a rule refuses; do without this page, or tell the user that it is needed"
            )),
            RuleAction::Ask => Err(format!(
                "it redirects to {address}, about which there is a rule; fetch {address} itself, so that the rule decides"
            )),
        }
    }

    /// Refuses an open file to which a path leads over links, unless `read` may show it by its own name.
    pub(crate) fn check_links(
        &self,
        given: &str,
        below: &Path,
        real: &Path,
    ) -> Result<(), Stopped> {
        check_place(self.reads.as_deref(), given, below, real)
    }

    /// Refuses a change of a file to which a path leads over links, unless that file may be changed by its own name.
    pub(crate) fn check_changed(
        &self,
        given: &str,
        below: &Path,
        real: &Path,
    ) -> Result<(), Stopped> {
        check_place(self.edits.as_deref(), given, below, real)
    }
}

fn judge_path(judge: Option<&Judge>, path: &Path) -> RuleAction {
    let path = path.strip_prefix(".").unwrap_or(path);
    judge.map_or(RuleAction::Allow, |judge| judge(&path.to_string_lossy()))
}

/// Refuses a file to which a path leads over links, unless a rule allows it by its own name.
fn check_place(
    judge: Option<&Judge>,
    given: &str,
    below: &Path,
    real: &Path,
) -> Result<(), Stopped> {
    let mut plain = PathBuf::new();
    for part in below.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    // Then it is the file that was judged by its name.
    if plain == real || judge_path(judge, real) == RuleAction::Allow {
        return Ok(());
    }
    let real = real.display();
    Err(Stopped::because(format!(
        "{given} leads to {real}, about which there is a rule: name {real} itself, so that the rule decides"
    )))
}

/// The text of a result.
#[derive(Debug)]
pub enum Text {
    /// The whole text.
    Whole(String),
    /// Its two ends, and a file with the whole.
    Spooled(Output),
}

/// The outcome of a call before it is bounded. Do not show or store it yet.
#[derive(Debug)]
pub struct ToolOutcome {
    /// Success or the kind of failure.
    pub kind: ToolOutcomeKind,
    /// One line for people.
    pub title: String,
    /// The text for the model.
    pub text: Text,
    /// A few words after the text that are never cut, at most 512 bytes; may be empty.
    pub footer: String,
    /// The validated structured result.
    pub structured: Option<Value>,
    /// The files of the Location that the call may have changed, even if it failed.
    pub touched: Touched,
}

impl ToolOutcome {
    pub(crate) fn completed(title: String, text: String, structured: Option<Value>) -> Self {
        let footer = String::new();
        Self {
            kind: ToolOutcomeKind::Completed,
            title,
            text: Text::Whole(text),
            footer,
            structured,
            touched: Touched::Nothing,
        }
    }

    pub(crate) fn touching(self, touched: Touched) -> Self {
        Self { touched, ..self }
    }
}

/// The reason why a tool has no result; its body returns this instead of an outcome.
#[derive(Debug)]
pub enum Stopped {
    /// It failed and changed nothing. The model gets the reason and can correct the call.
    Failed(String),
    /// It failed after it had begun, and may have changed something. The model gets the reason.
    Midway(String),
    /// Its context's token was cancelled.
    Interrupted,
}

impl Stopped {
    pub(crate) fn because(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// Converts it to the outcome that the model and people see.
    pub(crate) fn into_outcome(self, tool: &str) -> ToolOutcome {
        let (kind, text, touched) = match self {
            Self::Failed(message) => (ToolOutcomeKind::Failed, message, Touched::Nothing),
            Self::Midway(message) => (ToolOutcomeKind::Failed, message, Touched::Anything),
            Self::Interrupted => {
                (ToolOutcomeKind::Interrupted, "interrupted".to_owned(), Touched::Nothing)
            }
        };
        ToolOutcome {
            kind,
            title: tool.to_owned(),
            text: Text::Whole(text),
            footer: String::new(),
            structured: None,
            touched,
        }
    }

    /// Marks a call that had begun to change something.
    pub(crate) fn midway(self) -> Self {
        match self {
            Self::Failed(message) | Self::Midway(message) => Self::Midway(message),
            Self::Interrupted => Self::Interrupted,
        }
    }
}

/// The visible effect of a call after its worker died (class *probe*).
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a takeover makes one and reads it at once")]
pub enum Probe {
    /// The effect happened; this settles the call.
    Done(ToolOutcome),
    /// It did not happen; the call may run again.
    NotDone,
    /// It cannot be determined; the outcome is unknown.
    Unclear,
}

/// Returns a number with its thing: `1 line`, `2 lines`.
pub(crate) fn say_count(count: impl TryInto<u64>, thing: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Returns a title for people: one line, at most 80 characters.
pub(crate) fn title(verb: &str, what: &str) -> String {
    let line: String = format!("{verb} {what}").chars().take(400).collect();
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(80) {
        Some((_, _)) => format!("{}…", line.chars().take(79).collect::<String>()),
        None => line,
    }
}
