-- Sums of a table of usage, from `p_from` up to `p_to` in steps, by up to three of its keys, of rows that have one of the values
-- given for each key; and those of the time from `p_before` up to `p_from`, apart. At most `p_limit` rows. All names are ours.
-- `people`: how many wrote a prompt, where a table has persons.
CREATE OR REPLACE FUNCTION read_usage(p_org uuid, p_table text, p_sums text[], p_before bigint, p_from bigint, p_to bigint,
    p_step text, p_by text[], p_keys text[], p_values text[], p_limit bigint)
RETURNS TABLE (earlier boolean, starts_ms bigint, keys text[], sums bigint[], people bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    is_about_people CONSTANT boolean := EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = p_table::regclass
        AND a.attname = 'person' AND NOT a.attisdropped);
    step CONSTANT text := CASE p_step
        WHEN 'all' THEN 'CASE WHEN u.starts_ms < $4 THEN $3 ELSE $4 END'
        WHEN 'hour' THEN 'u.starts_ms'
        WHEN 'day' THEN 'u.starts_ms - u.starts_ms % 86400000'
        -- The first of January 1970 was a Thursday.
        WHEN 'week' THEN 'u.starts_ms - (u.starts_ms + 3 * 86400000::bigint) % (7 * 86400000::bigint)'
        WHEN 'month' THEN '(extract(epoch FROM date_trunc(''month'', to_timestamp(u.starts_ms / 1000) AT TIME ZONE ''UTC''))
            * 1000)::bigint' END;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY EXECUTE format(
        'SELECT u.starts_ms < $4, %s, ARRAY[%s]::text[], ARRAY[%s]::bigint[], %s
         FROM %I u WHERE u.org_id = $1 AND u.starts_ms >= $3 AND u.starts_ms < $5%s
         GROUP BY 1, 2%s ORDER BY 1, 2, 3 LIMIT $6',
        step,
        (SELECT coalesce(string_agg(format('u.%I', n), ', ' ORDER BY place), '') FROM unnest(p_by) WITH ORDINALITY AS t (n, place)),
        (SELECT string_agg(format('sum(u.%I)', n), ', ' ORDER BY place)
            FROM unnest(p_sums) WITH ORDINALITY AS t (n, place)),
        -- To count distinct people sorts the rows: seldom it must be done.
        CASE WHEN 'person' = ANY (p_by) THEN 'max((u.prompts > 0)::integer)::bigint'
            WHEN p_table = 'usage_person' AND p_step = 'day' THEN 'count(*) FILTER (WHERE u.prompts > 0)'
            WHEN is_about_people THEN 'count(DISTINCT u.person) FILTER (WHERE u.prompts > 0)' ELSE 'NULL::bigint' END,
        p_table,
        (SELECT string_agg(format(' AND u.%I = ANY (%L::text[])', k, v), '')
            FROM (SELECT f.k, array_agg(f.v) AS v FROM unnest(p_keys, p_values) AS f (k, v) GROUP BY f.k) AS chosen),
        (SELECT string_agg(format(', u.%I', n), '') FROM unnest(p_by) AS n))
    USING p_org, p_table, p_before, p_from, p_to, p_limit;
END $$;
