//! Snapshots of real directories.

mod capture;
mod crash;
mod property;
mod restoring;
mod travel;
mod world;
