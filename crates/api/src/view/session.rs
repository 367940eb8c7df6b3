use domain::{LeftFile, LeftReason, ModelRef, RevertStaged, TurnUsage};
use serde::Serialize;
use store::{ModelNotice, SessionRow};

use super::files::{FileView, SummaryView};
use super::tokens::{TokensView, Usd};

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionView {
    pub(crate) id: String,
    pub(crate) slug: String,
    #[serde(rename = "projectID")]
    pub(crate) project_id: String,
    #[serde(rename = "parentID", skip_serializing_if = "Option::is_none")]
    pub(crate) parent_id: Option<String>,
    pub(crate) directory: String,
    pub(crate) path: &'static str,
    pub(crate) title: String,
    pub(crate) agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<SessionModelView>,
    pub(crate) version: String,
    pub(crate) cost: Usd,
    pub(crate) tokens: TokensView,
    pub(crate) time: TimeView,
    /// What is taken back, and can be brought back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revert: Option<RevertView>,
    /// How much it changed in files, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<SummaryView>,
    /// What stock clients do not know.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) more: Option<MoreView>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SessionModelView {
    id: String,
    #[serde(rename = "providerID")]
    provider_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MoreView {
    location: String,
    busy: bool,
    seq: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    /// The session whose conversation it began with.
    #[serde(rename = "forkOf", skip_serializing_if = "Option::is_none")]
    fork_of: Option<String>,
    /// What its user should know of the models that it has used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notices: Vec<NoticeView>,
}

/// What the user of a model should know: that it is deprecated, say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct NoticeView {
    #[serde(rename = "providerID")]
    provider_id: String,
    #[serde(rename = "modelID")]
    model_id: String,
    message: String,
    /// When the session first used the model.
    time: i64,
}

impl From<ModelNotice> for NoticeView {
    fn from(notice: ModelNotice) -> Self {
        Self {
            provider_id: notice.provider,
            model_id: notice.model,
            message: notice.text,
            time: notice.time_ms,
        }
    }
}

/// A Revert that is staged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct RevertView {
    #[serde(rename = "messageID")]
    message_id: String,
    /// The files as they were before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
    /// What it changed in files, as one patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
    /// The same, file by file.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<FileView>>,
    /// Files that the reverted turns may have changed, and that are as those turns left them. Stock clients do not know it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left: Vec<LeftFileView>,
}

/// A file that a Revert left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct LeftFileView {
    file: String,
    why: LeftReason,
}

impl From<LeftFile> for LeftFileView {
    fn from(left: LeftFile) -> Self {
        Self { file: left.path, why: left.why }
    }
}

impl RevertView {
    fn new(staged: RevertStaged) -> Self {
        let patches = staged.files.iter().filter_map(|file| file.patch.as_deref());
        let diff = patches.collect::<Vec<_>>().join("\n");
        Self {
            message_id: staged.message.into(),
            snapshot: staged.original.map(Into::into),
            diff: Some(diff).filter(|diff| !diff.is_empty()),
            files: Some(staged.files.into_iter().map(Into::into).collect()),
            left: staged.left.into_iter().map(Into::into).collect(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TimeView {
    pub(crate) created: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) updated: Option<i64>,
    /// When the compaction that runs began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) compacting: Option<i64>,
}

impl TimeView {
    pub(crate) fn created(created: i64) -> Self {
        Self { created, updated: None, compacting: None }
    }
}

impl From<ModelRef> for SessionModelView {
    fn from(model: ModelRef) -> Self {
        Self { id: model.model, provider_id: model.provider, variant: model.variant }
    }
}

impl SessionView {
    /// In the stock shape.
    pub(crate) fn stock(row: SessionRow, version: &str) -> Self {
        Self {
            slug: row.at.session.to_string(),
            id: row.at.session.into(),
            project_id: row.project.into(),
            directory: row.directory,
            path: "",
            title: row.title,
            agent: row.agent,
            model: row.model.map(Into::into),
            version: version.to_owned(),
            parent_id: row.parent.map(Into::into),
            cost: Usd(row.usage.cost),
            tokens: TurnUsage::into(row.usage),
            time: TimeView {
                // What a fork has copied is older than it.
                updated: Some(row.updated_ms.max(row.created_ms)),
                compacting: row.compacting_ms,
                ..TimeView::created(row.created_ms)
            },
            revert: row.revert.map(|staged| RevertView { files: None, ..RevertView::new(staged) }),
            summary: None,
            more: None,
        }
    }

    /// With what stock clients do not know.
    pub(crate) fn native(row: SessionRow, version: &str) -> Self {
        let more = MoreView {
            location: row.at.location.to_string(),
            busy: row.busy,
            seq: row.seq.0,
            outcome: row.outcome.clone(),
            fork_of: row.fork_of.as_ref().map(ToString::to_string),
            notices: row.notices.iter().cloned().map(Into::into).collect(),
        };
        let revert = row.revert.clone().map(RevertView::new);
        Self { more: Some(more), revert, ..Self::stock(row, version) }
    }

    /// With how much it changed in files; a session that changed none is shown without.
    pub(crate) fn summed(self, summary: SummaryView) -> Self {
        Self { summary: Some(summary).filter(|summary| !summary.is_nothing()), ..self }
    }
}
