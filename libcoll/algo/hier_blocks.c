/*
 * hier_blocks.c: all-gather and reduce-scatter over groups. A chunk is the block of one rank. If
 * all groups are of one size, ranks of equal position (peers) exchange the blocks of their
 * positions between groups, so that a link between groups carries each block once. Otherwise the
 * leaders do, one block of each group after the other.
 *
 * With a lane each way between two groups (duplex), a rank does in one lane what it needs
 * for what it sends, and in the other what it does with what comes. So passes leave one after the
 * other, and none waits for what the other group sends. Its lanes are the other way round in the
 * other group, as both ends of a message use one lane.
 */
#include "libcoll/algo/hier_blocks.h"

#include <stdlib.h>

/* Which blocks belong to whom. */
typedef struct blocks {
  int width; /* ranks of the largest group */
  int *by; /* split: [position][group] rank; else [group][position], -1 where a group is smaller */
  int *other; /* ranks of other groups; not split only */
  int others;
} blocks;

/* Lists the blocks. Their memory is `by`. */
static bool list_blocks(blocks *b, const colli_shape *shape, const colli_layout *l, bool split) {
  size_t n = (size_t)shape->nranks, groups = (size_t)l->ngroups;
  *b = (blocks){.width = colli_layout_largest(l)};
  size_t places = groups * (size_t)b->width;
  b->by = malloc((places + n + groups) * sizeof(int));
  if (!b->by)
    return false;
  b->other = b->by + places;
  int *seen = b->other + n;
  for (size_t i = 0; i < places; i++)
    b->by[i] = -1;
  for (int group = 0; group < l->ngroups; group++)
    seen[group] = 0;
  for (int i = 0; i < shape->nranks; i++) {
    int rank = l->order[i], group = l->of[rank], position = seen[group]++;
    b->by[split ? position * l->ngroups + group : group * b->width + position] = rank;
    if (group != l->group)
      b->other[b->others++] = rank;
  }
  return true;
}

/* The part inside the rank's own group. */
static colli_part inside_part(colli_layout *l, const colli_algo *algo) {
  return (colli_part){.algo = algo,
                      .among = {.nranks = l->size[l->group], .rank = l->position},
                      .ranks = l->inside,
                      .place = l->inside,
                      .chunks = l->size[l->group]};
}

/* The part between groups, among `members`. */
static colli_part across_part(const colli_hier *hier, const colli_shape *shape, colli_layout *l,
                              const int *members) {
  colli_part part = {.among = colli_layout_across(l, shape, members),
                     .ranks = members,
                     .place = members,
                     .chunks = l->ngroups,
                     .complete = true};
  part.algo = colli_hier_across(hier, &part.among);
  return part;
}

/* The same among leaders, for the blocks of all ranks. */
static colli_part leaders_part(const colli_hier *hier, const colli_shape *shape, colli_layout *l,
                               const blocks *b) {
  colli_part part = across_part(hier, shape, l, l->leader);
  part.place = b->by;
  part.chunks = l->ngroups * b->width;
  return part;
}

/* All-gather between peers, then inside. */
static coll_status gather_split(colli_whole *whole, const colli_hier *hier,
                                const colli_shape *shape, colli_layout *l, const blocks *b) {
  colli_part across = across_part(hier, shape, l, l->peers);
  across.in = COLLI_INPUT;
  across.out = COLLI_OUTPUT;
  coll_status status = colli_part_add(whole, &across);
  colli_part leave = inside_part(l, hier->leave);
  leave.place = b->by;
  leave.chunks = shape->nranks;
  leave.in = leave.out = COLLI_OUTPUT;
  return status == COLL_OK ? colli_part_add(whole, &leave) : status;
}

/* All-gather inside, between leaders, and broadcast inside. */
static coll_status gather_led(colli_whole *whole, const colli_hier *hier, const colli_shape *shape,
                              colli_layout *l, const blocks *b) {
  colli_part enter = inside_part(l, hier->enter);
  enter.in = COLLI_INPUT;
  enter.out = COLLI_OUTPUT;
  coll_status status = colli_part_add(whole, &enter);
  if (status == COLL_OK && shape->rank == l->leader[l->group]) {
    colli_part across = leaders_part(hier, shape, l, b);
    across.in = l->size[l->group] > 1 ? COLLI_OUTPUT : COLLI_INPUT;
    across.out = COLLI_OUTPUT;
    status = colli_part_add(whole, &across);
  }
  colli_part leave = inside_part(l, hier->leave);
  leave.among.root = colli_layout_lead(l);
  leave.place = b->other;
  leave.chunks = b->others;
  leave.in = leave.out = COLLI_OUTPUT;
  return status == COLL_OK ? colli_part_add(whole, &leave) : status;
}

