/* attr.h: values that the caller attaches to a communicator. */
#ifndef COLLI_API_ATTR_H
#define COLLI_API_ATTR_H

#include "coll/coll.h"

/* Removes all attributes, newest first, and calls their `destroy` functions. */
void colli_attrs_free(coll_comm *comm);

#endif
