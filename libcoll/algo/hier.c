/*
 * hier.c: runs algorithms of the table one after the other, inside groups and between them.
 *
 * A part works like a communicator of its own: some of the ranks, on one stretch of the vector. Its
 * chunks may be larger than the whole algorithm's. Then it runs several times, each time on the
 * next piece of each of its chunks. (Splitting single steps instead could deadlock: two ranks that
 * send several messages before they receive would need more than one chunk of credit.) A rank that
 * has done its steps goes on to the next part, whose inputs are there, as all are in one lane.
 */
#include "libcoll/algo/hier_layout.h"

#define ROW_KEPT   0 /* scratch of a part: as long as the vector */
#define ROW_RESULT 1 /* a group's result in a reduce, where its leader has no OUTPUT */

/* ---- parts ----------------------------------------------------------------------------------- */

/* The shape of a part that runs on some of the ranks. */
static colli_shape part_shape(const colli_algo *algo, int count, int self, int root,
                              const uint8_t *share) {
  return (colli_shape){
      .coll = algo->coll, .nranks = count, .rank = self, .root = root, .share = share};
}

/* The greatest common divisor. */
static int common_divisor(int a, int b) {
  return b ? common_divisor(b, a % b) : a;
}

/* The number of chunks such that each chunk of a part on `count` ranks is a whole number of
 * them. */
static int refine_chunks(int chunks, const colli_algo *algo, int count, const uint8_t *share) {
  colli_shape shape = part_shape(algo, count, 0, 0, share);
  int own = algo->nchunks(&shape);
  return chunks / common_divisor(chunks, own) * own;
}

/* A part of the whole, for one rank. */
typedef struct part {
  const colli_algo *algo;
  const int *ranks; /* that take part */
  int count;
  int self, root;    /* positions in `ranks` */
  int first, chunks; /* the stretch of the vector */
  int lane;
  const uint8_t *share; /* as in colli_shape, by position; NULL: none */
  int in, out;          /* buffers that are its INPUT and OUTPUT; SCRATCH: ROW_RESULT */
  bool complete;        /* its reduction is the last one */
} part;

/* Translates a buffer and chunk of a part's schedule to those of the whole. */
static void translate_place(const part *p, int nchunks, int own, int piece, uint8_t *buf,
                            int32_t *chunk) {
  int width = p->chunks / own, row = *chunk / own;
  int at = p->first + *chunk % own * width + piece;
  if (*buf != COLLI_SCRATCH) {
    *buf = (uint8_t)(*buf == COLLI_INPUT ? p->in : p->out);
    row = ROW_RESULT;
  }
  *chunk = *buf == COLLI_SCRATCH ? row * nchunks + at : at;
}

/* Adds one step of a part. */
static void add_step(colli_builder *builder, const part *p, colli_step step, int nchunks, int own,
                     int piece) {
  translate_place(p, nchunks, own, piece, &step.src_buf, &step.chunk_in);
  translate_place(p, nchunks, own, piece, &step.dst_buf, &step.chunk_out);
  step.lane = (uint8_t)p->lane;
  step.peer_recv = step.bits & COLLI_RECV ? p->ranks[step.peer_recv] : COLLI_NOBODY;
  step.peer_send = step.bits & COLLI_SEND ? p->ranks[step.peer_send] : COLLI_NOBODY;
  if (!p->complete)
    step.bits &= (uint8_t)~COLLI_FINAL;
  bool moves = !(step.bits & (COLLI_RECV | COLLI_FOLD)) && step.bits & COLLI_STORE;
  if (moves && step.src_buf == step.dst_buf && step.chunk_in == step.chunk_out)
    step.bits &= (uint8_t)~COLLI_STORE;
  if (step.bits & (COLLI_RECV | COLLI_SEND | COLLI_STORE))
    colli_builder_add(builder, step);
}

/* Adds the steps of a part. */
static coll_status add_part(colli_builder *builder, const part *p, int nchunks) {
  if (p->count == 1)
    return COLL_OK;
  colli_shape shape = part_shape(p->algo, p->count, p->self, p->root, p->share);
  colli_sched *sched;
  coll_status status = p->algo->emit(&shape, &sched);
  if (status != COLL_OK)
    return status;
  int own = sched->nchunks;
  if (sched->nlanes != 1 || sched->scratch_own || sched->nscratch > own)
    status = COLL_ERR_INTERNAL; /* not among the algorithms that can be parts */
  for (int piece = 0; piece < p->chunks / own && status == COLL_OK; piece++)
    for (int i = 0; i < sched->nsteps; i++)
      add_step(builder, p, sched->steps[i], nchunks, own, piece);
  colli_sched_free(sched);
  return status;
}

/* ---- schedules ------------------------------------------------------------------------------- */

/* The number of chunks of each lane for these groups. */
static int count_chunks(const colli_hier *hier, const colli_layout *l) {
  int chunks = refine_chunks(1, hier->across, l->ngroups, l->share);
  if (hier->otherwise) {
    int within = refine_chunks(1, hier->enter, l->size[0], NULL);
    return chunks * refine_chunks(within, hier->leave, l->size[0], NULL);
  }
  for (int group = 0; group < l->ngroups; group++) {
    if (hier->enter)
      chunks = refine_chunks(chunks, hier->enter, l->size[group], NULL);
    if (hier->leave)
      chunks = refine_chunks(chunks, hier->leave, l->size[group], NULL);
  }
  return chunks;
}

