/* support_program.c: makes, runs and checks random programs. */
#include "support_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "libcoll/base/names.h"

/* A number in 0 .. bound - 1. */
static int pick_below(colli_prng *prng, int bound) {
  return (int)colli_prng_below(prng, (uint64_t)bound);
}

/* A size in elements: 0, 1, odd, around the size of a chunk, several chunks. */
static size_t pick_count(colli_prng *prng, const world_config *config, size_t elem_bytes) {
  size_t slot = config->slot_bytes / elem_bytes;
  size_t chunk = config->slot_bytes * config->slot_count / 2 / elem_bytes;
  switch (pick_below(prng, 9)) {
  case 0:
    return 0;
  case 1:
    return 1;
  case 2:
    return 1 + 2 * (size_t)pick_below(prng, 40);
  case 3:
    return slot - 1 + (size_t)pick_below(prng, 3);
  case 4:
    return chunk - 1 + (size_t)pick_below(prng, 3);
  case 5:
    return 3 * chunk - 1 + (size_t)pick_below(prng, 3);
  default:
    return colli_prng_below(prng, 4 * chunk);
  }
}

/* Draws one random operation. */
static program_op pick_op(colli_prng *prng, const world_config *config, int nranks) {
  static const colli_coll colls[] = {COLLI_ALLREDUCE, COLLI_ALLREDUCE, COLLI_ALLREDUCE,
                                     COLLI_BROADCAST, COLLI_BROADCAST, COLLI_ALLGATHER,
                                     COLLI_BARRIER,   COLLI_SENDRECV,  COLLI_SENDRECV};
  program_op op = {.coll = colls[pick_below(prng, 9)]};
  if (nranks == 1 && op.coll == COLLI_SENDRECV)
    op.coll = COLLI_ALLREDUCE;
  op.type = (coll_type)pick_below(prng, COLL_FLOAT64 + 1);
  op.op = op.coll == COLLI_ALLREDUCE ? (coll_op)pick_below(prng, COLL_AVG + 1) : COLL_SUM;
  op.count = op.coll == COLLI_BARRIER ? 0 : pick_count(prng, config, coll_type_bytes(op.type));
  if (op.coll == COLLI_ALLGATHER && nranks > 4)
    op.count /= (size_t)nranks / 2;
  op.root = pick_below(prng, nranks);
  if (nranks > 1)
    op.peer = (op.root + 1 + pick_below(prng, nranks - 1)) % nranks;
  op.in_place = pick_below(prng, 2);
  op.seed = colli_prng_next(prng) >> 32;
  return op;
}

void program_make(program *p, world *w, const world_config *config, uint64_t seed) {
  colli_prng prng = {seed ^ 0x5eed};
  *p = (program){.world = w, .nranks = w->nranks, .odd_rank = -1, .seed = seed};
  p->nops = 1 + pick_below(&prng, 10);
  p->window = 1 + pick_below(&prng, 4);
  for (int i = 0; i < p->nops; i++)
    p->ops[i] = pick_op(&prng, config, w->nranks);
  p->ranks = calloc((size_t)w->nranks, sizeof(*p->ranks));
}

/* The call that this rank makes as its operation `index`. */
static const program_op *op_of(const program *p, int rank, int index) {
  return rank == p->odd_rank && index == p->odd_index ? &p->odd_op : &p->ops[index];
}

/* Whether a rank takes part in an operation. */
static bool takes_part(const program_op *op, int rank) {
  return op->coll != COLLI_SENDRECV || op->root == rank || op->peer == rank;
}

/* Bytes of an operation's input and result. */
static size_t in_bytes(const program_op *op) {
  return op->count * coll_type_bytes(op->type);
}

static size_t out_bytes(const program *p, const program_op *op) {
  return in_bytes(op) * (op->coll == COLLI_ALLGATHER ? (size_t)p->nranks : 1);
}