/* Reduce-scatter of all blocks inside, then between peers. */
static coll_status scatter_split(colli_whole *whole, const colli_hier *hier,
                                 const colli_shape *shape, colli_layout *l, const blocks *b) {
  colli_part enter = inside_part(l, hier->enter);
  enter.place = b->by;
  enter.chunks = shape->nranks;
  enter.in = COLLI_INPUT;
  enter.out = COLLI_SCRATCH;
  coll_status status = colli_part_add(whole, &enter);
  colli_part across = across_part(hier, shape, l, l->peers);
  across.in = l->size[l->group] > 1 ? COLLI_SCRATCH : COLLI_INPUT;
  across.out = COLLI_OUTPUT;
  return status == COLL_OK ? colli_part_add(whole, &across) : status;
}

/* The same as gather_split(), with a lane each way. */
static coll_status gather_duplex(colli_whole *whole, const colli_hier *hier,
                                 const colli_shape *shape, colli_layout *l, const blocks *b) {
  const int there = l->group, back = 1 - there, peer = l->peers[back], rank = shape->rank;
  const colli_way out = {COLLI_NOBODY, peer, COLLI_INPUT, COLLI_OUTPUT};
  const colli_way in = {peer, COLLI_NOBODY, COLLI_OUTPUT, COLLI_OUTPUT};
  const int sent = colli_emit(whole->builder, there, COLLI_SEND | COLLI_STORE, out, rank);
  const int got = colli_emit(whole->builder, back, COLLI_RECV | COLLI_STORE, in, peer);
  colli_builder_dep(whole->builder, got, sent);
  colli_part leave = inside_part(l, hier->leave);
  leave.lane = back;
  leave.place = b->by;
  leave.chunks = shape->nranks;
  leave.in = leave.out = COLLI_OUTPUT;
  return colli_part_add(whole, &leave);
}

/* The same as scatter_split(), with a lane each way. What is for the other group is summed up in
 * scratch, and what is for this one in the result, as the lanes are in different passes. */
static coll_status scatter_duplex(colli_whole *whole, const colli_hier *hier,
                                  const colli_shape *shape, colli_layout *l, const blocks *b) {
  const int there = l->group, back = 1 - there, peer = l->peers[back], rank = shape->rank;
  const bool alone = l->size[l->group] == 1;
  colli_part enter = inside_part(l, hier->enter);
  enter.lane = there;
  enter.place = b->by + back * b->width;
  enter.in = COLLI_INPUT;
  enter.out = COLLI_SCRATCH;
  coll_status status = colli_part_add(whole, &enter);
  const colli_buf sum = alone ? COLLI_INPUT : COLLI_SCRATCH;
  colli_emit(whole->builder, there, COLLI_SEND, (colli_way){COLLI_NOBODY, peer, sum, sum},
             alone ? peer : COLLI_ROW_RESULT * whole->nchunks + peer);
  enter.lane = back;
  enter.place = b->by + there * b->width;
  enter.out = COLLI_OUTPUT;
  if (status == COLL_OK)
    status = colli_part_add(whole, &enter);
  const colli_way in = {peer, COLLI_NOBODY, alone ? COLLI_INPUT : COLLI_OUTPUT, COLLI_OUTPUT};
  colli_emit(whole->builder, back, COLLI_RECV | COLLI_FOLD | COLLI_FINAL | COLLI_STORE, in, rank);
  return status;
}

/* Reduce to the leader, reduce-scatter between leaders, scatter. */
static coll_status scatter_led(colli_whole *whole, const colli_hier *hier, const colli_shape *shape,
                               colli_layout *l, const blocks *b) {
  bool alone = l->size[l->group] == 1;
  colli_part enter = inside_part(l, hier->enter);
  enter.among.root = colli_layout_lead(l);
  enter.place = NULL;
  enter.chunks = shape->nranks;
  enter.in = COLLI_INPUT;
  enter.out = COLLI_SCRATCH;
  coll_status status = colli_part_add(whole, &enter);
  if (status == COLL_OK && shape->rank == l->leader[l->group]) {
    colli_part across = leaders_part(hier, shape, l, b);
    across.in = alone ? COLLI_INPUT : COLLI_SCRATCH;
    across.out = alone ? COLLI_OUTPUT : COLLI_SCRATCH;
    status = colli_part_add(whole, &across);
  }
  colli_part leave = inside_part(l, hier->leave);
  leave.among.root = enter.among.root;
  leave.in = COLLI_SCRATCH;
  leave.out = COLLI_OUTPUT;
  return status == COLL_OK ? colli_part_add(whole, &leave) : status;
}

coll_status colli_hier_blocks(colli_whole *whole, const colli_hier *hier, const colli_shape *shape,
                              colli_layout *l) {
  const bool split = hier->split, gathers = shape->coll == COLLI_ALLGATHER;
  /* scatter_duplex() handles the blocks of one group after those of the other */
  blocks b;
  if (!list_blocks(&b, shape, l, split && (gathers || !hier->duplex)))
    return COLL_ERR_NO_MEMORY;
  if (split)
    colli_layout_find_peers(l, l->position, false);
  coll_status status;
  if (hier->duplex)
    status = (gathers ? gather_duplex : scatter_duplex)(whole, hier, shape, l, &b);
  else if (gathers)
    status = (split ? gather_split : gather_led)(whole, hier, shape, l, &b);
  else
    status = (split ? scatter_split : scatter_led)(whole, hier, shape, l, &b);
  free(b.by);
  return status;
}
