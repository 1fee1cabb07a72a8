/*
 * support_bare.h: the limit of test_strangers.c: processes with plain sockets, without libcoll,
 * that make the connections of a creation, a first all-reduce, a shrink and a growth of four ranks.
 *
 * Each connection carries as many messages as a handshake and a record, without any cryptography.
 * Their ports have a filter that drops all that strangers say, so that these cost what they cost
 * the kernel.
 */
#ifndef TESTS_SUPPORT_BARE_H
#define TESTS_SUPPORT_BARE_H

#include "support_strangers.h"

#define BARE_PHASES 4

/* Does it among `count` strangers of a kind at each port. The time of each phase, in milliseconds,
 * until the last process is done. False: a process failed. */
bool bare_run(int count, stranger_kind kind, double ms[BARE_PHASES]);

#endif