/* Allocates buffers and fills in the input; an operation in place has no `in`. */
static void prepare_buffers(const program *p, const program_op *op, int rank, program_part *part) {
  bool reads = (op->coll != COLLI_BROADCAST && op->coll != COLLI_SENDRECV) || op->root == rank;
  bool writes = op->coll != COLLI_SENDRECV || op->peer == rank;
  part->out = writes ? malloc(out_bytes(p, op) + 1) : NULL;
  if (part->out)
    memset(part->out, 0xee, out_bytes(p, op) + 1);
  if (!reads)
    return;
  char *fill;
  if (op->in_place && writes) {
    fill = part->out + (op->coll == COLLI_ALLGATHER ? in_bytes(op) * (size_t)rank : 0);
  } else {
    part->in = malloc(in_bytes(op) + 1);
    fill = part->in;
  }
  data_fill(fill, op->count, op->type, op->op, rank, op->seed);
}

/* Starts one operation on one rank. */
static coll_status start_operation(program *p, const program_op *op, int rank, program_part *part) {
  coll_comm *comm = p->world->comms[rank];
  prepare_buffers(p, op, rank, part);
  const void *in = part->in ? part->in : part->out;
  switch (op->coll) {
  case COLLI_ALLREDUCE:
    return coll_iallreduce(in, part->out, op->count, op->type, op->op, comm, &part->request);
  case COLLI_BROADCAST:
    return coll_ibroadcast(op->root == rank ? in : NULL, part->out, op->count, op->type, op->root,
                           comm, &part->request);
  case COLLI_ALLGATHER:
    if (!part->in)
      in = part->out + in_bytes(op) * (size_t)rank;
    return coll_iallgather(in, part->out, op->count, op->type, comm, &part->request);
  case COLLI_BARRIER:
    return coll_ibarrier(comm, &part->request);
  default:
    if (op->root == rank)
      return coll_isend(part->in, op->count, op->type, op->peer, 0, comm, &part->request);
    return coll_irecv(part->out, op->count, op->type, op->root, 0, NULL, comm, &part->request);
  }
}

/* The right result of an all-reduce. */
static const char *expected(program *p, int index) {
  const program_op *op = &p->ops[index];
  if (!p->expected[index]) {
    p->expected[index] = malloc(in_bytes(op) + 1);
    data_reduce(p->expected[index], op->count, op->type, op->op, p->nranks, op->seed);
  }
  return p->expected[index];
}

/* Whether `buf` holds the input of `rank`. */
static bool holds_input(const program_op *op, const char *buf, int rank) {
  size_t bytes = in_bytes(op);
  char *want = malloc(bytes + 1);
  data_fill(want, op->count, op->type, op->op, rank, op->seed);
  bool same = memcmp(buf, want, bytes) == 0;
  free(want);
  return same;
}

/* Checks a result that was reported as COLL_OK. */
static bool is_right(program *p, int index, int rank, const program_part *part) {
  const program_op *op = &p->ops[index];
  if (part->in && !holds_input(op, part->in, rank))
    return false; /* an input was written to */
  if (part->out && (unsigned char)part->out[out_bytes(p, op)] != 0xee)
    return false; /* written past its end */
  if (op->coll == COLLI_ALLREDUCE)
    return memcmp(part->out, expected(p, index), in_bytes(op)) == 0;
  if (op->coll == COLLI_ALLGATHER) {
    for (int r = 0; r < p->nranks; r++)
      if (!holds_input(op, part->out + in_bytes(op) * (size_t)r, r))
        return false;
    return true;
  }
  return op->coll == COLLI_BARRIER || !part->out || holds_input(op, part->out, op->root);
}

/* Frees buffers so that later reads of them are noticed. */
static void release_buffers(const program *p, const program_op *op, program_part *part) {
  if (part->in)
    memset(part->in, 0xdd, in_bytes(op));
  if (part->out)
    memset(part->out, 0xdd, out_bytes(p, op));
  free(part->in);
  free(part->out);
  part->in = part->out = NULL;
}

