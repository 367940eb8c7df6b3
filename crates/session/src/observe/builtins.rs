use async_trait::async_trait;
use context::{EnvironmentFacts, Loaded, Producer, SystemContext, date, environment};

use super::ObservedAt;
use super::files::Seen;

/// The environment and the date.
pub(super) struct Builtins;

#[async_trait]
impl Producer<ObservedAt> for Builtins {
    async fn observe(&self, at: &ObservedAt) -> SystemContext {
        let sources = [environment(facts(at).await), date(at.now_ms, &at.zone)];
        SystemContext::combine(sources).expect("the built-in sources have distinct keys")
    }
}

async fn facts(at: &ObservedAt) -> Loaded<EnvironmentFacts> {
    match at.files().await {
        Ok(Seen { repository: (repository, branch), .. }) => Loaded::Value(EnvironmentFacts {
            directory: at.shown.clone(),
            platform: "linux".to_owned(),
            repository: *repository,
            branch: branch.clone(),
        }),
        Err(why) => Loaded::Unavailable(why),
    }
}
