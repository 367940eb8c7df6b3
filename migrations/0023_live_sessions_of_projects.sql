-- no-transaction
CREATE INDEX CONCURRENTLY session_live_project ON session (org_id, project_id, created_ms DESC, id)
WHERE archived_ms IS NULL;