/* Records how one operation ended. */
static void end_operation(program *p, int rank, int index, coll_status status) {
  program_rank *pr = &p->ranks[rank];
  program_part *part = &pr->part[index];
  part->done = true;
  if (status == COLL_OK && rank != p->odd_rank && !is_right(p, index, rank, part)) {
    fprintf(stderr, "seed %llu: rank %d: operation %d is COLL_OK, but its result is wrong\n",
            (unsigned long long)p->seed, rank, index);
    p->wrong++;
  }
  if (status != COLL_OK && pr->status == COLL_OK) {
    pr->status = status;
    pr->error = (coll_error)COLL_ERROR_INIT;
    coll_last_error(p->world->comms[rank], &pr->error);
  }
  release_buffers(p, op_of(p, rank, index), part);
}

/* Starts the next operation if the window has room; true if it did something. */
static bool start_next(program *p, int rank) {
  program_rank *pr = &p->ranks[rank];
  while (pr->next < p->nops && !takes_part(op_of(p, rank, pr->next), rank))
    pr->part[pr->next++].done = true;
  if (pr->next == p->nops || pr->open == p->window || pr->status != COLL_OK)
    return false;
  int index = pr->next++;
  program_part *part = &pr->part[index];
  coll_status status = start_operation(p, op_of(p, rank, index), rank, part);
  part->started = status == COLL_OK;
  if (part->started)
    pr->open++;
  else
    end_operation(p, rank, index, status);
  return true;
}

/* One rank's turn. */
static bool act_on_rank(void *ctx, int rank) {
  program *p = ctx;
  program_rank *pr = &p->ranks[rank];
  if (pr->done)
    return false;
  /* A rank is sometimes late, so that ranks get out of step. */
  bool late = pr->next < p->nops && pick_below(&p->world->prng, 3) == 0;
  bool moved = late || start_next(p, rank);
  int first = pick_below(&p->world->prng, p->nops);
  for (int i = 0; i < p->nops; i++) {
    int index = (first + i) % p->nops;
    program_part *part = &pr->part[index];
    if (!part->started || part->done)
      continue;
    coll_status status = coll_test(&part->request);
    if (status == COLL_IN_PROGRESS)
      continue;
    pr->open--;
    end_operation(p, rank, index, status);
    moved = true;
  }
  bool over = pr->open == 0 && (pr->next == p->nops || pr->status != COLL_OK);
  if (over) {
    pr->done = true;
    pr->done_ns = world_now(p->world);
    if (p->leave_early && pr->status != COLL_OK)
      coll_comm_destroy(&p->world->comms[rank]);
  }
  return moved;
}

/* Whether a rank has finished its program. */
static bool rank_done(void *ctx, int rank) {
  return ((program *)ctx)->ranks[rank].done;
}

bool program_run(program *p, uint64_t limit_ns) {
  return world_run(p->world, act_on_rank, rank_done, p, limit_ns);
}

void program_free(program *p) {
  for (int i = 0; i < PROGRAM_MAX_OPS; i++)
    free(p->expected[i]);
  for (int rank = 0; p->ranks && rank < p->nranks; rank++)
    for (int i = 0; i < p->nops; i++) {
      free(p->ranks[rank].part[i].in);
      free(p->ranks[rank].part[i].out);
    }
  free(p->ranks);
  *p = (program){0};
}

void program_print(const program *p) {
  fprintf(stderr, "  %d ranks, %d operations, %d in flight\n", p->nranks, p->nops, p->window);
  for (int i = 0; i < p->nops; i++) {
    const program_op *op = &p->ops[i];
    fprintf(stderr, "  %d: %s count %zu %s %s root %d peer %d%s\n", i, colli_coll_name(op->coll),
            op->count, colli_type_name(op->type), colli_op_name(op->op), op->root, op->peer,
            op->in_place ? " in place" : "");
  }
}
