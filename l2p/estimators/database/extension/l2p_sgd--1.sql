\echo Use "CREATE EXTENSION l2p_sgd" to load this file. \quit
-- l2p_step and l2p_places run in place of those in sgd.sql, and l2p_scaled in place of the expressions that l2p writes.
CREATE FUNCTION l2p_step(
  state float8[], x float8[], y float8, place int, ends boolean, size float8, start float8[], batch int, ridge float8,
  radius float8, norm_bound float8, width float8
) RETURNS float8[] AS 'MODULE_PATHNAME', 'l2p_step_1' LANGUAGE c;
CREATE FUNCTION l2p_places(places bytea) RETURNS int[] AS 'MODULE_PATHNAME', 'l2p_places_1' LANGUAGE c STRICT;
CREATE FUNCTION l2p_scaled(cells float8[], lows float8[], floors float8[], highs float8[]) RETURNS float8[]
AS 'MODULE_PATHNAME', 'l2p_scaled_1' LANGUAGE c STRICT;
