//! Turns a client's request into an admitted prompt: one call of the store, then hints.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    Delivery, IdMint, MessageId, ModelRef, PartId, PromptAdmitted, PromptPart, SessionId,
    SessionRef, Stamp, TimestampMs,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use settings::Effective;
use sha2::{Digest, Sha256};
use store::{Admission, AdmittedPrompt, NewPrompt, SettingsOf, StoreError};
use traces::{Kind, Span, genai, span_of, trace_of};

use super::attachment::Attachment;
use super::choice::{ModelRequest, agent, has_model, variant};
use super::effective::settings_in;
use super::retry;
use super::sessions::home;
use crate::ApiState;
use crate::error::ApiError;
use crate::principal::Principal;
use crate::text::{id, plain, shown};

/// The most bytes that all texts of a prompt may have together.
const MAX_PROMPT_BYTES: usize = 512 * 1024;
const MAX_PARTS: usize = 100;
/// How far a client's clock may be ahead of ours. The ids that it mints carry its time.
const MAX_AHEAD_MS: TimestampMs = 60_000;

/// A prompt as clients send it. A field of the released contract that is not offered is refused by its name.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct AdmitRequest {
    #[serde(rename = "messageID", alias = "id")]
    pub(super) message_id: Option<String>,
    #[serde(default)]
    pub(super) parts: Vec<PartRequest>,
    pub(super) text: Option<String>,
    pub(super) delivery: Option<Delivery>,
    pub(super) agent: Option<String>,
    pub(super) model: Option<ModelRequest>,
    /// A variant of `model`, or of the session's model if there is no `model`.
    pub(super) variant: Option<String>,
    pub(super) resume: Option<bool>,
    #[serde(rename = "noReply")]
    pub(crate) no_reply: Option<bool>,
    #[schemars(skip)]
    pub(super) system: Option<String>,
    #[serde(default)]
    #[schemars(skip)]
    pub(super) tools: BTreeMap<String, bool>,
    #[schemars(skip)]
    pub(super) format: Option<FormatRequest>,
    /// A description for people, set when no user wrote the prompt. Not a field of the request.
    #[serde(skip)]
    pub(crate) synthetic: Option<String>,
}

/// The form of the answer that a client wants.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct FormatRequest {
    r#type: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct PartRequest {
    r#type: String,
    text: Option<String>,
    /// The address of a part of type `file`.
    #[schemars(skip)]
    url: Option<String>,
    #[schemars(skip)]
    filename: Option<String>,
    #[schemars(skip)]
    mime: Option<String>,
    #[schemars(skip)]
    ignored: Option<bool>,
    #[schemars(skip)]
    synthetic: Option<bool>,
    /// Its id, `prt_…`: another one in each part of the prompt.
    #[schemars(skip)]
    id: Option<String>,
}

/// The content that distinguishes an exact retry from another prompt: only the client's fields, not ours.
#[derive(Serialize)]
struct Digested<'a> {
    texts: &'a [String],
    agent: Option<&'a str>,
    model: Option<(&'a str, &'a str)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    synthetic: Option<&'a str>,
}

impl AdmitRequest {
    /// Returns whether the request names a variant but no model.
    fn varies_alone(&self) -> bool {
        self.model.is_none() && self.variant.as_deref().is_some_and(|name| !name.is_empty())
    }

    fn chooses_agent(&self) -> bool {
        self.agent.as_deref().is_some_and(|name| !name.is_empty())
    }

    /// Refuses what the answer would silently be without.
    fn check(&self) -> Result<(), ApiError> {
        let has_system = self.system.as_deref().is_some_and(|text| !text.trim().is_empty());
        let refused = if has_system {
            "a prompt has no `system` text of its own yet: put it into the prompt, or into an AGENTS.md of the workspace"
        } else if self.tools.values().any(|on| !on) {
            "a prompt cannot switch `tools` off yet: create the session with `permission` rules, or choose an agent \
             without these tools"
        } else if self.format.as_ref().is_some_and(|format| format.r#type != "text") {
            "an answer is text: leave `format` out, and say in the prompt what the answer must look like"
        } else if self.parts.iter().any(|part| part.ignored == Some(true)) {
            "a part that the model must not see (`ignored`) is not kept: leave it out"
        } else if self.parts.iter().any(|part| part.synthetic == Some(true)) {
            "a text that people must not see (`synthetic`) cannot be hidden yet: send it without `synthetic`, and people \
             see it, or leave it out"
        } else {
            return Ok(());
        };
        Err(ApiError::NotOffered(refused))
    }

