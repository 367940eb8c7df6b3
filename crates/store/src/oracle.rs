//! The invariants that rows alone can show, checked after every fault run and by `rebuild --check`.
//!
//! Each statement selects what must not be; its name is the invariant's (design §9).

use domain::OrgId;

use crate::{Store, StoreError};

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which one, such as `I5`.
    pub invariant: String,
    /// The session.
    pub session: String,
    /// What was found.
    pub found: String,
}

impl Store {
    /// Every violation that the rows of an organisation show, at most 100. `settled` adds what must
    /// hold once faults have stopped and nothing runs (I8, I9, I11).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn violations(
        &self,
        org: OrgId,
        settled: bool,
    ) -> Result<Vec<Violation>, StoreError> {
        let store = self.clone();
        tasks::detached(async move {
            let mut tx = store.tenant(org).await?;
            let rows = sqlx::query!(
                r#"
                SELECT invariant AS "invariant!", session AS "session!", found AS "found!" FROM (
                -- I1: an admission has one row and one event.
                SELECT 'I1' AS invariant, e.session_id AS session, 'admitted without its row: ' || e.payload AS found
                FROM session_event e LEFT JOIN session_input i ON i.org_id = e.org_id AND i.session_id = e.session_id
                    AND i.admitted_seq = e.seq
                WHERE e.org_id = $1 AND e.kind = 'prompt.admitted' AND i.id IS NULL
                UNION ALL
                -- I2: promoted once, and never before an earlier one of its delivery class.
                SELECT 'I2', session_id, 'promoted ' || count(*) || ' times: ' || (payload::json->>'message')
                FROM session_event WHERE org_id = $1 AND kind = 'prompt.promoted'
                GROUP BY session_id, payload::json->>'message' HAVING count(*) > 1
                UNION ALL
                SELECT 'I2', a.session_id, a.id || ' overtook ' || b.id
                FROM session_input a JOIN session_input b ON b.org_id = a.org_id AND b.session_id = a.session_id
                    AND b.delivery = a.delivery AND b.admitted_seq < a.admitted_seq
                    AND (b.promoted_seq > a.promoted_seq OR (b.promoted_seq IS NULL AND b.status = 'admitted'))
                WHERE a.org_id = $1 AND a.promoted_seq IS NOT NULL
                UNION ALL
                -- I3: claims never fall along the log.
                SELECT 'I3', session_id, 'claim ' || claim || ' after ' || before || ' at seq ' || seq FROM (
                    SELECT session_id, seq, claim, max(claim) OVER
                        (PARTITION BY session_id ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                    FROM session_event WHERE org_id = $1 AND claim IS NOT NULL) AS claims
                WHERE claim < before
                UNION ALL
                -- I4: between two drain ends, or within a claim, one drain wrote: a turn starts when none is open.
                SELECT 'I4', t.session_id, 'turn ' || t.id || ' began while ' || o.id || ' was open'
                FROM provider_turn t
                JOIN provider_turn o ON o.org_id = t.org_id AND o.session_id = t.session_id AND o.seq < t.seq
                LEFT JOIN session_event s ON s.org_id = o.org_id AND s.session_id = o.session_id
                    AND s.kind = 'turn.settled' AND s.payload::json->>'turn' = o.id
                WHERE t.org_id = $1 AND (s.seq IS NULL OR s.seq > t.seq)
                UNION ALL
                -- I5: 1..n without holes, and the head agrees.
                SELECT 'I5', h.id, 'head at ' || h.next_seq || ', log has ' || count(e.seq) || ' to ' || coalesce(max(e.seq), 0)
                FROM session_head h LEFT JOIN session_event e ON e.org_id = h.org_id AND e.session_id = h.id
                WHERE h.org_id = $1 GROUP BY h.id, h.next_seq
                HAVING count(e.seq) <> h.next_seq - 1 OR coalesce(max(e.seq), 0) <> h.next_seq - 1
                UNION ALL
                -- The head's counter of pending inputs is the rows'.
                SELECT 'I1', h.id, 'pending ' || h.pending || ', rows ' || count(i.id)
                FROM session_head h LEFT JOIN session_input i ON i.org_id = h.org_id AND i.session_id = h.id
                    AND i.status = 'admitted'
                WHERE h.org_id = $1 GROUP BY h.id, h.pending HAVING h.pending <> count(i.id)
                UNION ALL
                -- I6: an interrupted turn has an interrupt after its start and before its end.
                SELECT 'I6', t.session_id, 'turn ' || t.id || ' interrupted by none'
                FROM provider_turn t
                JOIN session_event s ON s.org_id = t.org_id AND s.session_id = t.session_id
                    AND s.kind = 'turn.settled' AND s.payload::json->>'turn' = t.id
                WHERE t.org_id = $1 AND t.outcome = 'interrupted' AND NOT EXISTS (
                    SELECT FROM session_event i WHERE i.org_id = t.org_id AND i.session_id = t.session_id
                        AND i.kind = 'interrupt.requested' AND i.seq > t.seq AND i.seq < s.seq)
                UNION ALL
                -- I8: a call is started, settled at most once; an unsafe body ran at most once.
                SELECT 'I8', session_id, 'settled ' || count(*) || ' times: ' || (payload::json->>'call')
                FROM session_event WHERE org_id = $1 AND kind = 'tool.settled'
                GROUP BY session_id, payload::json->>'call' HAVING count(*) > 1
                UNION ALL
                SELECT 'I8', session_id, class || ' call ' || id || ' has ' || bodies || ' bodies'
                FROM tool_result WHERE org_id = $1 AND bodies > CASE class WHEN 'unsafe' THEN 1 ELSE 3 END
                UNION ALL
                SELECT 'I8', session_id, 'call ' || id || ' of a settled turn has no result' FROM tool_result c
                WHERE c.org_id = $1 AND c.state <> 'settled' AND EXISTS (SELECT FROM provider_turn t
                    WHERE t.org_id = c.org_id AND t.id = c.turn_id AND t.status = 'settled')
                UNION ALL
                SELECT 'I8', h.id, 'idle with an open turn ' || t.id
                FROM session_head h JOIN provider_turn t ON t.org_id = h.org_id AND t.session_id = h.id
                WHERE h.org_id = $1 AND $2 AND NOT h.open AND t.status <> 'settled'
                UNION ALL
                -- I9: a settled turn leaves no attempt without an end.
                SELECT 'I9', a.session_id, 'attempt ' || a.id || ' has no outcome'
                FROM provider_attempt a JOIN provider_turn t ON t.org_id = a.org_id AND t.id = a.turn_id
                WHERE a.org_id = $1 AND a.outcome IS NULL AND t.status = 'settled'
                UNION ALL
                -- I11: nothing is left that should run.
                SELECT 'I11', id, 'still ready' FROM session_head WHERE org_id = $1 AND $2 AND ready
                ) AS violations LIMIT 100"#,
                org.0,
                settled,
            )
            .fetch_all(&mut *tx)
            .await?;
            tx.commit().await?;
            Ok(rows
                .into_iter()
                .map(|row| Violation {
                    invariant: row.invariant,
                    session: row.session,
                    found: row.found,
                })
                .collect())
        })
        .await
    }
}
