-- no-transaction
CREATE INDEX CONCURRENTLY session_head_asleep ON session_head (org_id, id) WHERE asleep;
