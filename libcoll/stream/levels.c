/* levels.c: which calls are divided among groups, and into which parts. */
#include "libcoll/stream/levels.h"

#include "libcoll/base/names.h"
#include "libcoll/comm/comm.h"
#include "libcoll/stream/levels_messages.h"

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
  return plan.order == COLLI_ORDER_ANY && !plan.user && !plan.widened &&
         (call->op != COLL_AVG || comm->levels->size == 1) &&
         colli_gpu_folds((coll_type)call->type, call->op, false);
}

/* Elements of the vector, or of each block, that are in a round; 0: there is no room for any. */
static size_t round_of(const coll_comm *comm, const colli_call *call) {
  const colli_levels *levels = comm->levels;
  return colli_levels_round(call->coll, levels->room_bytes, colli_type_bytes(call->type),
                            levels->ngroups, levels->size);
}

/* Elements of the vector, or on average of a block. */
static size_t usual_count(const coll_comm *comm, const colli_call *call) {
  size_t total = 0;
  for (int rank = 0; call->varying && rank < comm->nranks; rank++)
    total += call->in_counts[rank];
  return call->varying ? total / (size_t)comm->nranks : call->count;
}

bool colli_levels_takes(const coll_comm *comm, const colli_call *call) {
  const colli_levels *levels = comm->levels;
  const colli_coll coll = call->coll;
  if (!levels || (call->varying && coll != COLLI_REDUCE_SCATTER))
    return false;
  const bool has_rounds = coll == COLLI_REDUCE || coll == COLLI_REDUCE_SCATTER;
  if (!has_rounds && coll != COLLI_ALLREDUCE && coll != COLLI_BROADCAST && coll != COLLI_ALLGATHER)
    return false;
  if (levels->size == 1)
    return colli_levels_can_message(comm, call) && has_any_order(comm, call);
  return colli_levels_is_long(coll, usual_count(comm, call) * colli_type_bytes(call->type),
                              levels->size, comm->streams->part_bytes) &&
         (!has_rounds || round_of(comm, call) > 0) && has_any_order(comm, call);
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

/* A part like the call, from a buffer to another one. */
static colli_call between(const colli_call *call, const void *from, void *to, size_t count) {
  return (colli_call){.name = call->name,
                      .coll = call->coll,
                      .sendbuf = from,
                      .recvbuf = to,
                      .count = count,
                      .type = call->type,
                      .op = call->op};
}

/* A part on `count` elements from an element of the result on, in place. */
static colli_call in_result(const colli_call *call, colli_coll coll, size_t element, size_t count) {
  char *at = result_at(call, element);
  colli_call part = between(call, at, at, count);
  part.coll = coll;
  return part;
}

/* Blocks of this result, of which this rank has the `own`-th. `tables` has lengths and places. */
static colli_call gather_blocks(const colli_call *call, const size_t *tables, int n, int own) {
  colli_call part = in_result(call, COLLI_ALLGATHER, tables[n + own], 0);
  part.op = 0;
  part.recvbuf = call->recvbuf;
  part.varying = part.known = true;
  part.in_counts = part.out_counts = tables;
  part.in_displs = part.out_displs = tables + n;
  return part;
}

/* The first part of an all-reduce, and of a round of a reduce: this rank's piece to a buffer. */
static colli_call scatter_pieces(const colli_call *call, void *to, const size_t *tables) {
  colli_call part = between(call, call->sendbuf, to, 0);
  part.coll = COLLI_REDUCE_SCATTER;
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
    *part = scatter_pieces(call, result_at(call, tables[levels->size + levels->place]), tables);
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

/* ---- parts in rounds ------------------------------------------------------------------------- */

/* The i-th part of a round of a reduce; pieces are in the room, on the root as well. */
static coll_comm *part_of_reduce(const coll_comm *comm, const colli_call *round, int i,
                                 const colli_levels_space *space, colli_call *part) {
  const colli_levels *levels = comm->levels;
  int group, place;
  find_rank(comm, round->root, &group, &place);
  list_pieces(levels, round->count, space->tables);
  const size_t own = space->tables[levels->place];
  if (i == 0) {
    *part = scatter_pieces(round, space->room, space->tables);
    return levels->within;
  }
  *part = between(round, space->room, i == 1 ? space->room : round->recvbuf, own);
  part->root = i == 1 ? group : place;
  if (i == 1)
    return levels->across;
  part->coll = COLLI_GATHER;
  part->op = 0;
  part->varying = part->known = true;
  part->out_counts = space->tables;
  part->out_displs = space->tables + levels->size;
  return levels->within;
}

/* The elements of a vector that are in a round, as a call. */
static colli_call vector_in_round(const coll_comm *comm, const colli_call *call, size_t number) {
  const size_t most = round_of(comm, call), first = number * most;
  const size_t at = first * colli_type_bytes(call->type), left = call->count - first;
  colli_call round = *call;
  round.sendbuf = (const char *)call->sendbuf + at;
  round.recvbuf = call->recvbuf ? (char *)call->recvbuf + at : NULL;
  round.count = left < most ? left : most;
  return round;
}

/* A rank's block in the vector: where it begins, and how long it is. */
static size_t block_at(const colli_call *call, int rank, size_t *count) {
  *count = call->varying ? call->in_counts[rank] : call->count;
  return call->varying ? call->in_displs[rank] : call->count * (size_t)rank;
}

/* What is in a round of the blocks for the ranks of a group, or for those with a place in all
 * groups: lengths, and then where they begin in the vector. */
static void list_rounds(const coll_comm *comm, const colli_call *call, size_t number, bool of_group,
                        int which, size_t *tables) {
  const colli_levels *levels = comm->levels;
  const int n = of_group ? levels->size : levels->ngroups;
  const size_t most = round_of(comm, call), first = number * most;
  for (int i = 0; i < n; i++) {
    size_t count;
    const int rank = colli_levels_member(levels, of_group ? which : i, of_group ? i : which);
    const size_t at = block_at(call, rank, &count), left = count > first ? count - first : 0;
    tables[i] = left < most ? left : most;
    tables[n + i] = at + (left > 0 ? first : 0);
  }
}

/* The i-th part of a round of a reduce-scatter. In the room are blocks for the ranks with this
 * rank's place, group by group. */
static coll_comm *part_of_reduce_scatter(const coll_comm *comm, const colli_call *call,
                                         size_t number, int i, const colli_levels_space *space,
                                         colli_call *part) {
  const colli_levels *levels = comm->levels;
  const size_t elem = colli_type_bytes(call->type);
  size_t *tables = space->tables, before = 0;
  list_rounds(comm, call, number, false, levels->place, tables);
  if (i == levels->ngroups) {
    const size_t own = tables[levels->group], first = own > 0 ? number * round_of(comm, call) : 0;
    *part = between(call, space->room, (char *)call->recvbuf + first * elem, own);
  } else {
    for (int group = 0; group < i; group++)
      before += tables[group];
    list_rounds(comm, call, number, true, i, tables);
    *part = between(call, call->sendbuf, space->room + before * elem, tables[levels->place]);
    part->in_displs = tables + levels->size;
  }
  part->varying = call->varying || i < levels->ngroups;
  if (part->varying)
    part->in_counts = part->out_counts = tables;
  return i < levels->ngroups ? levels->within : levels->across;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* How many parts a call, or a round of one, has. */
static size_t parts_each(const coll_comm *comm, const colli_call *call) {
  int group, place;
  switch (call->coll) {
  case COLLI_ALLREDUCE:
    return 3;
  case COLLI_BROADCAST:
    return 2;
  case COLLI_REDUCE:
    find_rank(comm, call->root, &group, &place);
    return comm->levels->group == group ? 3 : 2;
  default:
    return 1 + (size_t)comm->levels->ngroups;
  }
}

size_t colli_levels_count(const coll_comm *comm, const colli_call *call) {
  if (comm->levels->size == 1)
    return 1;
  const size_t each = parts_each(comm, call);
  if (call->coll != COLLI_REDUCE && call->coll != COLLI_REDUCE_SCATTER)
    return each;
  const size_t most = round_of(comm, call);
  size_t longest = call->count;
  for (int rank = 0; call->varying && rank < comm->nranks; rank++)
    longest = call->in_counts[rank] > longest ? call->in_counts[rank] : longest;
  return (longest + most - 1) / most * each;
}

coll_comm *colli_levels_part(const coll_comm *comm, const colli_call *call, size_t i,
                             const colli_levels_space *space, colli_call *part) {
  if (comm->levels->size == 1) {
    *part = *call;
    return comm->levels->across;
  }
  const size_t each = parts_each(comm, call), number = i / each;
  const int place = (int)(i % each);
  switch (call->coll) {
  case COLLI_ALLREDUCE:
    return part_of_allreduce(comm->levels, call, place, space->tables, part);
  case COLLI_BROADCAST:
    return part_of_broadcast(comm, call, place, space->tables, part);
  case COLLI_ALLGATHER:
    return part_of_allgather(comm->levels, call, place, space->tables, part);
  case COLLI_REDUCE: {
    const colli_call round = vector_in_round(comm, call, number);
    return part_of_reduce(comm, &round, place, space, part);
  }
  default:
    return part_of_reduce_scatter(comm, call, number, place, space, part);
  }
}
