//! The first organisation and its first key.

use domain::{Clock, OrgId};
use store::Store;

use super::ServeError;

/// What came of the first key.
pub(crate) enum FirstKey {
    /// It was made now: show it, once.
    Made(String),
    /// It was given with --bootstrap-key.
    Given,
    /// There were keys already.
    Present,
}

/// Makes sure that the first organisation and a key for it are there.
pub(crate) async fn first_key(
    store: &Store,
    clock: &dyn Clock,
    given: Option<&str>,
) -> Result<FirstKey, ServeError> {
    let now = clock.now_ms();
    store.ensure_organisation(OrgId::FIRST, "default".into(), now).await?;
    if let Some(key) = given {
        let key = auth::bootstrap_key(key)
            .map_err(|error| ServeError::Usage(format!("--bootstrap-key: {error}")))?;
        store.create_key(OrgId::FIRST, key, now).await?;
        return Ok(FirstKey::Given);
    }
    if store.count_keys(OrgId::FIRST).await? > 0 {
        return Ok(FirstKey::Present);
    }
    let (text, key) = auth::generate_key("first boot");
    store.create_key(OrgId::FIRST, key, now).await?;
    Ok(FirstKey::Made(text))
}
