//! Compares the messages that a session's log folds into with those of its rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::{MessageId, OrgId, Seq, SessionId};
use store::{MessageRow, Messages, Store, StoreError};

use crate::fold::MessageFold;

/// The most events, and the most messages, in one read.
const PAGE: i64 = 1_000;
/// How often the reads start over because the log has grown meanwhile.
const TRIES: usize = 3;

/// Returns the messages of a session that do not have exactly the rows that its events fold into. A session whose log
/// grows during each of three tries is not compared, and the list is empty. Holds all messages of the session in memory
/// twice.
///
/// # Errors
/// [`StoreError::NotFound`] without the session, and any other error of a read.
pub async fn differing_messages(
    store: &Store,
    org: OrgId,
    session: &SessionId,
) -> Result<Vec<MessageId>, StoreError> {
    for _ in 0..TRIES {
        let before = store.session(org, session.clone()).await?.seq;
        let rows = rows(store, org, session).await?;
        let folded = folded(store, org, session).await?;
        if store.session(org, session.clone()).await?.seq == before {
            let folded = folded.iter().map(|message| (&message.id, &**message)).collect();
            return Ok(differences(&rows.iter().map(|row| (&row.id, row)).collect(), &folded));
        }
    }
    Ok(Vec::new())
}

type ById<'a> = BTreeMap<&'a MessageId, &'a MessageRow>;

fn differences(some: &ById<'_>, others: &ById<'_>) -> Vec<MessageId> {
    let changed = some.iter().filter(|(id, row)| others.get(*id) != Some(*row)).map(|(id, _)| *id);
    let added = others.keys().filter(|id| !some.contains_key(*id)).copied();
    changed.chain(added).cloned().collect()
}

async fn rows(
    store: &Store,
    org: OrgId,
    session: &SessionId,
) -> Result<Vec<MessageRow>, StoreError> {
    let mut rows: Vec<MessageRow> = Vec::new();
    let mut which = Messages::Newest;
    loop {
        let page = store.transcript(org, session.clone(), which, PAGE).await?;
        let oldest = page.messages.first().filter(|_| page.older).map(|oldest| oldest.id.clone());
        rows.extend(page.messages);
        match oldest {
            Some(oldest) => which = Messages::Before(oldest),
            None => return Ok(rows),
        }
    }
}

async fn folded(
    store: &Store,
    org: OrgId,
    session: &SessionId,
) -> Result<Vec<Arc<MessageRow>>, StoreError> {
    let mut fold = MessageFold::default();
    let mut after = Seq(0);
    loop {
        let page = store.events(org, session.clone(), after, PAGE).await?;
        for event in &page.items {
            fold.apply(event);
            after = event.seq;
        }
        if !page.more {
            return Ok(fold.into_messages().collect());
        }
    }
}
