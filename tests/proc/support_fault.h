/* support_fault.h: programs under the fault decorator. */
#ifndef TESTS_SUPPORT_FAULT_H
#define TESTS_SUPPORT_FAULT_H

/* Random collectives on some threads, in memory of coll_mem_alloc() and in ordinary memory, with
 * faults that nobody may notice; 0 if their results are right. */
int fault_play(const char *transport);

/* Long vectors until the connections of two ranks break; 0 if both are told. */
int fault_cut(const char *transport);

#endif
