-- no-transaction
CREATE INDEX CONCURRENTLY ask_expiring ON ask (expires_ms) WHERE status = 'pending';
