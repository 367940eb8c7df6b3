-- no-transaction
-- Lists leave out what is archived, however many sessions are.
CREATE INDEX CONCURRENTLY session_live ON session (org_id, created_ms DESC, id) WHERE archived_ms IS NULL;
