-- Those of some Locations that something uses: a session is or was there, another Location began with its files, or a
-- Move to it waits.
CREATE OR REPLACE FUNCTION used_locations(p_org uuid, p_ids text[]) RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = public, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT asked.place FROM unnest(p_ids) AS asked (place)
    WHERE EXISTS (SELECT FROM session s WHERE s.org_id = p_org AND s.location_id = asked.place)
        OR EXISTS (SELECT FROM left_location l WHERE l.org_id = p_org AND l.location_id = asked.place)
        OR EXISTS (SELECT FROM location l WHERE l.org_id = p_org AND l.seed_location = asked.place AND l.id <> asked.place);
    RETURN QUERY SELECT e.payload::json#>>'{control,location}'
    FROM session_head h
        JOIN session_input i ON i.incarnation = h.incarnation AND i.kind = 'move' AND i.status = 'admitted'
        JOIN session_event e ON e.incarnation = i.incarnation AND e.seq = i.admitted_seq
    WHERE h.org_id = p_org AND h.pending > 0 AND e.payload::json#>>'{control,location}' = ANY (p_ids);
END $$;
