//! The simulation holds its invariants, repeats itself, meets every crash point and finds known mistakes.

mod mutants;
mod seeds;
