//! Names what a request said and nobody read: members of its body and parameters of its query that no contract has. The
//! answer has their names in a header, so that a misspelt one is found.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{Extensions, HeaderName, HeaderValue};
use serde::Deserializer;
use serde::de::value::Error;
use serde::de::{DeserializeOwned, Error as _, Visitor};
use serde::forward_to_deserialize_any;

use super::dialect::Dialect;
use crate::text::percent_decode;

/// Names what was ignored, members of the body first: `colour, time.created`.
pub(crate) const IGNORED: HeaderName = HeaderName::from_static("x-opencode-cloud-ignored");

/// The most names of one answer.
const MAX_NAMES: usize = 20;
/// The most characters of one name.
const MAX_NAME: usize = 80;
/// The most bytes of the header's value.
const MAX_BYTES: usize = 1024;

/// Parameters that every operation of the released contract may have.
const EVERYWHERE: [&str; 5] =
    ["directory", "workspace", "location[directory]", "location[workspace]", "auth_token"];

/// The parts of a request that its extractors did not know. They and [`tell`] share it.
#[derive(Clone, Default)]
pub(crate) struct Ignored(Arc<Mutex<Names>>);

#[derive(Default)]
struct Names {
    body: Vec<String>,
    /// The parameters that no extractor of the query knew so far; `None` before the first.
    query: Option<BTreeSet<String>>,
}

impl Ignored {
    /// Returns what the request's extractors share. Outside of [`tell`] nobody reads it.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a member of the body. Those of a value that may have several forms, such as a model, are not found.
    pub(crate) fn member(&self, path: &impl fmt::Display) {
        let mut names = self.names();
        if names.body.len() < MAX_NAMES {
            let path = path.to_string();
            // An optional value has a `?` in the path to what lies in it.
            let steps: Vec<&str> = path.split('.').filter(|step| *step != "?").collect();
            names.body.push(visible(&steps.join(".")));
        }
    }

    /// Adds what a reader of the query into a `T` does not know of it.
    pub(crate) fn parameters<T: DeserializeOwned>(&self, query: Option<&str>) {
        let known = fields::<T>();
        let mut names = self.names();
        let unknown = names.query.take().unwrap_or_else(|| named(query));
        let is_unknown = |name: &String| known.is_some_and(|known| !known.contains(&name.as_str()));
        names.query = Some(unknown.into_iter().filter(is_unknown).collect());
    }

    /// Returns the header's value; `None` if nothing was ignored.
    fn value(&self, dialect: Dialect, query: Option<&str>) -> Option<HeaderValue> {
        let mut names = self.names();
        let parameters = names.query.take().unwrap_or_else(|| named(query));
        let is_ours =
            |name: &String| dialect == Dialect::Native || !EVERYWHERE.contains(&name.as_str());
        let parameters = parameters.into_iter().filter(is_ours).map(|name| visible(&name));
        let mut value = String::new();
        for name in names.body.drain(..).chain(parameters).take(MAX_NAMES) {
            if value.len() + name.len() + 2 > MAX_BYTES {
                break;
            }
            if !value.is_empty() {
                value.push_str(", ");
            }
            value.push_str(&name);
        }
        HeaderValue::try_from(value).ok().filter(|value| !value.is_empty())
    }
}

/// Runs a request, and names in its answer what it said in vain.
pub(crate) async fn tell(mut request: Request, next: Next) -> Response {
    let ignored = Ignored::default();
    let dialect = Dialect::of(request.uri().path());
    let query = request.uri().query().map(str::to_owned);
    request.extensions_mut().insert(ignored.clone());
    let mut response = next.run(request).await;
    if let Some(value) = ignored.value(dialect, query.as_deref()) {
        response.headers_mut().insert(IGNORED, value);
    }
    response
}

/// Returns the names of a query's parameters, as many as can be told.
fn named(query: Option<&str>) -> BTreeSet<String> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let name = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default().replace('+', " ");
        percent_decode(name.as_bytes()).unwrap_or(name)
    };
    pairs.map(name).collect()
}

/// Returns a name that can stand in the header's list: visible ASCII without commas, not too long.
fn visible(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() && c != ',' { c } else { '?' };
    name.chars().map(plain).take(MAX_NAME).collect()
}

/// Returns the names of the members that a struct reads; `None` for a type that reads all.
fn fields<T: DeserializeOwned>() -> Option<&'static [&'static str]> {
    let mut fields = None;
    let _it_reads_nothing = T::deserialize(Fields(&mut fields));
    fields
}

/// Has nothing to read, and keeps the names that it is asked for.
struct Fields<'f>(&'f mut Option<&'static [&'static str]>);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("there is nothing to read"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = Some(fields);
        Err(Error::custom("there is nothing to read"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct One {
        #[serde(rename = "location[directory]", alias = "dir")]
        _directory: Option<String>,
    }

    #[derive(Deserialize)]
    struct Other {
        _limit: Option<i64>,
    }

    fn value(ignored: &Ignored, dialect: Dialect, query: &str) -> Option<String> {
        let value = ignored.value(dialect, Some(query))?;
        Some(value.to_str().expect("visible").to_owned())
    }

    #[test]
    fn a_parameter_is_ignored_if_no_extractor_knows_it() {
        let query = "_limit=1&location%5Bdirectory%5D=x&dir=&colour=red&directory=y";
        for (dialect, expected) in
            [(Dialect::Stock, "colour"), (Dialect::Native, "colour, directory")]
        {
            let ignored = Ignored::default();
            ignored.parameters::<One>(Some(query));
            ignored.parameters::<Other>(Some(query));
            assert_eq!(value(&ignored, dialect, query).as_deref(), Some(expected));
        }
        // Nobody read the query.
        let all = value(&Ignored::default(), Dialect::Native, query).expect("names");
        assert_eq!(all, "_limit, colour, dir, directory, location[directory]");
        assert_eq!(value(&Ignored::default(), Dialect::Stock, "directory=y"), None);
    }

    #[test]
    fn a_header_is_short_and_visible_whatever_was_sent() {
        let ignored = Ignored::default();
        ignored.member(&"model.?.a, b\u{e9}\n");
        for n in 0..30 {
            ignored.member(&format!("{n}{}", "x".repeat(MAX_NAME)));
        }
        let value = value(&ignored, Dialect::Native, "").expect("names");
        assert!(value.starts_with("model.a??b??, 0xxx"), "{value}");
        assert!(value.len() <= MAX_BYTES && value.split(", ").count() <= MAX_NAMES, "{value}");
    }
}
