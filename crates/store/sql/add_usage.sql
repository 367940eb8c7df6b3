-- Adds facts to a table of sums that is kept by `p_keys`, in spans of `p_span` milliseconds. Both names are ours.
-- The caller holds the organisation's lock of sums, so that no two callers wait for each other's rows.
CREATE OR REPLACE FUNCTION add_usage(p_org uuid, p_table text, p_span bigint, p_keys text[], p_facts usage_fact[])
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    -- All sums of usage, in the order of the columns.
    names CONSTANT text[] := ARRAY['sessions', 'prompts', 'turns', 'failed', 'interrupted', 'turn_ms', 'requests',
        'retries', 'unpriced', 'compactions', 'input_tokens', 'output_tokens', 'reasoning_tokens', 'cache_read_tokens',
        'cache_write_tokens', 'cost_nanos', 'tool_calls', 'tool_failures', 'lines_added', 'lines_removed'];
    keys CONSTANT text := array_to_string(p_keys, ', ');
BEGIN
    EXECUTE format('INSERT INTO %I AS u (org_id, starts_ms, %s, %s)
        SELECT $1, f.starts_ms - f.starts_ms %% $2 AS span, %s, %s FROM unnest($3) AS f GROUP BY span, %s
        ON CONFLICT (org_id, starts_ms, %s) DO UPDATE SET %s',
        p_table, keys, array_to_string(names, ', '), keys,
        (SELECT string_agg(format('sum(f.%I)', n), ', ' ORDER BY place)
            FROM unnest(names) WITH ORDINALITY AS t (n, place)),
        keys, keys,
        (SELECT string_agg(format('%1$I = u.%1$I + excluded.%1$I', n), ', ') FROM unnest(names) AS n))
    USING p_org, p_span, p_facts;
END $$;