    /// Returns the prompt to admit. Its ids stay the same when the statement is retried. `current` is the session's
    /// model, used for a variant without a model.
    fn into_prompt(
        self,
        now: TimestampMs,
        default_provider: &str,
        current: Option<ModelRef>,
        settings: &Effective,
    ) -> Result<PromptAdmitted, ApiError> {
        self.check()?;
        let mut mint = IdMint::after(Stamp::default(), now);
        let message: MessageId = match self.message_id.as_deref() {
            Some(text) => id(text)?,
            None => MessageId::mint(&mut mint),
        };
        ahead_of_us(&message, now)?;
        if let Some(stamp) = message.stamp(now) {
            mint = IdMint::after(stamp, now);
        }
        let texts = texts(&self.parts, self.text.as_deref())?;
        let chosen = part_ids(&self.parts)?;
        let agent = agent(settings, self.agent)?;
        let mut model = self.model.map(|model| model.parse(default_provider)).transpose()?;
        let mut asked = variant(self.variant)?;
        if let Some(own) = model.as_mut() {
            own.variant = own.variant.take().or(asked.take());
        }
        let varied = model.as_ref().map_or(&asked, |model| &model.variant);
        let digested = Digested {
            texts: &texts,
            agent: agent.as_deref(),
            model: model.as_ref().map(|model| (model.provider.as_str(), model.model.as_str())),
            variant: varied.as_deref(),
            synthetic: self.synthetic.as_deref(),
        };
        let canonical = serde_json::to_vec(&digested).map_err(ApiError::internal)?;
        let digest = hex::encode(Sha256::digest(&canonical));
        if model.is_none()
            && let Some(variant) = asked
        {
            model = current.map(|current| ModelRef { variant: Some(variant), ..current });
        }
        // The agent's own model is no word of the client's, so the digest does not have it.
        let of_agent = agent.as_deref().and_then(|name| settings.agent(name)?.model.clone());
        let model = model.or(of_agent);
        // The text beside the parts has no id of the client's, and a part may have none.
        let chosen = chosen.into_iter().chain(std::iter::repeat(None));
        let part = |(text, chosen): (_, Option<PartId>)| PromptPart::Text {
            id: chosen.unwrap_or_else(|| PartId::mint(&mut mint)),
            text,
        };
        let parts = texts.into_iter().zip(chosen).map(part).collect();
        let wake = self.resume.unwrap_or(true) && !self.no_reply.unwrap_or(false);
        let delivery = self.delivery.unwrap_or_default();
        let synthetic = self.synthetic;
        Ok(PromptAdmitted {
            by: None,
            message,
            delivery,
            parts,
            agent,
            model,
            wake,
            digest,
            synthetic,
        })
    }
}

/// Refuses an id whose time is further ahead of ours than clocks differ. Every later id of the session would have to
/// be ahead too.
pub(super) fn ahead_of_us(message: &MessageId, now: TimestampMs) -> Result<(), ApiError> {
    match message.stamp(now) {
        Some(stamp) if stamp.millis() > now + MAX_AHEAD_MS => Err(ApiError::invalid(
            "the message id is more than 60 s ahead of the service's clock; set yours",
        )),
        _ => Ok(()),
    }
}

fn texts(parts: &[PartRequest], text: Option<&str>) -> Result<Vec<String>, ApiError> {
    if parts.len() > MAX_PARTS {
        return Err(ApiError::Invalid(format!("a prompt has at most {MAX_PARTS} parts")));
    }
    let mut texts = Vec::with_capacity(parts.len() + 1);
    for part in parts {
        texts.push(match part.r#type.as_str() {
            "text" => plain(part.text.as_deref().unwrap_or_default()),
            "file" => {
                let Some(url) = part.url.as_deref() else {
                    let message = "a part of type `file` has a `url` with its content";
                    return Err(ApiError::invalid(message));
                };
                let (name, mime) = (part.filename.as_deref(), part.mime.as_deref());
                Attachment { url, name, mime }.text()?
            }
            other => {
                return Err(ApiError::Invalid(format!(
                    "parts of type `{}` are not supported yet; send text, or a file as `data:` URL",
                    shown(other)
                )));
            }
        });
    }
    texts.extend(text.map(plain));
    let bytes: usize = texts.iter().map(String::len).sum();
    if bytes > MAX_PROMPT_BYTES {
        return Err(ApiError::TooLarge(format!(
            "a prompt has at most {MAX_PROMPT_BYTES} bytes, this one {bytes}; put long text in a file"
        )));
    }
    if texts.iter().all(|text| text.trim().is_empty()) {
        return Err(ApiError::invalid(
            "the prompt is empty: send `parts` with a text, such as [{\"type\":\"text\",\"text\":\"hello\"}]",
        ));
    }
    Ok(texts)
}

