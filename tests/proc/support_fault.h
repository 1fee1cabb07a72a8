/* support_fault.h: programs under the fault decorator. */
#ifndef TESTS_SUPPORT_FAULT_H
#define TESTS_SUPPORT_FAULT_H

/* Random collectives on some threads, in coll_mem_alloc() and ordinary memory, with faults that
 * must not change results; 0 if the results are right. */
int fault_play(const char *transport);

/* All-reduces long vectors until the connections of two ranks break; 0 if both get an error. */
int fault_cut(const char *transport);

#endif
