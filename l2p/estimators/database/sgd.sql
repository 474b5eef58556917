-- Stochastic gradient descent as an aggregate over a shuffled scan, in PostgreSQL and without noise.
--
-- All of it lies in the temporary schema of one session: nothing is installed, and nobody else's version runs in its
-- place. `l2p.estimators.database.train` calls l2p_pass and adds the noise where it comes from; in psql, \i sgd.sql loads it.
--
-- State: p weights, p sums of the batch's gradients, and how many rows it has seen.
CREATE OR REPLACE FUNCTION pg_temp.l2p_step(
  state float8[],   -- NULL before the first row
  x float8[],       -- the row, p numbers with its constant column
  y float8,         -- its label, 0 or 1; NULL makes a null row, which adds nothing and keeps its place
  place int,        -- in this pass, from 1
  ends boolean,     -- whether the row is the last of its batch
  size float8,      -- of the batch's step
  start float8[],   -- weights before the pass
  batch int,        -- what a batch's sum is divided by
  ridge float8,
  radius float8,    -- of the ball that weights stay in; NULL for none
  norm_bound float8,  -- rows are shrunk to this length
  width float8      -- of the Huber SVM's bend; NULL for the logistic loss
) RETURNS float8[] LANGUAGE plpgsql AS $$
DECLARE
  p int := cardinality(start);
  margin float8 := 0;
  squares float8 := 0;
  slope float8 := 0;  -- derivative of the loss in the margin, times the factor that shrinks the row
  v float8;
BEGIN
  IF state IS NULL THEN
    state := start || array_fill(0::float8, ARRAY[p + 1]);
  END IF;
  IF place <> state[2 * p + 1] + 1 THEN
    RAISE EXCEPTION 'rows did not come in their order';
  END IF;
  state[2 * p + 1] := place;

  IF y IS NOT NULL THEN
    FOR j IN 1..p LOOP
      margin := margin + state[j] * x[j];
      squares := squares + x[j] * x[j];
    END LOOP;
    slope := least(1, norm_bound / sqrt(squares));
    margin := slope * margin;
    IF width IS NULL THEN
      -- Beyond 500 nothing changes but that exp would fail.
      slope := slope * (1 / (1 + exp(-least(greatest(margin, -500), 500))) - y);
    ELSE
      v := 2 * y - 1;
      slope := -slope * v * least(greatest((1 + width - v * margin) / (2 * width), 0), 1);
    END IF;
  END IF;

  IF NOT ends THEN
    IF slope <> 0 THEN
      FOR j IN 1..p LOOP
        state[p + j] := state[p + j] + slope * x[j];
      END LOOP;
    END IF;
    RETURN state;
  END IF;

  squares := 0;
  FOR j IN 1..p LOOP
    v := state[p + j];
    IF slope <> 0 THEN
      v := v + slope * x[j];
    END IF;
    v := state[j] - size * (v / batch + ridge * state[j]);
    -- PostgreSQL refuses products that are too small to be told from 0, and whether a run fails must not depend on rows.
    IF v BETWEEN -1e-100 AND 1e-100 THEN
      v := 0;
    END IF;
    squares := squares + v * v;
    state[j] := v;
    state[p + j] := 0;
  END LOOP;
  IF squares > radius * radius THEN
    v := radius / sqrt(squares);
    FOR j IN 1..p LOOP
      state[j] := state[j] * v;
    END LOOP;
  END IF;
  RETURN state;
END $$;

-- Places of all lines, each in four bytes, the highest first: a driver sends them as they are, and an array number by number.
CREATE OR REPLACE FUNCTION pg_temp.l2p_places(places bytea) RETURNS int[] LANGUAGE sql SET search_path = pg_catalog AS $$
  SELECT ARRAY(
    SELECT (get_byte(places, i) << 24) + (get_byte(places, i + 1) << 16) + (get_byte(places, i + 2) << 8)
      + get_byte(places, i + 3)
    FROM generate_series(0, length(places) - 4, 4) AS i
  )
$$;

