-- Lets a request to a provider go now, or says how many milliseconds to wait: see take_provider_rate_at.
CREATE OR REPLACE FUNCTION take_provider_rate(p_org uuid, p_provider text, p_requests bigint, p_tokens_limit bigint,
    p_tokens bigint)
RETURNS bigint
LANGUAGE sql SET search_path = public, pg_temp AS $$
    SELECT take_provider_rate_at(p_org, p_provider, p_requests, p_tokens_limit, p_tokens, NULL)
$$;
