/* hier.c: runs algorithms of the table one after the other, inside groups and between them. */
#include "libcoll/algo/hier_blocks.h"
#include "libcoll/algo/hier_shares.h"

/* The greatest common divisor. */
static int common_divisor(int a, int b) {
  return b ? common_divisor(b, a % b) : a;
}

/* The number of chunks such that each chunk of a part is a whole number of them. */
static int refine_chunks(int chunks, const colli_algo *algo, const colli_shape *among) {
  int own = colli_part_own(algo, among);
  return chunks / common_divisor(chunks, own) * own;
}

/* The number of chunks of each lane for these groups. */
static int count_chunks(const colli_hier *hier, colli_layout *l, const colli_shape *shape) {
  if (hier->trees)
    return 2 * colli_shares_count(hier, l);
  colli_shape among = colli_layout_across(l, shape, l->leader);
  int chunks = refine_chunks(1, colli_hier_across(hier, &among), &among);
  if (hier->split)
    return colli_shares_count(hier, l) * chunks;
  for (int group = 0; group < l->ngroups; group++) {
    colli_shape inside = {.nranks = l->size[group]};
    if (hier->enter)
      chunks = refine_chunks(chunks, hier->enter, &inside);
    if (hier->leave)
      chunks = refine_chunks(chunks, hier->leave, &inside);
  }
  return chunks;
}

int colli_hier_nchunks(const colli_hier *hier, const colli_shape *shape) {
  colli_layout l;
  if (colli_exact(shape->coll))
    return shape->nranks;
  if (!colli_layout_make(&l, shape, hier->widest))
    return 1; /* out of memory; emitting will fail, too */
  hier = colli_hier_fitting(hier, &l);
  int chunks = colli_hier_lanes(hier) * count_chunks(hier, &l, shape);
  colli_layout_free(&l);
  return chunks;
}

/* Adds the part between leaders, one of which this rank is. */
static coll_status add_leaders(colli_whole *whole, const colli_hier *hier, const colli_shape *shape,
                               colli_layout *l, colli_stretch on, int in) {
  colli_part across = {.among = colli_layout_across(l, shape, l->leader),
                       .ranks = l->leader,
                       .first = on.first,
                       .chunks = on.chunks,
                       .lane = on.lane,
                       .in = in,
                       .out = COLLI_OUTPUT,
                       .complete = true};
  across.algo = colli_hier_across(hier, &across.among);
  return colli_part_add(whole, &across);
}

/* Adds the parts of a rank whose group is represented by its leader. */
static coll_status add_led(colli_whole *whole, const colli_hier *hier, const colli_shape *shape,
                           colli_layout *l, colli_stretch on) {
  bool alone = l->size[l->group] == 1 || !hier->enter;
  bool hidden = shape->coll == COLLI_REDUCE && shape->rank != shape->root;
  int result = hidden ? COLLI_SCRATCH : COLLI_OUTPUT;
  colli_part inside = {
      .among = {.nranks = l->size[l->group], .rank = l->position, .root = colli_layout_lead(l)},
      .ranks = l->inside,
      .first = on.first,
      .chunks = on.chunks,
      .lane = on.lane};
  coll_status status = COLL_OK;
  if (hier->enter) {
    colli_part enter = inside;
    enter.algo = hier->enter;
    enter.in = COLLI_INPUT;
    enter.out = result;
    status = colli_part_add(whole, &enter);
  }
  if (status == COLL_OK && shape->rank == l->leader[l->group])
    status = add_leaders(whole, hier, shape, l, on, alone ? COLLI_INPUT : result);
  if (status == COLL_OK && hier->leave) {
    colli_part leave = inside;
    leave.algo = hier->leave;
    leave.in = leave.out = COLLI_OUTPUT;
    status = colli_part_add(whole, &leave);
  }
  return status;
}

/* Adds the steps of all lanes. */
static coll_status add_lanes(colli_whole *whole, const colli_hier *hier, const colli_shape *shape,
                             colli_layout *l, int chunks) {
  coll_status status = COLL_OK;
  for (int lane = 0; lane < colli_hier_lanes(hier) && status == COLL_OK; lane++) {
    colli_stretch on = {.first = lane * chunks, .chunks = chunks, .lane = lane};
    status = hier->split ? colli_shares_split(whole, hier, shape, l, on)
                         : add_led(whole, hier, shape, l, on);
  }
  return status;
}

coll_status colli_hier_emit(const colli_hier *hier, const colli_shape *shape, colli_sched **sched) {
  colli_layout l;
  *sched = NULL;
  if (!colli_layout_make(&l, shape, hier->widest))
    return COLL_ERR_NO_MEMORY;
  hier = colli_hier_fitting(hier, &l);
  bool blocks = colli_exact(shape->coll);
  int chunks = blocks ? shape->nranks : count_chunks(hier, &l, shape),
      parts = colli_hier_lanes(hier),
      lanes = hier->trees    ? COLLI_TREES_LANES
              : hier->duplex ? COLLI_BLOCKS_LANES
                             : parts;
  colli_whole whole = {.nchunks = parts * chunks};
  whole.builder = colli_builder_create(shape, whole.nchunks, 0, lanes);
  coll_status status = whole.builder ? COLL_OK : COLL_ERR_NO_MEMORY;
  if (whole.builder && shape->nranks == 1)
    colli_emit_alone(whole.builder, shape->coll, whole.nchunks);
  else if (whole.builder && blocks)
    status = colli_hier_blocks(&whole, hier, shape, &l);
  else if (whole.builder && hier->trees)
    status = colli_shares_trees(&whole, hier, &l);
  else if (whole.builder)
    status = add_lanes(&whole, hier, shape, &l, chunks);
  colli_layout_free(&l);
  if (status != COLL_OK) {
    colli_builder_discard(whole.builder);
    return status;
  }
  colli_builder_scratch(whole.builder, whole.rows * whole.nchunks);
  return colli_builder_finish(whole.builder, sched);
}
