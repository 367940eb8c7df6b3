//! Members of placement on real disks and real loopback HTTP, with workers that only send heartbeats.

mod faults;
mod group;
mod harness;
mod single;
