-- Adds facts to all sums of usage but those of sessions that are gone. The caller holds the organisation's lock of sums.
CREATE OR REPLACE FUNCTION add_usage_facts(p_org uuid, p_facts usage_fact[])
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    hour CONSTANT bigint := 3600000;
    day CONSTANT bigint := 24 * hour;
BEGIN
    PERFORM add_usage(p_org, 'usage_hourly', hour, ARRAY['person', 'project', 'agent', 'provider', 'model'], p_facts);
    PERFORM add_usage(p_org, 'usage_daily', day, ARRAY['person', 'project', 'agent', 'provider', 'model'], p_facts);
    PERFORM add_usage(p_org, 'usage_model', day, ARRAY['provider', 'model', 'agent'], p_facts);
    PERFORM add_usage(p_org, 'usage_person', day, ARRAY['person'], p_facts);
    PERFORM add_usage(p_org, 'usage_project', day, ARRAY['project'], p_facts);
    INSERT INTO usage_tool AS u (org_id, starts_ms, tool, outcome, calls, run_ms)
    SELECT p_org, f.starts_ms - f.starts_ms % day AS span, f.tool, f.outcome, sum(f.tool_calls), sum(f.run_ms)
    FROM unnest(p_facts) AS f WHERE f.tool IS NOT NULL GROUP BY span, f.tool, f.outcome
    ON CONFLICT (org_id, starts_ms, tool, outcome) DO UPDATE
    SET calls = u.calls + excluded.calls, run_ms = u.run_ms + excluded.run_ms;
    INSERT INTO usage_outcome AS u (org_id, starts_ms, provider, model, outcome, code, turns, turn_ms)
    SELECT p_org, f.starts_ms - f.starts_ms % day AS span, f.provider, f.model, f.outcome, f.code,
        sum(f.turns + f.retries), sum(f.turn_ms)
    FROM unnest(p_facts) AS f WHERE f.code IS NOT NULL GROUP BY span, f.provider, f.model, f.outcome, f.code
    ON CONFLICT (org_id, starts_ms, provider, model, outcome, code) DO UPDATE
    SET turns = u.turns + excluded.turns, turn_ms = u.turn_ms + excluded.turn_ms;
END $$;
