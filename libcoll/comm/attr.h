/* attr.h: values that a caller keeps with a communicator. */
#ifndef COLLI_COMM_ATTR_H
#define COLLI_COMM_ATTR_H

#include "coll/coll.h"

typedef struct colli_attr {
  struct colli_attr *next;
  const void *key;
  void *value;
  void (*destroy)(void *value);
} colli_attr;

/* Removes all, newest first, and calls their `destroy`. */
void colli_attrs_free(coll_comm *comm);

#endif
