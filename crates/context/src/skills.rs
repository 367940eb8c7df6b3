//! Skill guidance: the names and descriptions of the skills that a model may load.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{ContextSource, Loaded, SourceKey, SystemContext};

/// The key of the skill guidance.
pub const SKILLS_KEY: SourceKey = SourceKey::fixed("core/skills");

/// The most skills in the guidance.
pub const MAX_SKILLS: usize = 64;
/// The most characters of a skill's name.
pub const MAX_SKILL_NAME_CHARS: usize = 64;
/// The most characters of a skill's description in the guidance.
pub const MAX_SKILL_DESCRIPTION_CHARS: usize = 1_024;

/// A skill, as described to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// The name by which the model loads it.
    pub name: String,
    /// One line that says when to load it.
    pub description: String,
}

/// The reason why a skill is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSkill {
    /// Its name is invalid.
    #[error(
        "its name is empty, has more than {MAX_SKILL_NAME_CHARS} characters, or more than one line"
    )]
    Name,
    /// The description is empty.
    #[error("it has no description")]
    Description,
}

impl Skill {
    /// Makes a skill, with its description on one line and cut to the limit.
    ///
    /// # Errors
    /// Its name is invalid, or its description is empty.
    pub fn new(name: &str, description: &str) -> Result<Self, InvalidSkill> {
        let name = name.trim();
        let chars = name.chars().count();
        if !(1..=MAX_SKILL_NAME_CHARS).contains(&chars) || name.chars().any(char::is_control) {
            return Err(InvalidSkill::Name);
        }
        let words: Vec<_> = description.split_whitespace().collect();
        let line: String =
            words.join(" ").chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect();
        if line.is_empty() {
            return Err(InvalidSkill::Description);
        }
        let description = match line.char_indices().nth(MAX_SKILL_DESCRIPTION_CHARS) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        };
        Ok(Self { name: name.to_owned(), description })
    }
}

/// The snapshot's record: a digest, because every later update carries a whole snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Digested(String);

#[derive(Debug, Clone)]
struct Guidance(Vec<Skill>);

impl Guidance {
    fn list(&self) -> String {
        let one = |skill: &Skill| format!("- {}: {}", skill.name, skill.description);
        self.0.iter().map(one).collect::<Vec<_>>().join("\n")
    }
}

impl ContextSource for Guidance {
    type Told = Digested;

    fn told(&self) -> Digested {
        Digested(hex::encode(Sha256::digest(self.list().as_bytes())))
    }

    fn baseline(&self) -> String {
        format!("Skills that can be loaded with the skill tool:\n{}", self.list())
    }

    fn update(&self, _told: &Digested) -> String {
        format!(
            "The skills that can be loaded with the skill tool are now these, and no others:\n{}",
            self.list()
        )
    }

    fn removal(&self) -> Option<String> {
        Some("The skills that were told of before can no longer be loaded.".into())
    }
}

/// Returns the guidance on the skills that the selected agent may load, ordered by name, at most
/// [`MAX_SKILLS`]. Absent if there are none.
#[must_use]
pub fn skill_guidance(skills: Loaded<Vec<Skill>>) -> SystemContext {
    let guidance = match skills {
        Loaded::Value(mut skills) if !skills.is_empty() => {
            skills.sort_by(|a, b| a.name.cmp(&b.name));
            skills.truncate(MAX_SKILLS);
            Loaded::Value(Guidance(skills))
        }
        Loaded::Value(_) | Loaded::Absent => Loaded::Absent,
        Loaded::Unavailable(why) => Loaded::Unavailable(why),
    };
    SystemContext::make(SKILLS_KEY, guidance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ContextSnapshot, Reconciled};

    fn skill(name: &str, description: &str) -> Skill {
        Skill::new(name, description).expect("a skill")
    }

    fn of(skills: &[(&str, &str)]) -> SystemContext {
        let skills = skills.iter().map(|(name, description)| skill(name, description)).collect();
        skill_guidance(Loaded::Value(skills))
    }

    fn updated(context: &SystemContext, told: &ContextSnapshot) -> String {
        let reconciled = context.reconcile(told);
        let Reconciled::Updated { rendered, .. } = reconciled else { panic!("{reconciled:?}") };
        rendered
    }

    #[test]
    fn skills_are_told_by_name_and_description_in_the_order_of_their_names() {
        let both = of(&[("release", "Cut a release."), ("deploy", "Deploy it.")]);
        let first = both.initialize().expect("available");
        assert_eq!(
            first.baseline,
            "Skills that can be loaded with the skill tool:\n- deploy: Deploy it.\n- release: Cut a release."
        );
        assert_eq!(
            of(&[("deploy", "Deploy it."), ("release", "Cut a release.")])
                .reconcile(&first.snapshot),
            Reconciled::Unchanged
        );
        assert_eq!(
            updated(&of(&[("deploy", "Deploy it.")]), &first.snapshot),
            "The skills that can be loaded with the skill tool are now these, and no others:\n- deploy: Deploy it."
        );
        let gone = "The skills that were told of before can no longer be loaded.";
        assert_eq!(updated(&of(&[]), &first.snapshot), gone);
    }

    #[test]
    fn what_cannot_be_looked_at_stays_as_it_was_told() {
        let first = of(&[("deploy", "Deploy it.")]).initialize().expect("available");
        let unavailable = skill_guidance(Loaded::Unavailable("asleep".into()));
        assert_eq!(unavailable.reconcile(&first.snapshot), Reconciled::Unchanged);
        assert!(unavailable.initialize().is_err());
        assert_eq!(of(&[]).initialize().expect("absent").baseline, "");
    }

    #[test]
    fn a_description_is_one_line_and_not_too_long() {
        assert_eq!(skill(" a ", "one\n  two\u{0}\tthree\n").description, "one two\u{FFFD} three");
        let long = skill("a", &"ü".repeat(MAX_SKILL_DESCRIPTION_CHARS + 1)).description;
        assert_eq!(long.chars().count(), MAX_SKILL_DESCRIPTION_CHARS + 1);
        assert!(long.ends_with("ü…"));
        for bad in ["", " ", "a\nb", &"x".repeat(MAX_SKILL_NAME_CHARS + 1)] {
            assert_eq!(Skill::new(bad, "x"), Err(InvalidSkill::Name), "{bad}");
        }
        assert_eq!(Skill::new("a", " \n"), Err(InvalidSkill::Description));
    }

    #[test]
    fn only_so_many_are_told() {
        let many: Vec<_> =
            (0..MAX_SKILLS + 9).map(|n| skill(&format!("s{n:03}"), "One.")).collect();
        let told = skill_guidance(Loaded::Value(many)).initialize().expect("available").baseline;
        assert_eq!(told.lines().count(), 1 + MAX_SKILLS);
    }
}
