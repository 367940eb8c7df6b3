-- Whether it is the caller who does `p_name` now: true for one, and then for none until `p_every` has passed.
CREATE OR REPLACE FUNCTION claim_chore(p_name text, p_every bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO chore AS c (name, begun_ms) VALUES (p_name, clock_ms())
    ON CONFLICT (name) DO UPDATE SET begun_ms = excluded.begun_ms
    WHERE excluded.begun_ms - c.begun_ms >= p_every OR excluded.begun_ms < c.begun_ms;
    RETURN FOUND;
END $$;
