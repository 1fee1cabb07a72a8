/* hier_layout.c: finds out which ranks are in which group. */
#include "libcoll/algo/hier_layout.h"

#include <stdlib.h>

/* Frees the tables of a layout. */
void colli_layout_free(colli_layout *l) {
  free(l->of);
}

/* Numbers the groups that have ranks, in the order of their first ranks; returns their number. */
static int number_groups(colli_layout *l, const colli_shape *shape) {
  int n = shape->nranks, found = 0;
  int *number = l->inside + n; /* of each group of the shape, plus 1 */
  for (int rank = 0; rank < n; rank++) {
    int *known = &number[shape->group[rank]];
    *known = *known ? *known : ++found;
    l->of[rank] = *known - 1;
    if (l->share)
      l->share[*known - 1] = shape->share[shape->group[rank]];
  }
  return found;
}

/* Lists the ranks, host by host if groups have several. `first` has room for all. */
static void list_ranks(colli_layout *l, const colli_shape *shape, int *first) {
  for (int rank = 0; rank < shape->nranks && shape->host; rank++)
    first[shape->host[rank]]++;
  for (int host = 0, ranks = 0; host < shape->nranks && shape->host; host++) {
    int count = first[host];
    first[host] = ranks;
    ranks += count;
  }
  for (int rank = 0; rank < shape->nranks; rank++)
    l->order[shape->host ? first[shape->host[rank]]++ : rank] = rank;
}

/* Fills in the layout of groups; false if out of memory. Without groups, each rank is a group. */
bool colli_layout_make(colli_layout *l, const colli_shape *shape) {
  int n = shape->nranks;
  *l = (colli_layout){.equal = true};
  l->of = calloc((size_t)n, 8 * sizeof(int) + 1);
  if (!l->of)
    return false;
  l->size = l->of + n;
  l->leader = l->size + n;
  l->peers = l->leader + n;
  l->inside = l->peers + n;
  l->order = l->inside + 2 * n; /* behind the numbers of number_groups() */
  list_ranks(l, shape, l->order + n);
  if (shape->ngroups > 1 && shape->group) {
    l->share = shape->share ? (uint8_t *)(l->order + 2 * n) : NULL;
    l->ngroups = number_groups(l, shape);
  }
  for (int rank = 0; rank < n && l->ngroups <= 1; rank++)
    l->of[rank] = rank;
  l->ngroups = l->ngroups > 1 ? l->ngroups : n;
  l->group = l->of[shape->rank];
  for (int i = 0; i < n; i++) {
    int rank = l->order[i], group = l->of[rank];
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
void colli_layout_find_peers(colli_layout *l, int nranks) {
  int *seen = l->leader; /* symmetric parts need no leader */
  for (int group = 0; group < l->ngroups; group++)
    seen[group] = 0;
  for (int i = 0; i < nranks; i++) {
    int rank = l->order[i], group = l->of[rank];
    if (seen[group]++ == l->position)
      l->peers[group] = rank;
  }
}
