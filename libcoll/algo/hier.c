/*
 * hier.c: runs algorithms of the table one after the other, inside groups and between them.
 *
 * A part works like a communicator of its own: some of the ranks, on one stretch of the vector. Its
 * chunks may be larger than the whole algorithm's. Then it runs several times, each time on the
 * next piece of each of its chunks. (Splitting single steps instead could deadlock: two ranks that
 * send several messages before they receive would need more than one chunk of credit.) A rank that
 * has done its steps goes on to the next part, whose inputs are there, as all are in one lane.
 */
#include "libcoll/algo/hier.h"

#include <math.h>
#include <stdlib.h>

#include "libcoll/cost/predict.h"

#define REPLAY_RANKS  64 /* more take too long */
#define REPLAY_PASSES 4  /* that many are replayed, and twice as many */

#define ROW_KEPT   0 /* scratch of a part: as long as the vector */
#define ROW_RESULT 1 /* a group's result in a reduce, where its leader has no OUTPUT */

/* ---- groups ---------------------------------------------------------------------------------- */

/* Who is where. */
typedef struct layout {
  int ngroups;
  int group;    /* the rank's own one */
  int position; /* of the rank in it */
  bool equal;   /* all groups are of one size */
  int *of;      /* [rank] its group */
  int *size;    /* [group] */
  int *leader;  /* [group] rank */
  int *inside;  /* [position] ranks of the own group */
  int *peers;   /* [group] rank of the same position, where groups are equal */
} layout;

/* Frees the table of a layout. */
static void free_layout(layout *l) {
  free(l->of);
}

/* Numbers the groups that have ranks, in the order of their first ranks; returns their number. */
static int number_groups(layout *l, const colli_shape *shape) {
  int n = shape->nranks, found = 0;
  int *number = l->inside + n; /* of each group of the shape, plus 1 */
  for (int rank = 0; rank < n; rank++) {
    int *known = &number[shape->group[rank]];
    *known = *known ? *known : ++found;
    l->of[rank] = *known - 1;
  }
  return found;
}

/* Fills in the layout of groups; false if out of memory. Without groups, each rank is a group. */
static bool make_layout(layout *l, const colli_shape *shape) {
  int n = shape->nranks;
  *l = (layout){.equal = true};
  l->of = calloc(6 * (size_t)n, sizeof(int));
  if (!l->of)
    return false;
  l->size = l->of + n;
  l->leader = l->size + n;
  l->peers = l->leader + n;
  l->inside = l->peers + n;
  if (shape->ngroups > 1 && shape->group)
    l->ngroups = number_groups(l, shape);
  for (int rank = 0; rank < n && l->ngroups <= 1; rank++)
    l->of[rank] = rank;
  l->ngroups = l->ngroups > 1 ? l->ngroups : n;
  l->group = l->of[shape->rank];
  for (int rank = 0; rank < n; rank++) {
    int group = l->of[rank];
    if (rank == shape->rank)
      l->position = l->size[group];
    if (l->size[group] == 0 || rank == shape->root)
      l->leader[group] = rank;
    if (group == l->group)
      l->inside[l->size[group]] = rank;
    l->size[group]++;
  }
  for (int group = 0; group < l->ngroups; group++)
    l->equal &= l->size[group] == l->size[0];
  return true;
}

