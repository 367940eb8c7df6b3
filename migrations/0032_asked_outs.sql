-- no-transaction
CREATE INDEX CONCURRENTLY session_out_asked ON session_out (asked_ms) WHERE state = 'asked';
