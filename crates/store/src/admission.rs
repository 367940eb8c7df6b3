use domain::{
    EventId, Feature, IdMint, LocationId, OrgId, PromptAdmitted, RecordedEvent, Seq, SessionId,
    Stamp, TimestampMs,
};

use sqlx::PgConnection;

use crate::batch::{Answers, Call, in_place};
use crate::cluster::varies;
use crate::inbox::prompt_kind;
use crate::revert::spare;
use crate::{Store, StoreError};

/// A prompt that asks to be admitted.
#[derive(Debug, Clone)]
pub struct NewPrompt {
    /// The session.
    pub session: SessionId,
    /// The prompt; its message id is fixed before the statement, and reused on a retry of it.
    pub prompt: PromptAdmitted,
    /// The gateway's time.
    pub now: TimestampMs,
}

/// A prompt that is durable.
#[derive(Debug, Clone)]
pub struct AdmittedPrompt {
    /// Whether this call admitted it, or found it admitted by an earlier one.
    pub admission: Admission,
    /// Its place in the session's log.
    pub seq: Seq,
    /// Its event's id, when this call admitted it.
    pub event: Option<EventId>,
    /// Where the session runs.
    pub location: LocationId,
    /// When it was first admitted.
    pub admitted_ms: TimestampMs,
    /// The prompt as it was first admitted.
    pub prompt: PromptAdmitted,
}

impl AdmittedPrompt {
    /// Its event as the log holds it, when this call admitted it: who follows the session need not read it
    /// back.
    #[must_use]
    pub fn recorded(&self) -> Option<RecordedEvent> {
        let id = self.event.clone()?;
        let event = self.prompt.clone().into();
        Some(RecordedEvent { seq: self.seq, id, time: self.admitted_ms, claim: None, event })
    }
}

/// How a prompt came to be admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// By this call.
    First,
    /// By an earlier one with the same session, prompt and delivery.
    Retry,
}

impl Store {
    /// Admits a prompt: one statement, one commit. When it returns, the prompt is never lost (I1).
    ///
    /// A user's prompt commits a Revert first that is staged in an idle session, in the same commit; in a busy
    /// one the drain finds both. Synthetic input is admitted without a wake while one is staged, and is cancelled
    /// when it is committed.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session; [`StoreError::Conflict`] when the id names another
    /// prompt; [`StoreError::InboxFull`]; [`StoreError::Feature`] for a variant of a model while builds may run that know none.
    pub async fn admit_prompt(
        &self,
        org: OrgId,
        new: NewPrompt,
    ) -> Result<AdmittedPrompt, StoreError> {
        if varies(new.prompt.model.as_ref()) {
            self.require(Feature::ProviderState).await?;
        }
        let stamp = new.prompt.message.stamp(new.now).unwrap_or(Stamp::at(new.now));
        let mut mint = IdMint::after(stamp, new.now);
        let event = EventId::mint(&mut mint);
        let payload = written(&new.prompt)?;
        let call = Admit { org, new, mint, event, payload };
        let (call, admitted) = self.admissions().ask(call).await?;
        match admitted {
            Some((seq, location)) => Ok(AdmittedPrompt {
                admission: Admission::First,
                seq,
                event: Some(call.event),
                location,
                admitted_ms: call.new.now,
                prompt: call.new.prompt,
            }),
            None => match self.admit_alone(call.clone()).await {
                // Two admissions of one id met: the other one won, and is found now.
                Err(error) if error.is_duplicate() => self.admit_alone(call).await,
                alone => alone,
            },
        }
    }

