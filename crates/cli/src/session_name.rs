//! The session that a command means: by its id, by the beginning of it, or the last one of this directory.

use client::{Client, ClientError, SessionView, SessionsQuery, parsed};
use domain::SessionId;

use crate::CliError;
use crate::render::printable;
use crate::run_session::directory;

/// The length of an id that was made by a clock; a shorter one may be the beginning of it.
const WHOLE: usize = 30;
/// How many of the newest sessions are looked through.
const NEWEST: u32 = 1_000;
/// The most sessions that an error names.
const NAMED: usize = 5;

/// Returns the id of the session that is meant: the one with this id, or the only one whose id begins so; without an id
/// the last one of this directory.
///
/// # Errors
/// [`CliError::Usage`] names the sessions that may be meant.
pub(crate) async fn find_session(
    client: &Client,
    given: Option<&SessionId>,
) -> Result<SessionId, CliError> {
    let Some(id) = given else {
        let here = directory(None, client.shares_paths().await?)?;
        let last = newest_in(client, &here).await?.ok_or_else(|| {
            let here = printable::line(&here, 200);
            CliError::Usage(format!(
                "there is no session in {here}; name one: `opencode-cloud session list` shows them"
            ))
        })?;
        return Ok(last.id);
    };
    if id.as_str().len() >= WHOLE {
        return Ok(id.clone());
    }
    match client.session(id).await {
        Err(ClientError::NotFound { .. }) => {}
        Ok(_) => return Ok(id.clone()),
        Err(error) => return Err(error.into()),
    }
    let query = SessionsQuery { archived: true, ..SessionsQuery::newest(NEWEST) };
    let answer = client.sessions_json(&query).await?;
    let sessions: Vec<SessionView> = parsed(&answer, "the list of sessions")?;
    match find_only(&sessions, id)? {
        Some(found) => Ok(found),
        None => Err(ClientError::NotFound { what: format!("session {id}") }.into()),
    }
}

/// Like [`find_session`], for each of several ids.
///
/// # Errors
/// Those of [`find_session`], before anything is done with one of them.
pub(crate) async fn find_sessions(
    client: &Client,
    given: &[SessionId],
) -> Result<Vec<SessionId>, CliError> {
    let mut found = Vec::with_capacity(given.len());
    for id in given {
        found.push(find_session(client, Some(id)).await?);
    }
    Ok(found)
}

/// Returns the newest session of a directory that is not a child.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn newest_in(
    client: &Client,
    directory: &str,
) -> Result<Option<SessionView>, CliError> {
    let query = SessionsQuery {
        directory: Some(directory.to_owned()),
        roots: true,
        ..SessionsQuery::newest(1)
    };
    let answer = client.sessions_json(&query).await?;
    let sessions: Vec<SessionView> = parsed(&answer, "the list of sessions")?;
    Ok(sessions.into_iter().next())
}

fn find_only(sessions: &[SessionView], start: &SessionId) -> Result<Option<SessionId>, CliError> {
    let found: Vec<&SessionView> =
        sessions.iter().filter(|session| session.id.as_str().starts_with(start.as_str())).collect();
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one.id.clone())),
        several => {
            let named = several.iter().take(NAMED);
            let named =
                named.map(|its| format!("{} ({})", its.id, printable::line(&its.title, 40)));
            let more = several.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Err(CliError::Usage(format!(
                "{start} is the beginning of {} sessions; say more of the id: {}{more}",
                several.len(),
                named.collect::<Vec<_>>().join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Finding trial-3 22: ids of 30 characters had to be given whole.
    #[test]
    fn the_beginning_of_an_id_is_enough_if_one_has_it() {
        let session = |id: &str| -> SessionView {
            let answer = json!({
                "id": id, "projectID": "prj_1", "directory": "/code", "title": format!("Title of {id}"), "agent": "build",
                "busy": false, "seq": 1, "time": { "created": 5 },
            });
            parsed(&answer, "the session").expect("a session")
        };
        let ids = ["ses_0aa1", "ses_0aa2", "ses_0ab", "ses_0ac", "ses_0ad", "ses_0ae", "ses_0af"];
        let sessions = ids.map(session);
        let find = |start: &str| find_only(&sessions, &start.parse().expect("an id"));
        assert_eq!(find("ses_0aa1").expect("one").expect("one").as_str(), "ses_0aa1");
        assert_eq!(find("ses_0ab").expect("one").expect("one").as_str(), "ses_0ab");
        assert!(find("ses_1").expect("none").is_none());
        let error = find("ses_0aa").expect_err("two");
        assert_eq!(error.exit_code(), 2);
        assert!(
            error
                .to_string()
                .ends_with("ses_0aa1 (Title of ses_0aa1), ses_0aa2 (Title of ses_0aa2)"),
            "{error}"
        );
        let error = find("ses_0").expect_err("seven").to_string();
        assert!(error.contains("of 7 sessions") && error.ends_with(" and 2 more"), "{error}");
    }
}
