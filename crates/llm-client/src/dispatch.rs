//! The loop for stand-alone callers: send a request, run the tools that the model calls, repeat. Nothing is
//! durable.

use std::sync::Arc;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use llm_protocol::Usage;
use llm_protocol::{FinishReason, LlmEvent, LlmRequest, Message, ToolCall, ToolChoice, ToolResult};

use crate::error::LlmError;
use crate::llm::Llm;
use crate::said::Said;
use crate::stream::LlmStream;
use crate::tools::{Bounds, Tools};

impl Llm {
    /// Sends the request and repeats until the model calls no more tools. The function with a call's name
    /// runs it, and the results go into the next request. Yields the events of all answers, a `ToolResult`
    /// for each call after the `StepFinish` of its answer, and one `Finish` with the sum of all usage.
    ///
    /// Unknown tools, arguments that are not JSON, failures and timeouts become results that the model sees.
    /// `tools` are added to those of the request; a forced tool choice holds for the first answer only. After
    /// `bounds.rounds` answers the loop ends with the last one's reason. Nothing is retried; the stream ends
    /// after an error. Dropping it aborts everything.
    pub fn run(
        &self,
        mut request: LlmRequest,
        tools: Tools,
        bounds: Bounds,
    ) -> impl Stream<Item = Result<LlmEvent, LlmError>> + Send + use<> {
        request.tools.extend(tools.definitions().cloned());
        let running = Running {
            llm: self.clone(),
            request,
            tools: Arc::new(tools),
            bounds: Arc::new(bounds),
            round: 0,
            usage: None,
            phase: Phase::Ask,
        };
        stream::unfold(running, |mut running| async {
            let event = running.next().await?;
            Some((event, running))
        })
        .fuse()
    }
}

struct Running {
    llm: Llm,
    request: LlmRequest,
    tools: Arc<Tools>,
    bounds: Arc<Bounds>,
    round: u32,
    /// The sum over all answers so far.
    usage: Option<Usage>,
    phase: Phase,
}

enum Phase {
    Ask,
    /// An answer is arriving.
    Reading(LlmStream, Said),
    /// The tools are running; their results so far.
    Working(BoxStream<'static, ToolResult>, Vec<ToolResult>),
    Over,
}

impl Running {
    async fn next(&mut self) -> Option<Result<LlmEvent, LlmError>> {
        loop {
            match std::mem::replace(&mut self.phase, Phase::Over) {
                Phase::Ask => match Box::pin(self.llm.stream(&self.request)).await {
                    Ok(stream) => self.phase = Phase::Reading(stream, Said::default()),
                    Err(error) => return Some(Err(error)),
                },
                Phase::Reading(mut stream, mut said) => match stream.next().await? {
                    Ok(LlmEvent::Finish { reason, usage }) => {
                        self.usage = sum(self.usage, usage);
                        if let Some(finish) = self.answered(said, reason) {
                            return Some(Ok(finish));
                        }
                    }
                    Ok(event) => {
                        said.take(&event);
                        self.phase = Phase::Reading(stream, said);
                        return Some(Ok(event));
                    }
                    Err(error) => return Some(Err(error)),
                },
                Phase::Working(mut running, mut results) => match running.next().await {
                    Some(result) => {
                        results.push(result.clone());
                        self.phase = Phase::Working(running, results);
                        return Some(Ok(LlmEvent::ToolResult(result)));
                    }
                    None => {
                        self.request.messages.push(Message::tool(results));
                        self.request.tool_choice = ToolChoice::Auto;
                        self.phase = Phase::Ask;
                    }
                },
                Phase::Over => return None,
            }
        }
    }

    /// Continues with the tools that the answer calls, or ends the loop.
    fn answered(&mut self, said: Said, reason: FinishReason) -> Option<LlmEvent> {
        self.round += 1;
        let (parts, calls) = said.into_parts();
        if calls.is_empty() || self.round >= self.bounds.rounds {
            return Some(LlmEvent::Finish { reason, usage: self.usage });
        }
        self.request.messages.push(Message::assistant(parts));
        let (tools, bounds) = (Arc::clone(&self.tools), Arc::clone(&self.bounds));
        let running = stream::iter(calls).map(move |call: ToolCall| {
            let (tools, bounds) = (Arc::clone(&tools), Arc::clone(&bounds));
            async move { tools.answer(call, &bounds).await }
        });
        let running = running.buffered(self.bounds.parallel.max(1)).boxed();
        self.phase = Phase::Working(running, Vec::new());
        None
    }
}

fn sum(before: Option<Usage>, usage: Option<Usage>) -> Option<Usage> {
    let (Some(a), Some(b)) = (before, usage) else { return before.or(usage) };
    Some(Usage {
        input_tokens: a.input_tokens.saturating_add(b.input_tokens),
        output_tokens: a.output_tokens.saturating_add(b.output_tokens),
        cache_read_tokens: a.cache_read_tokens.saturating_add(b.cache_read_tokens),
        cache_write_tokens: a.cache_write_tokens.saturating_add(b.cache_write_tokens),
        reasoning_tokens: a.reasoning_tokens.saturating_add(b.reasoning_tokens),
        total_tokens: a.total_tokens.saturating_add(b.total_tokens),
        estimated: a.estimated || b.estimated,
    })
}
