//! `feature-level`: the level of what a cluster writes, raised at the end of an upgrade.

use clap::Args;
use cli::output::Screen;
use domain::FeatureLevel;
use store::Store;

use super::ServeError;
use super::up::{check_level, check_schema};

/// Arguments of `feature-level`.
#[derive(Debug, Clone, Args)]
pub struct LevelArgs {
    /// The database, as oc_migrate
    #[arg(long, value_name = "URL", env = "OPENCODE_CLOUD_DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// Raise it to what this build writes, for good: older builds do not start any more
    #[arg(long)]
    pub raise: bool,
}

/// Shows the level, and raises it first if asked to.
///
/// # Errors
/// [`ServeError`] when the database refuses, or has another build's schema.
pub async fn execute(args: LevelArgs, screen: &mut Screen) -> Result<u8, ServeError> {
    let url = &args.database_url;
    let before = Store::read_cluster(url).await?.feature_level;
    let level = if args.raise {
        // The new level needs this build's tables.
        check_schema(store::schema_version(url).await?)?;
        check_level(before)?;
        Store::raise_feature_level(url).await?
    } else {
        before
    };
    let line = told(before, level);
    screen.out.say(&line).map_err(|error| ServeError::stopped("cannot print", &error))?;
    Ok(0)
}

fn told(before: FeatureLevel, level: FeatureLevel) -> String {
    match (before < level, level < FeatureLevel::OF_THIS_BUILD) {
        (true, _) => format!(
            "the feature level is {level} now, and was {before}; running processes know within a minute"
        ),
        (false, true) => format!(
            "the feature level is {level}; this build writes what needs {} once it is raised with --raise",
            FeatureLevel::OF_THIS_BUILD,
        ),
        (false, false) => format!("the feature level is {level}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_told_with_what_is_left_to_do() {
        let ours = FeatureLevel::OF_THIS_BUILD;
        let below = FeatureLevel(ours.0 - 1);
        assert!(told(below, below).ends_with("--raise"));
        assert!(told(below, ours).contains(&format!("is {ours} now, and was {below}")));
        assert_eq!(told(ours, ours), format!("the feature level is {ours}"));
    }

    #[test]
    fn a_build_that_is_older_than_the_level_is_told_to_give_way() {
        let ours = FeatureLevel::OF_THIS_BUILD;
        check_level(ours).expect("ours");
        let error = check_level(FeatureLevel(ours.0 + 1)).expect_err("a newer build's");
        assert!(error.to_string().ends_with("start a newer build"), "{error}");
    }
}
