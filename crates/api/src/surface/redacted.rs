//! Hides secrets in what clients read of providers and models. Nobody can read them.

use std::collections::BTreeMap;

use credentials::HIDDEN;
pub(crate) use credentials::hide;

/// Returns the headers with their values hidden.
pub(crate) fn hidden(headers: &BTreeMap<String, String>) -> BTreeMap<String, &'static str> {
    headers.keys().map(|name| (name.clone(), HIDDEN)).collect()
}
