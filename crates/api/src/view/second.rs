use serde_json::{Value, json};
use store::SessionRow;

use super::session::SessionView;

/// Shows a session in the shape of stock clients' second API.
pub(crate) fn second_session(row: &SessionRow) -> Value {
    let SessionView {
        id,
        project_id,
        parent_id,
        directory,
        title,
        agent,
        model,
        cost,
        tokens,
        time,
        revert,
        ..
    } = SessionView::stock(row.clone(), "");
    let mut shown = json!({
        "id": id,
        "projectID": project_id,
        "agent": agent,
        "cost": cost,
        "tokens": tokens,
        "time": { "created": time.created, "updated": time.updated },
        "title": title,
        "location": { "directory": directory },
    });
    let optional =
        [("parentID", json!(parent_id)), ("model", json!(model)), ("revert", json!(revert))];
    if let Some(archived) = time.archived {
        shown["time"]["archived"] = archived.into();
    }
    for (name, value) in optional.into_iter().filter(|(_, value)| !value.is_null()) {
        shown[name] = value;
    }
    shown
}
