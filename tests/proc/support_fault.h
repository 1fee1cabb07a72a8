/* support_fault.h: programs under the fault decorator. */
#ifndef TESTS_SUPPORT_FAULT_H
#define TESTS_SUPPORT_FAULT_H

#include <coll/coll.h>

/* Random collectives on some threads, in coll_mem_alloc() and ordinary memory, with faults that
 * must not change results; 0 if the results are right. */
int fault_play(const char *transport);

/* All-reduces long vectors until the connections of two ranks break; 0 if both get an error. */
int fault_cut(const char *transport);

/* The same programs with COLL_DATA_CHECK set to `check`, in which nothing is wrong. */
int fault_checked(const char *transport, const char *check);

/* Programs in which one message from rank 0 to rank 1 arrives wrong, twice, late or never, with
 * COLL_DATA_CHECK set to `check`; 0 if both ranks get `status` and a message that names both, the
 * transport, the check and the operation. */
int fault_tampered(const char *transport, const char *check, coll_status status);

#endif
