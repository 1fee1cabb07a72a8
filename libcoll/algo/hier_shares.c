/* hier_shares.c: makes the steps of hierarchical all-reduces whose ranks share what goes between
 * groups. */
#include "libcoll/algo/hier_shares.h"

#include <limits.h>
#include <stdlib.h>

#include "libcoll/algo/twotrees.h"

/* Among groups that differ in size, more shares would make long schedules. */
#define SHARES_A_RANK 4 /* on average */
#define SHARES_MAX    1024
#define SHARES_LEVELS 4 /* the widest, each of which multiplies them by so many */

/*
 * One for each rank of the largest group, if that leaves all ranks of each other group with as many
 * as each other. Else twice as many: of hosts of eight ranks, one of which lacks one, the busiest
 * rank has 1.3 times its part of the vector, instead of 1.75 times. That multiplies the shares of
 * all levels: inside the widest of many, there are as many as groups have ranks on average.
 * In trees each rank owns one, which keeps its lanes apart.
 */
int colli_shares_count(const colli_hier *hier, const colli_layout *l) {
  if (l->equal)
    return l->size[0];
  const int most = colli_layout_largest(l);
  bool even = true;
  long long ranks = 0;
  for (int group = 0; group < l->ngroups; group++) {
    even = even && most % l->size[group] == 0;
    ranks += l->size[group];
  }
  const int each = hier->above && l->wider >= SHARES_LEVELS ? 1 : SHARES_A_RANK;
  long long shares = even ? most : 2ll * most, cap = each * ranks / l->ngroups;
  cap = cap < SHARES_MAX ? cap : SHARES_MAX;
  shares = shares < cap ? shares : cap;
  return hier->trees && shares < most ? most : (int)shares;
}

colli_owned colli_shares_owned(const colli_hier *hier, const colli_layout *l) {
  const int shares = colli_shares_count(hier, l);
  int least = INT_MAX, next = INT_MAX; /* there are two groups or more */
  for (int group = 0; group < l->ngroups; group++) {
    const int size = l->size[group];
    if (size < least) {
      next = least;
      least = size;
    } else if (size < next) {
      next = size;
    }
  }
  return (colli_owned){(shares - 1) / least + 1, (shares - 1) / next + 1};
}

/* The shares of what a lane works on. */
typedef struct dealt {
  colli_stretch on;
  int shares;
  bool mirrored; /* colli_layout_owning() */
} dealt;

/* A share of the rank of a position, counted from 0; -1: it owns fewer. (Positions are mirrored as
 * shares are.) */
static int owned_share(const dealt *d, int size, int position, int number) {
  int share = number * size + colli_layout_owning(size, position, d->mirrored);
  return share < d->shares ? share : -1;
}

/* Adds a part inside the group: it gives the owners their shares, or takes these to all. */
static coll_status add_inside(colli_whole *whole, const colli_layout *l, const dealt *d,
                              const colli_algo *algo, int lane, colli_buf in) {
  const int size = l->size[l->group], each = d->on.chunks / d->shares;
  const int width = (d->shares + size - 1) / size * each;
  int *place = malloc((size_t)width * (size_t)size * sizeof(*place));
  if (!place)
    return COLL_ERR_NO_MEMORY;
  for (int i = 0; i < width * size; i++) {
    int share = owned_share(d, size, i / width, i % width / each);
    place[i] = share < 0 ? -1 : d->on.first + share * each + i % each;
  }
  colli_part inside = {.algo = algo,
                       .among = {.nranks = size, .rank = l->position},
                       .ranks = l->inside,
                       .chunks = width * size,
                       .place = place,
                       .lane = lane,
                       .in = (int)in,
                       .out = COLLI_OUTPUT};
  coll_status status = colli_part_add(whole, &inside);
  free(place);
  return status;
}

/* Where a rank alone in its group finds its contribution, and others what their group made of it.
 */
static colli_buf combined(const colli_layout *l) {
  return l->size[l->group] > 1 ? COLLI_OUTPUT : COLLI_INPUT;
}

/*
 * A rank goes through its shares in rising order. So there is no deadlock: the lowest share that is
 * not combined yet has owners that have ended all lower ones.
 */
coll_status colli_shares_split(colli_whole *whole, const colli_hier *hier, const colli_shape *shape,
                               colli_layout *l, colli_stretch on) {
  const dealt d = {.on = on, .shares = colli_shares_count(hier, l)};
  const int each = on.chunks / d.shares;
  coll_status status = add_inside(whole, l, &d, hier->enter, on.lane, COLLI_INPUT);
  for (int number = 0; status == COLL_OK; number++) {
    const int share = owned_share(&d, l->size[l->group], l->position, number);
    if (share < 0)
      break;
    colli_layout_find_peers(l, share, false);
    colli_part across = {.among = colli_layout_across(l, shape, l->peers),
                         .ranks = l->peers,
                         .first = on.first + share * each,
                         .chunks = each,
                         .lane = on.lane,
                         .in = (int)combined(l),
                         .out = COLLI_OUTPUT,
                         .complete = true};
    across.algo = colli_hier_across(hier, &across.among);
    status = colli_part_add(whole, &across);
  }
  if (status == COLL_OK)
    status = add_inside(whole, l, &d, hier->leave, on.lane, COLLI_OUTPUT);
  return status;
}

/* Adds the steps of the owner of a share in the tree over all its owners. */
static void add_owner(colli_whole *whole, const colli_layout *l, int half, int chunk) {
  const colli_tree tree = {.nranks = l->ngroups};
  colli_node node;
  colli_twotrees[half](&tree, l->group, &node);
  if (node.parent != COLLI_NOBODY)
    node.parent = l->peers[node.parent];
  for (int i = 0; i < node.children; i++)
    node.child[i] = l->peers[node.child[i]];
  int last = colli_tree_up(whole->builder, &node, 2 * half, chunk, combined(l), COLLI_OUTPUT);
  int first = colli_tree_down(whole->builder, &node, 2 * half + 1, chunk, COLLI_OUTPUT);
  colli_builder_dep(whole->builder, first, last);
}

/* Adds the steps for one half, in rising order as in colli_shares_split(). */
static coll_status add_half(colli_whole *whole, const colli_hier *hier, colli_layout *l, int half) {
  const int shares = colli_shares_count(hier, l);
  const dealt d = {
      .on = {.first = half * shares, .chunks = shares}, .shares = shares, .mirrored = half == 1};
  coll_status status = add_inside(whole, l, &d, hier->enter, 2 * half, COLLI_INPUT);
  for (int number = 0; status == COLL_OK; number++) {
    const int share = owned_share(&d, l->size[l->group], l->position, number);
    if (share < 0)
      break;
    colli_layout_find_peers(l, share, d.mirrored);
    add_owner(whole, l, half, d.on.first + share);
  }
  if (status == COLL_OK)
    status = add_inside(whole, l, &d, hier->leave, 2 * half + 1, COLLI_OUTPUT);
  return status;
}

coll_status colli_shares_trees(colli_whole *whole, const colli_hier *hier, colli_layout *l) {
  coll_status status = add_half(whole, hier, l, 0);
  return status == COLL_OK ? add_half(whole, hier, l, 1) : status;
}
