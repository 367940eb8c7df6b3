-- Slots, p_by seconds later.
CREATE OR REPLACE FUNCTION rate_shift(p_slots bigint[], p_by bigint) RETURNS bigint[]
LANGUAGE sql IMMUTABLE SET search_path = public, pg_temp AS $$
    SELECT CASE WHEN p_by <= 0 THEN p_slots
        WHEN p_by >= 66 THEN array_fill(0::bigint, ARRAY[66])
        ELSE array_fill(0::bigint, ARRAY[p_by::integer]) || p_slots[1:66 - p_by::integer] END
$$;
