//! A session's list of tasks, as stock clients show it.

use serde_json::{Value, json};

/// The tool whose result the list is.
const TODO_WRITE: &str = "todowrite";

/// Returns the tasks of a validated result of `todowrite`; none from a text that is no list.
pub(crate) fn stock_todos(structured: &str) -> Vec<Value> {
    let tasks: Vec<Value> = serde_json::from_str(structured).unwrap_or_default();
    let shown = |task: &Value| json!({ "content": task["content"], "status": task["status"], "priority": task["priority"] });
    tasks.iter().map(shown).collect()
}

/// Returns the list that a completed call sets, if it is one of `todowrite`.
pub(crate) fn todos_of(tool: &str, structured: Option<&str>) -> Option<Vec<Value>> {
    (tool == TODO_WRITE).then_some(structured).flatten().map(stock_todos)
}
