//! Answers that are large, take long to make and are the same for many: kept as bytes.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::Mutex;

/// The most answers that are kept, each of a few MiB.
const MOST: usize = 4;

/// The answers by their keys, newest last.
#[derive(Default)]
pub(crate) struct Kept(Mutex<VecDeque<(String, Bytes)>>);

impl Kept {
    /// Returns the answer with this key, which says all that it follows from. If it is not kept, `make` makes it, on a thread of
    /// its own. Others wait meanwhile, since most of them want the same.
    pub(crate) async fn get(
        &self,
        key: String,
        make: impl FnOnce() -> Bytes + Send + 'static,
    ) -> Bytes {
        let mut kept = self.0.lock().await;
        if let Some((_, answer)) = kept.iter().find(|(known, _)| *known == key) {
            return answer.clone();
        }
        let answer = match tokio::task::spawn_blocking(make).await {
            Ok(answer) => answer,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down, and this request with it.
                Err(_) => std::future::pending().await,
            },
        };
        if kept.len() == MOST {
            kept.pop_front();
        }
        kept.push_back((key, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn an_answer_is_made_once_for_each_of_the_newest_keys() {
        let (kept, made) = (Kept::default(), Arc::new(AtomicUsize::new(0)));
        let get = async |number: usize| {
            let made = made.clone();
            let make = move || {
                made.fetch_add(1, Ordering::SeqCst);
                Bytes::from(format!("answer {number}"))
            };
            assert_eq!(kept.get(number.to_string(), make).await, format!("answer {number}"));
        };
        for _ in 0..3 {
            futures::future::join_all([get(1), get(2), get(1)]).await;
        }
        assert_eq!(made.load(Ordering::SeqCst), 2);
        for number in 3..=MOST + 1 {
            get(number).await;
        }
        assert_eq!(made.load(Ordering::SeqCst), MOST + 1);
        get(MOST + 1).await;
        get(1).await;
        assert_eq!(made.load(Ordering::SeqCst), MOST + 2, "the oldest was given up");
    }
}
