/* The step and the places of sgd.sql and the scaling of expressions.py, compiled: the same arguments, the same arithmetic
 * in float64, the same refusals.
 *
 * Any role may call an installed function, so every argument is checked, and no message quotes one.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "port/pg_bswap.h"
#include "utils/array.h"

PG_MODULE_MAGIC;

/* With the number of their version, by which sgd.sql knows them. */
PG_FUNCTION_INFO_V1(l2p_step_1);
PG_FUNCTION_INFO_V1(l2p_places_1);
PG_FUNCTION_INFO_V1(l2p_scaled_1);

enum argument {STATE, X, Y, PLACE, ENDS, SIZE, START, BATCH, RIDGE, RADIUS, NORM_BOUND, WIDTH};

/* The numbers of an array, of which there must be so many. */
static double *
numbers(ArrayType *array, int length)
{
	if (ARR_NDIM(array) != 1 || ARR_DIMS(array)[0] != length || ARR_ELEMTYPE(array) != FLOAT8OID || ARR_HASNULL(array))
		ereport(ERROR, (errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR), errmsg("an array has another length than its companions")));
	return (double *) ARR_DATA_PTR(array);
}

/* A new array of zeros. */
static ArrayType *
zeros(Oid type, int width, int length)
{
	Size		size = ARR_OVERHEAD_NONULLS(1) + (Size) length * width;
	ArrayType  *array = palloc0(size);

	SET_VARSIZE(array, size);
	array->ndim = 1;
	array->elemtype = type;
	ARR_DIMS(array)[0] = length;
	ARR_LBOUND(array)[0] = 1;
	return array;
}

static ArrayType *
first_state(ArrayType *start, int length)
{
	ArrayType  *state = zeros(FLOAT8OID, sizeof(double), 2 * length + 1);

	memcpy(ARR_DATA_PTR(state), numbers(start, length), length * sizeof(double));
	return state;
}

