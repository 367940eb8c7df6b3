-- Nobody of the organisation asks the provider for p_wait_ms (an hour at most): it has said "too many" to one.
CREATE OR REPLACE FUNCTION hold_provider(p_org uuid, p_provider text, p_wait_ms bigint) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    INSERT INTO provider_rate AS r (org_id, provider, held_until_ms)
    VALUES (p_org, p_provider, clock_ms() + least(p_wait_ms, 3600000))
    ON CONFLICT (org_id, provider) DO UPDATE SET held_until_ms = greatest(r.held_until_ms, excluded.held_until_ms);
END $$;
