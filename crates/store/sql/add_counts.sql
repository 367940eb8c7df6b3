-- The sum of two counts; the largest bigint where it would be more. A count comes from outside: a log may hold one that no
-- later one can be added to. A write adds eighteen: without a setting of its own the function becomes part of its caller's
-- expression, and its names are bound when it is made.
CREATE OR REPLACE FUNCTION add_counts(p_a bigint, p_b bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN least(p_a::numeric + p_b, 9223372036854775807)::bigint;
