/* request.h: a communicator's pool of requests. */
#ifndef COLLI_API_REQUEST_H
#define COLLI_API_REQUEST_H

#include <stdbool.h>

#include "coll/coll.h"

/* A request from the pool, which grows; NULL: out of memory. */
coll_request *colli_request_get(coll_comm *comm);
void colli_request_put(coll_request *request);
void colli_request_free_all(coll_comm *comm);

#endif