/* In four sums, which the processor adds up at once. */
static double
dot(const double *a, const double *b, int length)
{
	double		sums[4] = {0, 0, 0, 0};
	int			j = 0;

	for (; j + 4 <= length; j += 4)
		for (int part = 0; part < 4; part++)
			sums[part] += a[j + part] * b[j + part];
	for (; j < length; j++)
		sums[0] += a[j] * b[j];
	return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Derivative of the loss in the margin, times the factor that shrinks the row. */
static double
slope_of(const double *weights, const double *x, int length, double y, double norm_bound, const double *width)
{
	double		factor = fmin(1, norm_bound / sqrt(dot(x, x, length)));
	double		margin = factor * dot(weights, x, length);
	double		sign = 2 * y - 1;

	if (width == NULL)
		return factor * (1 / (1 + exp(-margin)) - y);
	return -factor * sign * fmin(fmax((1 + *width - sign * margin) / (2 * *width), 0), 1);
}

/* The batch's step, after which its sums are 0 again. */
static void
take_step(double *weights, double *sums, int length, double size, double batch, double ridge, const double *radius)
{
	double		squares;

	for (int j = 0; j < length; j++)
	{
		double		weight = weights[j] - size * (sums[j] / batch + ridge * weights[j]);

		weights[j] = fabs(weight) <= 1e-100 ? 0 : weight;	/* as in sgd.sql */
	}
	memset(sums, 0, length * sizeof(double));
	if (radius == NULL)
		return;
	squares = dot(weights, weights, length);
	if (squares > *radius * *radius)
	{
		double		factor = *radius / sqrt(squares);

		for (int j = 0; j < length; j++)
			weights[j] *= factor;
	}
}

Datum
l2p_step_1(PG_FUNCTION_ARGS)
{
	ArrayType  *start,
			   *state;
	double	   *weights,
			   *sums,
			   *places,
				radius,
				width;
	int			length;

	/* A state is the aggregate's own, and is changed where it lies. */
	if (AggCheckCallContext(fcinfo, NULL) != AGG_CONTEXT_AGGREGATE)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("l2p_step is called by an aggregate alone")));
	for (int place = X; place <= NORM_BOUND; place++)
		if (PG_ARGISNULL(place) && place != Y && place != RADIUS)
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("an argument of l2p_step is NULL")));
	start = PG_GETARG_ARRAYTYPE_P(START);
	length = ARR_NDIM(start) == 1 ? ARR_DIMS(start)[0] : 0;
	state = PG_ARGISNULL(STATE) ? first_state(start, length) : PG_GETARG_ARRAYTYPE_P(STATE);
	weights = numbers(state, 2 * length + 1);
	sums = weights + length;
	places = sums + length;
	if (PG_GETARG_INT32(PLACE) != *places + 1)
		ereport(ERROR, (errcode(ERRCODE_RAISE_EXCEPTION), errmsg("rows did not come in their order")));
	*places += 1;

	if (!PG_ARGISNULL(Y))
	{
		const double *x = numbers(PG_GETARG_ARRAYTYPE_P(X), length);
		double		slope;

		width = PG_ARGISNULL(WIDTH) ? 0 : PG_GETARG_FLOAT8(WIDTH);
		slope = slope_of(weights, x, length, PG_GETARG_FLOAT8(Y), PG_GETARG_FLOAT8(NORM_BOUND),
						 PG_ARGISNULL(WIDTH) ? NULL : &width);
		if (slope != 0)
			for (int j = 0; j < length; j++)
				sums[j] += slope * x[j];
	}
	if (PG_GETARG_BOOL(ENDS))
	{
		radius = PG_ARGISNULL(RADIUS) ? 0 : PG_GETARG_FLOAT8(RADIUS);
		take_step(weights, sums, length, PG_GETARG_FLOAT8(SIZE), PG_GETARG_INT32(BATCH), PG_GETARG_FLOAT8(RIDGE),
				  PG_ARGISNULL(RADIUS) ? NULL : &radius);
	}
	PG_RETURN_ARRAYTYPE_P(state);
}

Datum
l2p_places_1(PG_FUNCTION_ARGS)
{
	bytea	   *bytes = PG_GETARG_BYTEA_PP(0);
	int			length = VARSIZE_ANY_EXHDR(bytes) / sizeof(uint32);
	ArrayType  *array = zeros(INT4OID, sizeof(uint32), length);
	uint32	   *places = (uint32 *) ARR_DATA_PTR(array);

	memcpy(places, VARDATA_ANY(bytes), length * sizeof(uint32));
	for (int line = 0; line < length; line++)
		places[line] = pg_ntoh32(places[line]);
	PG_RETURN_ARRAYTYPE_P(array);
}

/* Cells between their bounds, scaled to [0, 1] and rounded to single precision; NULL unless all are finite numbers. */
Datum
l2p_scaled_1(PG_FUNCTION_ARGS)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(0);
	int			length = ARR_NDIM(array) == 1 ? ARR_DIMS(array)[0] : 0;
	const double *lows = numbers(PG_GETARG_ARRAYTYPE_P(1), length),
			   *floors = numbers(PG_GETARG_ARRAYTYPE_P(2), length),
			   *highs = numbers(PG_GETARG_ARRAYTYPE_P(3), length),
			   *cells;
	double	   *scaled;

	if (ARR_HASNULL(array))
		PG_RETURN_NULL();
	cells = numbers(array, length);
	array = zeros(FLOAT8OID, sizeof(double), length);
	scaled = (double *) ARR_DATA_PTR(array);
	for (int j = 0; j < length; j++)
	{
		if (!isfinite(cells[j]))
			PG_RETURN_NULL();
		if (cells[j] > floors[j])
			scaled[j] = cells[j] < highs[j] ? (float) ((cells[j] - lows[j]) / (highs[j] - lows[j])) : 1;
	}
	PG_RETURN_ARRAYTYPE_P(array);
}
