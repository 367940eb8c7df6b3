-- Whether it is the caller who does `p_name` now: true for one, and then for none until `p_every` has passed.
CREATE OR REPLACE FUNCTION claim_chore(p_name text, p_every bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO chore AS c (name, begun_ms) VALUES (p_name, clock_ms())
    -- The time after a wait for whoever was first, not the one before it: a clock that was put back gives the chore away.
    ON CONFLICT (name) DO UPDATE SET begun_ms = clock_ms()
    WHERE clock_ms() - c.begun_ms >= p_every OR clock_ms() < c.begun_ms;
    RETURN FOUND;
END $$;
