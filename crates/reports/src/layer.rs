//! The errors that our code logs, as events. Their texts are not read.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sentry::protocol::{Event, Exception, Level};
use sha2::{Digest, Sha256, Sha512};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::ON;

/// Reports each `error!` of our crates, once [`start`](crate::start) was called. It costs one comparison until then.
#[derive(Debug, Clone, Copy, Default)]
pub struct ErrorLayer;

/// The key of the hashes of organisations.
pub(crate) struct OrgKey(Hmac<Sha256>);

/// A span's organisation, as its hash.
struct Org(String);

impl OrgKey {
    /// Derives the key from the DSN's public key, so that hashes of two Sentry projects cannot be joined.
    pub(crate) fn new(key: &str) -> Self {
        Self(Hmac::<Sha256>::new(&Sha512::digest(key)))
    }

    fn hash(&self, org: &str) -> String {
        let mac = self.0.clone().chain_update(org.as_bytes()).finalize().into_bytes();
        mac.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl<S> Layer<S> for ErrorLayer
where
    S: Subscriber + for<'l> LookupSpan<'l>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(key) = ON.get() else { return };
        let mut seen = Seen::default();
        attributes.record(&mut seen);
        if let (Some(org), Some(span)) = (seen.org, context.span(id)) {
            span.extensions_mut().insert(Org(key.hash(&org)));
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let (Some(key), meta) = (ON.get(), event.metadata()) else { return };
        let Some((file, line)) = meta.file().zip(meta.line()) else { return };
        // Crates of others have absolute paths. A panic has had its own report, with its stack.
        let is_ours = ["crates/", "services/"].iter().any(|folder| file.starts_with(folder));
        if *meta.level() != tracing::Level::ERROR
            || !is_ours
            || meta.fields().field("panic").is_some()
        {
            return;
        }
        let mut seen = Seen::default();
        event.record(&mut seen);
        let of_span = || {
            let mut spans = context.event_scope(event)?;
            spans.find_map(|span| span.extensions().get::<Org>().map(|Org(hash)| hash.clone()))
        };
        let org = seen.org.as_deref().map(|org| key.hash(org)).or_else(of_span);
        let place = format!("{file}:{line}");
        let error =
            Exception { ty: meta.target().to_owned(), value: Some(place), ..Exception::default() };
        let mut report =
            Event { level: Level::Error, exception: vec![error].into(), ..Event::default() };
        report.tags.extend(seen.words.into_iter().map(|(name, value)| (name.to_owned(), value)));
        report.tags.extend(org.map(|org| ("org".to_owned(), org)));
        sentry::capture_event(report);
    }
}

/// The fields of an event or a span that are looked at.
#[derive(Default)]
struct Seen {
    org: Option<String>,
    words: Vec<(&'static str, String)>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "org.id" => self.org = Some(format!("{value:?}")),
            name @ ("task" | "status" | "kind") => {
                self.words.push((name, format!("{value:?}").trim_matches('"').to_owned()));
            }
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_organisation_is_a_keyed_hash() {
        let (one, other) = (OrgKey::new("a"), OrgKey::new("b"));
        assert_eq!(one.hash("org"), one.hash("org"));
        assert_ne!(one.hash("org"), other.hash("org"));
        assert_eq!(one.hash("org").len(), 16);
    }
}
