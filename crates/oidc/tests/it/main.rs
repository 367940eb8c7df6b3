//! Sign-ins against npm's `oidc-provider`, which nobody here wrote, and which also misbehaves on request.

#[path = "../../../../tests/third-party/idp.rs"]
mod idp;
#[path = "../../../../tests/third-party/npm.rs"]
mod npm;
mod sign_in;
#[path = "../../../../tests/third-party/visit.rs"]
mod visit;
mod world;
