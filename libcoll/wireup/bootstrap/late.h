/*
 * late.h: who is to blame when time is up.
 *
 * A rank whose links are not up waits for others, which may wait for others again. The one that
 * keeps all waiting has mostly the lowest number, because the table goes from lower to higher ones.
 * In a tree the root knows only its children; so when links should be up, a rank that waits says
 * for whom, and each rank passes on the lowest one. Ranks deeper in the tree do that first.
 */
#ifndef COLLI_WIREUP_BOOTSTRAP_LATE_H
#define COLLI_WIREUP_BOOTSTRAP_LATE_H

#include "libcoll/wireup/bootstrap/serve.h"

/* When a rank that is not ready says for whom it waits. */
uint64_t boot_wait_ns(const boot *b, const boot_links *links);

/* The lowest rank for which this one waits, or one of those below it; -1: for nobody. server: NULL,
 * nobody is below it. */
int boot_waits_for(const boot *b, const boot_links *links, const boot_server *server);

#endif
