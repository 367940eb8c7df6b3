-- no-transaction
CREATE INDEX CONCURRENTLY session_live_directory ON session (org_id, left(directory, 512), created_ms DESC, id)
WHERE archived_ms IS NULL;
