//! Agents in the stock shapes.

use domain::{Permitted, ToolRule};
use serde_json::{Value, json};
use settings::{AgentDefinition, Effective, Layer};

/// Returns the agents in the first API's shape, the default one first, then by name.
pub(crate) fn agents(settings: &Effective) -> Vec<Value> {
    in_order(settings).map(|agent| first(settings, agent)).collect()
}

/// Returns the agents in the second API's shape, in the same order.
pub(crate) fn second_agents(settings: &Effective) -> Vec<Value> {
    in_order(settings).map(|agent| second(settings, agent)).collect()
}

fn in_order(settings: &Effective) -> impl Iterator<Item = &AgentDefinition> {
    let is_default = |agent: &&AgentDefinition| agent.name == settings.default_agent;
    let usable = settings.agents.values().filter(|agent| agent.unreadable.is_none());
    let (default, others): (Vec<_>, Vec<_>) = usable.partition(is_default);
    default.into_iter().chain(others)
}

fn first(settings: &Effective, agent: &AgentDefinition) -> Value {
    let rule = |rule: ToolRule| json!(rule);
    let permission: Vec<_> = rules(settings, agent).into_iter().map(rule).collect();
    let mut view = json!({
        "name": agent.name,
        "description": agent.description,
        "mode": agent.mode,
        "native": agent.layer == Layer::BuiltIn,
        "hidden": agent.hidden,
        "permission": permission,
        "options": {},
    });
    if let Some(model) = &agent.model {
        view["model"] = json!({ "providerID": model.provider, "modelID": model.model });
        if let Some(variant) = &model.variant {
            view["variant"] = variant.as_str().into();
        }
    }
    if let Some(steps) = agent.steps {
        view["steps"] = steps.into();
    }
    if let Some(color) = &agent.color {
        view["color"] = color.as_str().into();
    }
    view
}

fn second(settings: &Effective, agent: &AgentDefinition) -> Value {
    let rule = |rule: ToolRule| {
        let ToolRule { permission, pattern, action } = rule;
        json!({ "action": permission, "resource": pattern, "effect": action })
    };
    let permissions: Vec<_> = rules(settings, agent).into_iter().map(rule).collect();
    json!({
        "id": agent.name,
        "description": agent.description,
        "mode": agent.mode,
        "hidden": agent.hidden,
        "request": { "headers": {}, "body": {} },
        "permissions": permissions,
    })
}

/// Returns the rules about an agent's calls, of which the last that matches decides: first the tools that it has at most.
fn rules(settings: &Effective, agent: &AgentDefinition) -> Vec<ToolRule> {
    use domain::RuleAction::{Allow, Deny};
    let whole = |permission: &str, action| ToolRule {
        permission: permission.to_owned(),
        pattern: "*".to_owned(),
        action,
    };
    let all = settings.permissions.of_agent(&agent.name);
    let all = all.map(|layered| layered.rule.clone());
    match &agent.tools {
        Permitted::All => all.collect(),
        Permitted::Only(names) => {
            let most = std::iter::once(whole("*", Deny));
            let most = most.chain(names.iter().map(|name| whole(name, Allow)));
            most.chain(all.filter(|rule| *rule != whole("*", Allow))).collect()
        }
    }
}