/// Returns the id that the client has chosen for each part, if it has.
///
/// # Errors
/// One is no id of a part, or two parts have the same.
fn part_ids(parts: &[PartRequest]) -> Result<Vec<Option<PartId>>, ApiError> {
    let chosen = |part: &PartRequest| part.id.as_deref().map(id::<PartId>).transpose();
    let ids = parts.iter().map(chosen).collect::<Result<Vec<_>, _>>()?;
    let mut seen = BTreeSet::new();
    for id in ids.iter().flatten() {
        if !seen.insert(id.as_str()) {
            let twice = shown(id.as_str());
            return Err(ApiError::Invalid(format!(
                "two parts have the id `{twice}`: give each part one of its own, or none"
            )));
        }
    }
    Ok(ids)
}

/// The span of an admission: the root of the trace of everything that answers the prompt.
struct Admitted {
    message: MessageId,
    /// The text, if operators want it.
    text: Option<String>,
}

/// The longest text of a span, in bytes.
const TRACED_BYTES: usize = 4_096;

impl Admitted {
    fn of(prompt: &PromptAdmitted) -> Self {
        let text = traces::content().prompts.then(|| {
            let PromptAdmitted { parts, .. } = prompt;
            let texts = parts.iter().map(|part| match part {
                PromptPart::Text { text, .. } => text.as_str(),
            });
            let text = texts.collect::<Vec<_>>().join("\n");
            text[..text.floor_char_boundary(TRACED_BYTES)].to_owned()
        });
        Self { message: prompt.message.clone(), text }
    }

    fn record(self, session: &SessionId, time: (TimestampMs, TimestampMs)) {
        let trace = trace_of(&self.message);
        if !traces::is_on(&trace) {
            return;
        }
        let id = span_of(genai::ADMIT, self.message.as_str());
        let mut attributes = vec![(genai::CONVERSATION, session.to_string().into())];
        attributes.extend(self.text.map(|text| (genai::PROMPT, text.into())));
        traces::record(Span {
            trace,
            id,
            parent: None,
            links: Vec::new(),
            name: genai::ADMIT.to_owned(),
            kind: Kind::Server,
            time,
            attributes,
            error: None,
        });
    }
}

