/* hier_trees.c: makes the steps of a hierarchical all-reduce in two trees. */
#include "libcoll/algo/hier_trees.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/algo/twotrees.h"
#include "libcoll/base/assert.h"

int colli_trees_shares(const colli_layout *l) {
  int most = colli_layout_largest(l);
  return l->equal ? most : 2 * most; /* more of them are shared out more evenly */
}

/* One rank, and who owns what. */
typedef struct owners {
  colli_whole *whole;
  const colli_layout *l;
  int shares; /* of each half */
  int *first; /* [group] where its ranks begin */
  int *ranks; /* by group and position */
  int *place; /* of a part inside the group (hier_part.h) */
} owners;

/* The position of a share's owner in a group of this size. The ranks that own more shares of one
 * half than others own fewer of the other half. */
static int owning_position(int size, int half, int share) {
  int position = share % size;
  return half == 0 ? position : size - 1 - position;
}

/* The share in a place among those of a position: places are counted from 0; -1: there is none. */
static int owned_share(const owners *o, int half, int position, int place) {
  int size = o->l->size[o->l->group];
  int share = place * size + owning_position(size, half, position);
  return share < o->shares ? share : -1;
}

/* The rank that owns a share in a group. */
static int owner_in(const owners *o, int group, int half, int share) {
  return o->ranks[o->first[group] + owning_position(o->l->size[group], half, share)];
}

/* Fills in the tables of a rank; false if out of memory. */
static bool owners_make(owners *o, int nranks) {
  const colli_layout *l = o->l;
  const int size = l->size[l->group];
  const size_t groups = (size_t)l->ngroups, places = (size_t)(o->shares + size);
  o->first = malloc((groups + (size_t)nranks + places) * sizeof(int));
  if (!o->first)
    return false;
  o->ranks = o->first + groups;
  o->place = o->ranks + nranks;
  for (int group = 0, before = 0; group < l->ngroups; before += l->size[group++])
    o->first[group] = before;
  for (int rank = 0; rank < nranks; rank++)
    o->ranks[o->first[l->of[rank]]++] = rank;
  for (int group = 0; group < l->ngroups; group++)
    o->first[group] -= l->size[group];
  return true;
}

/* Adds the part inside the group that gives the owners of a half their shares, or takes these to
 * all. */
static coll_status add_inside(const owners *o, const colli_algo *algo, int half, int lane,
                              colli_buf in) {
  const colli_layout *l = o->l;
  const int size = l->size[l->group], width = (o->shares + size - 1) / size;
  for (int position = 0; position < size; position++)
    for (int place = 0; place < width; place++) {
      int share = owned_share(o, half, position, place);
      o->place[position * width + place] = share < 0 ? -1 : half * o->shares + share;
    }
  colli_part inside = {.algo = algo,
                       .among = {.nranks = size, .rank = l->position},
                       .ranks = l->inside,
                       .chunks = width * size,
                       .place = o->place,
                       .lane = lane,
                       .in = (int)in,
                       .out = COLLI_OUTPUT};
  return colli_part_add(o->whole, &inside);
}

/* The rank's place in the tree over the owners of a share. */
static void place_owner(const owners *o, int half, int share, colli_node *node) {
  const colli_tree tree = {.nranks = o->l->ngroups};
  colli_twotrees[half](&tree, o->l->group, node);
  if (node->parent != COLLI_NOBODY)
    node->parent = owner_in(o, node->parent, half, share);
  for (int i = 0; i < node->children; i++)
    node->child[i] = owner_in(o, node->child[i], half, share);
}

/*
 * Adds the steps for one half. A rank goes through its shares in rising order, on the way up and on
 * the way down, so one chunk of credit is enough: what a rank waits for is of a lower share, or
 * nearer to a leaf or on the way down to the root.
 */
static coll_status add_half(const owners *o, const colli_hier *hier, int half) {
  const colli_layout *l = o->l;
  const int up = 2 * half, down = up + 1, size = l->size[l->group];
  const colli_buf from = size > 1 ? COLLI_OUTPUT : COLLI_INPUT;
  coll_status status = add_inside(o, hier->enter, half, up, COLLI_INPUT);
  for (int place = 0; status == COLL_OK; place++) {
    const int share = owned_share(o, half, l->position, place);
    if (share < 0)
      break;
    colli_node node;
    place_owner(o, half, share, &node);
    const int chunk = half * o->shares + share;
    int last = colli_tree_up(o->whole->builder, &node, up, chunk, from, COLLI_OUTPUT);
    int first = colli_tree_down(o->whole->builder, &node, down, chunk, COLLI_OUTPUT);
    colli_builder_dep(o->whole->builder, first, last);
  }
  return status == COLL_OK ? add_inside(o, hier->leave, half, down, COLLI_OUTPUT) : status;
}

coll_status colli_trees_add(colli_whole *whole, const colli_hier *hier, const colli_shape *shape,
                            const colli_layout *l) {
  owners o = {.whole = whole, .l = l, .shares = colli_trees_shares(l)};
  if (!owners_make(&o, shape->nranks))
    return COLL_ERR_NO_MEMORY;
  coll_status status = add_half(&o, hier, 0);
  if (status == COLL_OK)
    status = add_half(&o, hier, 1);
  free(o.first);
  return status;
}