    /// Admits a prompt that a batch leaves out: somebody has locked the head, the id is taken, a Revert is staged, the
    /// inbox may be full, or there is no such session.
    async fn admit_alone(&self, call: Admit) -> Result<AdmittedPrompt, StoreError> {
        let (org, session) = (call.org, call.new.session.clone());
        self.at_head(org, session.as_str(), move |connection| {
            Box::pin(async move {
                let Admit { org, mut new, mut mint, mut event, mut payload } = call;
                let mut before: Vec<String> = Vec::new();
                let row = loop {
                    let row = sqlx::query!(
                        r#"SELECT outcome AS "outcome!", seq, location, admitted_ms, payload
                       FROM admit_prompt($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"#,
                        org.0,
                        new.session.as_str(),
                        new.prompt.message.as_str(),
                        new.prompt.delivery.as_str(),
                        new.prompt.digest,
                        new.prompt.wake,
                        event.as_str(),
                        mint.last().0,
                        new.now,
                        payload,
                        prompt_kind(&new.prompt),
                        &before,
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    if row.outcome != "staged" {
                        break row;
                    }
                    // A Revert is staged: a prompt commits it, and other input waits for its end.
                    if new.prompt.synthetic.is_some() {
                        new.prompt.wake = false;
                        payload = written(&new.prompt)?;
                    } else {
                        before = spare(&mut mint, row.seq.unwrap_or_default());
                        event = EventId::mint(&mut mint);
                    }
                };
                let admission = match row.outcome.as_str() {
                    "admitted" => Admission::First,
                    "retry" => Admission::Retry,
                    "conflict" => {
                        return Err(StoreError::Conflict { what: "a message with this id" });
                    }
                    "full" => return Err(StoreError::InboxFull { session: new.session }),
                    "missing" => return Err(StoreError::NotFound),
                    other => return Err(StoreError::Unreadable(format!("outcome {other}"))),
                };
                let (Some(seq), Some(location), Some(admitted_ms), Some(payload)) =
                    (row.seq, row.location, row.admitted_ms, row.payload)
                else {
                    return Err(StoreError::Unreadable("an admission without its row".into()));
                };
                Ok(AdmittedPrompt {
                    admission,
                    seq: Seq(seq),
                    event: (admission == Admission::First).then_some(event),
                    location: location.parse()?,
                    admitted_ms,
                    prompt: match admission {
                        Admission::First => new.prompt,
                        Admission::Retry => serde_json::from_str(&payload)
                            .map_err(|error| StoreError::Unreadable(error.to_string()))?,
                    },
                })
            })
        })
        .await
    }
}

/// An admission that can be made together with others.
#[derive(Clone)]
pub(crate) struct Admit {
    org: OrgId,
    new: NewPrompt,
    event: EventId,
    mint: IdMint,
    payload: String,
}

impl Call for Admit {
    type Answer = (Seq, LocationId);

    /// One that was admitted is found by its message's id, as for a client that asks again.
    const MAY_REPEAT: bool = true;

    fn organisation(&self) -> Option<OrgId> {
        Some(self.org)
    }

    fn bytes(&self) -> usize {
        self.payload.len()
    }

    fn goes_with(&self, other: &Self) -> bool {
        self.org == other.org
            && self.new.session != other.new.session
            && self.new.prompt.message != other.new.prompt.message
    }

    fn run<'c>(calls: &'c [Self], connection: &'c mut PgConnection) -> Answers<'c, Self::Answer> {
        Box::pin(async move {
            let org = calls.first().map_or(OrgId::FIRST, |call| call.org);
            let prompts = || calls.iter().map(|call| &call.new.prompt);
            let text = |text: &str| text.to_owned();
            let rows = sqlx::query!(
                r#"SELECT place AS "place!", seq AS "seq!", location AS "location!"
                   FROM admit_prompts($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"#,
                org.0,
                &calls.iter().map(|call| text(call.new.session.as_str())).collect::<Vec<_>>(),
                &prompts().map(|prompt| text(prompt.message.as_str())).collect::<Vec<_>>(),
                &prompts().map(|prompt| text(prompt_kind(prompt))).collect::<Vec<_>>(),
                &prompts().map(|prompt| text(prompt.delivery.as_str())).collect::<Vec<_>>(),
                &prompts().map(|prompt| prompt.wake).collect::<Vec<_>>(),
                &calls.iter().map(|call| text(call.event.as_str())).collect::<Vec<_>>(),
                &calls.iter().map(|call| call.mint.last().0).collect::<Vec<_>>(),
                &calls.iter().map(|call| call.new.now).collect::<Vec<_>>(),
                &calls.iter().map(|call| call.payload.clone()).collect::<Vec<_>>(),
            )
            .fetch_all(connection)
            .await?;
            let rows = rows
                .into_iter()
                .map(|row| Ok((row.place.into(), (Seq(row.seq), row.location.parse()?))));
            in_place(calls.len(), rows)
        })
    }
}

fn written(prompt: &PromptAdmitted) -> Result<String, StoreError> {
    serde_json::to_string(prompt).map_err(|error| StoreError::Unreadable(error.to_string()))
}
