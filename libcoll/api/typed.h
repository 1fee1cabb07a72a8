/* typed.h: calls whose blocks have a type for each rank. */
#ifndef COLLI_API_TYPED_H
#define COLLI_API_TYPED_H

#include "libcoll/call/call.h"

/* A v-form of all-to-all whose displacements are bytes, and one type for each rank. The call comes
 * first, so that the forms can pass both as a call. */
typedef struct colli_typed_call {
  colli_call call;
  const coll_type *in_types, *out_types;
} colli_typed_call;

/* As the functions of run.h; `call` is that of a colli_typed_call. */
coll_status colli_typed_run(coll_comm *comm, const colli_call *call);
coll_status colli_typed_launch(coll_comm *comm, const colli_call *call, coll_request **request);
coll_status colli_typed_keep(coll_comm *comm, const colli_call *call, coll_request **request);

#endif
