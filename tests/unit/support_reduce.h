/*
 * support_reduce.h: a reference for reductions, computed element by element, in a different way
 * than the library: integers in 128 bits, floats through double, float8 by search.
 */
#ifndef COLLI_TESTS_UNIT_SUPPORT_REDUCE_H
#define COLLI_TESTS_UNIT_SUPPORT_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "coll/coll.h"
#include "libcoll/base/prng.h"

/* Bytes of an element. */
size_t ref_bytes(coll_type type);

/* Whether coll.h says that the operation takes the type. */
bool ref_takes(coll_type type, coll_op op);

/* Whether the type is float16, bfloat16 or float8; and of these whether it has 8 bits. */
bool ref_is_short(coll_type type);
bool ref_is_float8(coll_type type);

/* The value of a short float with these bits. */
double ref_widen(coll_type type, unsigned bits);

/* The short float nearest to a value, as bits: ties to even, with the type's overflow, any NaN the
 * canonical one. */
unsigned ref_narrow(coll_type type, double value);

/* out = a op b for one element; AVG adds. */
void ref_element(coll_type type, coll_op op, unsigned char *out, const unsigned char *a,
                 const unsigned char *b);

/* out = x / n as COLL_AVG defines it. */
void ref_average(coll_type type, unsigned char *out, const unsigned char *x, int n);

/* Fills a buffer with random bits, values at the limits of the type, and small whole numbers. */
void ref_fill(colli_prng *prng, coll_type type, unsigned char *p, size_t count);

#endif
