//! The agents that a prompt may choose. So far they are the same in every project.

use axum::Json;
use axum::extract::{Path, State};
use domain::Permitted;
use serde_json::{Value, json};
use session_rules::Agent;

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::CanRead;
use crate::text::id;

/// Lists the agents for stock clients. The directory does not matter.
pub(crate) async fn agents(_: CanRead, State(state): State<ApiState>) -> Json<Value> {
    Json(state.agents().iter().map(shown).collect())
}

pub(crate) async fn of_project(
    access: CanRead,
    State(state): State<ApiState>,
    Path(project): Path<String>,
) -> Result<Json<Value>, ApiError> {
    state.store().project(access.org, id(&project)?).await?;
    Ok(agents(access, State(state)).await)
}

fn shown(agent: &Agent) -> Value {
    json!({
        "name": agent.name,
        "description": agent.description,
        "mode": "primary",
        "native": true,
        "permission": permissions(&agent.tools),
        "options": {},
    })
}

/// Returns permission rules in the stock shape. The last rule that matches wins.
fn permissions(tools: &Permitted) -> Vec<Value> {
    let rule =
        |tool: &str, action: &str| json!({ "permission": tool, "pattern": "*", "action": action });
    match tools {
        Permitted::All => vec![rule("*", "allow")],
        Permitted::Only(names) => std::iter::once(rule("*", "deny"))
            .chain(names.iter().map(|name| rule(name, "allow")))
            .collect(),
    }
}
