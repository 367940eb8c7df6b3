//! Folds a session's events into the history that a model sees, and into the bytes of a request.
