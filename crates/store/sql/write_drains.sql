-- write_drain() for several: the places of those that were written. It waits for nobody: what is locked is left out,
-- and finds out why alone. Events name their write by its place (`p_owners`), those of one write after those of the
-- other, and have the numbers that their writes are based on.
CREATE OR REPLACE FUNCTION write_drains(
    p_org uuid, p_sessions text[], p_locations text[], p_tokens bigint[], p_held bigint[], p_firsts bigint[],
    p_counts integer[], p_promoted integer[], p_stamps bigint[], p_ends text[], p_progress boolean[],
    p_nows bigint[], p_owners integer[], p_seqs bigint[], p_ids text[], p_kinds text[], p_versions integer[],
    p_payloads text[], p_hashes bytea[], p_bytes bytea[], p_afters text[] DEFAULT NULL)
RETURNS integer[] LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
    head record;
    written integer[];
    waiting integer[];
    place integer;
    -- The incarnation of each session, NULL where nothing is written.
    numbers bigint[];
    -- Of each event: its session, the session's number, its time, its claim, and the token of a start.
    e_sessions text[];
    e_numbers bigint[];
    e_times bigint[];
    e_claims bigint[];
    e_tokens bigint[];
BEGIN
    FOR i IN 1 .. cardinality(p_sessions) LOOP
        SELECT * INTO head FROM advance_head(p_org, p_sessions[i], p_locations[i], NULL, p_tokens[i], p_held[i],
            p_firsts[i], p_counts[i], p_promoted[i], p_stamps[i], p_ends[i], p_progress[i], false,
            p_afters[i]);
        numbers := numbers || head.number;
        IF head.outcome = 'written' THEN
            written := written || i;
            IF p_ends[i] = 'close' AND head.left_over > 0 THEN
                waiting := waiting || i;
            END IF;
        END IF;
    END LOOP;
    IF written IS NULL THEN
        RETURN '{}';
    END IF;
    PERFORM put_components(p_org, p_hashes, p_bytes);
    SELECT array_agg(p_sessions[e.owner] ORDER BY e.i), array_agg(numbers[e.owner] ORDER BY e.i),
        array_agg(e.seq ORDER BY e.i), array_agg(p_nows[e.owner] ORDER BY e.i),
        array_agg(p_held[e.owner] + (CASE WHEN p_tokens[e.owner] IS NULL THEN 0 ELSE 1 END) ORDER BY e.i),
        array_agg(e.id ORDER BY e.i), array_agg(e.kind ORDER BY e.i), array_agg(e.version ORDER BY e.i),
        array_agg(e.payload ORDER BY e.i),
        array_agg(CASE e.seq WHEN p_firsts[e.owner] THEN p_tokens[e.owner] END ORDER BY e.i)
    INTO e_sessions, e_numbers, p_seqs, e_times, e_claims, p_ids, p_kinds, p_versions, p_payloads,
        e_tokens
    FROM unnest(p_owners, p_seqs, p_ids, p_kinds, p_versions, p_payloads) WITH ORDINALITY
        AS e (owner, seq, id, kind, version, payload, i)
    WHERE numbers[e.owner] IS NOT NULL;
    -- A session that falls asleep, or is claimed again, may have nothing to say.
    IF e_sessions IS NOT NULL THEN
        PERFORM append_events(p_org, e_sessions, e_numbers, p_seqs, e_times, e_claims, p_ids, p_kinds, p_versions,
            p_payloads, e_tokens);
    END IF;
    IF waiting IS NOT NULL THEN
        FOREACH place IN ARRAY waiting LOOP
            PERFORM spend_wakes(p_org, p_sessions[place]);
        END LOOP;
    END IF;
    RETURN written;
END $$;
