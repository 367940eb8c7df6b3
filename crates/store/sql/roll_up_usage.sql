-- Counts what is new of these sessions, at most some 20,000 events: the sums and how far they go, in one transaction. So
-- each event is counted once, whoever calls it how often, and wherever a caller ends. True: more is left, call it again.
--
-- Takes the organisation's lock of sums, and no head.
CREATE OR REPLACE FUNCTION roll_up_usage(p_org uuid, p_sessions text[]) RETURNS boolean
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    most CONSTANT bigint := 20000;
    numbers bigint[];
    befores bigint[];
    lasts bigint[];
    facts usage_fact[];
    is_more boolean;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    PERFORM pg_advisory_xact_lock(hashtextextended('usage ' || p_org, 0));
    -- One snapshot for heads and for what is counted. A head's number is that of its newest visible event.
    SELECT array_agg(d.incarnation), array_agg(d.before), array_agg(d.upto), bool_or(d.upto < d.last OR d.ahead >= most)
    INTO numbers, befores, lasts, is_more
    FROM (SELECT h.incarnation, coalesce(t.last, 0) AS before, h.next_seq - 1 AS last,
            least(h.next_seq - 1, coalesce(t.last, 0) + most) AS upto,
            coalesce(sum(h.next_seq - 1 - coalesce(t.last, 0)) OVER (ORDER BY h.incarnation
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS ahead
        FROM session_head h LEFT JOIN usage_through t ON t.org_id = p_org AND t.incarnation = h.incarnation
        WHERE h.org_id = p_org AND h.id = ANY (p_sessions) AND h.next_seq - 1 > coalesce(t.last, 0)) AS d;
    IF numbers IS NULL THEN
        RETURN false;
    END IF;
    -- Those that come after `most` events wait for the next call.
    SELECT array_agg(t.n), array_agg(t.b), array_agg(t.u) INTO numbers, befores, lasts
    FROM (SELECT d.n, d.b, d.u, coalesce(sum(d.u - d.b) OVER (ORDER BY d.place
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS ahead
        FROM unnest(numbers, befores, lasts) WITH ORDINALITY AS d (n, b, u, place)) AS t WHERE t.ahead < most;
    facts := ARRAY(SELECT f FROM unnest(numbers, befores, lasts) AS d (n, b, u)
        CROSS JOIN LATERAL usage_facts(p_org, d.n, d.b, d.u) AS f);
    PERFORM add_usage_facts(p_org, facts);
    INSERT INTO usage_through AS u (incarnation, org_id, first, last)
    SELECT d.n, p_org, 0, d.u FROM unnest(numbers, lasts) AS d (n, u)
    ON CONFLICT (incarnation) DO UPDATE SET last = excluded.last;
    RETURN is_more;
END $$;
