-- When a session's client archived it, and what the client keeps with it: JSON text of an object, the client's bytes.
-- A gateway of schema 19 or 20 lists sessions with all columns, in their order, and fails while it does so (docs/decisions/0057).
SET LOCAL ROLE oc_owner;
ALTER TABLE session ADD COLUMN archived_ms bigint, ADD COLUMN metadata text;
RESET ROLE;
