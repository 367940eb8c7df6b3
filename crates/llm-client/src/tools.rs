//! Tools for stand-alone callers: functions that a model may call by name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use llm_protocol::{ToolCall, ToolDefinition, ToolResult, truncate};
use serde_json::Value;

type Run = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// Tools and the functions that run them, in the order in which the model sees them. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tools {
    tools: Vec<(ToolDefinition, Run)>,
}

/// The bounds of [`crate::Llm::run`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most provider calls. Tools that the last one calls do not run.
    pub rounds: u32,
    /// The most bytes of one result. A longer one is cut at a character and says so.
    pub result_bytes: usize,
    /// The most tools that run at the same time; 0 means 1.
    pub parallel: usize,
    /// The timeout of one call. The call is dropped then, and its result says so.
    pub call_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            rounds: 16,
            result_bytes: 64 * 1024,
            parallel: 8,
            call_timeout: Duration::from_mins(2),
        }
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl Tools {
    /// Makes an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool. The function gets the arguments as JSON, in any form that the model wrote, and returns
    /// the text for the model, of a success or a failure. It is dropped on timeout, or when the caller drops
    /// the stream.
    #[must_use]
    pub fn with<F, Answer>(mut self, definition: ToolDefinition, run: F) -> Self
    where
        F: Fn(Value) -> Answer + Send + Sync + 'static,
        Answer: Future<Output = Result<String, String>> + Send + 'static,
    {
        let run: Run = Arc::new(move |arguments| run(arguments).boxed());
        self.tools.push((definition, run));
        self
    }

    /// Returns the tools' definitions, which the model sees.
    pub fn definitions(&self) -> impl Iterator<Item = &ToolDefinition> {
        self.tools.iter().map(|(definition, _)| definition)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.definitions().map(|definition| definition.name.as_str())
    }

    /// Runs one call. Every failure becomes a result that the model sees.
    pub(crate) async fn answer(&self, call: ToolCall, bounds: &Bounds) -> ToolResult {
        let ToolCall { id, name, arguments, .. } = call;
        let (text, is_error) = match self.run(&name, &arguments, bounds.call_timeout).await {
            Ok(text) => (text, false),
            Err(text) => (text, true),
        };
        let text = bounded(text, bounds.result_bytes);
        ToolResult { is_error, ..ToolResult::text(id, name, text) }
    }

    async fn run(&self, name: &str, arguments: &str, timeout: Duration) -> Result<String, String> {
        let tool = self.tools.iter().find(|(definition, _)| definition.name == name);
        let Some((_, run)) = tool else {
            let names: Vec<_> = self.names().collect();
            return Err(format!("there is no tool `{name}`; there are: {}", names.join(", ")));
        };
        let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
        let arguments = serde_json::from_str(arguments)
            .map_err(|error| format!("the arguments are no valid JSON: {error}"))?;
        let late = |_| format!("the tool did not answer within {timeout:?}");
        tokio::time::timeout(timeout, run(arguments)).await.map_err(late)?
    }
}

fn bounded(text: String, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text;
    }
    let kept = truncate(&text, max_bytes);
    format!("{kept}\n[cut: these are the first {} of {} bytes]", kept.len(), text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_result_is_cut_at_a_character_and_says_so() {
        assert_eq!(bounded("aé".to_owned(), 3), "aé");
        assert_eq!(bounded("aé".to_owned(), 2), "a\n[cut: these are the first 1 of 3 bytes]");
    }
}
