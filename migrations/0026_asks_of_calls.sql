-- no-transaction
CREATE INDEX CONCURRENTLY ask_call ON ask (incarnation, call_id);
