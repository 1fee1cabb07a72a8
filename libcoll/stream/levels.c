/* levels.c: which calls are divided among groups, and into which parts. */
#include "libcoll/stream/levels.h"

#include "libcoll/base/names.h"
#include "libcoll/comm/comm.h"

/* ---- which ----------------------------------------------------------------------------------- */

/* Whether parts may combine ranks in an order of their own. */
static bool has_any_order(const coll_comm *comm, const colli_call *call) {
  colli_plan plan;
  const colli_plan_key key = colli_call_key(call, 0);
  colli_call_resolve(&comm->calls, call, &key, &plan);
  if (plan.checks_finite)
    return false;
  if (!colli_reduces(call->coll))
    return true;
  /* A second average would round twice, and so would results in float32 between the parts. */
  return plan.order == COLLI_ORDER_ANY && !plan.user && !plan.widened && call->op != COLL_AVG &&
         colli_gpu_folds((coll_type)call->type, call->op, false);
}

bool colli_levels_takes(const coll_comm *comm, const colli_call *call) {
  const colli_levels *levels = comm->levels;
  if (!levels || call->varying)
    return false;
  if (call->coll != COLLI_ALLREDUCE && call->coll != COLLI_BROADCAST &&
      call->coll != COLLI_ALLGATHER)
    return false;
  return colli_levels_is_long(call->coll, call->count * colli_type_bytes(call->type), levels->size,
                              comm->streams->part_bytes) &&
         has_any_order(comm, call);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Lists the pieces: lengths, and then where they begin. */
static void list_pieces(const colli_levels *levels, size_t count, size_t *tables) {
  for (int place = 0; place < levels->size; place++) {
    const size_t at = colli_levels_piece_at(count, place, levels->size);
    tables[place] = colli_levels_piece_at(count, place + 1, levels->size) - at;
    tables[levels->size + place] = at;
  }
}

/* The address of an element of the result. */
static char *result_at(const colli_call *call, size_t element) {
  return (char *)call->recvbuf + element * colli_type_bytes(call->type);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* A part like the call, on `count` elements from an element of the result on, in place. */
static colli_call in_result(const colli_call *call, colli_coll coll, size_t element, size_t count) {
  return (colli_call){.name = call->name,
                      .coll = coll,
                      .sendbuf = result_at(call, element),
                      .recvbuf = result_at(call, element),
                      .count = count,
                      .type = call->type,
                      .op = call->op};
}

/* Blocks of this result, of which this rank has the `own`-th. `tables` has lengths and places. */
static colli_call gather_blocks(const colli_call *call, const size_t *tables, int n, int own) {
  colli_call part = in_result(call, COLLI_ALLGATHER, tables[n + own], 0);
  part.op = 0;
  part.recvbuf = call->recvbuf;
  part.varying = true;
  part.in_counts = part.out_counts = tables;
  part.in_displs = part.out_displs = tables + n;
  return part;
}

/* The first part of an all-reduce. */
static colli_call scatter_pieces(const colli_levels *levels, const colli_call *call,
                                 const size_t *tables) {
  colli_call part = in_result(call, COLLI_REDUCE_SCATTER, tables[levels->size + levels->place], 0);
  part.sendbuf = call->sendbuf;
  part.varying = true;
  part.in_counts = part.out_counts = tables;
  return part;
}

/* This rank's piece across groups. */
static colli_call across(const colli_levels *levels, const colli_call *call) {
  const size_t at = colli_levels_piece_at(call->count, levels->place, levels->size);
  return in_result(call, call->coll, at,
                   colli_levels_piece_at(call->count, levels->place + 1, levels->size) - at);
}

/* The group and the place of a rank. */
static void find_rank(const coll_comm *comm, int rank, int *group, int *place) {
  int at = 0;
  while (comm->levels->member[at] != rank)
    at++;
  *group = at / comm->levels->size;
  *place = at % comm->levels->size;
}

/* The blocks of an all-gather that ranks with this place have (-1: those of a group's ranks). */
static void list_blocks(const colli_levels *levels, size_t count, int group, size_t *tables) {
  const int n = group < 0 ? levels->ngroups : levels->size;
  for (int i = 0; i < n; i++) {
    const int rank = group < 0 ? colli_levels_member(levels, i, levels->place)
                               : colli_levels_member(levels, group, i);
    tables[i] = count;
    tables[n + i] = count * (size_t)rank;
  }
}

static coll_comm *part_of_allreduce(const colli_levels *levels, const colli_call *call, int i,
                                    size_t *tables, colli_call *part) {
  list_pieces(levels, call->count, tables);
  if (i == 0)
    *part = scatter_pieces(levels, call, tables);
  else if (i == 1)
    *part = across(levels, call);
  else
    *part = gather_blocks(call, tables, levels->size, levels->place);
  return i == 1 ? levels->across : levels->within;
}

static coll_comm *part_of_broadcast(const coll_comm *comm, const colli_call *call, int i,
                                    size_t *tables, colli_call *part) {
  const colli_levels *levels = comm->levels;
  int group, place;
  find_rank(comm, call->root, &group, &place);
  if (i == (levels->group == group)) {
    *part = across(levels, call);
    part->root = group;
    return levels->across;
  }
  if (i == 0) {
    *part = *call;
    part->root = place;
  } else {
    list_pieces(levels, call->count, tables);
    *part = gather_blocks(call, tables, levels->size, levels->place);
  }
  return levels->within;
}

static coll_comm *part_of_allgather(const colli_levels *levels, const colli_call *call, int i,
                                    size_t *tables, colli_call *part) {
  list_blocks(levels, call->count, i - 1, tables);
  if (i > 0) {
    *part = gather_blocks(call, tables, levels->size, levels->place);
    return levels->within;
  }
  *part = gather_blocks(call, tables, levels->ngroups, levels->group);
  part->sendbuf = call->sendbuf;
  return levels->across;
}

int colli_levels_count(const coll_comm *comm, const colli_call *call) {
  if (call->coll == COLLI_ALLGATHER)
    return 1 + comm->levels->ngroups;
  return call->coll == COLLI_ALLREDUCE ? 3 : 2;
}

coll_comm *colli_levels_part(const coll_comm *comm, const colli_call *call, int i, size_t *tables,
                             colli_call *part) {
  if (call->coll == COLLI_ALLREDUCE)
    return part_of_allreduce(comm->levels, call, i, tables, part);
  if (call->coll == COLLI_BROADCAST)
    return part_of_broadcast(comm, call, i, tables, part);
  return part_of_allgather(comm->levels, call, i, tables, part);
}
