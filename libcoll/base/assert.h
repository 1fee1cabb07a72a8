/*
 * assert.h: invariants of libcoll's own state. A debug or sanitizer build (COLLI_ASSERTS) checks
 * them and ends the program where one does not hold; a Release build does not even evaluate them.
 * What comes from a caller, a peer or the system is no invariant: it is checked in all builds and
 * gives an error.
 */
#ifndef COLLI_BASE_ASSERT_H
#define COLLI_BASE_ASSERT_H

#ifdef COLLI_ASSERTS
/* The same where the rank is at hand. */
#define COLLI_ASSERT_RANK(condition, rank)                                                         \
  (__builtin_expect(!!(condition), 1)                                                              \
       ? (void)0                                                                                   \
       : colli_assert_failed(__FILE__, __LINE__, __func__, #condition, (rank)))
#else
#define COLLI_ASSERT_RANK(condition, rank) ((void)sizeof(!(condition)), (void)sizeof(rank))
#endif

/* Ends the program with place and condition if that does not hold. */
#define COLLI_ASSERT(condition) COLLI_ASSERT_RANK(condition, -1)

/* Says which condition does not hold where, and aborts. rank: -1 if not known. */
_Noreturn void colli_assert_failed(const char *file, int line, const char *function,
                                   const char *condition, int rank);

#endif
