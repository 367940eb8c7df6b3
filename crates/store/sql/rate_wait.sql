-- How many milliseconds after p_now_ms slots whose first is the second p_at have room for p_want more; 0: they have.
-- A request above the whole limit goes alone.
CREATE OR REPLACE FUNCTION rate_wait(p_slots bigint[], p_limit bigint, p_want bigint, p_at bigint, p_now_ms bigint)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE SET search_path = public, pg_temp AS $$
DECLARE
    v_over bigint;
BEGIN
    IF p_limit IS NULL THEN
        RETURN 0;
    END IF;
    SELECT sum(n) + least(p_want, p_limit) - p_limit INTO v_over FROM unnest(p_slots) n;
    FOR i IN REVERSE 66 .. 1 LOOP
        EXIT WHEN v_over <= 0;
        v_over := v_over - p_slots[i];
        IF v_over <= 0 THEN
            RETURN greatest((p_at + 67 - i) * 1000 - p_now_ms, 1);
        END IF;
    END LOOP;
    RETURN 0;
END $$;
