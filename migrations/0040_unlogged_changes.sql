-- Keeps session_change out of the write-ahead log: it is a hint for readers that can do without it (docs/decisions/0085).
SET LOCAL ROLE oc_owner;

-- Named anew when the rows of session_change were lost, since this row is lost with them: by a crash of Postgres, or on a
-- standby that takes over.
CREATE UNLOGGED TABLE change_epoch (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    id uuid NOT NULL DEFAULT gen_random_uuid()
);
GRANT SELECT, INSERT ON change_epoch TO oc_app;
GRANT SELECT ON change_epoch TO oc_sched, oc_migrate;

-- The epoch in which the position was read.
ALTER TABLE usage_cursor ADD COLUMN epoch uuid;

-- Without rows nothing is copied under the lock. A position from before has no epoch, so it is not believed.
TRUNCATE session_change;
ALTER TABLE session_change_0 SET UNLOGGED;
ALTER TABLE session_change_1 SET UNLOGGED;
ALTER TABLE session_change_2 SET UNLOGGED;
ALTER TABLE session_change_3 SET UNLOGGED;
RESET ROLE;
