//! `todowrite` replaces the session's list of tasks, and its validated result is the list. `todoread` shows it.

use std::collections::BTreeSet;

use async_trait::async_trait;
use domain::ToolClass;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::arguments;
use crate::call::{Stopped, ToolCall, ToolContext, ToolDefinition, ToolOutcome, fields, title};
use crate::outputs::Unlisted;
use crate::set::Tool;

/// The most tasks of a list.
const MAX_TASKS: usize = 100;
/// The longest text of a task or its id, in bytes.
const MAX_TEXT: usize = 1_000;

/// The list of tasks of one session.
#[async_trait]
pub trait TaskList: Send + Sync {
    /// Returns the result of the newest `todowrite` that the session still has, as JSON; `None` without one.
    async fn tasks(&self) -> Result<Option<String>, Unlisted>;
}

pub(crate) struct TodoWrite;
pub(crate) struct TodoRead;

#[derive(Deserialize)]
struct Arguments {
    todos: Vec<Task>,
}

/// One task, as the list has it.
#[derive(Debug, Deserialize, Serialize)]
struct Task {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    content: String,
    status: Status,
    #[serde(default)]
    priority: Priority,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Completed,
    Cancelled,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Priority {
    High,
    #[default]
    Medium,
    Low,
}

#[async_trait]
impl Tool for TodoWrite {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "todowrite".into(),
            description: "Replaces your list of tasks, which the user sees. Use it for work of three or more steps: write the \
                          list before you begin, keep one task in_progress, and set it to completed as soon as it is. Give \
                          all tasks each time. Leave it out for simple requests."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "todos": {
                        "type": "array",
                        "maxItems": MAX_TASKS,
                        "description": "All tasks, in order",
                        "items": {
                            "type": "object",
                            "properties": {
                                "id": {"type": "string", "description": "A name that stays the task's own; may be left out"},
                                "content": {"type": "string", "description": "The task in a few words"},
                                "status": {"type": "string", "enum": ["pending", "in_progress", "completed", "cancelled"]},
                                "priority": {"type": "string", "enum": ["high", "medium", "low"]}
                            },
                            "required": ["content", "status"]
                        }
                    }
                },
                "required": ["todos"]
            }),
            result_schema: Some(list()),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Pure
    }

    async fn run(&self, call: &ToolCall, _context: &ToolContext) -> Result<ToolOutcome, Stopped> {
        let Arguments { todos } = arguments::parse(call)?;
        check(&todos)?;
        Ok(outcome(&todos))
    }
}

#[async_trait]
impl Tool for TodoRead {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "todoread".into(),
            description: "Shows your list of tasks as it was last written with todowrite.".into(),
            input_schema: json!({"type": "object", "properties": {}}),
            result_schema: Some(list()),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Pure
    }

    async fn run(&self, call: &ToolCall, context: &ToolContext) -> Result<ToolOutcome, Stopped> {
        let NoArguments {} = arguments::parse(call)?;
        let Some(list) = &context.tasks else {
            return Err(Stopped::because("there is no list of tasks here"));
        };
        let written = list.tasks().await.map_err(|error| {
            Stopped::because(format!("the list cannot be read now ({error}); try again later"))
        })?;
        // It was validated when it was written.
        let todos = written.map(|text| serde_json::from_str::<Vec<Task>>(&text)).transpose();
        let todos = todos.map_err(|error| {
            Stopped::because(format!("the list cannot be read ({error}); write it anew"))
        })?;
        Ok(outcome(&todos.unwrap_or_default()))
    }
}

/// The JSON Schema of the list.
fn list() -> Value {
    json!({
        "type": "array",
        "maxItems": MAX_TASKS,
        "items": fields(&["content", "status", "priority"], &json!({
            "id": {"type": "string"},
            "content": {"type": "string"},
            "status": {"enum": ["pending", "in_progress", "completed", "cancelled"]},
            "priority": {"enum": ["high", "medium", "low"]}
        }))
    })
}

#[derive(Deserialize)]
struct NoArguments {}

fn outcome(todos: &[Task]) -> ToolOutcome {
    let is_open = |task: &&Task| matches!(task.status, Status::Pending | Status::InProgress);
    let open = todos.iter().filter(is_open).count();
    let text = match todos.len() {
        0 => "The list is empty.".to_owned(),
        all => format!("The list has {all} tasks, {open} of them open:\n{}", shown(todos)),
    };
    let title = title("Tasks:", &format!("{open} open"));
    ToolOutcome::completed(title, text, Some(json!(todos)))
}

fn check(todos: &[Task]) -> Result<(), Stopped> {
    if todos.len() > MAX_TASKS {
        return Err(Stopped::because(format!(
            "the list has more than {MAX_TASKS} tasks; put small ones together"
        )));
    }
    let mut ids = BTreeSet::new();
    for (number, task) in (1..).zip(todos) {
        let texts = [Some(&task.content), task.id.as_ref()];
        if texts.iter().flatten().any(|text| text.trim().is_empty() || text.len() > MAX_TEXT) {
            return Err(Stopped::because(format!(
                "task {number} needs a text of 1 to {MAX_TEXT} bytes, and so does its id if it has one"
            )));
        }
        if let Some(id) = task.id.as_ref().filter(|id| !ids.insert(id.as_str())) {
            return Err(Stopped::because(format!("two tasks have the id {id}; give each its own")));
        }
    }
    Ok(())
}

fn shown(todos: &[Task]) -> String {
    let line = |task: &Task| {
        let mark = match task.status {
            Status::Pending => "[ ]",
            Status::InProgress => "[>]",
            Status::Completed => "[x]",
            Status::Cancelled => "[-]",
        };
        let priority = match task.priority {
            Priority::High => " (high)",
            Priority::Medium => "",
            Priority::Low => " (low)",
        };
        let content = task.content.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("{mark} {content}{priority}")
    };
    todos.iter().map(line).collect::<Vec<_>>().join("\n")
}