/// Admits a prompt. Once this returns, the prompt cannot be lost. Its worker gets a hint in parallel to the answer.
pub(crate) async fn admit(
    state: &ApiState,
    principal: &Principal,
    session: SessionId,
    request: AdmitRequest,
) -> Result<AdmittedPrompt, ApiError> {
    let (org, now) = (principal.org, state.clock().now_ms());
    let default = state.settings().default_model.get();
    let current = if request.varies_alone() {
        state.store().session(org, session.clone()).await?.model.or(Some(default.clone()))
    } else {
        None
    };
    // A prompt without an agent needs no settings, and stays one statement.
    let settings = if request.chooses_agent() {
        let directory = home(state, org, &session).await?.directory.clone();
        &settings_in(state, org, SettingsOf::Session(session.clone()), &directory).await?
    } else {
        Effective::built_in()
    };
    let mut prompt = request.into_prompt(now, &default.provider, current, settings)?;
    prompt.by = Some(principal.author.clone());
    has_model(state, org, prompt.model.as_ref()).await?;
    let (id, wakes) = (prompt.message.clone(), prompt.wake);
    let traced = Admitted::of(&prompt);
    let new = NewPrompt { session: session.clone(), prompt, now };
    let told = state.store().admit_prompt(org, new).await;
    telemetry::metrics().admission(match &told {
        Ok(AdmittedPrompt { admission: Admission::First, .. }) => "stored",
        Ok(AdmittedPrompt { admission: Admission::Retry, .. }) => "retry",
        Err(StoreError::Database(_)) => "failed",
        Err(_) => "refused",
    });
    let mut admitted = match told {
        Err(StoreError::NotFound) => {
            state.homes().forget(org, &session);
            return Err(StoreError::NotFound.into());
        }
        Err(StoreError::Conflict { .. }) => {
            return Err(ApiError::Conflict(format!(
                "the message id {id} belongs to another prompt or message; an id is not used again, not even after a \
                 cancel or a revert: send the prompt with another `messageID`, or without one"
            )));
        }
        other => other?,
    };
    traced.record(&session, (now, state.clock().now_ms()));
    let at = SessionRef { org, location: admitted.location.clone(), session };
    retry::settle(state, &at, &mut admitted, wakes).await?;
    // Sent before the hint, so that the hint is no news to our own reader.
    state.hub().offer(&at, || admitted.recorded());
    if admitted.prompt.wake {
        state.waker().wake(at.clone());
    }
    state.waker().committed(&at, admitted.seq);
    state.feeds().touch(&at);
    Ok(admitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: TimestampMs = 1_795_293_590_662;

    fn request(json: &str) -> AdmitRequest {
        serde_json::from_str(json).expect("a request")
    }

    fn prompt(json: &str, now: TimestampMs) -> Result<PromptAdmitted, ApiError> {
        let current = Some(ModelRef::new("own", "current"));
        request(json).into_prompt(now, "own", current, Effective::built_in())
    }

    fn refusal(json: &str) -> String {
        prompt(json, NOW).expect_err("refused").to_string()
    }

    #[test]
    fn the_digest_is_of_what_was_sent_and_not_of_our_ids() {
        let body = r#"{"messageID":"msg_a","parts":[{"type":"text","text":"hi\u0000"}]}"#;
        let one = prompt(body, NOW).expect("a prompt");
        let two = prompt(body, NOW + 1).expect("a prompt");
        assert_eq!(one.digest, two.digest);
        assert_ne!(one.parts, two.parts);
        let [PromptPart::Text { text, .. }] = one.parts.as_slice() else { panic!("one part") };
        assert_eq!(text, "hi\u{FFFD}");
        let other = r#"{"messageID":"msg_a","text":"hi\u0000","model":"a/b/c"}"#;
        let other = prompt(other, NOW).expect("a prompt");
        assert_ne!(other.digest, one.digest);
        assert_eq!(other.model, Some(ModelRef::new("a", "b/c")));
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_what_to_do() {
        assert!(refusal(r#"{"parts":[{"type":"text","text":" \n"}]}"#).contains("empty"));
        assert!(refusal("{}").contains("empty"));
        assert!(refusal(r#"{"parts":[{"type":"file"}]}"#).contains("`url`"));
        assert!(refusal(r#"{"parts":[{"type":"agent","name":"x"}]}"#).contains("`agent`"));
        let image = r#"{"parts":[{"type":"file","filename":"a.png","mime":"image/png","url":"data:image/png;base64,iVBORw0="}]}"#;
        assert!(refusal(image).contains("`a.png` (image/png) is no text"));
        assert!(refusal(r#"{"text":"x","model":"/"}"#).contains("provider/model"));
        assert!(refusal(r#"{"id":"ses_a","text":"x"}"#).contains("msg_"));
        let mut ahead = IdMint::after(Stamp::default(), NOW + MAX_AHEAD_MS + 1_000);
        let ahead = MessageId::mint(&mut ahead);
        assert!(refusal(&format!(r#"{{"id":"{ahead}","text":"x"}}"#)).contains("60 s"));
        let long = "x".repeat(MAX_PROMPT_BYTES + 1);
        assert!(refusal(&format!(r#"{{"text":"{long}"}}"#)).contains("524288"));
    }

    #[test]
    fn an_agent_that_there_is_not_is_refused_with_those_there_are() {
        let plan = prompt(r#"{"text":"x","agent":"plan"}"#, NOW).expect("a prompt");
        assert_eq!(plan.agent.as_deref(), Some("plan"));
        let none = prompt(r#"{"text":"x","agent":""}"#, NOW).expect("a prompt");
        assert_eq!(none.agent, None);
        let long = "x".repeat(MAX_PROMPT_BYTES);
        for name in ["review", "Build", &long] {
            let refused = prompt(&format!(r#"{{"text":"x","agent":"{name}"}}"#), NOW);
            let failure = refused.expect_err("refused").failure();
            assert_eq!((failure.status.as_u16(), failure.code), (400, "INVALID_INPUT"));
            assert_eq!(failure.reason.as_deref(), Some("session.agent_unknown"));
            assert!(
                failure.message.ends_with(": choose one of `build`, `explore`, `general`, `plan`")
            );
            assert!(failure.message.len() < 200, "{}", failure.message);
        }
    }

    #[test]
    fn a_model_by_its_name_alone_is_the_default_providers() {
        let prompt = prompt(r#"{"text":"x","model":"gpt"}"#, NOW);
        let own = ModelRef::new("own", "gpt");
        assert_eq!(prompt.expect("a prompt").model, Some(own));
    }

    #[test]
    fn a_variant_is_of_the_model_beside_it_or_of_the_sessions() {
        let chosen = |json: &str| prompt(json, NOW).expect("a prompt").model.expect("a model");
        let named = |provider: &str, model: &str, variant: &str| ModelRef {
            variant: Some(variant.into()),
            ..ModelRef::new(provider, model)
        };
        for json in [
            r#"{"text":"x","model":{"providerID":"p","modelID":"m"},"variant":"high"}"#,
            r#"{"text":"x","model":{"providerID":"p","id":"m","variant":"high"}}"#,
            r#"{"text":"x","model":{"provider":"p","model":"m","variant":"high"},"variant":"low"}"#,
            r#"{"text":"x","model":"p/m","variant":"high"}"#,
        ] {
            assert_eq!(chosen(json), named("p", "m", "high"), "{json}");
        }
        assert_eq!(chosen(r#"{"text":"x","variant":"high"}"#), named("own", "current", "high"));
        assert_eq!(chosen(r#"{"text":"x","model":"p/m","variant":""}"#), ModelRef::new("p", "m"));
        assert!(refusal(r#"{"text":"x","variant":"a\u0001b"}"#).contains("variant"));
    }

    #[test]
    fn a_retry_with_another_variant_is_another_prompt_and_one_without_is_what_it_was() {
        let digest = |json: &str| prompt(json, NOW).expect("a prompt").digest;
        let plain = digest(r#"{"text":"x","model":"p/m"}"#);
        let canonical = br#"{"texts":["x"],"agent":null,"model":["p","m"]}"#;
        assert_eq!(plain, hex::encode(Sha256::digest(canonical)));
        let high = digest(r#"{"text":"x","model":"p/m","variant":"high"}"#);
        assert_ne!(plain, high);
        let fields = r#"{"text":"x","model":{"provider":"p","model":"m","variant":"high"}}"#;
        assert_eq!(digest(fields), high);
        // The digest does not depend on the session's model.
        let alone = r#"{"text":"x","variant":"high"}"#;
        let later = request(alone).into_prompt(NOW, "own", None, Effective::built_in());
        assert_eq!(digest(alone), later.expect("a prompt").digest);
    }

    #[test]
    fn a_part_keeps_the_id_that_its_client_gave_it() {
        let body = r#"{"parts":[{"type":"text","text":"a","id":"prt_mine"},{"type":"text","text":"b"}],"text":"c"}"#;
        let parts = prompt(body, NOW).expect("a prompt").parts;
        let ids: Vec<&str> = parts.iter().map(|PromptPart::Text { id, .. }| id.as_str()).collect();
        assert_eq!((ids.len(), ids[0]), (3, "prt_mine"));
        assert!(ids[1] != ids[2] && ids[1] != "prt_mine", "{ids:?}");
        let twice = r#"{"parts":[{"type":"text","text":"a","id":"prt_a"},{"type":"text","text":"b","id":"prt_a"}]}"#;
        assert!(refusal(twice).contains("`prt_a`"));
        for bad in ["msg_a", "", "1"] {
            let body = format!(r#"{{"parts":[{{"type":"text","text":"a","id":"{bad}"}}]}}"#);
            assert!(refusal(&body).contains("prt_"), "{bad}");
        }
        let hidden = r#"{"parts":[{"type":"text","text":"a","synthetic":true}]}"#;
        assert!(refusal(hidden).contains("`synthetic`"));
        let shown = r#"{"parts":[{"type":"text","text":"a","synthetic":false}]}"#;
        assert!(prompt(shown, NOW).is_ok());
    }

    #[test]
    fn parts_are_minted_above_the_message() {
        let mut late = IdMint::after(Stamp::default(), NOW + 30_000);
        let late = MessageId::mint(&mut late);
        let body = format!(r#"{{"id":"{late}","text":"x"}}"#);
        let prompt = prompt(&body, NOW).expect("a prompt");
        let [PromptPart::Text { id, .. }] = prompt.parts.as_slice() else { panic!("one part") };
        assert!(id.stamp(NOW) > late.stamp(NOW));
    }
}
