//! Scripts that wait for requests, and gates that hold requests back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::watch;

use crate::conversation::Conversation;
use crate::script::{self, Script, ScriptError};

/// The most waiting scripts.
pub const MAX_SCRIPTS: usize = 10_000;
/// The most gates.
pub const MAX_GATES: usize = 10_000;

/// A script that waits for requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitingScript {
    /// The script.
    #[serde(flatten)]
    pub script: Script,
    /// The number of requests that may still use it; `None` is no limit.
    pub left: Option<u32>,
}

struct Slot {
    script: Arc<Script>,
    left: Option<u32>,
}

#[derive(Default)]
pub(crate) struct Desk {
    scripts: Mutex<Vec<Slot>>,
    gates: Mutex<HashMap<String, watch::Sender<bool>>>,
}

impl Desk {
    /// Adds `scripts` after the waiting ones, or replaces those if `replace` is set. Adds all or none.
    pub(crate) fn add(&self, scripts: Vec<Script>, replace: bool) -> Result<usize, ScriptError> {
        for (index, script) in scripts.iter().enumerate() {
            script.check().map_err(|problem| ScriptError::Invalid { index, problem })?;
        }
        let mut waiting = lock(&self.scripts);
        let kept = if replace { 0 } else { waiting.len() };
        if kept + scripts.len() > MAX_SCRIPTS {
            return Err(ScriptError::TooMany { what: "scripts", limit: MAX_SCRIPTS });
        }
        for gate in scripts.iter().filter_map(|script| script.gate.as_deref()) {
            self.with_gate(gate, |_| ())?;
        }
        waiting.truncate(kept);
        waiting.extend(
            scripts.into_iter().map(|script| Slot { left: script.times, script: Arc::new(script) }),
        );
        Ok(waiting.len())
    }

    pub(crate) fn clear(&self) {
        lock(&self.scripts).clear();
    }

    pub(crate) fn waiting(&self) -> Vec<WaitingScript> {
        let public =
            |slot: &Slot| WaitingScript { script: (*slot.script).clone(), left: slot.left };
        lock(&self.scripts).iter().map(public).collect()
    }

    /// Returns the first script that matches the request, and spends one use of it.
    pub(crate) fn take(&self, conversation: &Conversation<'_>) -> Option<Arc<Script>> {
        let mut waiting = lock(&self.scripts);
        let at = waiting.iter().position(|waiting| {
            conversation.matches(&waiting.script.matches, waiting.script.round)
        })?;
        let taken = waiting.get_mut(at)?;
        let script = Arc::clone(&taken.script);
        taken.left = taken.left.map(|left| left - 1);
        if taken.left == Some(0) {
            waiting.remove(at);
        }
        Some(script)
    }

    /// Opens or closes a gate, for good. No script needs to have named it yet.
    pub(crate) fn set_gate(&self, name: &str, open: bool) -> Result<(), ScriptError> {
        if !script::is_gate_name(name) {
            let problem = "a gate's name is 1 to 200 letters, digits, `-`, `_` or `.`".to_owned();
            return Err(ScriptError::Invalid { index: 0, problem });
        }
        self.with_gate(name, |gate| {
            gate.send_replace(open);
        })
    }

    /// Opens all gates for waiting requests, and forgets them.
    pub(crate) fn clear_gates(&self) {
        for (_, gate) in lock(&self.gates).drain() {
            gate.send_replace(true);
        }
    }

    /// Waits until the gate is open or forgotten. Cancel safe.
    pub(crate) async fn pass(&self, name: &str) {
        let gate = lock(&self.gates).get(name).map(watch::Sender::subscribe);
        if let Some(mut gate) = gate {
            // An error means that the sender is gone, which opens the gate first.
            gate.wait_for(|open| *open).await.ok();
        }
    }

    fn with_gate(
        &self,
        name: &str,
        act: impl FnOnce(&watch::Sender<bool>),
    ) -> Result<(), ScriptError> {
        let mut gates = lock(&self.gates);
        if gates.len() >= MAX_GATES && !gates.contains_key(name) {
            return Err(ScriptError::TooMany { what: "gates", limit: MAX_GATES });
        }
        act(gates.entry(name.to_owned()).or_insert_with(|| watch::Sender::new(false)));
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics between two changes that belong together.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
