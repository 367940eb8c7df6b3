-- A login link that somebody shows is known by its id and its secret, as keys and cookies are (docs/decisions/0086).
SET LOCAL ROLE oc_owner;
GRANT SELECT (hash) ON login_link TO oc_sched;
RESET ROLE;
