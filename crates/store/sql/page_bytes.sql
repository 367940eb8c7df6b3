-- After how many bytes of text a page ends. The row that goes past it is the page's last, so that a page has at least
-- one. The text is not read for this: its length is beside it. A shorter page is not the last one: a reader asks on
-- until a page is empty, or until it has neither as many rows as it asked for nor as many bytes as this.
CREATE OR REPLACE FUNCTION page_bytes() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 8388608::bigint;
