/* calls.c: draws and makes the collectives of a worker; a plain reference. */
#include "calls.h"

const char *const kind_names[] = {
    "allreduce", "reduce",    "reduce_scatter", "reduce_scatterv", "scan",    "exscan",
    "broadcast", "allgather", "allgatherv",     "gather",          "gatherv", "scatter",
    "scatterv",  "alltoall",  "alltoallv",      "barrier",         "split",   "half",
};

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

int64_t element(const struct call *call, int rank, size_t i) {
  return (int64_t)(mix(call->seed + (uint64_t)rank, i) % 200);
}

void store(coll_type type, void *buffer, size_t i, int64_t value) {
  switch (type) {
  case COLL_UINT8:
    ((uint8_t *)buffer)[i] = (uint8_t)value;
    break;
  case COLL_INT32:
    ((int32_t *)buffer)[i] = (int32_t)value;
    break;
  case COLL_FLOAT64:
    ((double *)buffer)[i] = (double)value;
    break;
  default:
    ((int64_t *)buffer)[i] = value;
  }
}

int64_t load(coll_type type, const void *buffer, size_t i) {
  switch (type) {
  case COLL_UINT8:
    return ((const uint8_t *)buffer)[i];
  case COLL_INT32:
    return ((const int32_t *)buffer)[i];
  case COLL_FLOAT64:
    return (int64_t)((const double *)buffer)[i];
  default:
    return ((const int64_t *)buffer)[i];
  }
}

/* How many elements rank s sends to rank d in an all-to-all with counts. */
static size_t between(const struct call *call, int s, int d) {
  return mix(call->seed ^ 77, (uint64_t)(s * MOST_RANKS + d)) % (call->count + 1);
}

void draw(struct call *call, uint64_t seed, int rank, int nranks) {
  static const size_t sizes[] = {0, 1, 2, 7, 33, 1000, 4097, 30011};
  static const coll_type types[] = {COLL_UINT8, COLL_INT32, COLL_INT64, COLL_FLOAT64};
  static const coll_op ops[] = {COLL_SUM, COLL_MIN, COLL_MAX};
  *call = (struct call){.seed = seed, .rank = rank, .nranks = nranks};
  call->kind = (enum kind)(mix(seed, 1) % KINDS);
  if (call->kind == SPLIT && mix(seed, 2) % 4 != 0)
    call->kind = ALLREDUCE;
  call->type = types[mix(seed, 3) % 4];
  call->op = ops[mix(seed, 4) % 3];
  call->count = sizes[mix(seed, 5) % 8];
  call->root = (int)(mix(seed, 6) % (uint64_t)nranks);
  size_t sum = 0;
  for (int r = 0; r < nranks; r++) {
    call->counts[r] = mix(seed, (uint64_t)(100 + r)) % (call->count + 1);
    call->displs[r] = sum;
    sum += call->counts[r];
  }
}

static coll_status run_alltoallv(const struct call *call, const void *send, void *receive,
                                 coll_comm *comm) {
  size_t to[MOST_RANKS], from[MOST_RANKS];
  for (int r = 0; r < call->nranks; r++) {
    to[r] = between(call, call->rank, r);
    from[r] = between(call, r, call->rank);
  }
  return coll_alltoallv(send, to, NULL, receive, from, NULL, call->type, comm);
}

coll_status run(const struct call *c, const void *send, void *receive, coll_comm *comm) {
  switch (c->kind) {
  case ALLREDUCE:
    return coll_allreduce(send, receive, c->count, c->type, c->op, comm);
  case REDUCE:
    return coll_reduce(send, receive, c->count, c->type, c->op, c->root, comm);
  case REDUCE_SCATTER:
    return coll_reduce_scatter(send, receive, c->count, c->type, c->op, comm);
  case REDUCE_SCATTERV:
    return coll_reduce_scatterv(send, receive, c->counts, c->type, c->op, comm);
  case SCAN:
    return coll_scan(send, receive, c->count, c->type, c->op, comm);
  case EXSCAN:
    return coll_exscan(send, receive, c->count, c->type, c->op, comm);
  case BROADCAST:
    return coll_broadcast(send, receive, c->count, c->type, c->root, comm);
  case ALLGATHER:
    return coll_allgather(send, receive, c->count, c->type, comm);
  case ALLGATHERV:
    return coll_allgatherv(send, receive, c->counts, NULL, c->type, comm);
  case GATHER:
    return coll_gather(send, receive, c->count, c->type, c->root, comm);
  case GATHERV:
    return coll_gatherv(send, c->counts[c->rank], receive, c->counts, NULL, c->type, c->root, comm);
  case SCATTER:
    return coll_scatter(send, receive, c->count, c->type, c->root, comm);
  case SCATTERV:
    return coll_scatterv(send, c->counts, NULL, receive, c->counts[c->rank], c->type, c->root,
                         comm);
  case ALLTOALL:
    return coll_alltoall(send, receive, c->count, c->type, comm);
  case ALLTOALLV:
    return run_alltoallv(c, send, receive, comm);
  default:
    return coll_barrier(comm);
  }
}

int64_t reduced(const struct call *call, int first, int last, size_t i) {
  int64_t result = element(call, first, i);
  for (int r = first + 1; r <= last; r++) {
    int64_t value = element(call, r, i);
    if (call->op == COLL_SUM)
      result += value;
    else if ((call->op == COLL_MIN) == (value < result))
      result = value;
  }
  return call->type == COLL_UINT8 ? (uint8_t)result : result;
}

size_t block_from(const struct call *c, int s, size_t *begin) {
  *begin = 0;
  switch (c->kind) {
  case BROADCAST:
    return s == c->root ? c->count : 0;
  case GATHER:
    return c->rank == c->root ? c->count : 0;
  case GATHERV:
    return c->rank == c->root ? c->counts[s] : 0;
  case ALLGATHER:
    return c->count;
  case ALLGATHERV:
    return c->counts[s];
  case SCATTER:
    *begin = (size_t)c->rank * c->count;
    return s == c->root ? c->count : 0;
  case SCATTERV:
    *begin = c->displs[c->rank];
    return s == c->root ? c->counts[c->rank] : 0;
  case ALLTOALL:
    *begin = (size_t)c->rank * c->count;
    return c->count;
  case ALLTOALLV:
    for (int d = 0; d < c->rank; d++)
      *begin += between(c, s, d);
    return between(c, s, c->rank);
  default:
    return 0;
  }
}

size_t reduced_here(const struct call *c, size_t *begin, int *last) {
  *begin = 0;
  *last = c->nranks - 1;
  switch (c->kind) {
  case ALLREDUCE:
    return c->count;
  case REDUCE:
    return c->rank == c->root ? c->count : 0;
  case REDUCE_SCATTER:
    *begin = (size_t)c->rank * c->count;
    return c->count;
  case REDUCE_SCATTERV:
    *begin = c->displs[c->rank];
    return c->counts[c->rank];
  case SCAN:
  case EXSCAN:
    *last = c->kind == SCAN ? c->rank : c->rank - 1;
    return *last < 0 ? 0 : c->count;
  default:
    return 0;
  }
}
