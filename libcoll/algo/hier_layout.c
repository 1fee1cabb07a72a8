/* hier_layout.c: finds out which ranks are in which group. */
#include "libcoll/algo/hier_layout.h"

#include <stdlib.h>
#include <string.h>

/* Frees the tables of a layout. */
void colli_layout_free(colli_layout *l) {
  if (!l->kept)
    free(l->of); /* and what is behind it */
}

void colli_layouts_free(colli_layouts *layouts) {
  for (int widest = 0; widest < 2; widest++)
    free(layouts->at[widest].of);
}

/* Numbers the groups that have ranks, in the order of their first ranks; returns their number. */
static int number_groups(colli_layout *l, const colli_shape *shape, const int32_t *group) {
  int n = shape->nranks, found = 0;
  int *number = l->begin; /* of each group of the shape, plus 1 */
  for (int rank = 0; rank < n; rank++) {
    int *known = &number[group[rank]];
    *known = *known ? *known : ++found;
    l->of[rank] = *known - 1;
    if (l->share)
      l->share[*known - 1] = shape->share[group[rank]];
  }
  return found;
}

/* Sorts numbers below n by the groups of the ranks that they stand for (`first`; NULL: themselves);
 * those of one group stay as they are. `memory` has room for n numbers twice. */
static void sort_by(const int32_t *of, const int *first, int *order, int count, int n,
                    int *memory) {
  int *next = memory, *begin = memory + n;
  memset(begin, 0, (size_t)n * sizeof(*begin));
  for (int i = 0; i < count; i++)
    begin[of[first ? first[i] : i]]++;
  for (int i = 0, before = 0; i < n; i++) {
    const int found = begin[i];
    begin[i] = before;
    before += found;
  }
  for (int i = 0; i < count; i++)
    next[begin[of[first ? first[order[i]] : order[i]]]++] = order[i];
  memcpy(order, next, (size_t)count * sizeof(*order));
}

/* Renumbers the groups so that those of one wider group follow each other, at each level. `memory`
 * has room for four numbers a rank. */
static void sort_groups(colli_layout *l, const colli_shape *shape, int *memory) {
  const int n = shape->nranks;
  int *first = memory, *order = memory + n, *next = memory + 2 * n, *begin = memory + 3 * n;
  for (int rank = n - 1; rank >= 0; rank--)
    first[l->of[rank]] = rank;
  for (int group = 0; group < l->ngroups; group++)
    order[group] = group;
  for (int level = 1; level <= shape->ninner; level++) { /* sort by the widest level last */
    const int32_t *of = level < shape->ninner ? shape->inner[level] : shape->group;
    sort_by(of, first, order, l->ngroups, n, next);
  }
  for (int i = 0; i < l->ngroups; i++) {
    next[order[i]] = i;
    begin[i] = l->share ? l->share[order[i]] : 0;
  }
  for (int i = 0; l->share && i < l->ngroups; i++)
    l->share[i] = (uint8_t)begin[i];
  for (int rank = 0; rank < n; rank++)
    l->of[rank] = next[l->of[rank]];
}

/* Sorts the ranks so that those of a host, and of each wider group, follow each other. `memory` has
 * room for two numbers a rank. */
static void sort_ranks(colli_layout *l, const colli_shape *shape, int *memory) {
  for (int level = 0; level < shape->ninner; level++) /* sort by the widest level last */
    sort_by(shape->inner[level], NULL, l->order, shape->nranks, shape->nranks, memory);
}

/* Numbers and sorts the groups, if there are several. `memory`: of sort_groups(). */
static void find_groups(colli_layout *l, const colli_shape *shape, int *memory) {
  if (shape->ngroups > 1 && shape->group)
    l->ngroups = number_groups(l, shape, l->widest ? shape->group : colli_shape_hosts(shape));
  if (l->ngroups > 1 && shape->ninner)
    (l->widest ? sort_ranks : sort_groups)(l, shape, memory);
  for (int rank = 0; rank < shape->nranks && l->ngroups <= 1; rank++)
    l->of[rank] = rank;
  l->ngroups = l->ngroups > 1 ? l->ngroups : shape->nranks;
}

