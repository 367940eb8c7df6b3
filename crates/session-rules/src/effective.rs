//! Takes a Location's settings over into those of decisions.

use std::time::Duration;

use llm_protocol::retry::Schedule;
use settings::{AgentDefinition, Bounds, Effective};

use crate::agents::{Agent, Agents};
use crate::rules::{CompactionSettings, RuleSettings};

impl From<&AgentDefinition> for Agent {
    fn from(defined: &AgentDefinition) -> Self {
        Self {
            name: defined.name.clone(),
            description: defined.description.clone(),
            instructions: defined.instructions.clone(),
            tools: defined.tools.clone(),
            skills: domain::Permitted::All,
            steps: defined.steps.and_then(|steps| i32::try_from(steps).ok()),
        }
    }
}

impl From<&Effective> for Agents {
    /// Returns the agents of the settings without the hidden ones, which work for the service itself.
    fn from(settings: &Effective) -> Self {
        let default = settings.agents.get(&settings.default_agent);
        let default = default.expect("the settings have their default agent");
        let shown = settings.agents.values().filter(|agent| !agent.hidden);
        let all = shown.fold(Self::of(default.into()), |all, agent| all.with(agent.into()));
        let refused = settings.agents.values().filter(|agent| agent.unreadable.is_some());
        let why = |name: &str| settings.why_no_agent(name);
        let refused = refused.filter_map(|agent| Some((agent.name.clone(), why(&agent.name)?)));
        // No agent has this name.
        all.refusing(refused.collect(), why(""))
    }
}

impl RuleSettings {
    /// Returns these settings, which are the service's, as the settings of a Location change them.
    #[must_use]
    pub fn under(&self, settings: &Effective) -> Self {
        let Bounds {
            steps,
            steps_at_most,
            auto_compaction,
            buffer,
            keep,
            answer,
            titles,
            ask_hours,
            retries,
        } = settings.bounds;
        let number = |steps: u32| i32::try_from(steps).unwrap_or(i32::MAX);
        let max_steps = steps.map_or(self.max_steps, number);
        let own = self.compaction;
        Self {
            agents: Agents::from(settings),
            permissions: settings.permissions.clone(),
            notices: settings.notices.clone().into(),
            max_steps: steps_at_most.map_or(max_steps, |most| max_steps.min(number(most))),
            compaction: CompactionSettings {
                auto: auto_compaction.unwrap_or(own.auto),
                buffer: buffer.unwrap_or(own.buffer),
                keep: keep.unwrap_or(own.keep),
                output_cap: answer.unwrap_or(own.output_cap),
                ..own
            },
            titles: titles.unwrap_or(self.titles),
            retry: Schedule {
                max_retries: retries.unwrap_or(self.retry.max_retries),
                ..self.retry
            },
            // Where nobody can be asked, no time changes that.
            asks: self.asks.map(|own| ask_hours.map_or(own, of_hours)),
            ..self.clone()
        }
    }
}

fn of_hours(hours: u32) -> Duration {
    Duration::from_hours(u64::from(hours))
}

#[cfg(test)]
mod tests {
    use settings::{OrganisationSettings, ProjectSettings, SettingsFile, effective};

    use super::*;

    fn under(organisation: &str, project: &str) -> RuleSettings {
        let organisation = OrganisationSettings::parse(organisation);
        let (path, text) = ("opencode.json".to_owned(), project.to_owned());
        let project = ProjectSettings::parse(&[SettingsFile { path, text, more: false }]);
        RuleSettings::default().under(&effective(&organisation, &project))
    }

    #[test]
    fn without_settings_the_services_stay() {
        let (own, under) = (RuleSettings::default(), under("", ""));
        assert_eq!((under.max_steps, under.titles), (own.max_steps, own.titles));
        assert_eq!((under.compaction, under.agents), (own.compaction, own.agents));
        assert_eq!(under.permissions, own.permissions);
    }

    #[test]
    fn every_bound_is_reached_and_a_project_lowers_steps_only() {
        let text = r#"{"steps": 7, "titles": false, "compaction": {"auto": false, "buffer": 1, "keep": 2, "answer": 3},
            "asks": {"hours": 2}, "retries": 1}"#;
        let settings = under(text, r#"{"steps": 9}"#);
        assert_eq!((settings.max_steps, settings.titles), (7, false));
        let CompactionSettings { auto, buffer, keep, output_cap, .. } = settings.compaction;
        assert_eq!((auto, buffer, keep, output_cap), (false, 1, 2, 3));
        assert_eq!(settings.asks, Some(Duration::from_secs(7_200)));
        assert_eq!(settings.retry.max_retries, 1);
        assert_eq!(under("", r#"{"steps": 9}"#).max_steps, 9);
        assert_eq!(under("", r#"{"steps": 9000}"#).max_steps, RuleSettings::default().max_steps);
    }

    #[test]
    fn hidden_agents_are_not_among_those_of_decisions() {
        let agents = under("", r#"{"agent": {"review": {"prompt": "Review.", "steps": 4}}, "default_agent": "review"}"#).agents;
        let names: Vec<_> = agents.iter().map(|agent| agent.name.as_str()).collect();
        assert_eq!(names, ["review", "build", "explore", "general", "plan"]);
        let review = agents.get("review").expect("known");
        assert_eq!((review.instructions.as_str(), review.steps), ("Review.", Some(4)));
    }
}
