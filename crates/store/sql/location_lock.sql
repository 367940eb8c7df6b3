-- The advisory lock of a Location. Two Locations with one number merely share a lock.
CREATE OR REPLACE FUNCTION location_lock(p_org uuid, p_location text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(p_location, ('x' || left(replace(p_org::text, '-', ''), 15))::bit(60)::bigint);
