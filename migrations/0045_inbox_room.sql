-- Bytes that the inbox of a session surely has left, so that an admission need not count what waits. 0: not known.
ALTER TABLE session_head ADD COLUMN IF NOT EXISTS inbox_room integer NOT NULL DEFAULT 0;
GRANT UPDATE (inbox_room) ON session_head TO oc_app;