-- The compiled function of this name and version 1 (extension/); NULL where there is none, or this role may not call it.
-- Superusers alone make functions in C.
CREATE OR REPLACE FUNCTION pg_temp.l2p_compiled(name text) RETURNS text LANGUAGE sql SET search_path = pg_catalog AS $$
  SELECT format('%I.%I', nspname, proname)
  FROM pg_proc p
  JOIN pg_namespace n ON n.oid = pronamespace
  JOIN pg_language l ON l.oid = prolang
  WHERE lanname = 'c' AND prosrc = name || '_1'
    AND has_schema_privilege(n.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE')
  ORDER BY p.oid LIMIT 1
$$;

DO $$
BEGIN
  EXECUTE format($aggregate$
    CREATE OR REPLACE AGGREGATE pg_temp.l2p_sgd(
      x float8[], y float8, place int, ends boolean, size float8, start float8[], batch int, ridge float8,
      radius float8, norm_bound float8, width float8
    ) (SFUNC = %s, STYPE = float8[])
  $aggregate$, coalesce(pg_temp.l2p_compiled('l2p_step'), 'pg_temp.l2p_step'));
  EXECUTE format($function$
    CREATE OR REPLACE FUNCTION pg_temp.l2p_order(bytea) RETURNS int[] LANGUAGE sql AS 'SELECT %s($1)'
  $function$, coalesce(pg_temp.l2p_compiled('l2p_places'), 'pg_temp.l2p_places'));
END $$;

-- Weights after one pass over the rows of a query, which gives line (int, from 1), x and y. Line i comes at places[i].
-- `sizes` has one for each batch, or one for all.
-- Several problems, each with its own p weights in `start`, tell one class, y = 0, 1, ..., from the others.
CREATE OR REPLACE FUNCTION pg_temp.l2p_pass(
  lines text, places int[], start float8[], sizes float8[], batch int, ridge float8, radius float8, norm_bound float8,
  width float8, problems int DEFAULT 1
) RETURNS float8[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  p int := cardinality(start) / problems;
  states float8[];  -- of the problems, one after another
  weights float8[];
  last int;
BEGIN
  EXECUTE format($query$
    SELECT %s
    FROM (
      SELECT $1[line] AS place, $1[line] %% $4 = 0 OR $1[line] = cardinality($1) AS ends,
        $3[%s] AS size, x, y
      FROM (%s) AS lines ORDER BY 1
    ) AS shuffled
  $query$, (
    SELECT string_agg(format(
      'pg_temp.l2p_sgd(x, %s, place, ends, size, (SELECT $2[%s:%s]), $4, $5, $6, $7, $8)',
      CASE WHEN problems = 1 THEN 'y' ELSE format('(y = %s)::int', problem) END, problem * p + 1, (problem + 1) * p
    ), ' || ' ORDER BY problem) FROM generate_series(0, problems - 1) AS problem
  ), CASE WHEN cardinality(sizes) = 1 THEN '1' ELSE '($1[line] - 1) / $4 + 1' END, lines) INTO states USING places, start, sizes, batch, ridge, radius, norm_bound, width;
  FOR problem IN 1..problems LOOP
    last := problem * (2 * p + 1);
    IF states[last] IS DISTINCT FROM cardinality(places) THEN
      RAISE EXCEPTION 'there are not as many rows as places';
    END IF;
    weights := weights || states[last - 2 * p : last - p - 1];
  END LOOP;
  RETURN weights;
END $$;

-- The same passes WITHOUT ANY NOISE, for whoever may see the rows: the control that private runs are compared with.
-- `dependent` (0 or 1) and `independent` (an array) are expressions, as in MADlib; rows without them are null rows.
CREATE OR REPLACE PROCEDURE pg_temp.l2p_train(
  source_table text, out_table text, dependent text, independent text, key text, num_passes int DEFAULT 10,
  batch int DEFAULT 50, step_size float8 DEFAULT NULL, noiseless boolean DEFAULT false
) LANGUAGE plpgsql AS $$
DECLARE
  weights float8[];
  n int;
BEGIN
  IF NOT noiseless THEN
    RAISE EXCEPTION 'this procedure adds no noise, so what it writes is private'
    USING HINT = 'Call l2p.estimators.database.train from Python, or ask for the control (noiseless => true).';
  END IF;
  EXECUTE format($query$
    CREATE TEMPORARY TABLE l2p_control AS
    SELECT row_number() OVER (ORDER BY key)::int AS line, x || 0.5::float8 AS x,
      CASE WHEN array_position(x, NULL) IS NULL THEN y END AS y
    FROM (SELECT %s AS key, (%s)::float8[] AS x, (%s)::float8 AS y FROM %s OFFSET 0) AS rows
  $query$, key, independent, dependent, source_table);
  SELECT count(*), array_fill(0::float8, ARRAY[max(cardinality(x))]) FROM pg_temp.l2p_control INTO n, weights;
  FOR pass IN 1..num_passes LOOP
    weights := pg_temp.l2p_pass(
      'TABLE pg_temp.l2p_control', (SELECT array_agg(place ORDER BY random()) FROM generate_series(1, n) AS place), weights,
      ARRAY[coalesce(step_size, 1 / sqrt(n))], batch, 0, NULL, 1, NULL);
  END LOOP;
  DROP TABLE pg_temp.l2p_control;
  EXECUTE format('CREATE TABLE %s AS SELECT $1 AS coef', out_table) USING weights;
END $$;
