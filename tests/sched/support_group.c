/* support_group.c: the schedules of all ranks of a shape, and the shapes worth testing. */
#include "support_group.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The group of a rank in one kind of spreading. */
static int near_of(near_kind kind, int nranks, int rank) {
  int side = (int)lround(sqrt(nranks));
  int groups = (nranks + side - 1) / side, size = 1, first = 0, number = 0;
  switch (kind) {
  case NEAR_HALVES:
    return rank >= nranks / 2;
  case NEAR_ROOTS:
    return rank / side;
  case NEAR_UNEVEN:
    for (; rank >= first + size; first += size++)
      number++;
    return number;
  case NEAR_DEALT:
    return rank % (nranks < 3 ? nranks : 3);
  case NEAR_MIXED: /* the first `groups` ranks are of groups of their own: none stays empty */
    return rank < groups ? groups - 1 - rank : (rank * 7 + rank / 3) % groups;
  default:
    return 0;
  }
}

void shape_spread(colli_shape *shape, near_kind kind, int32_t *near) {
  shape->ngroups = 0;
  shape->group = NULL;
  if (kind == NEAR_ALL || shape->nranks < 2)
    return;
  for (int rank = 0; rank < shape->nranks; rank++) {
    near[rank] = near_of(kind, shape->nranks, rank);
    if (near[rank] >= shape->ngroups)
      shape->ngroups = near[rank] + 1;
  }
  shape->group = near;
}

group group_of(const colli_algo *algo, const colli_shape *shape, near_kind near) {
  size_t n = (size_t)shape->nranks;
  group all = {shape->nranks, calloc(n, sizeof(colli_sched *)), calloc(n, sizeof(int32_t))};
  if (!all.sched || !all.near)
    abort();
  colli_shape made = *shape;
  shape_spread(&made, near, all.near);
  for (made.rank = 0; made.rank < made.nranks; made.rank++) {
    coll_status status = colli_algo_emit(algo, &made, &all.sched[made.rank]);
    char text[160];
    if (status == COLL_OK)
      continue;
    fprintf(stderr, "%s: no schedule for rank %d: status %d\n", shape_tell(algo, shape, near, text),
            made.rank, status);
    exit(1);
  }
  return all;
}

group group_make(const colli_algo *algo, int nranks, int root) {
  colli_shape shape = {.coll = algo->coll, .nranks = nranks, .root = root};
  return group_of(algo, &shape, algo->groups ? NEAR_HALVES : NEAR_ALL);
}

void group_free(group *all) {
  for (int rank = 0; rank < all->nranks; rank++)
    colli_sched_free(all->sched[rank]);
  free(all->sched);
  free(all->near);
}

/* Shares of groups, some of them 0. */
#define MANY 1024
static uint8_t some_shares[MANY];

/* The same for any number of groups up to MANY. */
static const uint8_t *make_shares(void) {
  static const uint8_t few[] = {1, 0, 3, 1, 2, 0, 1};
  for (int i = 0; i < MANY; i++)
    some_shares[i] = few[i % (int)sizeof(few)];
  return some_shares;
}

/* In which part of its group, halved so many times, the rank of a position is. Unless both halves
 * are halved again, only the last one is. */
static int part_of(int at, int halvings, bool both) {
  int part = 0;
  for (int size = 2; size <= 1 << halvings; size *= 2)
    if (size == 2 || both || at % size == size - 1)
      part = at % size;
  return part;
}

void shape_levels(colli_shape *shape, int ninner, bool both) {
  static int32_t levels[COLLI_INNER_LEVELS][MANY];
  static int number[MANY << COLLI_INNER_LEVELS];
  for (int level = 0; level < ninner; level++) {
    const int halvings = ninner - level;
    int seen[MANY] = {0}, count = 0;
    memset(number, -1, ((size_t)shape->ngroups << halvings) * sizeof(*number));
    for (int rank = 0; rank < shape->nranks; rank++) {
      const int part = part_of(seen[shape->group[rank]]++, halvings, both);
      int *it = &number[(shape->group[rank] << halvings) + part];
      *it = *it < 0 ? count++ : *it;
      levels[level][rank] = *it;
    }
    shape->inner[level] = levels[level];
  }
  shape->ninner = ninner;
}

