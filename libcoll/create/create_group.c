/*
 * create_group.c: a communicator of some ranks, which nobody else has to do anything for. The
 * members' records travel in messages with tags of their own: up a binomial tree over the list to
 * its first rank, and the whole table down the same tree.
 *
 *        0                 a rank waits for its children, passes their records on with its own,
 *      / | \               and then waits for the table
 *     1  2  4
 *        |  | \
 *        3  5  6
 */
#include <stdlib.h>

#include "libcoll/base/assert.h"
#include "libcoll/comm/pool.h"
#include "libcoll/create/split_parts.h"
#include "libcoll/progress/enter.h"
#include "libcoll/run/p2p_call.h"
#include "libcoll/run/run.h"

/* The exchange of records; ranks and records in the order of the list. */
typedef struct exchange {
  colli_split *split;
  const int *ranks;
  int count;
  int self; /* this rank's index */
  int tag;
  colli_split_record *table;
} exchange;

/* Runs one send or receive. It is not checked as a program's own: those have other tags. */
static coll_status run_message(coll_comm *comm, const colli_call *call) {
  if (comm->failure.status != COLL_OK)
    return comm->failure.status;
  coll_request *op = colli_request_get_message(comm);
  if (!op)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, call->name, "out of memory for a request");
  op->moved_at = comm->watch.waited_ns;
  op->coll = COLLI_SENDRECV;
  colli_p2p_prepare(comm, call, op);
  colli_p2p_start(&comm->p2p, colli_p2p_op_of(op));
  coll_status status = colli_call_wait(comm, op);
  colli_request_put(op);
  return status;
}

/* A call about `n` records from index `first` on; the caller adds the direction. */
static colli_call describe(const exchange *x, int first, int n) {
  return (colli_call){.name = x->split->name,
                      .coll = COLLI_SENDRECV,
                      .type = COLL_TYPE_USER(sizeof(colli_split_record)),
                      .count = (size_t)n,
                      .sendbuf = &x->table[first],
                      .recvbuf = &x->table[first]};
}

static coll_status send_records(const exchange *x, int to, int first, int n) {
  colli_call call = describe(x, first, n);
  call.p2p = COLLI_P2P_SEND;
  call.dest = x->ranks[to];
  call.send_tag = COLLI_OWN_TAG(x->tag);
  return run_message(x->split->parent, &call);
}

/* Receives records, and checks that their sender has the same list. */
static coll_status recv_records(const exchange *x, int from, int first, int n) {
  coll_comm *comm = x->split->parent;
  coll_message message = {0};
  colli_call call = describe(x, first, n);
  call.p2p = COLLI_P2P_RECV;
  call.source = x->ranks[from];
  call.recv_tag = COLLI_OWN_TAG(x->tag);
  call.message = &message;
  call.recv_count = (size_t)n;
  coll_status status = run_message(comm, &call);
  bool same = status == COLL_OK && message.count == (size_t)n;
  for (int i = first; i < first + n && same; i++)
    same = x->table[i].check == x->split->mine.check;
  if (same || (status != COLL_OK && status != COLL_ERR_MISMATCH))
    return status;
  if (comm->failure.status != COLL_OK) /* for another reason */
    return comm->failure.status;
  return colli_split_disagree(x->split, x->ranks[from], "coll_comm_create_group",
                              "groups of other ranks need another tag");
}

/* Exchanges the records of all members. */
static coll_status exchange_records(const exchange *x) {
  coll_status status = COLL_OK;
  int mask = 1;
  for (; mask < x->count && !(x->self & mask) && status == COLL_OK; mask <<= 1) {
    int child = x->self + mask, left = x->count - child;
    if (left > 0)
      status = recv_records(x, child, child, left < mask ? left : mask);
  }
  if (x->self > 0) {
    int parent = x->self - mask, left = x->count - x->self;
    if (status == COLL_OK)
      status = send_records(x, parent, x->self, left < mask ? left : mask);
    if (status == COLL_OK)
      status = recv_records(x, parent, 0, x->count);
  }
  for (mask >>= 1; mask > 0 && status == COLL_OK; mask >>= 1)
    if (x->self + mask < x->count)
      status = send_records(x, x->self + mask, 0, x->count);
  return status;
}

/* Meets the other members, and makes the communicator. */
static coll_status meet(colli_split *split, const int *ranks, int count, int tag,
                        coll_comm **child) {
  coll_comm *comm = split->parent;
  exchange x = {split, ranks, count, split->mine.key, tag, NULL};
  x.table = calloc((size_t)count, sizeof(*x.table));
  if (!x.table)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, split->name,
                             "out of memory for a list of ranks");
  COLLI_ASSERT_RANK(ranks[x.self] == comm->rank, comm->rank);
  x.table[x.self] = split->mine;
  coll_status status = exchange_records(&x);
  for (int rank = 0; rank < comm->nranks; rank++)
    split->records[rank].color = COLL_NO_COLOR;
  for (int i = 0; i < count; i++) {
    x.table[i].color = split->mine.color; /* as the list says, whatever others sent */
    x.table[i].key = i;
    split->records[ranks[i]] = x.table[i];
  }
  free(x.table);
  return status == COLL_OK ? colli_split_make(split, child) : status;
}

/* The whole call, for a thread that is inside `comm`. */
static coll_status create_group(coll_comm *comm, const int *ranks, int count, int tag,
                                const coll_config *config, coll_comm **child) {
  colli_split_call call = {.kind = COLLI_SPLIT_GROUP, .tag = tag, .config = config};
  const char *name = colli_split_name(call.kind);
  if (!child)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, name, "child is NULL");
  if (tag < 0 || tag > COLLI_OWN_TAG_MAX)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, name, "tag %d is not in 0 .. %d", tag,
                             COLLI_OWN_TAG_MAX);
  coll_status status = colli_split_read_list(comm, ranks, count, &call);
  if (status == COLL_OK && call.color == COLL_NO_COLOR)
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, name,
                               "this rank, %d, is not in the list; only those in it make the call",
                               comm->rank);
  if (status == COLL_OK)
    status = colli_call_check_usable(comm);
  if (status != COLL_OK)
    return status;
  colli_split *split;
  status = colli_split_prepare(comm, &call, &split);
  if (status != COLL_OK)
    return status;
  status = meet(split, ranks, count, tag, child);
  colli_split_drop(split);
  return status;
}

coll_status coll_comm_create_group(coll_comm *comm, const int *ranks, int count, int tag,
                                   const coll_config *config, coll_comm **child) {
  if (child)
    *child = NULL;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = create_group(comm, ranks, count, tag, config, child);
  if (status != COLL_OK)
    colli_split_tell(comm, config);
  colli_call_leave(comm);
  return status;
}
