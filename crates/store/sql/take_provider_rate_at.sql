-- Lets a request to a provider go, or says how many milliseconds to wait before it is asked for again. p_now_ms is
-- for tests; NULL is now.
CREATE OR REPLACE FUNCTION take_provider_rate_at(p_org uuid, p_provider text, p_requests bigint, p_tokens_limit bigint,
    p_tokens bigint, p_now_ms bigint)
RETURNS bigint
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    v_row provider_rate;
    v_now bigint;
    v_at bigint;
    v_wait bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT * INTO v_row FROM provider_rate r WHERE r.org_id = p_org AND r.provider = p_provider FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO provider_rate (org_id, provider) VALUES (p_org, p_provider) ON CONFLICT DO NOTHING;
        SELECT * INTO v_row FROM provider_rate r WHERE r.org_id = p_org AND r.provider = p_provider FOR UPDATE;
    END IF;
    -- Read under the lock, so that grants are in the order of their times.
    v_now := coalesce(p_now_ms, clock_ms());
    -- Another server's clock may have been ahead: by a little, then the last second is still open; by more than a
    -- minute, then it was wrong, and what it counted is counted as of now.
    v_at := v_now / 1000;
    IF v_row.at BETWEEN v_at AND v_at + 66 THEN
        v_at := v_row.at;
    END IF;
    v_row.slots := rate_shift(v_row.slots, v_at - v_row.at);
    v_row.tokens := rate_shift(v_row.tokens, v_at - v_row.at);
    v_wait := greatest(least(v_row.held_until_ms - v_now, 3600000),
        rate_wait(v_row.slots, p_requests, 1, v_at, v_now),
        rate_wait(v_row.tokens, p_tokens_limit, p_tokens, v_at, v_now));
    IF v_wait > 0 THEN
        RETURN v_wait;
    END IF;
    v_row.slots[1] := v_row.slots[1] + 1;
    v_row.tokens[1] := v_row.tokens[1] + p_tokens;
    UPDATE provider_rate SET slots = v_row.slots, tokens = v_row.tokens, at = v_at
    WHERE org_id = p_org AND provider = p_provider;
    RETURN 0;
END $$;
