//! The memory of earlier requests, as providers have it: prompts in their caches, and calls made after signed
//! reasoning. Bounded; the oldest is forgotten first.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use crate::protocol::Protocol;
use crate::request::{Request, Role};

/// The most beginnings of prompts in the cache.
const MAX_CACHED_PREFIXES: usize = 1_000;
/// The most calls that are known to have followed reasoning.
const MAX_SIGNED_CALLS: usize = 10_000;

/// The hash of a prompt's beginning.
pub(crate) type Prefix = [u8; 32];

/// The memory that all requests share.
#[derive(Default)]
pub(crate) struct Memory {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    prefixes: HashSet<Prefix>,
    prefix_order: VecDeque<Prefix>,
    /// For each call the signature of the reasoning before it.
    signed: HashMap<SignedCall, String>,
    signed_order: VecDeque<SignedCall>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct SignedCall {
    protocol: Protocol,
    model: String,
    id: String,
}

impl Memory {
    /// Returns an error if calls come back without the reasoning that preceded them.
    pub(crate) fn check(&self, protocol: Protocol, request: &Request<'_>) -> Result<(), String> {
        let state = self.lock();
        let assistant = request.messages.iter().filter(|said| said.role == Role::Assistant);
        for message in assistant {
            for call in &message.calls {
                let (model, id) = (request.model.clone(), call.id.to_string());
                let wanted = state.signed.get(&SignedCall { protocol, model, id });
                if wanted.is_some_and(|wanted| !message.signatures.contains(wanted)) {
                    return Err(format!(
                        "the call `{}` was made after signed reasoning, which is missing: send it back before the call",
                        call.id
                    ));
                }
            }
        }
        Ok(())
    }

    /// Remembers that these calls followed reasoning with this signature.
    pub(crate) fn signed(
        &self,
        protocol: Protocol,
        model: &str,
        ids: impl Iterator<Item = String>,
        signature: &str,
    ) {
        let mut guard = self.lock();
        let state = &mut *guard;
        for id in ids {
            let call = SignedCall { protocol, model: model.to_owned(), id };
            if state.signed.insert(call.clone(), signature.to_owned()).is_none() {
                state.signed_order.push_back(call);
            }
            if state.signed_order.len() > MAX_SIGNED_CALLS
                && let Some(oldest) = state.signed_order.pop_front()
            {
                state.signed.remove(&oldest);
            }
        }
    }

    /// Returns whether the cache holds this beginning.
    pub(crate) fn is_cached(&self, prefix: &Prefix) -> bool {
        self.lock().prefixes.contains(prefix)
    }

    /// Puts these beginnings into the cache.
    pub(crate) fn cache(&self, prefixes: impl Iterator<Item = Prefix>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        for prefix in prefixes {
            if state.prefixes.insert(prefix) {
                state.prefix_order.push_back(prefix);
            }
            if state.prefix_order.len() > MAX_CACHED_PREFIXES
                && let Some(oldest) = state.prefix_order.pop_front()
            {
                state.prefixes.remove(&oldest);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
