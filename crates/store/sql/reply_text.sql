-- The text of a reply's part. That of a call that the provider ran, or of what came of it, is JSON, without what only
-- the provider reads.
CREATE OR REPLACE FUNCTION reply_text(p_part jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_part->>'type' IN ('text', 'reasoning') THEN p_part->>'text'
    ELSE (p_part - ARRAY['id', 'type', 'metadata'])::text END;
