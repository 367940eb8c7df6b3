//! How statements run through a pooler that gives each transaction another backend, as pgbouncer does with
//! `pool_mode = transaction`.
//!
//! sqlx prepares a statement in one round trip and runs it in the next, and such a pooler may send the two to
//! different backends. So each statement stands in a transaction, and the transaction's end forgets what was prepared
//! in it: the backend's next client would meet the same names. That is two round trips more for each statement, and
//! plans are not kept; `docs/decisions/0038` has what it costs. Nothing else of ours lives longer than a transaction:
//! tenants are set with `SET LOCAL`, advisory locks are those of transactions, and nobody listens.

use std::time::Duration;

use log::LevelFilter;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, Error, PgConnection};

use crate::StoreError;
use crate::connections::Limit;
use crate::lane::OnConnection;

/// The parameter of a database URL that says that it is a pooler's.
const PARAMETER: &str = "pooler";
/// Its only value.
const TRANSACTION: &str = "transaction";

/// How to connect to the database of `url`, and whether a pooler in transaction mode is in between
/// (`?pooler=transaction`).
///
/// # Errors
/// When the URL cannot be read, or names a mode that is none.
pub(crate) fn options(url: &str) -> Result<(PgConnectOptions, bool), StoreError> {
    let (url, mode) = without_parameter(url);
    let is_pooled = match mode.as_deref() {
        None => false,
        Some(TRANSACTION) => true,
        Some(other) => {
            return Err(StoreError::Schema(format!(
                "the database URL says `{PARAMETER}={other}`; the only mode is `{PARAMETER}={TRANSACTION}`, and a \
                 pooler in session mode needs none"
            )));
        }
    };
    let connect = read_url(&url)?;
    // A pooler refuses start-up parameters that it does not know, and we read no floating-point numbers.
    let connect = connect.extra_float_digits(None).application_name("opencode-cloud");
    // Slow ones are told by their place in the code, not with their whole text: see `lane`.
    let connect = connect.log_slow_statements(LevelFilter::Off, Duration::ZERO);
    let connect = if is_pooled { connect.statement_cache_capacity(0) } else { connect };
    Ok((connect, is_pooled))
}

/// Reads a database URL. The error does not show its password.
///
/// # Errors
/// When the URL cannot be read.
pub(crate) fn read_url(url: &str) -> Result<PgConnectOptions, StoreError> {
    url.parse::<PgConnectOptions>().map_err(|error| {
        let cause =
            if let Error::Configuration(cause) = &error { cause.to_string() } else { error.to_string() };
        StoreError::Schema(format!(
            "the database URL cannot be read ({cause}); if its password has a `#`, `/` or `?`, percent-encode them as \
             %23, %2F and %3F"
        ))
    })
}

/// Runs `work` on a connection of its own.
///
/// # Errors
/// Those of `work`; when the URL cannot be read, or the database does not answer in time.
pub(crate) async fn once<T, W>(url: &str, work: W) -> Result<T, StoreError>
where
    W: for<'c> FnOnce(&'c mut PgConnection) -> OnConnection<'c, T>,
{
    let (connect, is_pooled) = options(url)?;
    let asked = async {
        let mut connection = connect.connect().await?;
        if is_pooled {
            begin(&mut connection).await?;
        }
        let done = work(&mut connection).await?;
        if is_pooled {
            end(&mut connection, true).await?;
        }
        connection.close().await?;
        Ok(done)
    };
    Limit::Short.hold(asked).await
}

/// `url` without our own parameter, and its value.
fn without_parameter(url: &str) -> (String, Option<String>) {
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), None) };
    let mut mode = None;
    let mut kept = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some((PARAMETER, value)) => mode = Some(value.to_owned()),
            _ => kept.push(pair),
        }
    }
    let url = if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) };
    (url, mode)
}

pub(crate) async fn begin(connection: &mut PgConnection) -> Result<(), Error> {
    sqlx::raw_sql("BEGIN").execute(connection).await.map(drop)
}

/// Ends the transaction, and forgets what was prepared in it before the backend is another client's.
pub(crate) async fn end(connection: &mut PgConnection, commits: bool) -> Result<(), Error> {
    let sql = if commits { "COMMIT; DEALLOCATE ALL" } else { "ROLLBACK; DEALLOCATE ALL" };
    sqlx::raw_sql(sql).execute(connection).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_that_it_is_a_poolers_and_sqlx_does_not_see_it() {
        let read = |url| options(url).map(|(options, is_pooled)| (options.get_port(), is_pooled));
        assert!(matches!(read("postgres://a@h:1/d"), Ok((1, false))));
        assert!(matches!(read("postgres://a@h:1/d?pooler=transaction"), Ok((1, true))));
        assert_eq!(
            without_parameter("postgres://a@h/d?sslmode=require&pooler=transaction&user=b"),
            ("postgres://a@h/d?sslmode=require&user=b".to_owned(), Some("transaction".to_owned()))
        );
        let error = read("postgres://a@h:1/d?pooler=session").expect_err("no such mode");
        assert!(error.to_string().contains("needs none"), "{error}");
    }
    // Finding: report 30-c15 (amacneil/dbmate#212).
    #[test]
    fn a_password_that_is_not_encoded_is_told_and_not_shown() {
        for bad in ["secr#et", "secr/et", "secr?et"] {
            let error = options(&format!("postgres://u:{bad}@127.0.0.1:5432/db"));
            let error = error.expect_err("no URL").make_sentence();
            assert!(error.contains("%23, %2F and %3F"), "{error}");
            assert!(!error.contains("secr"), "{error}");
        }
        let encoded = options("postgres://u:p%23x@127.0.0.1:5432/db");
        assert!(encoded.is_ok_and(|(options, _)| options.get_host() == "127.0.0.1"));
    }
}
