-- Selects what must not be, of some sessions. Each branch is named by its invariant (docs/architecture.md). The log is
-- believed before the rows: that they agree is what a rebuild proves.
-- $1: the organisation; $2: also what holds once faults have stopped and nothing runs; $3: the sessions.
WITH log AS MATERIALIZED (
    SELECT h.id, h.incarnation FROM session_head h WHERE h.org_id = $1 AND h.id = ANY($3)
    UNION ALL -- rows without a head
    SELECT s, substr(s, length('incarnation '))::bigint FROM unnest($3::text[]) AS s WHERE s LIKE 'incarnation %'
),
event AS MATERIALIZED (
    SELECT l.id AS session_id, e.seq, e.kind, e.claim, e.token, e.payload
    FROM log l JOIN session_event e ON e.org_id = $1 AND e.incarnation = l.incarnation
    WHERE e.incarnation = ANY (ARRAY(SELECT incarnation FROM log))
),
fork AS MATERIALIZED (
    -- The copied part of a Fork was admitted, sent and interrupted elsewhere.
    SELECT e.session_id, e.seq + (e.payload::json->>'copied')::bigint AS copied_to
    FROM event e WHERE e.kind = 'session.forked'
),
fact AS MATERIALIZED (
    SELECT e.session_id, e.seq, e.kind, e.claim, e.token, e.payload::json->>'message' AS message,
        coalesce(e.payload::json->>'turn', e.payload::json#>>'{target,turn}') AS turn,
        coalesce(e.payload::json->>'call', e.payload::json#>>'{intent,call}') AS call,
        e.payload::json->>'attempt' AS attempt,
        (e.payload::json->>'ordinal')::integer AS ordinal,
        coalesce(e.payload::json->>'outcome', e.payload::json->>'state', e.payload::json#>>'{target,type}',
            e.payload::json#>>'{answer,type}') AS word,
        e.payload::json->>'ask' AS ask,
        e.payload::json->>'class' AS class,
        e.payload::json#>>'{error,code}' AS code,
        (e.payload::json->>'epoch')::bigint AS epoch,
        -- Whether it wakes the session.
        e.kind = 'wake.requested' OR coalesce((e.payload::json->>'wake')::boolean, false) AS wake,
        -- Compactions and titles begin and end as turns do; a title runs beside the others.
        CASE WHEN e.kind IN ('turn.started', 'compaction.started', 'title.started') THEN 'begins'
            WHEN e.kind IN ('turn.settled', 'compaction.ended', 'title.ended') THEN 'ends' END AS edge,
        e.kind LIKE 'title.%' AS beside,
        e.seq <= coalesce(k.copied_to, 0) AS copied,
        coalesce((e.payload::json#>>'{usage,input}')::bigint, 0) AS input_tokens,
        coalesce((e.payload::json#>>'{usage,output}')::bigint, 0) AS output_tokens
    FROM event e LEFT JOIN fork k ON k.session_id = e.session_id
),
-- Every event with what came before it in its log.
step AS MATERIALIZED (
    SELECT session_id, seq, kind, claim, token, turn, word, edge, beside,
        lead(kind) OVER (PARTITION BY session_id ORDER BY seq) AS next_kind,
        lead(claim) OVER (PARTITION BY session_id ORDER BY seq) AS next_claim,
        max(claim) OVER before AS highest_claim,
        max(claim) FILTER (WHERE kind = 'drain.ended') OVER before AS ended_claim,
        count(*) FILTER (WHERE edge = 'begins' AND NOT beside) OVER before
            - count(*) FILTER (WHERE edge = 'ends' AND NOT beside) OVER before AS open_turns,
        count(*) FILTER (WHERE edge = 'begins' AND beside) OVER before
            - count(*) FILTER (WHERE edge = 'ends' AND beside) OVER before AS open_beside,
        max(seq) FILTER (WHERE kind = 'drain.ended') OVER before AS ended_seq,
        max(seq) FILTER (WHERE kind = 'session.moved') OVER before AS moved_seq,
        max(seq) FILTER (WHERE kind = 'epoch.started') OVER before AS epoch_seq,
        max(seq) FILTER (WHERE wake) OVER before AS wake_seq,
        max(seq) FILTER (WHERE kind = 'interrupt.requested' AND word <> 'parked') OVER before AS stop_seq,
        max(seq) FILTER (WHERE kind = 'interrupt.requested' AND word = 'parked') OVER before AS park_seq
    FROM fact
    WINDOW before AS (PARTITION BY session_id ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
input AS MATERIALIZED (
    SELECT session_id, id, kind, status, admitted_seq, promoted_seq, changed,
        max(promoted_seq) OVER (class ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier_promoted,
        max(admitted_seq) FILTER (WHERE promoted_seq IS NOT NULL)
            OVER (class ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS last_promoted
    FROM (SELECT i.*, l.id AS session_id, (l.id, i.id) IN
            (SELECT f.session_id, f.message FROM fact f WHERE f.kind = 'delivery.changed')
            -- A staged Revert holds what nobody woke the session for, and ends before it.
            OR (i.kind IN ('revert', 'unrevert') OR NOT a.wake) AND l.id IN
                (SELECT f.session_id FROM fact f WHERE f.kind = 'revert.staged') AS changed
        FROM log l JOIN session_input i ON i.org_id = $1 AND i.incarnation = l.incarnation
            LEFT JOIN fact a ON a.session_id = l.id AND a.seq = i.admitted_seq
        WHERE i.incarnation = ANY (ARRAY(SELECT incarnation FROM log))) AS i
    WINDOW class AS (PARTITION BY session_id, delivery, changed ORDER BY admitted_seq)
)
SELECT invariant AS "invariant!", session AS "session!", found AS "found!" FROM (
-- I1: an acknowledged input has one row and one event, and the head counts what is pending.
SELECT 'I1' AS invariant, f.session_id AS session, f.message || ' was admitted and has no row' AS found
FROM fact f LEFT JOIN input i ON i.session_id = f.session_id AND i.admitted_seq = f.seq AND i.id = f.message
WHERE f.kind IN ('prompt.admitted', 'control.admitted') AND i.id IS NULL
UNION ALL
SELECT 'I1', i.session_id, i.id || ' has a row and was never admitted'
FROM input i LEFT JOIN fact f ON f.session_id = i.session_id AND f.seq = i.admitted_seq
    AND f.kind IN ('prompt.admitted', 'control.admitted') AND f.message = i.id
WHERE f.seq IS NULL
UNION ALL
SELECT 'I1', h.id, 'pending ' || h.pending || ', rows ' || count(i.id)
FROM session_head h LEFT JOIN input i ON i.session_id = h.id AND i.status = 'admitted'
WHERE h.org_id = $1 AND h.id = ANY($3) GROUP BY h.id, h.pending HAVING h.pending <> count(i.id)
UNION ALL
SELECT 'I1', session_id, count(*) || ' compactions wait'
FROM input WHERE kind = 'compaction' AND status = 'admitted' GROUP BY session_id HAVING count(*) > 1
UNION ALL
-- I2: it leaves the inbox once, after its admission, and never before an earlier one of its delivery class.
SELECT 'I2', session_id, message || ' left the inbox ' || count(*) || ' times'
FROM fact WHERE kind IN ('prompt.promoted', 'control.delivered', 'input.cancelled')
GROUP BY session_id, message HAVING count(*) > 1
UNION ALL
SELECT 'I2', p.session_id, p.message || ' has ' || p.kind || ' and was not admitted before'
FROM fact p LEFT JOIN fact a ON a.session_id = p.session_id AND a.message = p.message AND a.seq < p.seq
    AND (a.kind = 'prompt.admitted' AND p.kind <> 'control.delivered'
        OR a.kind = 'control.admitted' AND p.kind <> 'prompt.promoted')
WHERE p.kind IN ('prompt.promoted', 'control.delivered', 'input.cancelled', 'delivery.changed')
    AND a.seq IS NULL AND NOT p.copied
UNION ALL
SELECT 'I2', c.session_id, c.message || ' was changed after it had left the inbox'
FROM fact c JOIN fact p ON p.session_id = c.session_id AND p.message = c.message AND p.seq < c.seq
    AND p.kind IN ('prompt.promoted', 'control.delivered', 'input.cancelled')
WHERE c.kind = 'delivery.changed'
UNION ALL
-- A change of its delivery takes an input out of the order of both classes.
SELECT 'I2', session_id, id || ' was overtaken by a later one'
FROM input WHERE NOT changed
    AND (promoted_seq < earlier_promoted OR (status = 'admitted' AND admitted_seq < last_promoted))
UNION ALL
-- I3: claims never fall along the log, and none is above the head's.
SELECT 'I3', session_id, 'claim ' || claim || ' after ' || highest_claim || ' at seq ' || seq
FROM step WHERE claim < highest_claim
UNION ALL
SELECT 'I3', h.id, 'claim ' || max(s.claim) || ' in the log of a head at ' || h.claim
FROM session_head h JOIN step s ON s.session_id = h.id
WHERE h.org_id = $1 AND h.id = ANY($3) GROUP BY h.id, h.claim, h.open
HAVING max(s.claim) > h.claim OR (NOT h.open AND max(s.claim) = h.claim)
UNION ALL
-- The tokens of a Location's drains only grow, up to its fence.
SELECT 'I3', session_id, 'a drain of token ' || token || ' began at seq ' || seq || ' after one of ' || highest
FROM (SELECT session_id, seq, token, max(token) OVER (PARTITION BY session_id, moved_seq ORDER BY seq
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
    FROM step WHERE token IS NOT NULL) AS start WHERE token < highest
UNION ALL
SELECT 'I3', h.id, 'a drain of token ' || max(s.token) || ' at a Location whose fence is ' || l.fence
FROM session_head h JOIN location l ON l.org_id = $1 AND l.id = h.location_id
JOIN fact s ON s.session_id = h.id AND s.token IS NOT NULL AND s.seq > coalesce(
    (SELECT max(m.seq) FROM fact m WHERE m.session_id = h.id AND m.kind = 'session.moved'), 0)
WHERE h.org_id = $1 AND h.id = ANY($3) GROUP BY h.id, l.fence HAVING max(s.token) > l.fence
UNION ALL
-- I4: one drain writes at a time: a turn starts when none is open, and a claim ends with its drain.
SELECT 'I4', session_id, 'turn ' || turn || ' began while another was open'
FROM step WHERE edge = 'begins' AND CASE WHEN beside THEN open_beside ELSE open_turns END > 0
UNION ALL
SELECT 'I4', session_id, 'turn ' || turn || ' was settled ' || count(*) FILTER (WHERE edge = 'ends')
    || ' times and started ' || count(*) FILTER (WHERE edge = 'begins')
FROM fact WHERE edge IS NOT NULL GROUP BY session_id, turn
HAVING count(*) FILTER (WHERE edge = 'begins') <> 1 OR count(*) FILTER (WHERE edge = 'ends') > 1
UNION ALL
SELECT 'I4', session_id, 'claim ' || claim || ' wrote seq ' || seq || ' after its drain had ended'
FROM step WHERE claim <= ended_claim
UNION ALL
-- I5: 1..n without holes, and the head agrees.
SELECT 'I5', coalesce(h.id, f.session_id), 'head at ' || coalesce(h.next_seq::text, 'none') || ', log has '
    || count(f.seq) || ' events, ' || coalesce(min(f.seq), 0) || ' to ' || coalesce(max(f.seq), 0)
FROM (SELECT id, next_seq FROM session_head WHERE org_id = $1 AND id = ANY($3)) h FULL JOIN fact f ON f.session_id = h.id
GROUP BY h.id, f.session_id, h.next_seq
HAVING h.id IS NULL OR count(f.seq) <> h.next_seq - 1 OR coalesce(max(f.seq), 0) <> h.next_seq - 1
    OR coalesce(min(f.seq), 1) <> 1
UNION ALL
SELECT 'I5', k.session_id, 'copies up to seq ' || k.copied_to || ' in a log of ' || h.next_seq - 1
FROM fork k JOIN session_head h ON h.org_id = $1 AND h.id = k.session_id WHERE k.copied_to >= h.next_seq
UNION ALL
-- I6: an interrupted turn has an interrupt between its start and its end;
SELECT 'I6', s.session_id, 'turn ' || s.turn || ' was interrupted by nobody'
FROM fact s LEFT JOIN fact b ON b.session_id = s.session_id AND b.edge = 'begins' AND b.turn = s.turn
WHERE s.edge = 'ends' AND NOT s.beside AND NOT s.copied AND s.word IN ('interrupted', 'cancelled') AND NOT EXISTS (
    SELECT FROM fact i WHERE i.session_id = s.session_id AND i.kind = 'interrupt.requested'
        AND i.seq > b.seq AND i.seq < s.seq)
UNION ALL
-- one that names a turn met it open;
SELECT 'I6', i.session_id, 'the interrupt at seq ' || i.seq || ' names turn ' || i.turn || ', which was not open'
FROM fact i
LEFT JOIN fact b ON b.session_id = i.session_id AND b.edge = 'begins' AND b.turn = i.turn AND b.seq < i.seq
LEFT JOIN fact s ON s.session_id = i.session_id AND s.edge = 'ends' AND s.turn = i.turn AND s.seq < i.seq
WHERE i.kind = 'interrupt.requested' AND i.word = 'turn' AND (b.seq IS NULL OR s.seq IS NOT NULL OR b.beside)
UNION ALL
-- its drain starts no other turn;
SELECT 'I6', session_id, 'turn ' || turn || ' began after the interrupt at seq ' || stop_seq || ' of its drain'
FROM step WHERE edge = 'begins' AND stop_seq > coalesce(ended_seq, 0)
UNION ALL
-- what it parked waits for a new wake; and the head knows the newest.
SELECT 'I6', session_id, 'a drain wrote seq ' || seq || ' without a wake after the interrupt at seq ' || park_seq
FROM step WHERE claim IS NOT NULL AND park_seq > coalesce(wake_seq, 0)
UNION ALL
SELECT 'I6', h.id, 'the head says interrupt ' || h.interrupt_seq || ', the log ' || coalesce(max(f.seq), 0)
FROM session_head h LEFT JOIN fact f ON f.session_id = h.id AND f.kind = 'interrupt.requested'
WHERE h.org_id = $1 AND h.id = ANY($3) GROUP BY h.id, h.interrupt_seq HAVING h.interrupt_seq <> coalesce(max(f.seq), 0)
UNION ALL
-- I7: a compaction and the epoch that it begins are one write.
SELECT 'I7', session_id, 'compaction ' || turn || ' was completed without a new epoch'
FROM step WHERE kind = 'compaction.ended' AND word = 'completed'
    AND (next_kind IS DISTINCT FROM 'epoch.started' OR next_claim IS DISTINCT FROM claim)
UNION ALL
-- Epochs are numbered 1, 2, 3, …; the copies in a Fork leave out those that were reverted.
SELECT 'I7', session_id, 'epoch ' || epoch || ' began at seq ' || seq || ' after epoch ' || latest
FROM (SELECT session_id, seq, copied, epoch, coalesce(max(epoch) OVER (PARTITION BY session_id ORDER BY seq
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS latest
    FROM fact WHERE kind = 'epoch.started') AS begun
WHERE CASE WHEN copied THEN epoch <= latest ELSE epoch <> latest + 1 END
UNION ALL
-- What names an epoch comes after its beginning. Without any, as in an import of messages alone, it is 0.
SELECT 'I7', f.session_id, f.kind || ' at seq ' || f.seq || ' names epoch ' || f.epoch || ', which had not begun'
FROM fact f LEFT JOIN (SELECT session_id, epoch, min(seq) AS seq FROM fact WHERE kind = 'epoch.started'
    GROUP BY session_id, epoch) AS begun ON begun.session_id = f.session_id AND begun.epoch = f.epoch
WHERE f.kind IN ('turn.started', 'compaction.started', 'attempt.started') AND f.epoch <> 0
    AND (begun.seq IS NULL OR begun.seq > f.seq)
UNION ALL
-- A Move ends the epoch: nothing is promoted or asked for at the new Location before the next one.
SELECT 'I7', session_id, kind || ' at seq ' || seq || ' without an epoch since the move at seq ' || moved_seq
FROM step WHERE kind IN ('prompt.promoted', 'turn.started') AND moved_seq > coalesce(epoch_seq, 0)
UNION ALL
-- The head is where the log says, and knows the Revert that is staged.
SELECT 'I7', h.id, 'the head is at ' || h.location_id || ', its session at ' || s.location_id
FROM session_head h JOIN session s ON s.org_id = $1 AND s.id = h.id
WHERE h.org_id = $1 AND h.id = ANY($3) AND h.location_id <> s.location_id
UNION ALL
SELECT 'I7', h.id, 'the head says staged at ' || h.staged_seq || ', the log ' || coalesce(f.seq, 0)
FROM session_head h LEFT JOIN fact f ON f.session_id = h.id AND f.kind = 'revert.staged' AND NOT EXISTS (
    SELECT FROM fact x WHERE x.session_id = h.id AND x.seq > f.seq
        AND x.kind IN ('revert.staged', 'revert.cleared', 'revert.committed'))
WHERE h.org_id = $1 AND h.id = ANY($3) AND h.staged_seq <> coalesce(f.seq, 0)
UNION ALL
-- I8: intent, then body, then one result; an unsafe body at most once, others at most three times.
SELECT 'I8', session_id, 'call ' || call || ' was settled ' || count(*) || ' times'
FROM fact WHERE kind = 'tool.settled' GROUP BY session_id, call HAVING count(*) > 1
UNION ALL
SELECT 'I8', f.session_id, 'call ' || f.call || ' has ' || f.kind || ' at seq ' || f.seq || ' without an intent'
FROM fact f LEFT JOIN fact c ON c.session_id = f.session_id AND c.kind = 'tool.called' AND c.call = f.call
    AND c.seq < f.seq
WHERE f.kind IN ('tool.started', 'tool.settled') AND c.seq IS NULL
UNION ALL
SELECT 'I8', session_id, 'call ' || call || ' has ' || count(*) FILTER (WHERE word = 'started' OR kind = 'tool.started')
    || ' bodies, class ' || coalesce(max(class), 'unknown')
FROM fact WHERE kind IN ('tool.called', 'tool.started') GROUP BY session_id, call
HAVING count(*) FILTER (WHERE word = 'started' OR kind = 'tool.started')
    > CASE max(class) WHEN 'unsafe' THEN 1 ELSE 3 END
UNION ALL
SELECT 'I8', d.session_id, 'call ' || d.call || ' completed without a body'
FROM fact d WHERE d.kind = 'tool.settled' AND d.word = 'completed' AND NOT d.copied AND NOT EXISTS (
    SELECT FROM fact b WHERE b.session_id = d.session_id AND b.call = d.call AND b.seq < d.seq
        AND (b.kind = 'tool.started' OR (b.kind = 'tool.called' AND b.word = 'started')
            -- A person's answers are the result of questions.
            OR (b.kind = 'tool.answered' AND b.word = 'answers')))
UNION ALL
SELECT 'I8', b.session_id, 'call ' || b.call || ' started after its result'
FROM fact b JOIN fact d ON d.session_id = b.session_id AND d.kind = 'tool.settled' AND d.call = b.call AND d.seq < b.seq
WHERE b.kind = 'tool.started'
UNION ALL
SELECT 'I8', c.session_id, 'call ' || c.call || ' had no result when its turn was settled'
FROM fact c JOIN fact s ON s.session_id = c.session_id AND s.kind = 'turn.settled' AND s.turn = c.turn
LEFT JOIN fact d ON d.session_id = c.session_id AND d.kind = 'tool.settled' AND d.call = c.call AND d.seq < s.seq
WHERE c.kind = 'tool.called' AND d.seq IS NULL
UNION ALL
-- One whose drains failed is given up without a look at its log: the next drain recovers its turn.
SELECT 'I8', h.id, 'idle with an open turn ' || b.turn
FROM session_head h JOIN fact b ON b.session_id = h.id AND b.edge = 'begins'
LEFT JOIN fact s ON s.session_id = h.id AND s.edge = 'ends' AND s.turn = b.turn
WHERE h.org_id = $1 AND h.id = ANY($3) AND NOT h.open AND s.seq IS NULL AND NOT EXISTS (
    SELECT FROM fact g WHERE g.session_id = h.id AND g.seq > b.seq AND g.kind = 'drain.ended'
        AND g.code = 'session.drain_failed')
UNION ALL
-- Changes of a turn's calls are captured before a later turn's calls may change the files again.
SELECT 'I8', s.session_id, 'call ' || c.call || ' came at seq ' || c.seq || ', and the files before it were captured at '
    || s.seq
FROM fact s JOIN fact b ON b.session_id = s.session_id AND b.kind = 'turn.started' AND b.turn = s.turn
JOIN fact c ON c.session_id = s.session_id AND c.kind = 'tool.called' AND c.class <> 'pure' AND c.turn <> s.turn
    AND c.word = 'started' AND c.seq > b.seq AND c.seq < s.seq
WHERE s.kind = 'workspace.snapshotted'
UNION ALL
-- I9: attempts are counted 1..n, each begins once and ends at most once, and a turn uses what they used.
SELECT 'I9', session_id, 'turn ' || turn || ' has ' || count(*) || ' attempts up to number ' || max(ordinal)
FROM fact WHERE kind = 'attempt.started' GROUP BY session_id, turn
HAVING count(*) <> max(ordinal) OR count(DISTINCT ordinal) <> count(*)
UNION ALL
SELECT 'I9', session_id, 'attempt ' || attempt || ' ended ' || count(*) FILTER (WHERE kind = 'attempt.ended')
    || ' times and started ' || count(*) FILTER (WHERE kind = 'attempt.started')
FROM fact WHERE kind IN ('attempt.started', 'attempt.ended') GROUP BY session_id, attempt
HAVING count(*) FILTER (WHERE kind = 'attempt.ended') > 1 OR count(*) FILTER (WHERE kind = 'attempt.started') <> 1
UNION ALL
SELECT 'I9', a.session_id, 'attempt ' || a.attempt || ' had no end when its turn was settled'
FROM fact a JOIN fact s ON s.session_id = a.session_id AND s.edge = 'ends' AND s.turn = a.turn
LEFT JOIN fact e ON e.session_id = a.session_id AND e.kind = 'attempt.ended' AND e.attempt = a.attempt AND e.seq < s.seq
WHERE a.kind = 'attempt.started' AND e.seq IS NULL
UNION ALL
SELECT 'I9', s.session_id, 'turn ' || s.turn || ' says ' || s.input_tokens || '+' || s.output_tokens
    || ' tokens, its attempts ' || coalesce(sum(a.input_tokens), 0) || '+' || coalesce(sum(a.output_tokens), 0)
FROM fact s LEFT JOIN fact a ON a.session_id = s.session_id AND a.kind = 'attempt.ended' AND a.turn = s.turn
WHERE s.edge = 'ends' AND NOT s.copied GROUP BY s.session_id, s.seq, s.turn, s.input_tokens, s.output_tokens
HAVING s.input_tokens <> coalesce(sum(a.input_tokens), 0) OR s.output_tokens <> coalesce(sum(a.output_tokens), 0)
UNION ALL
-- I11: no wake is lost, and in the end nothing is left that should run. A drain that failed or was interrupted may
-- leave an input behind that somebody woke the session for; one that did its work may not.
SELECT 'I11', h.id, 'not ready, and ' || coalesce(f.message, f.kind) || ' woke it at seq ' || f.seq
FROM session_head h JOIN fact f ON f.session_id = h.id AND f.wake
LEFT JOIN input i ON i.session_id = h.id AND i.id = f.message
WHERE h.org_id = $1 AND h.id = ANY($3) AND NOT h.ready AND NOT h.asleep AND (i.status = 'admitted' OR f.message IS NULL) AND NOT EXISTS (
    SELECT FROM fact x WHERE x.session_id = h.id AND x.seq > f.seq
        AND (x.kind = 'interrupt.requested'
            OR x.kind = 'drain.ended' AND (f.message IS NULL OR x.word IN ('failed', 'interrupted'))
            OR x.kind = 'input.cancelled' AND f.message IS NULL))
UNION ALL
-- I15: no body without leave for each of its asks.
SELECT 'I15', b.session_id, 'call ' || b.call || ' started at seq ' || b.seq || ' without leave for ' || a.ask
FROM fact b JOIN fact a ON a.session_id = b.session_id AND a.kind = 'tool.asked' AND a.call = b.call
WHERE b.kind = 'tool.started' AND NOT EXISTS (
    SELECT FROM fact r WHERE r.session_id = b.session_id AND r.kind = 'tool.answered' AND r.ask = a.ask
        AND r.word IN ('once', 'always', 'granted') AND r.seq < b.seq)
UNION ALL
-- I16: an ask has one answer at most, while its call waits; and who sleeps waits for one.
SELECT 'I16', session_id, 'ask ' || ask || ' was answered ' || count(*) || ' times'
FROM fact WHERE kind = 'tool.answered' GROUP BY session_id, ask HAVING count(*) > 1
UNION ALL
SELECT 'I16', r.session_id, 'ask ' || r.ask || ' was answered at seq ' || r.seq || ' and its call was over'
FROM fact r JOIN fact d ON d.session_id = r.session_id AND d.kind = 'tool.settled' AND d.call = r.call AND d.seq < r.seq
WHERE r.kind = 'tool.answered'
UNION ALL
SELECT 'I16', h.id, 'asleep and nothing is asked'
FROM session_head h WHERE h.org_id = $1 AND h.id = ANY($3) AND h.asleep AND NOT EXISTS (
    SELECT FROM ask a WHERE a.org_id = $1 AND a.incarnation = h.incarnation AND a.status = 'pending')
UNION ALL
SELECT 'I16', h.id, 'ask ' || a.id || ' is pending and nobody waits'
FROM session_head h JOIN ask a ON a.org_id = $1 AND a.incarnation = h.incarnation AND a.status = 'pending'
WHERE h.org_id = $1 AND h.id = ANY($3) AND NOT h.open
UNION ALL
-- I25: nobody works at a Location before it is filled, and its commit is known by then.
SELECT 'I25', h.id, 'a turn began at seq ' || min(f.seq) || ' and the workspace was never filled'
FROM session_head h JOIN location_origin o ON o.org_id = $1 AND o.location_id = h.location_id AND o.filled_token IS NULL
JOIN fact f ON f.session_id = h.id AND f.kind = 'turn.started' AND f.seq > coalesce(
    (SELECT max(m.seq) FROM fact m WHERE m.session_id = h.id AND m.kind = 'session.moved'), 0)
WHERE h.org_id = $1 AND h.id = ANY($3) GROUP BY h.id
UNION ALL
SELECT 'I25', h.id, 'the workspace is filled and its commit is not known'
FROM session_head h JOIN location_origin o ON o.org_id = $1 AND o.location_id = h.location_id
WHERE h.org_id = $1 AND h.id = ANY($3) AND o.filled_token IS NOT NULL AND o.commit IS NULL
UNION ALL
-- I26: a filled workspace has rows for all packs that it needs, and the packs of a repository are 1..n.
SELECT 'I26', h.id, 'the workspace needs the packs up to ' || coalesce(o.packs_through::text, 'none') || ' of repository '
    || o.repository_id || ', which has ' || count(p.ordinal)
FROM session_head h JOIN location_origin o ON o.org_id = $1 AND o.location_id = h.location_id
LEFT JOIN repository_pack p ON p.org_id = $1 AND p.repository_id = o.repository_id AND p.ordinal <= o.packs_through
WHERE h.org_id = $1 AND h.id = ANY($3) AND o.filled_token IS NOT NULL
GROUP BY h.id, o.packs_through, o.repository_id HAVING count(p.ordinal) IS DISTINCT FROM o.packs_through
UNION ALL
-- I27: content is shared within one repository only.
SELECT 'I27', h.id, 'the workspace shares content of ' || coalesce(l.seed_location, 'none') || ', which is of another repository'
FROM session_head h JOIN location_origin o ON o.org_id = $1 AND o.location_id = h.location_id AND o.shares_base
JOIN location l ON l.org_id = $1 AND l.id = h.location_id
WHERE h.org_id = $1 AND h.id = ANY($3) AND NOT EXISTS (
    SELECT FROM location_origin b WHERE b.org_id = $1 AND b.location_id = l.seed_location
        AND b.repository_id = o.repository_id)
UNION ALL
SELECT 'I11', id, 'still ready' FROM session_head WHERE org_id = $1 AND id = ANY($3) AND $2 AND ready
) AS violations ORDER BY session, invariant LIMIT 100
