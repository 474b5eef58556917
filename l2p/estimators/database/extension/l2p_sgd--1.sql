\echo Use "CREATE EXTENSION l2p_sgd" to load this file. \quit
-- Arguments as those of pg_temp.l2p_step in sgd.sql, in whose place it runs.
CREATE FUNCTION l2p_step(
  state float8[], x float8[], y float8, place int, ends boolean, size float8, start float8[], batch int, ridge float8,
  radius float8, norm_bound float8, width float8
) RETURNS float8[] AS 'MODULE_PATHNAME', 'l2p_step_1' LANGUAGE c;
