//! Probes, and what an operator looks into: checks, rebuilds, explanations of requests.

use access::Need::SessionInspect;

use super::{get, post};
use crate::surface::native::{explain, health, platform};
use crate::table::policy::Policy::{self, Needs, Open};
use crate::table::route::Route;

/// Why probes prove nothing.
const PROBE: Policy = Open("a probe has no key, and learns nothing of anybody");

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/healthz", PROBE, "health.live", "Say that the process runs", health::healthz),
        get("/readyz", PROBE, "health.ready", "Say whether requests may come", health::readyz),
        post(
            "/platform/session/{session}/rebuild",
            Needs(SessionInspect),
            "session.rebuild",
            "Fold a session's rows anew from its log, or only compare",
            platform::rebuild,
        ),
        get(
            "/platform/explain/{id}",
            Needs(SessionInspect),
            "explain.get",
            "Rebuild the request of an attempt or turn, and prove it by its hash",
            explain::show,
        ),
        get(
            "/platform/check",
            Needs(SessionInspect),
            "check.run",
            "List broken invariants of the stored rows",
            platform::check,
        ),
    ]
}
