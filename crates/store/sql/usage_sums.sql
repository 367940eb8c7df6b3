-- All sums of a table of usage by day and by `p_keys`, as text. Names are ours.
CREATE OR REPLACE FUNCTION usage_sums(p_org uuid, p_table text, p_keys text[], p_sums text[])
RETURNS TABLE (key text, sums bigint[]) LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY EXECUTE format(
        'SELECT concat_ws('' '', u.starts_ms / 86400000%s), ARRAY[%s]::bigint[] FROM %I u WHERE u.org_id = $1 GROUP BY 1',
        (SELECT string_agg(format(', quote_literal(u.%I)', n), '') FROM unnest(p_keys) AS n),
        (SELECT string_agg(format('sum(u.%I)', n), ', ' ORDER BY place)
            FROM unnest(p_sums) WITH ORDINALITY AS t (n, place)), p_table)
    USING p_org;
END $$;
