//! `skill`: loads the text of a skill.

use std::path::Path;

use async_trait::async_trait;
use domain::{Permitted, ToolClass};
use serde::Deserialize;
use serde_json::json;

use crate::arguments;
use crate::call::{Stopped, ToolCall, ToolContext, ToolDefinition, ToolOutcome, fields, title};
use crate::files::blocking;
use crate::set::Tool;
use crate::skills::{FoundSkill, MAX_TEXT_BYTES, SkillPlaces, project_top};

/// The tool `skill`. It is offered even without skills. Otherwise the tool list, which providers cache, would
/// change whenever the first skill appears or the last one goes.
pub(crate) struct Skill;

/// The skills that a call may load.
#[derive(Debug, Clone)]
pub struct SkillScope {
    /// The skills that its turn's agent may load.
    pub permitted: Permitted,
    /// Skills of the project above the Location count too.
    pub in_project: bool,
}

#[derive(Deserialize)]
struct Arguments {
    name: String,
}

#[async_trait]
impl Tool for Skill {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "skill".into(),
            description: "Loads a skill: instructions for one kind of task. Load one that you were told of when the \
                          task fits its description, before you begin."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "The skill's name, as it was told"}
                },
                "required": ["name"]
            }),
            result_schema: Some(fields(&["name", "directory"], &json!({
                "name": {"type": "string"},
                "directory": {"type": "string"}
            }))),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Pure
    }

    async fn run(&self, call: &ToolCall, context: &ToolContext) -> Result<ToolOutcome, Stopped> {
        let Arguments { name } = arguments::parse(call)?;
        let context = context.clone();
        blocking(move || load(name.trim(), &context)).await
    }
}

fn load(name: &str, context: &ToolContext) -> Result<ToolOutcome, Stopped> {
    let Some(scope) = &context.skills else {
        return Err(Stopped::because("there are no skills here"));
    };
    let top = if scope.in_project { project_top(&context.root) } else { &context.root };
    let (shown, hidden) = (Path::new(&context.shown_root), &context.cell.hidden);
    let places = SkillPlaces { root: &context.root, top, shown, hidden };
    let failed =
        |error: std::io::Error| Stopped::because(format!("skills cannot be read now: {error}"));
    let mut found = places.find().map_err(failed)?;
    // An agent does not see skills that it may not load.
    let shows = |name: &str| scope.permitted.allows(name) && context.reads.shows_skill(name);
    found.retain(|skill| shows(&skill.name));
    let Some(skill) = found.iter().find(|skill| skill.name == name) else {
        return Err(Stopped::because(format!(
            "there is no skill {name} to load; {}",
            known(&found)
        )));
    };
    if let Err(why) = &skill.description {
        return Err(Stopped::because(format!("the skill {name} cannot be used: {why}")));
    }
    let Some((text, more)) = places.text(skill).map_err(failed)? else {
        return Err(Stopped::because(format!("the skill {name} has gone; {}", known(&found))));
    };
    let directory = skill.directory.display().to_string();
    let structured = json!({"name": skill.name, "directory": directory});
    let mut outcome = ToolOutcome::completed(title("Load", name), text, Some(structured));
    outcome.footer = format!("(paths in this skill are relative to {directory})");
    if more {
        outcome.footer += &format!("\n(only its first {MAX_TEXT_BYTES} bytes were read)");
    }
    Ok(outcome)
}

fn known(skills: &[FoundSkill]) -> String {
    let usable = skills.iter().filter(|skill| skill.description.is_ok());
    let names: Vec<_> = usable.map(|skill| skill.name.as_str()).collect();
    match names.as_slice() {
        [] => "there is none".to_owned(),
        names => format!("those that there are: {}", names.join(", ")),
    }
}