int colli_hier_nchunks(const colli_hier *hier, const colli_shape *shape) {
  colli_layout l;
  if (!colli_layout_make(&l, shape))
    return 1; /* out of memory; emitting will fail, too */
  hier = colli_hier_fitting(hier, &l);
  int chunks = colli_hier_lanes(hier) * count_chunks(hier, &l);
  colli_layout_free(&l);
  return chunks;
}

/* Some chunks of the vector, which a lane works on. */
typedef struct stretch {
  int first, chunks;
  int lane;
  int all; /* chunks of the vector */
} stretch;

/* Adds the parts of a rank that handles its position's share of the vector between groups. */
static coll_status add_split(colli_builder *builder, const colli_hier *hier, const colli_layout *l,
                             stretch on) {
  int size = l->size[0], each = on.chunks / size;
  part inside = {.ranks = l->inside,
                 .count = size,
                 .self = l->position,
                 .first = on.first,
                 .chunks = on.chunks,
                 .lane = on.lane,
                 .out = COLLI_OUTPUT};
  part enter = inside, leave = inside;
  enter.algo = hier->enter;
  enter.in = COLLI_INPUT;
  leave.algo = hier->leave;
  leave.in = COLLI_OUTPUT;
  part across = {.algo = hier->across,
                 .ranks = l->peers,
                 .count = l->ngroups,
                 .self = l->group,
                 .first = on.first + l->position * each,
                 .chunks = each,
                 .lane = on.lane,
                 .share = l->share,
                 .in = size > 1 ? COLLI_OUTPUT : COLLI_INPUT,
                 .out = COLLI_OUTPUT,
                 .complete = true};
  coll_status status = add_part(builder, &enter, on.all);
  if (status == COLL_OK)
    status = add_part(builder, &across, on.all);
  return status == COLL_OK ? add_part(builder, &leave, on.all) : status;
}

/* Adds the parts of a rank whose group is represented by its leader. */
static coll_status add_led(colli_builder *builder, const colli_hier *hier, const colli_shape *shape,
                           const colli_layout *l, stretch on) {
  int leader = 0;
  while (l->inside[leader] != l->leader[l->group])
    leader++;
  bool alone = l->size[l->group] == 1 || !hier->enter;
  bool hidden = shape->coll == COLLI_REDUCE && shape->rank != shape->root;
  int result = hidden ? COLLI_SCRATCH : COLLI_OUTPUT;
  part inside = {.ranks = l->inside,
                 .count = l->size[l->group],
                 .self = l->position,
                 .root = leader,
                 .first = on.first,
                 .chunks = on.chunks,
                 .lane = on.lane};
  coll_status status = COLL_OK;
  if (hier->enter) {
    part enter = inside;
    enter.algo = hier->enter;
    enter.in = COLLI_INPUT;
    enter.out = result;
    status = add_part(builder, &enter, on.all);
  }
  if (status == COLL_OK && leader == l->position) {
    part across = {.algo = hier->across,
                   .ranks = l->leader,
                   .count = l->ngroups,
                   .self = l->group,
                   .root = shape->coll == COLLI_ALLREDUCE ? 0 : l->of[shape->root],
                   .first = on.first,
                   .chunks = on.chunks,
                   .lane = on.lane,
                   .share = l->share,
                   .in = alone ? COLLI_INPUT : result,
                   .out = COLLI_OUTPUT,
                   .complete = true};
    status = add_part(builder, &across, on.all);
  }
  if (status == COLL_OK && hier->leave) {
    part leave = inside;
    leave.algo = hier->leave;
    leave.in = leave.out = COLLI_OUTPUT;
    status = add_part(builder, &leave, on.all);
  }
  return status;
}

/* Adds the steps of all lanes. */
static coll_status add_lanes(colli_builder *builder, const colli_hier *hier,
                             const colli_shape *shape, colli_layout *l, int chunks) {
  int lanes = colli_hier_lanes(hier);
  coll_status status = COLL_OK;
  if (hier->otherwise)
    colli_layout_find_peers(l, shape->nranks);
  for (int lane = 0; lane < lanes && status == COLL_OK; lane++) {
    stretch on = {.first = lane * chunks, .chunks = chunks, .lane = lane, .all = lanes * chunks};
    status =
        hier->otherwise ? add_split(builder, hier, l, on) : add_led(builder, hier, shape, l, on);
  }
  return status;
}

coll_status colli_hier_emit(const colli_hier *hier, const colli_shape *shape, colli_sched **sched) {
  colli_layout l;
  *sched = NULL;
  if (!colli_layout_make(&l, shape))
    return COLL_ERR_NO_MEMORY;
  hier = colli_hier_fitting(hier, &l);
  int chunks = count_chunks(hier, &l), lanes = colli_hier_lanes(hier), all = lanes * chunks,
      rows = 0;
  if (!hier->otherwise && shape->coll != COLLI_BROADCAST)
    rows = shape->coll == COLLI_REDUCE ? ROW_RESULT + 1 : ROW_KEPT + 1;
  colli_builder *builder = colli_builder_create(shape, all, rows * all, lanes);
  coll_status status = builder ? COLL_OK : COLL_ERR_NO_MEMORY;
  if (builder && shape->nranks == 1)
    colli_emit_alone(builder, shape->coll, all);
  else if (builder)
    status = add_lanes(builder, hier, shape, &l, chunks);
  colli_layout_free(&l);
  if (status == COLL_OK)
    return colli_builder_finish(builder, sched);
  colli_builder_discard(builder);
  return status;
}