/* Lists the members of each group, and finds its leader. */
static void list_members(colli_layout *l, const colli_shape *shape) {
  for (int rank = 0; rank < shape->nranks; rank++)
    l->size[l->of[rank]]++;
  for (int group = 0, before = 0; group < l->ngroups; group++) {
    l->begin[group] = before;
    before += l->size[group];
    l->equal &= l->size[group] == l->size[0];
  }
  int *seen = l->peers;
  for (int i = 0; i < shape->nranks; i++) {
    const int rank = l->order[i], group = l->of[rank];
    if (seen[group] == 0 || rank == shape->root)
      l->leader[group] = rank;
    l->members[l->begin[group] + seen[group]++] = rank;
  }
}

/* Fills in what is the same for all ranks; false if out of memory. */
static bool make_for_all(colli_layout *l, const colli_shape *shape, bool widest) {
  const size_t n = (size_t)shape->nranks, levels = (size_t)shape->ninner;
  *l = (colli_layout){.equal = true, .widest = widest, .wider = shape->ninner};
  l->of = calloc(n, (7 + levels + (levels ? 4 : 0)) * sizeof(int) + 1);
  if (!l->of)
    return false;
  l->size = l->of + n;
  l->leader = l->size + n;
  l->peers = l->leader + n;
  l->order = l->peers + n;
  l->members = l->order + n;
  l->begin = l->members + n; /* and the numbers of number_groups() */
  l->above = l->begin + n;
  int *memory = l->above + levels * n;
  if (shape->share && shape->ngroups > 1 && shape->group && !widest)
    l->share = (uint8_t *)(memory + (levels ? 4 * n : 0));
  for (int rank = 0; rank < shape->nranks; rank++)
    l->order[rank] = rank;
  find_groups(l, shape, memory);
  list_members(l, shape);
  return true;
}

bool colli_layout_make(colli_layout *l, const colli_shape *shape, bool widest) {
  colli_layout *kept = shape->layouts ? &shape->layouts->at[widest] : NULL;
  if ((!kept || !kept->of) && !make_for_all(kept ? kept : l, shape, widest))
    return false;
  if (kept) {
    *l = *kept;
    l->kept = true;
  }
  l->group = l->of[shape->rank];
  l->inside = l->members + l->begin[l->group];
  while (l->inside[l->position] != shape->rank)
    l->position++;
  return true;
}

/* Finds the owners of a share, group by group. */
void colli_layout_find_peers(colli_layout *l, int share, bool mirrored) {
  for (int group = 0; group < l->ngroups; group++)
    l->peers[group] =
        l->members[l->begin[group] + colli_layout_owning(l->size[group], share, mirrored)];
}

colli_shape colli_layout_across(colli_layout *l, const colli_shape *shape, const int *members) {
  colli_shape out = {
      .nranks = l->ngroups, .rank = l->group, .root = l->of[shape->root], .share = l->share};
  if (!shape->ninner || l->widest)
    return out;
  for (int level = 1; level <= shape->ninner; level++) {
    const bool top = level == shape->ninner;
    const int32_t *from = top ? shape->group : shape->inner[level];
    int32_t *to = l->above + (size_t)(level - 1) * (size_t)l->ngroups;
    for (int group = 0; group < l->ngroups; group++)
      to[group] = from[members[group]];
    if (top)
      out.group = to;
    else
      out.inner[out.ninner++] = to;
  }
  out.ngroups = shape->ngroups;
  return out;
}

colli_shape colli_layout_within(colli_layout *l, const colli_shape *shape) {
  int largest = 0;
  for (int group = 1; group < l->ngroups; group++)
    largest = l->size[group] > l->size[largest] ? group : largest;
  colli_shape out = {.nranks = l->size[largest]};
  for (int level = 0; l->widest && level < shape->ninner; level++) {
    int32_t *to = l->above + (size_t)level * (size_t)shape->nranks;
    int last = -1, count = 0, found = 0; /* members of a group follow each other */
    for (int i = 0; i < out.nranks; i++) {
      const int it = shape->inner[level][l->members[l->begin[largest] + i]];
      found += it != last;
      last = it;
      to[count++] = found - 1;
    }
    out.ngroups = found; /* in the end of the widest level */
    out.group = to;
    out.ninner = level;
    if (level + 1 < shape->ninner)
      out.inner[level] = to;
  }
  return out;
}
