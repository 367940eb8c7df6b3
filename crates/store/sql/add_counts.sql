-- The sum of two counts; the largest bigint where it would be more. A count comes from outside: a log may hold one that no
-- later one can be added to.
CREATE OR REPLACE FUNCTION add_counts(p_a bigint, p_b bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = public, pg_temp AS $$
    SELECT least(p_a::numeric + p_b, 9223372036854775807)::bigint
$$;
