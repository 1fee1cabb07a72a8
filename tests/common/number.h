/* number.h: the elements of tests' inputs, and the reference reductions of them. */
#ifndef TESTS_COMMON_NUMBER_H
#define TESTS_COMMON_NUMBER_H

#include <coll/coll.h>

/* A random number that depends on four numbers. */
uint64_t number_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/*
 * Writes an element of a rank's input, which depends on rank, index and seed. Integers are any that
 * the type has, and sums wrap around. Floats are whole numbers, so small that the type holds every
 * partial result exactly, whatever the order: of 8 bits, up to 24 ranks; of 16 bits, up to 80; the
 * others, up to 800 in products and 100,000 in the rest. op -1: any bytes.
 */
void number_input(void *element, coll_type type, int op, int rank, uint64_t index, uint64_t seed);

/* result = the combination of the inputs of ranks first .. last, as coll.h defines the operation.
 */
void number_reduce(void *result, coll_type type, int op, int first, int last, uint64_t index,
                   uint64_t seed);

/* left after right of elements of `bytes` bytes that are maps as in CASE_TYPE_AFFINE; of the bytes
 * behind the last map, those of left. */
void number_affine(const void *left, const void *right, void *result, size_t bytes);

/* The sums of bytes. */
void number_add_bytes(const void *left, const void *right, void *result, size_t bytes);

#endif