/* Finds the ranks of this rank's position, group by group. */
static void find_peers(layout *l, const colli_shape *shape) {
  int *seen = l->leader; /* symmetric parts need no leader */
  for (int group = 0; group < l->ngroups; group++)
    seen[group] = 0;
  for (int rank = 0; rank < shape->nranks; rank++) {
    int group = l->of[rank];
    if (seen[group]++ == l->position)
      l->peers[group] = rank;
  }
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* The shape of a part that runs on some of the ranks. */
static colli_shape part_shape(const colli_algo *algo, int count, int self, int root) {
  return (colli_shape){.coll = algo->coll, .nranks = count, .rank = self, .root = root};
}

/* The greatest common divisor. */
static int common_divisor(int a, int b) {
  return b ? common_divisor(b, a % b) : a;
}

/* The number of chunks such that each chunk of a part on `count` ranks is a whole number of
 * them. */
static int refine_chunks(int chunks, const colli_algo *algo, int count) {
  colli_shape shape = part_shape(algo, count, 0, 0);
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
  int in, out;       /* buffers that are its INPUT and OUTPUT; SCRATCH: ROW_RESULT */
  bool complete;     /* its reduction is the last one */
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
  colli_shape shape = part_shape(p->algo, p->count, p->self, p->root);
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

/* The number of chunks of the vector for these groups. */
static int count_chunks(const colli_hier *hier, const layout *l) {
  int chunks = 1;
  if (hier->otherwise) {
    int own = refine_chunks(1, hier->across, l->ngroups);
    return own * refine_chunks(refine_chunks(1, hier->enter, l->size[0]), hier->leave, l->size[0]);
  }
  chunks = refine_chunks(chunks, hier->across, l->ngroups);
  for (int group = 0; group < l->ngroups; group++) {
    if (hier->enter)
      chunks = refine_chunks(chunks, hier->enter, l->size[group]);
    if (hier->leave)
      chunks = refine_chunks(chunks, hier->leave, l->size[group]);
  }
  return chunks;
}

/* The algorithm that these groups get. */
static const colli_hier *fitting(const colli_hier *hier, const layout *l) {
  return hier->otherwise && !l->equal ? hier->otherwise : hier;
}

int colli_hier_nchunks(const colli_hier *hier, const colli_shape *shape) {
  layout l;
  if (!make_layout(&l, shape))
    return 1; /* out of memory; emitting will fail, too */
  int chunks = count_chunks(fitting(hier, &l), &l);
  free_layout(&l);
  return chunks;
}

/* Adds the parts of a rank that handles its position's share of the vector between groups. */
static coll_status add_split(colli_builder *builder, const colli_hier *hier,
                             const colli_shape *shape, layout *l, int chunks) {
  int size = l->size[0], share = chunks / size;
  int between = size > 1 ? COLLI_OUTPUT : COLLI_INPUT;
  find_peers(l, shape);
  part enter = {hier->enter, l->inside, size,        l->position,  0,
                0,           chunks,    COLLI_INPUT, COLLI_OUTPUT, false};
  part across = {hier->across,        l->peers, l->ngroups, l->group,     0,
                 l->position * share, share,    between,    COLLI_OUTPUT, true};
  part leave = {hier->leave, l->inside, size,         l->position,  0,
                0,           chunks,    COLLI_OUTPUT, COLLI_OUTPUT, false};
  coll_status status = add_part(builder, &enter, chunks);
  if (status == COLL_OK)
    status = add_part(builder, &across, chunks);
  return status == COLL_OK ? add_part(builder, &leave, chunks) : status;
}

/* Adds the parts of a rank whose group is represented by its leader. */
static coll_status add_led(colli_builder *builder, const colli_hier *hier, const colli_shape *shape,
                           const layout *l, int chunks) {
  int size = l->size[l->group], leader = 0;
  while (l->inside[leader] != l->leader[l->group])
    leader++;
  bool leads = leader == l->position, alone = size == 1 || !hier->enter;
  int outer_root = shape->coll == COLLI_ALLREDUCE ? 0 : l->of[shape->root];
  bool hidden = shape->coll == COLLI_REDUCE && shape->rank != shape->root;
  int result = hidden ? COLLI_SCRATCH : COLLI_OUTPUT;
  coll_status status = COLL_OK;
  if (hier->enter) {
    part enter = {hier->enter, l->inside, size,        l->position, leader,
                  0,           chunks,    COLLI_INPUT, result,      false};
    status = add_part(builder, &enter, chunks);
  }
  if (status == COLL_OK && leads) {
    part across = {hier->across, l->leader, l->ngroups, l->group,
                   outer_root,   0,         chunks,     alone ? COLLI_INPUT : result,
                   COLLI_OUTPUT, true};
    status = add_part(builder, &across, chunks);
  }
  if (status == COLL_OK && hier->leave) {
    part leave = {hier->leave, l->inside, size,         l->position,  leader,
                  0,           chunks,    COLLI_OUTPUT, COLLI_OUTPUT, false};
    status = add_part(builder, &leave, chunks);
  }
  return status;
}

coll_status colli_hier_emit(const colli_hier *hier, const colli_shape *shape, colli_sched **sched) {
  layout l;
  *sched = NULL;
  if (!make_layout(&l, shape))
    return COLL_ERR_NO_MEMORY;
  hier = fitting(hier, &l);
  int chunks = count_chunks(hier, &l), rows = 0;
  if (!hier->otherwise && shape->coll != COLLI_BROADCAST)
    rows = shape->coll == COLLI_REDUCE ? ROW_RESULT + 1 : ROW_KEPT + 1;
  colli_builder *builder = colli_builder_create(shape, chunks, rows * chunks, 1);
  coll_status status = builder ? COLL_OK : COLL_ERR_NO_MEMORY;
  if (builder && shape->nranks == 1)
    colli_emit_alone(builder, shape->coll, chunks);
  else if (builder)
    status = hier->otherwise ? add_split(builder, hier, shape, &l, chunks)
                             : add_led(builder, hier, shape, &l, chunks);
  free_layout(&l);
  if (status == COLL_OK)
    return colli_builder_finish(builder, sched);
  colli_builder_discard(builder);
  return status;
}

/* ---- cost ------------------------------------------------------------------------------------ */

/*
 * The cost of a part on `chunks` chunks of the partition. If values go one way only, repeated runs
 * overlap, as passes do.
 */
static double part_cost(const colli_algo *algo, int count, int root, int chunks,
                        const colli_partition *partition, size_t elem_bytes,
                        const colli_model *model) {
  if (!algo || count <= 1)
    return 0;
  colli_shape shape = part_shape(algo, count, 0, root);
  colli_partition cut = *partition;
  cut.nchunks = algo->nchunks(&shape);
  int times = chunks / cut.nchunks;
  size_t held = cut.region ? (cut.count + cut.region - 1) / cut.region : 0;
  if (held < (size_t)chunks) /* in every run some chunks are empty, and in the last run all are */
    cut.count = cut.region * ((held + (size_t)times - 1) / (size_t)times);
  else
    cut.count = cut.region * (size_t)cut.nchunks;
  if (held > 0 && held < (size_t)times)
    times = (int)held;
  if (held < (size_t)chunks && cut.nchunks > 1 && cut.count <= cut.region) {
    /* A single chunk in each run: the runs follow each other closely along the ranks. */
    double pace = colli_terms_make(&cut, elem_bytes, model).reduce * cut.passes;
    return algo->cost(&shape, &cut, elem_bytes, model) + (times - 1) * pace;
  }
  if (algo->coll != COLLI_REDUCE && algo->coll != COLLI_BROADCAST)
    return times * algo->cost(&shape, &cut, elem_bytes, model);
  cut.passes *= times;
  cut.region *= (size_t)times;
  cut.count *= (size_t)times;
  return algo->cost(&shape, &cut, elem_bytes, model);
}

/* The model of links inside a group. */
static colli_model near_model(const colli_model *model) {
  colli_model near = *model;
  if (model->near_beta_ns_per_byte > 0) {
    near.alpha_ns = model->near_alpha_ns;
    near.beta_ns_per_byte = model->near_beta_ns_per_byte;
  }
  return near;
}

/* The time of a part's first run and of each further run. */
typedef struct span {
  double first;
  double next;
} span;

/* The time of a part on the whole vector, pass by pass. */
static span part_span(const colli_algo *algo, int count, int root, const colli_partition *partition,
                      size_t elem_bytes, const colli_model *model) {
  colli_partition cut = *partition;
  cut.passes = 1;
  cut.region = cut.piece;
  double once = part_cost(algo, count, root, cut.nchunks, &cut, elem_bytes, model);
  cut.passes = 2;
  cut.region = 2 * cut.piece;
  cut.count = 2 * partition->piece * (size_t)partition->nchunks;
  return (span){once, part_cost(algo, count, root, cut.nchunks, &cut, elem_bytes, model) - once};
}

/* The larger of two times. */
static double larger(double a, double b) {
  return a > b ? a : b;
}

/* A reduce or broadcast: the root's group works at the same time as the others, and passes follow
 * each other closely. */
static double one_way_cost(const colli_hier *hier, const layout *l, int root_rank,
                           const colli_partition *partition, size_t elem_bytes,
                           const colli_model *near, const colli_model *far) {
  const colli_algo *inner = hier->enter ? hier->enter : hier->leave;
  int root = l->of[root_rank], others = 0, before = 0; /* ranks of its group before the root */
  for (int rank = 0; rank < root_rank; rank++)
    before += l->of[rank] == root;
  for (int group = 0; group < l->ngroups; group++)
    if (group != root && l->size[group] > others)
      others = l->size[group];
  span across = part_span(hier->across, l->ngroups, root, partition, elem_bytes, far);
  span home = part_span(inner, l->size[root], before, partition, elem_bytes, near);
  span away = part_span(inner, others, 0, partition, elem_bytes, near);
  double first = larger(across.first + away.first, across.next + home.first);
  double next = larger(across.next, larger(home.next, away.next));
  if (hier->enter) { /* leaders work for both sides, but send to only one */
    colli_model free_links = *far;
    free_links.beta_ns_per_byte = 0;
    span works = part_span(hier->across, l->ngroups, root, partition, elem_bytes, &free_links);
    int most = others > l->size[root] ? others : l->size[root];
    span inside = part_span(inner, most, 0, partition, elem_bytes, &free_links);
    next = larger(next, works.next + inside.next);
  } else { /* leaders send to both sides, except the last, which sends only to its group */
    double passing = others > 1 && l->ngroups > 2 ? across.next + away.next : 0;
    next = larger(next, larger(across.next + home.next, passing));
  }
  return first + (partition->passes - 1) * next;
}

/* An all-reduce: results come back before the next pass begins. */
static double two_way_cost(const colli_hier *hier, const layout *l,
                           const colli_partition *partition, size_t elem_bytes,
                           const colli_model *near, const colli_model *far) {
  int chunks = partition->nchunks, share = hier->otherwise ? chunks / l->size[0] : chunks, most = 0;
  for (int group = 0; group < l->ngroups; group++)
    most = l->size[group] > most ? l->size[group] : most;
  colli_partition cut = *partition;
  cut.passes = 1;
  cut.region = cut.piece;
  double pass = part_cost(hier->enter, most, 0, chunks, &cut, elem_bytes, near) +
                part_cost(hier->across, l->ngroups, 0, share, &cut, elem_bytes, far) +
                part_cost(hier->leave, most, 0, chunks, &cut, elem_bytes, near);
  return partition->passes * pass;
}

/* The work of one participating rank for a part: found as the time that they would take if they all
 * shared a tiny part of a core. */
static double part_work(const colli_algo *algo, int count, int chunks,
                        const colli_partition *partition, size_t elem_bytes,
                        const colli_model *model) {
  const double share = 1e-9;
  colli_model crowded = *model;
  crowded.core_share = share;
  return share * part_cost(algo, count, 0, chunks, partition, elem_bytes, &crowded);
}

/* What all ranks have to do, on average. */
static double work_cost(const colli_hier *hier, const layout *l, const colli_partition *partition,
                        size_t elem_bytes, const colli_model *near, const colli_model *far) {
  int chunks = partition->nchunks, share = hier->otherwise ? chunks / l->size[0] : chunks, n = 0;
  double work = 0;
  for (int group = 0; group < l->ngroups; group++) {
    int size = l->size[group];
    n += size;
    work += size * (part_work(hier->enter, size, chunks, partition, elem_bytes, near) +
                    part_work(hier->leave, size, chunks, partition, elem_bytes, near));
  }
  /* If the vector is too short for all positions, the others send nothing. */
  double speakers =
      hier->otherwise ? n * colli_terms_make(partition, elem_bytes, far).filled : l->ngroups;
  work += speakers * part_work(hier->across, l->ngroups, share, partition, elem_bytes, far);
  return work / n;
}

/* The predicted time of the first few passes of a partition. */
static double replay_passes(colli_sched *const *scheds, int nranks, const colli_partition *whole,
                            int passes, size_t elem_bytes, const colli_model *model) {
  colli_partition cut = *whole;
  if (passes < whole->passes) {
    cut.passes = passes;
    cut.region = cut.piece * (size_t)passes;
    cut.count = (size_t)((double)whole->count * (double)cut.region / (double)whole->region);
  }
  unsigned slots = 2 * (unsigned)nranks + 8; /* never wait for one, as the formulas assume */
  return colli_predict((const colli_sched *const *)scheds, nranks, &cut, elem_bytes, slots, model);
}

/* The cost, by replaying the events of all ranks for a few passes; further passes take as long as
 * the last of these. Infinite if out of memory. */
static double replay_all(const colli_hier *hier, const colli_shape *shape,
                         const colli_partition *partition, size_t elem_bytes,
                         const colli_model *model) {
  colli_sched *scheds[REPLAY_RANKS];
  int made = 0;
  colli_shape mine = *shape;
  for (mine.rank = 0; mine.rank < shape->nranks; mine.rank++, made++)
    if (colli_hier_emit(hier, &mine, &scheds[made]) != COLL_OK)
      break;
  double ns = INFINITY;
  if (made == shape->nranks && partition->passes <= 2 * REPLAY_PASSES) {
    ns = replay_passes(scheds, made, partition, partition->passes, elem_bytes, model);
  } else if (made == shape->nranks) {
    double few = replay_passes(scheds, made, partition, REPLAY_PASSES, elem_bytes, model);
    double more = replay_passes(scheds, made, partition, 2 * REPLAY_PASSES, elem_bytes, model);
    double rest = (more - few) / REPLAY_PASSES * (partition->passes - 2 * REPLAY_PASSES);
    ns = !isfinite(rest) ? INFINITY : few < 0 || more < 0 ? -1 : more + rest;
  }
  while (made > 0)
    colli_sched_free(scheds[--made]);
  return ns;
}

/* The cost of the whole. */
double colli_hier_cost(const colli_hier *hier, const colli_shape *shape,
                       const colli_partition *partition, size_t elem_bytes,
                       const colli_model *model) {
  layout l;
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  if (shape->nranks == 1)
    return colli_cost_alone(partition, &t);
  double replayed =
      shape->nranks <= REPLAY_RANKS ? replay_all(hier, shape, partition, elem_bytes, model) : -1;
  if (replayed >= 0)
    return replayed;
  if (!make_layout(&l, shape))
    return INFINITY;
  colli_model far = *model, near = near_model(model);
  far.core_share = near.core_share = 1;
  hier = fitting(hier, &l);
  double cost = shape->coll == COLLI_ALLREDUCE
                    ? two_way_cost(hier, &l, partition, elem_bytes, &near, &far)
                    : one_way_cost(hier, &l, shape->root, partition, elem_bytes, &near, &far);
  if (model->core_share < 1)
    cost =
        larger(cost, work_cost(hier, &l, partition, elem_bytes, &near, &far) / model->core_share);
  free_layout(&l);
  return cost;
}
