//! Lists of sessions: which ones, and a page at a time.

use axum::Json;
use domain::{OrgId, ProjectId, SessionId, TimestampMs};
use schemars::JsonSchema;
use serde::Deserialize;
use store::{SessionFilter, SessionsOf};

use super::dialect::Dialect;
use super::limit::MAX_SESSIONS;
use super::paged::Paged;
use crate::ApiState;
use crate::act::workspace;
use crate::error::ApiError;
use crate::text::{id, plain};
use crate::view::SessionView;

/// The longest text that is sought in titles, in characters: a title has no more.
const MAX_SEARCH_CHARS: usize = 200;

/// Which sessions are asked for in our own dialect.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ListQuery {
    limit: Option<i64>,
    /// Whether archived sessions are listed too.
    archived: Option<bool>,
    /// A text in their titles, in upper or lower case.
    search: Option<String>,
    /// The first time of their last change, in milliseconds since 1970.
    since: Option<i64>,
    /// Their project.
    project: Option<String>,
    /// The directory that they work in.
    directory: Option<String>,
    /// Their parent.
    parent: Option<String>,
    /// Whether children are left out.
    roots: Option<bool>,
    /// Where to go on: `X-Next-Cursor` of the page before.
    cursor: Option<String>,
}

impl ListQuery {
    /// Answers with the newest sessions that the query selects, of one project or of all.
    pub(crate) async fn list(
        self,
        state: &ApiState,
        org: OrgId,
        dialect: Dialect,
        within: Option<ProjectId>,
    ) -> Result<Paged<Vec<SessionView>>, ApiError> {
        let asked = self.project.as_deref().map(id::<ProjectId>).transpose()?;
        if within.is_some() && asked.is_some() && within != asked {
            return Err(ApiError::invalid(
                "`project` is another one than the path's: leave it out",
            ));
        }
        let project = within.or(asked);
        let of = match (self.parent, self.directory.filter(|named| !named.is_empty())) {
            (Some(parent), None) => SessionsOf::Parent(id(&parent)?),
            (Some(_), Some(_)) => {
                return Err(ApiError::invalid("say `parent` or `directory`, not both"));
            }
            (None, Some(named)) => SessionsOf::Directory(directory(state, named).await?),
            (None, None) => project.clone().map_or(SessionsOf::Organisation, SessionsOf::Project),
        };
        let filter = SessionFilter {
            project: project.filter(|_| !matches!(of, SessionsOf::Project(_))),
            of,
            with_archived: self.archived.unwrap_or(false),
            only_roots: self.roots.unwrap_or(false),
            updated_from: self.since,
            title: sought(self.search)?,
            after: self.cursor.as_deref().map(after).transpose()?,
            ..SessionFilter::default()
        };
        let limit = self.limit.unwrap_or(100).clamp(1, MAX_SESSIONS);
        let page = state.store().sessions(org, filter, limit).await?;
        let Json(items) = dialect.sessions(state, page.rows).await?;
        Ok(Paged { items, next: page.next.as_ref().map(cursor) })
    }
}

/// Returns a directory in the form in which sessions have it. One that is not there any more is taken as it is named.
async fn directory(state: &ApiState, named: String) -> Result<String, ApiError> {
    match workspace(state.settings(), Some(&named)).await {
        Ok(found) => Ok(found.directory),
        Err(ApiError::Invalid(_)) => Ok(plain(&named)),
        Err(error) => Err(error),
    }
}

/// Returns the text to seek in titles; `None` where every title will do.
pub(crate) fn sought(text: Option<String>) -> Result<Option<String>, ApiError> {
    let text = text.map(|text| plain(&text)).filter(|text| !text.is_empty());
    if text.as_ref().is_some_and(|text| text.chars().count() > MAX_SEARCH_CHARS) {
        return Err(ApiError::Invalid(format!(
            "`search` has at most {MAX_SEARCH_CHARS} characters, like a title; seek less"
        )));
    }
    Ok(text)
}

/// Returns the name of a place in a list.
pub(crate) fn cursor((time, session): &(TimestampMs, SessionId)) -> String {
    format!("{time}.{session}")
}

/// Returns the place that [`cursor`] named.
pub(crate) fn after(cursor: &str) -> Result<(TimestampMs, SessionId), ApiError> {
    let parsed =
        cursor.split_once('.').and_then(|(time, id)| Some((time.parse().ok()?, id.parse().ok()?)));
    parsed.ok_or_else(|| {
        ApiError::invalid("`cursor` is not one that a list gave: leave it out to begin anew")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_others_are_refused() {
        let place = after("17.ses_a").expect("a cursor");
        assert_eq!((place.0, place.1.as_str(), cursor(&place).as_str()), (17, "ses_a", "17.ses_a"));
        for bad in ["", "17", "x.ses_a", "17.msg_a"] {
            assert!(after(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_text_to_seek_is_as_long_as_a_title() {
        for nothing in [None, Some(String::new())] {
            assert_eq!(sought(nothing).expect("no text"), None);
        }
        assert!(sought(Some("\u{e9}".repeat(200))).expect("a text").is_some());
        assert!(sought(Some("x".repeat(201))).is_err());
    }
}
