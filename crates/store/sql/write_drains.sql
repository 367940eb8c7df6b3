-- write_drain() for several, without the head's lock before it: the places of those that were written.
-- Events name their write by its place (`p_owners`), and have the numbers that their writes are based on.
CREATE OR REPLACE FUNCTION write_drains(
    p_org uuid, p_sessions text[], p_locations text[], p_tokens bigint[], p_held bigint[], p_firsts bigint[],
    p_counts integer[], p_promoted integer[], p_stamps bigint[], p_ends text[], p_progress boolean[],
    p_nows bigint[], p_owners integer[], p_seqs bigint[], p_ids text[], p_kinds text[], p_versions integer[],
    p_payloads text[], p_hashes bytea[], p_bytes bytea[])
RETURNS integer[] LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
    written integer[];
    waiting integer[];
    slow integer[];
    place integer;
    waits boolean;
    e_owners integer[] := p_owners;
    e_seqs bigint[] := p_seqs;
    e_kinds text[] := p_kinds;
    e_payloads text[] := p_payloads;
BEGIN
    FOR i IN 1 .. cardinality(p_sessions) LOOP
        -- Before the look at the fence, in a statement of its own: it is not being raised now.
        CONTINUE WHEN p_tokens[i] IS NOT NULL
            AND NOT pg_try_advisory_xact_lock_shared(location_lock(p_org, p_locations[i]));
        UPDATE session_head h SET next_seq = h.next_seq + p_counts[i], pending = h.pending - p_promoted[i],
            last_id = greatest(h.last_id, p_stamps[i]),
            open = (p_ends[i] IN ('keep', 'hand-over')),
            handed_over = (p_ends[i] = 'hand-over'),
            claim = h.claim + (CASE WHEN p_tokens[i] IS NULL THEN 0 ELSE 1 END)
                + (CASE p_ends[i] WHEN 'keep' THEN 0 ELSE 1 END),
            parked_seq = CASE WHEN p_ends[i] = 'park' OR (p_ends[i] = 'close' AND h.pending = p_promoted[i])
                THEN greatest(h.parked_seq, h.wake_seq) ELSE h.parked_seq END,
            recoveries = CASE WHEN p_progress[i] OR p_ends[i] IN ('close', 'park') THEN 0
                WHEN p_tokens[i] IS NOT NULL AND h.open AND NOT h.handed_over THEN h.recoveries + 1
                ELSE h.recoveries END
        WHERE h.org_id = p_org AND h.id = p_sessions[i] AND h.location_id = p_locations[i]
            AND h.claim = p_held[i] AND h.next_seq = p_firsts[i]
            AND (SELECT true FROM session_head l WHERE l.org_id = p_org AND l.id = p_sessions[i]
                FOR NO KEY UPDATE SKIP LOCKED)
            AND (p_tokens[i] IS NULL OR EXISTS (SELECT FROM location l
                WHERE l.org_id = p_org AND l.id = p_locations[i] AND l.fence = p_tokens[i]))
        RETURNING h.pending > 0 AND p_ends[i] = 'close' INTO waits;
        IF FOUND THEN
            written := written || i;
            IF waits THEN
                waiting := waiting || i;
            END IF;
        END IF;
    END LOOP;
    IF written IS NULL THEN
        RETURN '{}';
    END IF;
    IF cardinality(written) < cardinality(p_sessions) THEN
        SELECT array_agg(e.owner ORDER BY e.i), array_agg(e.seq ORDER BY e.i), array_agg(e.id ORDER BY e.i),
            array_agg(e.kind ORDER BY e.i), array_agg(e.version ORDER BY e.i), array_agg(e.payload ORDER BY e.i)
        INTO e_owners, e_seqs, p_ids, e_kinds, p_versions, e_payloads
        FROM unnest(p_owners, p_seqs, p_ids, p_kinds, p_versions, p_payloads) WITH ORDINALITY
            AS e (owner, seq, id, kind, version, payload, i)
        WHERE e.owner = ANY (written);
    END IF;
    IF cardinality(p_hashes) > 0 THEN
        INSERT INTO request_component (org_id, hash, bytes)
        SELECT p_org, new.hash, new.bytes FROM unnest(p_hashes, p_bytes) AS new (hash, bytes)
        ORDER BY new.hash ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, claim, payload, token)
    SELECT p_org, p_sessions[e.owner], e.seq, e.id, e.kind, e.version, p_nows[e.owner],
        p_held[e.owner] + (CASE WHEN p_tokens[e.owner] IS NULL THEN 0 ELSE 1 END), e.payload,
        CASE e.seq WHEN p_firsts[e.owner] THEN p_tokens[e.owner] END
    FROM unnest(e_owners, e_seqs, p_ids, e_kinds, p_versions, e_payloads)
        AS e (owner, seq, id, kind, version, payload);
    SELECT array_agg(DISTINCT e.owner) INTO slow FROM unnest(e_owners, e_kinds, e_payloads)
        AS e (owner, kind, payload) WHERE NOT is_plain_event(e.kind, e.payload);
    IF slow IS NOT NULL THEN
        FOREACH place IN ARRAY slow LOOP
            PERFORM project_events(p_org, p_sessions[place], p_firsts[place],
                array_fill(p_nows[place], ARRAY[p_counts[place]]), array_agg(e.kind ORDER BY e.seq),
                array_agg(e.payload ORDER BY e.seq))
            FROM unnest(e_owners, e_seqs, e_kinds, e_payloads) AS e (owner, seq, kind, payload)
            WHERE e.owner = place;
        END LOOP;
    END IF;
    IF slow IS NULL THEN
        PERFORM project_plain_events(p_org, array_agg(p_sessions[e.owner]), e_seqs, array_agg(p_nows[e.owner]),
            e_kinds, e_payloads) FROM unnest(e_owners) AS e (owner);
    ELSIF cardinality(slow) < cardinality(written) THEN
        PERFORM project_plain_events(p_org, array_agg(p_sessions[e.owner] ORDER BY e.i),
            array_agg(e.seq ORDER BY e.i), array_agg(p_nows[e.owner] ORDER BY e.i), array_agg(e.kind ORDER BY e.i),
            array_agg(e.payload ORDER BY e.i))
        FROM unnest(e_owners, e_seqs, e_kinds, e_payloads) WITH ORDINALITY AS e (owner, seq, kind, payload, i)
        WHERE e.owner <> ALL (slow);
    END IF;
    IF waiting IS NOT NULL THEN
        FOREACH place IN ARRAY waiting LOOP
            PERFORM spend_wakes(p_org, p_sessions[place]);
        END LOOP;
    END IF;
    RETURN written;
END $$;
