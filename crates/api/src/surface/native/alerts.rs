//! Alerts to the owners of an organisation.

use access::Actor;
use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{AlertKind, AlertRow};

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::Caller;
use crate::text::id;

/// Alerts, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AlertsView {
    data: Vec<AlertView>,
}

/// Something that all owners of the organisation are told of.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AlertView {
    id: String,
    at: i64,
    /// When the caller has read it.
    read_at: Option<i64>,
    /// `sso.activated`, `recovery.made` or `recovery.used`.
    kind: String,
    /// The actor that did it.
    by: String,
    /// A sentence for people.
    message: String,
}

/// The facts of an alert, as its kind needs them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct About {
    name: String,
    issuer: String,
    address: Option<String>,
    left: i64,
}

impl AlertView {
    fn new(row: AlertRow) -> Result<Self, ApiError> {
        let about: About = serde_json::from_str(&row.about).map_err(ApiError::internal)?;
        let who = row.by_name.unwrap_or_else(|| row.by.to_string());
        Ok(Self {
            message: message(&row.kind, &who, &about),
            id: row.id.to_string(),
            at: row.at_ms,
            read_at: row.read_ms,
            kind: row.kind,
            by: row.by.to_string(),
        })
    }
}

fn message(kind: &str, who: &str, about: &About) -> String {
    let About { name, issuer, address, left } = about;
    let is = |known: AlertKind| kind == known.as_str();
    if is(AlertKind::SsoActivated) {
        format!("{who} let people sign in at {name} ({issuer}): whoever it vouches for may enter")
    } else if is(AlertKind::RecoveryMade) {
        format!("{who} made new recovery codes; the ones before do not work any more")
    } else if is(AlertKind::RecoveryUsed) {
        let from = address.as_ref().map(|address| format!(" from {address}")).unwrap_or_default();
        format!(
            "somebody signed in as {who} with a recovery code{from}; {left} are left. If it was not {who}, end that sign-in \
             (My account shows one's own) and make new codes"
        )
    } else {
        format!("{who} did something that a newer build tells of ({kind})")
    }
}

/// Returns what the caller was told of; a service account is told of nothing.
pub(crate) async fn list(
    caller: Caller,
    State(state): State<ApiState>,
) -> Result<Json<AlertsView>, ApiError> {
    let rows = match &caller.standing().actor {
        Actor::User(user) => state.store().alerts(caller.org(), user.clone()).await?,
        Actor::Service(_) => Vec::new(),
    };
    let data = rows.into_iter().map(AlertView::new).collect::<Result<_, _>>()?;
    Ok(Json(AlertsView { data }))
}

/// Notes that the caller has read an alert. Other owners are told of it still.
pub(crate) async fn read(
    caller: Caller,
    State(state): State<ApiState>,
    Path(alert): Path<String>,
) -> Result<StatusCode, ApiError> {
    let alert = id(&alert)?;
    let Actor::User(user) = caller.standing().actor.clone() else {
        return Err(ApiError::NotFound("the alert was"));
    };
    state.store().note_alert_read(caller.org(), user, alert, state.clock().now_ms()).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_says_who_did_what() {
        let about = About {
            name: "Okta".into(),
            issuer: "https://x".into(),
            address: Some("10.0.0.9".into()),
            left: 7,
        };
        let said = |kind: AlertKind| message(kind.as_str(), "Ada", &about);
        assert_eq!(
            said(AlertKind::SsoActivated),
            "Ada let people sign in at Okta (https://x): whoever it vouches for may enter"
        );
        assert!(said(AlertKind::RecoveryMade).starts_with("Ada made new recovery codes"));
        let used = said(AlertKind::RecoveryUsed);
        assert!(used.contains("as Ada with a recovery code from 10.0.0.9; 7 are left"), "{used}");
        assert!(message("a.b", "Ada", &About::default()).contains("a newer build"));
    }
}
