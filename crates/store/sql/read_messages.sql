-- The newest messages, or one of them.
-- For the build before: read_message_page takes its place.
CREATE OR REPLACE FUNCTION read_messages(p_org uuid, p_session text, p_message text, p_limit bigint)
RETURNS TABLE (id text, seq bigint, role text, parent_id text, turn_id text, agent text, provider text,
    model text, created_ms bigint, completed_ms bigint, finish text, error_code text, error_message text,
    input_tokens bigint, output_tokens bigint, reasoning_tokens bigint, cache_read_tokens bigint,
    cache_write_tokens bigint, part_id text, kind text, text text, call_id text, provider_call text, tool text,
    state text, arguments text, called_ms bigint, outcome text, title text, bounded_text text, structured text,
    managed_path text, truncated boolean, started_ms bigint, ended_ms bigint,
    cost_nanos bigint, synthetic text, variant text)
LANGUAGE sql SET search_path = public, pg_temp AS $$
    SELECT * FROM read_message_page(p_org, p_session, p_message, NULL, p_limit)
$$;
