/* typed.c: runs calls whose blocks have a type for each rank: as the same call in bytes. */
#include "libcoll/api/typed.h"

#include <stdlib.h>

#include "libcoll/base/names.h"
#include "libcoll/comm/comm.h"
#include "libcoll/run/run.h"

/* What the caller gives for one side: of a call, its "send" or its "recv" tables. */
typedef struct side {
  const char *what;
  const size_t *counts, *displs;
  const coll_type *types;
} side;

/* Refuses wrong arguments. */
#define REFUSE(comm, call, ...)                                                                    \
  colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, (call)->name, __VA_ARGS__)

/* Writes one side's counts and displacements in bytes. */
static coll_status side_in_bytes(coll_comm *comm, const colli_call *call, const side *from,
                                 size_t *counts, size_t *displs) {
  if (!from->counts || !from->types)
    return REFUSE(comm, call, "%s%s is NULL", from->what, from->counts ? "types" : "counts");
  size_t end = 0;
  for (int rank = 0; rank < comm->nranks; rank++) {
    const size_t bytes = coll_type_bytes(from->types[rank]);
    if (bytes == 0)
      return REFUSE(comm, call, "%stypes[%d] = %d is no coll_type; see coll.h for the list",
                    from->what, rank, (int)from->types[rank]);
    displs[rank] = from->displs ? from->displs[rank] : end;
    if (__builtin_mul_overflow(from->counts[rank], bytes, &counts[rank]) ||
        __builtin_add_overflow(displs[rank], counts[rank], &end))
      return REFUSE(comm, call,
                    "%scounts[%d] = %zu of %s, at byte %zu, is more than memory can hold",
                    from->what, rank, from->counts[rank], colli_type_name((int)from->types[rank]),
                    displs[rank]);
  }
  return COLL_OK;
}

/* Makes the same call in bytes. Its tables are in *tables, which the caller frees or gives to the
 * group, also after an error. */
static coll_status make_bytes(coll_comm *comm, const colli_typed_call *typed, colli_call *bytes,
                              colli_tables **tables) {
  const colli_call *call = &typed->call;
  const size_t n = (size_t)comm->nranks;
  const side in = {"send", call->in_counts, call->in_displs, typed->in_types};
  const side out = {"recv", call->out_counts, call->out_displs, typed->out_types};
  *bytes = *call;
  *tables = malloc(sizeof(**tables) + 4 * n * sizeof(size_t));
  if (!*tables)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, call->name,
                             "out of memory for the tables of %d ranks", comm->nranks);
  size_t *words = (*tables)->words;
  (*tables)->next = NULL;
  coll_status status = side_in_bytes(comm, call, &in, words, words + n);
  if (status == COLL_OK)
    status = side_in_bytes(comm, call, &out, words + 2 * n, words + 3 * n);
  bytes->type = (int)COLL_TYPE_USER(1);
  bytes->in_counts = words;
  bytes->in_displs = words + n;
  bytes->out_counts = words + 2 * n;
  bytes->out_displs = words + 3 * n;
  return status;
}

coll_status colli_typed_run(coll_comm *comm, const colli_call *call) {
  colli_call bytes;
  colli_tables *tables;
  coll_status status = make_bytes(comm, (const colli_typed_call *)call, &bytes, &tables);
  colli_group *group = &comm->calls.group;
  if (status == COLL_OK)
    status = colli_call_run(comm, &bytes);
  else if (group->depth > 0 && group->refused == COLL_OK)
    group->refused = status;
  if (group->depth > 0 && tables)
    colli_group_own(group, tables);
  else
    free(tables);
  return status;
}

/* Starts the call, or keeps it; both copy its tables. */
static coll_status begin(coll_comm *comm, const colli_call *call, coll_request **request,
                         coll_status (*begin_call)(coll_comm *, const colli_call *,
                                                   coll_request **)) {
  colli_call bytes;
  colli_tables *tables;
  coll_status status = make_bytes(comm, (const colli_typed_call *)call, &bytes, &tables);
  if (status == COLL_OK)
    status = begin_call(comm, &bytes, request);
  free(tables);
  return status;
}

coll_status colli_typed_launch(coll_comm *comm, const colli_call *call, coll_request **request) {
  return begin(comm, call, request, colli_call_launch);
}

coll_status colli_typed_keep(coll_comm *comm, const colli_call *call, coll_request **request) {
  return begin(comm, call, request, colli_call_keep);
}
