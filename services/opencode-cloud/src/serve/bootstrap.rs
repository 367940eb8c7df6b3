//! The first organisation and its first key.

use domain::{Clock, OrgId};
use store::{NewKey, Store};

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

/// The row of the key of `--bootstrap-key`. Asked before anything is started: a key that cannot be is refused at once.
pub(crate) fn given(key: Option<&str>) -> Result<Option<NewKey>, ServeError> {
    let refused = |error| ServeError::Usage(format!("--bootstrap-key: {error}"));
    key.map(auth::bootstrap_key).transpose().map_err(refused)
}

/// Makes sure that the first organisation and a key for it are there.
pub(crate) async fn first_key(
    store: &Store,
    clock: &dyn Clock,
    given: Option<NewKey>,
) -> Result<FirstKey, ServeError> {
    let now = clock.now_ms();
    store.ensure_organisation(OrgId::FIRST, "default".into(), now).await?;
    if let Some(key) = given {
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
