use std::borrow::Cow;

use domain::{LeftFile, LeftReason, ModelRef, RevertStaged, ToolRule};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::value::RawValue;
use store::{ModelNotice, SessionRow};

use super::files::{FileView, SummaryView};
use super::tokens::{TokensView, Usd};
use crate::text::is_readable_json;

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
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
    /// The data that its client keeps with it, byte for byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<MetadataView>,
    /// The client's rules about tool calls, where one session is shown; `None` in lists and events, and without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permission: Option<Vec<ToolRule>>,
    /// The staged Revert, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revert: Option<RevertView>,
    /// The size of its changes of files; `None` where nobody asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<SummaryView>,
    /// Fields that stock clients do not have.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) more: Option<MoreView>,
}

/// JSON text of an object, shown as it is.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub(crate) struct MetadataView(Box<RawValue>);

impl PartialEq for MetadataView {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl JsonSchema for MetadataView {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Metadata".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct SessionModelView {
    id: String,
    #[serde(rename = "providerID")]
    provider_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct MoreView {
    location: String,
    busy: bool,
    seq: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    /// The session whose conversation it copied.
    #[serde(rename = "forkOf", skip_serializing_if = "Option::is_none")]
    fork_of: Option<String>,
    /// Notices for the user about models that the session used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notices: Vec<NoticeView>,
}

/// A notice about a model: that it is deprecated, for example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
struct NoticeView {
    #[serde(rename = "providerID")]
    provider_id: String,
    #[serde(rename = "modelID")]
    model_id: String,
    message: String,
    /// The time when the session first used the model, in milliseconds since 1970.
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

/// A staged Revert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct RevertView {
    #[serde(rename = "messageID")]
    message_id: String,
    /// The snapshot of the files before the Revert.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
    /// The Revert's changes of files, as one patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
    /// The same changes, file by file.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<FileView>>,
    /// Files that the reverted turns may have changed and that the Revert left alone. Not a field of stock clients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left: Vec<LeftFileView>,
}

/// A file that a Revert left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct TimeView {
    pub(crate) created: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) updated: Option<i64>,
    /// The time when the running compaction began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) compacting: Option<i64>,
    /// The time when its client archived it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) archived: Option<i64>,
}

impl TimeView {
    pub(crate) fn created(created: i64) -> Self {
        Self { created, updated: None, compacting: None, archived: None }
    }
}

impl From<ModelRef> for SessionModelView {
    fn from(model: ModelRef) -> Self {
        Self { id: model.model, provider_id: model.provider, variant: model.variant }
    }
}

impl SessionView {
    /// Shows a session in the stock shape.
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
            tokens: TokensView::from(row.usage).without_total(),
            time: TimeView {
                // Events that a fork copied are older than the fork.
                updated: Some(row.updated_ms.max(row.created_ms)),
                compacting: row.compacting_ms,
                archived: row.archived_ms,
                ..TimeView::created(row.created_ms)
            },
            metadata: row
                .metadata
                // One of before it was looked at would make the whole answer unreadable.
                .filter(|text| is_readable_json(text))
                .and_then(|text| RawValue::from_string(text).ok())
                .map(MetadataView),
            revert: row.revert.map(|staged| RevertView { files: None, ..RevertView::new(staged) }),
            permission: None,
            summary: None,
            more: None,
        }
    }

    /// Shows a session with our own fields.
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
        let tokens = row.usage.into();
        Self { more: Some(more), revert, tokens, ..Self::stock(row, version) }
    }

    /// Adds the client's rules about tool calls.
    pub(crate) fn with_rules(self, rules: Vec<ToolRule>) -> Self {
        Self { permission: Some(rules).filter(|rules| !rules.is_empty()), ..self }
    }

    /// Adds the summary of changed files. A session without changes has none.
    pub(crate) fn summed(self, summary: SummaryView) -> Self {
        Self { summary: Some(summary).filter(|summary| !summary.is_nothing()), ..self }
    }
}
