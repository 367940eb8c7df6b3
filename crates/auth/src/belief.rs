use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use domain::{Clock, TimestampMs};
use store::{Principal, Proof};
use tasks::CancellationToken;

/// How long a proof is believed, from before the query that brought it.
pub const BELIEVED_FOR: Duration = Duration::from_secs(5);

/// How long after its person proved who they are a login may do what a stolen cookie must not.
pub const RECENT: TimestampMs = 15 * 60 * 1000;

/// How a belief stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeliefState {
    /// The credential is good.
    Good,
    /// Nobody knows: the database has not answered for too long.
    Lapsed,
    /// The credential is not good any more, or its owner may do something else now.
    Ended,
}

/// That a key or login is good: a lease, which each answer of the database renews. Past it nothing is served.
pub struct Belief {
    clock: Arc<dyn Clock>,
    principal: Arc<Principal>,
    /// Monotonic milliseconds.
    good_until: AtomicU64,
    /// Monotonic milliseconds of the last request.
    used: AtomicU64,
    /// Whether it was used since that was noted.
    is_unnoted: AtomicBool,
    expires_ms: AtomicI64,
    /// When the person proved who they are; none for a key, which is the proof itself.
    auth_ms: Option<TimestampMs>,
    /// When the cookie was made that is the newest one; 0 for a key.
    rotated_ms: AtomicI64,
    held: AtomicUsize,
    ended: CancellationToken,
}

impl Belief {
    /// `asked` is the time before the query.
    pub(crate) fn new(clock: Arc<dyn Clock>, proof: &Proof, asked: Duration) -> Arc<Self> {
        let belief = Self {
            principal: proof.principal.clone(),
            good_until: AtomicU64::default(),
            used: AtomicU64::new(millis(clock.monotonic())),
            is_unnoted: AtomicBool::new(true),
            expires_ms: AtomicI64::default(),
            auth_ms: proof.auth_ms,
            rotated_ms: AtomicI64::new(proof.rotated_ms.unwrap_or_default()),
            held: AtomicUsize::default(),
            ended: CancellationToken::new(),
            clock,
        };
        belief.renew(proof, asked);
        Arc::new(belief)
    }

    /// Returns whom it believes in.
    #[must_use]
    pub fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// Returns when the credential stops working; `None` for a key that never does.
    #[must_use]
    pub fn expires_ms(&self) -> Option<TimestampMs> {
        Some(self.expires_ms.load(Ordering::Acquire)).filter(|at| *at != TimestampMs::MAX)
    }

    /// Returns whether its person has proved who they are within [`RECENT`]. Whoever has a key does so each time.
    #[must_use]
    pub fn is_recent(&self) -> bool {
        self.auth_ms.is_none_or(|at| self.clock.now_ms() - at < RECENT)
    }

    /// Returns how it stands now.
    #[must_use]
    pub fn state(&self) -> BeliefState {
        if self.ended.is_cancelled()
            || self.expires_ms.load(Ordering::Acquire) <= self.clock.now_ms()
        {
            BeliefState::Ended
        } else if self.left().is_zero() {
            BeliefState::Lapsed
        } else {
            BeliefState::Good
        }
    }

    /// Returns for how long it is good still.
    fn left(&self) -> Duration {
        let now = millis(self.clock.monotonic());
        Duration::from_millis(self.good_until.load(Ordering::Acquire).saturating_sub(now))
    }

    /// Waits until it is not good: for as long as it is renewed, for ever.
    pub async fn not_good(&self) {
        while self.state() == BeliefState::Good {
            tokio::select! {
                () = self.ended.cancelled() => {}
                () = tokio::time::sleep(self.left()) => {}
            }
        }
    }

    pub(crate) fn renew(&self, proof: &Proof, asked: Duration) {
        self.good_until.fetch_max(millis(asked + BELIEVED_FOR), Ordering::AcqRel);
        self.expires_ms.store(proof.expires_ms.unwrap_or(TimestampMs::MAX), Ordering::Release);
        self.rotated_ms.fetch_max(proof.rotated_ms.unwrap_or_default(), Ordering::AcqRel);
    }

    pub(crate) fn end(&self) {
        self.ended.cancel();
    }

    pub(crate) fn touch(&self) {
        self.used.store(millis(self.clock.monotonic()), Ordering::Release);
        self.is_unnoted.store(true, Ordering::Release);
    }

    /// Returns whether it was used since it was last asked.
    pub(crate) fn take_use(&self) -> bool {
        self.is_unnoted.swap(false, Ordering::AcqRel)
    }

    /// Returns whether a request or stream holds it, or has within `span`.
    pub(crate) fn is_in_use(&self, span: Duration) -> bool {
        let idle = millis(self.clock.monotonic()).saturating_sub(self.used.load(Ordering::Acquire));
        self.held.load(Ordering::Acquire) > 0 || u128::from(idle) < span.as_millis()
    }

    /// Returns whether its cookie is older than `age`, once: the caller replaces it, or calls [`Belief::not_rotated`].
    pub(crate) fn begins_rotation(&self, age: TimestampMs) -> Option<TimestampMs> {
        let (now, made) = (self.clock.now_ms(), self.rotated_ms.load(Ordering::Acquire));
        if made == 0 || now - made < age {
            return None;
        }
        let swapped =
            self.rotated_ms.compare_exchange(made, now, Ordering::AcqRel, Ordering::Acquire);
        swapped.ok()
    }

    pub(crate) fn not_rotated(&self, made: TimestampMs) {
        self.rotated_ms.store(made, Ordering::Release);
    }
}

impl std::fmt::Debug for Belief {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Belief").field("principal", &self.principal).finish_non_exhaustive()
    }
}

/// A belief in use: while there is one, the belief is asked for again.
#[derive(Debug)]
pub struct Believed(Arc<Belief>);

impl Believed {
    pub(crate) fn hold(belief: Arc<Belief>) -> Self {
        belief.held.fetch_add(1, Ordering::AcqRel);
        Self(belief)
    }
}

impl Clone for Believed {
    fn clone(&self) -> Self {
        Self::hold(self.0.clone())
    }
}

impl Drop for Believed {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::AcqRel);
    }
}

impl std::ops::Deref for Believed {
    type Target = Belief;

    fn deref(&self) -> &Belief {
        &self.0
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
