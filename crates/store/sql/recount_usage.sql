-- Counts `p_limit` sessions after `p_after` anew from their logs, as far as they were counted: as usage_sums() shows the days
-- of usage_daily. `upto`: the last session. One of which nothing is counted has an empty key, and no sums.
CREATE OR REPLACE FUNCTION recount_usage(p_org uuid, p_after bigint, p_limit bigint)
RETURNS TABLE (upto bigint, key text, sums bigint[]) LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT t.incarnation, concat_ws(' ', f.starts_ms / 86400000, quote_literal(f.person), quote_literal(f.project),
            quote_literal(f.agent), quote_literal(f.provider), quote_literal(f.model)),
        CASE WHEN f.starts_ms IS NULL THEN '{}'::bigint[] ELSE ARRAY[f.sessions, f.prompts, f.turns, f.failed,
            f.interrupted, f.turn_ms, f.requests, f.retries, f.unpriced, f.compactions, f.input_tokens, f.output_tokens,
            f.reasoning_tokens, f.cache_read_tokens, f.cache_write_tokens, f.cost_nanos, f.tool_calls, f.tool_failures,
            f.lines_added, f.lines_removed] END
    FROM (SELECT u.* FROM usage_through u WHERE u.org_id = p_org AND u.incarnation > p_after
        ORDER BY u.incarnation LIMIT p_limit) AS t
    LEFT JOIN LATERAL usage_facts(p_org, t.incarnation, t.first, t.last) AS f ON true;
END $$;