/* How many levels are inside the groups of a shape that has some: two, or where there are ranks
 * enough sometimes more: test_deep.c has as many as there may be. */
static int levels_of(const colli_shape *shape) {
  return shape->nranks < 14 ? 2 : 2 + shape->nranks / 3 % 3;
}

/* All shapes of one root. */
static void shapes_of_root(const colli_algo *algo, colli_shape shape, int32_t *near,
                           void (*visit)(const colli_algo *, const colli_shape *, near_kind,
                                         void *),
                           void *ctx) {
  for (int kind = NEAR_ALL; kind < NEAR_KINDS; kind++) {
    if (algo->groups != (kind != NEAR_ALL))
      continue;
    shape_spread(&shape, (near_kind)kind, near);
    for (int order = COLLI_ORDER_ANY; order <= COLLI_ORDER_LEFT; order++)
      for (int in_place = 0; in_place <= (algo->coll == COLLI_ALLTOALL); in_place++)
        for (int varying = 0; varying <= colli_exact(algo->coll); varying++) {
          shape.order = (colli_order)order;
          shape.in_place = in_place;
          shape.varying = varying;
          shape.share = NULL;
          if (!colli_algo_can(algo, &shape))
            continue;
          visit(algo, &shape, (near_kind)kind, ctx);
          shape.share = shape.ngroups <= MANY ? make_shares() : NULL;
          if (algo->weighted && shape.share)
            visit(algo, &shape, (near_kind)kind, ctx);
          shape.share = NULL;
          for (int both = 0; both < 2 && algo->groups && shape.nranks <= MANY; both++) {
            if (shape.nranks > 16 && both != shape.nranks % 2)
              continue; /* one of the two, for the sake of time */
            shape_levels(&shape, levels_of(&shape), both);
            visit(algo, &shape, (near_kind)kind, ctx);
            shape.share = algo->weighted ? make_shares() : NULL;
            if (shape.share)
              visit(algo, &shape, (near_kind)kind, ctx);
            shape.share = NULL;
          }
          shape.ninner = 0;
        }
  }
}

void shapes_each(const colli_algo *algo, int nranks, int roots,
                 void (*visit)(const colli_algo *algo, const colli_shape *shape, near_kind near,
                               void *ctx),
                 void *ctx) {
  int32_t *near = calloc((size_t)nranks, sizeof(*near));
  if (!near)
    abort();
  int most = colli_rooted(algo->coll) ? nranks : algo->turns ? 2 : 1;
  for (int root = 0; root < most && root < nranks; root++) {
    bool always = root <= 1 || root == nranks / 2 || root == nranks - 1;
    colli_shape shape = {.coll = algo->coll, .nranks = nranks, .root = root};
    if (always || !roots || root < roots)
      shapes_of_root(algo, shape, near, visit, ctx);
  }
  free(near);
}

const char *shape_tell(const colli_algo *algo, const colli_shape *shape, near_kind near,
                       char *text) {
  static const char *const orders[] = {"any", "ranks", "tree", "left"};
  static const char *const nears[] = {"",         ", in halves", ", in sqrt(n) groups",
                                      ", uneven", ", dealt",     ", mixed"};
  char levels[24] = "";
  if (shape->ninner)
    snprintf(levels, sizeof(levels), ", %d levels inside", shape->ninner);
  snprintf(text, 160, "%s %s, %d ranks, root %d, order %s%s%s%s%s%s", colli_coll_name(algo->coll),
           algo->name, shape->nranks, shape->root, orders[shape->order],
           shape->in_place ? ", in place" : "", shape->varying ? ", varying" : "",
           shape->share ? ", shares" : "", levels, nears[near]);
  return text;
}

colli_sched *sched_copy(const colli_sched *sched) {
  colli_sched *copy = malloc(colli_sched_bytes(sched) + sizeof(colli_step));
  if (!copy)
    abort();
  *copy = *sched;
  copy->steps = (colli_step *)(copy + 1);
  memcpy(copy->steps, sched->steps, (size_t)sched->nsteps * sizeof(colli_step));
  return copy;
}

coll_status group_verify(const group *all, int slots, bool in_place, int passes, char *why) {
  colli_verify_options options = {.slots = slots, .in_place = in_place, .passes = passes};
  return colli_verify((const colli_sched *const *)all->sched, all->nranks, &options, why, 256);
}
