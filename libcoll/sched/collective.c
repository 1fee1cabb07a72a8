/* collective.c: traits and names of the collectives. */
#include "libcoll/sched/collective.h"

#include <string.h>

/* The name of a collective; NULL for an unknown number. */
const char *colli_coll_name(colli_coll coll) {
  static const char *const names[COLLI_COLL_COUNT] = {
      "allreduce",      "broadcast", "allgather", "barrier", "sendrecv", "reduce",
      "reduce_scatter", "alltoall",  "gather",    "scatter", "scan",     "exscan"};
  return (unsigned)coll < COLLI_COLL_COUNT ? names[coll] : NULL;
}

/* The collective of a name, or -1. */
int colli_coll_parse(const char *name) {
  for (int coll = 0; coll < COLLI_COLL_COUNT; coll++)
    if (strcmp(name, colli_coll_name((colli_coll)coll)) == 0)
      return coll;
  return -1;
}

/* Whether it combines elements. */
bool colli_reduces(colli_coll coll) {
  return coll == COLLI_ALLREDUCE || coll == COLLI_REDUCE || coll == COLLI_REDUCE_SCATTER ||
         coll == COLLI_SCAN || coll == COLLI_EXSCAN;
}

/* Whether it moves blocks of exactly count elements. */
bool colli_exact(colli_coll coll) {
  return coll == COLLI_ALLGATHER || coll == COLLI_REDUCE_SCATTER || coll == COLLI_ALLTOALL ||
         coll == COLLI_GATHER || coll == COLLI_SCATTER;
}

/* Whether it depends on a root. */
bool colli_rooted(colli_coll coll) {
  return coll == COLLI_BROADCAST || coll == COLLI_REDUCE || coll == COLLI_GATHER ||
         coll == COLLI_SCATTER;
}

/* Finds a collective by its name; a v-form has the name of its plain form plus a "v". */
bool colli_coll_find(const char *name, colli_coll *coll, bool *varying) {
  char plain[32];
  size_t length = strlen(name);
  if (length == 0 || length >= sizeof(plain))
    return false;
  strcpy(plain, name);
  int found = colli_coll_parse(plain);
  *varying = found < 0 && plain[length - 1] == 'v';
  if (*varying) {
    plain[length - 1] = 0;
    found = colli_coll_parse(plain);
  }
  *coll = (colli_coll)found;
  return found >= 0 && found != COLLI_SENDRECV && (!*varying || colli_exact(*coll));
}
