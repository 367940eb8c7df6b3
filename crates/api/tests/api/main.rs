//! The HTTP surface through its router, on a real Postgres, with a drain that writes what a worker would.

mod drain;
mod follow;
mod native;
mod routes;
mod stock;
mod world;
