//! The environment variables of the process that a provider may receive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use crate::snapshot::shipped;

/// Returns whether the process's variable `name` may be sent to the provider `id`, whose metadata lists the
/// variables `env`.
///
/// A catalog comes from elsewhere. It may name variables for its own new providers only. A name that the
/// shipped catalog knows belongs to the providers that have it there, so that a new provider cannot ask for
/// another's key.
#[must_use]
pub fn may_read(id: &str, env: &[String], name: &str) -> bool {
    static OWNERS: LazyLock<BTreeMap<String, BTreeSet<String>>> = LazyLock::new(|| {
        let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for provider in shipped().providers() {
            for name in &provider.env {
                owners.entry(name.clone()).or_default().insert(provider.id.clone());
            }
        }
        owners
    });
    match OWNERS.get(name) {
        Some(owners) => owners.contains(id),
        None => env.iter().any(|listed| listed == name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_gets_its_own_variables_and_none_of_another() {
        let listed = ["INVENTED_API_KEY", "OPENAI_API_KEY"].map(str::to_owned);
        assert!(may_read("invented", &listed, "INVENTED_API_KEY"));
        assert!(!may_read("invented", &listed, "OPENAI_API_KEY"));
        assert!(!may_read("invented", &listed, "HOME"));
        // Current metadata does not matter for a shipped name.
        assert!(may_read("openai", &[], "OPENAI_API_KEY"));
        assert!(may_read("vivgrid", &listed, "VIVGRID_API_KEY"));
    }
}
