//! Tells the executor of every drain's end, whatever ends it.

use domain::SessionRef;
use history::History;
use session::DrainExit;
use tokio::sync::mpsc;

use crate::executor::Message;

/// Sends the end of a drain: the exit given to [`Tells::end`], or none if it is dropped before that (by a panic, or
/// by a worker that stops and waits no longer). Without it the session would keep its slot, and count as running, as
/// long as the worker lives.
pub(crate) struct Tells {
    inbox: mpsc::UnboundedSender<Message>,
    session: Option<SessionRef>,
}

impl Tells {
    pub(crate) fn new(inbox: mpsc::UnboundedSender<Message>, session: SessionRef) -> Self {
        Self { inbox, session: Some(session) }
    }

    pub(crate) fn end(mut self, exit: DrainExit, history: Option<History>) {
        self.tell(Some(exit), history);
    }

    fn tell(&mut self, exit: Option<DrainExit>, history: Option<History>) {
        if let Some(session) = self.session.take() {
            // The executor is gone only when the worker is.
            let _gone = self.inbox.send(Message::Ended(session, exit, history.map(Box::new)));
        }
    }
}

impl Drop for Tells {
    fn drop(&mut self) {
        self.tell(None, None);
    }
}

#[cfg(test)]
mod tests {
    use domain::{LocationId, OrgId, SessionId};

    use super::*;

    fn session() -> SessionRef {
        SessionRef {
            org: OrgId::FIRST,
            location: "loc_a".parse::<LocationId>().expect("an id"),
            session: "ses_a".parse::<SessionId>().expect("an id"),
        }
    }

    #[test]
    fn an_end_is_told_once_and_a_panic_is_an_end() {
        let (inbox, mut told) = mpsc::unbounded_channel();
        Tells::new(inbox.clone(), session()).end(DrainExit::Idle, None);
        assert!(matches!(told.try_recv(), Ok(Message::Ended(_, Some(DrainExit::Idle), None))));
        assert!(told.try_recv().is_err(), "told twice");
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _tells = Tells::new(inbox, session());
            panic!("in a drain");
        }));
        assert!(broken.is_err());
        let Ok(Message::Ended(at, None, None)) = told.try_recv() else { panic!("nobody was told") };
        assert_eq!(at, session());
    }
}
