-- no-transaction
CREATE INDEX CONCURRENTLY ask_pending ON ask (org_id, expires_ms) WHERE status = 'pending';
