-- Whether an inbox takes one more input of `p_bytes`: it has at most 1,000 inputs and 16 MiB, and an empty one takes any.
-- `p_pending` is what the head counts. The caller has locked the head.
CREATE OR REPLACE FUNCTION inbox_has_room(p_org uuid, p_number bigint, p_pending integer, p_bytes bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT p_pending = 0 OR p_pending < 1000 AND p_bytes + (inbox_size(p_org, p_number)).bytes <= 16777216
$$;
