/* tree.c: finds places in the tree of check-ins. */
#include "libcoll/wireup/bootstrap/tree.h"

#include <limits.h>

#include "libcoll/base/assert.h"

/* How many children the root of a subtree has. */
static int count_children(boot_range of, int fan_out) {
  const int others = of.end - of.first - 1;
  return others < fan_out ? others : fan_out;
}

/* The subtree of the i-th child. */
static boot_range child_at(boot_range of, int fan_out, int i) {
  const long long others = of.end - of.first - 1, count = count_children(of, fan_out);
  const int first = of.first + 1;
  return (boot_range){first + (int)(others * i / count), first + (int)(others * (i + 1) / count)};
}

/* The subtree of the child that a rank is, or is below. */
static boot_range child_with(boot_range of, int fan_out, int rank) {
  for (int i = 0; i < count_children(of, fan_out); i++) {
    const boot_range child = child_at(of, fan_out, i);
    if (rank >= child.first && rank < child.end)
      return child;
  }
  return (boot_range){0, 0};
}

/* How far the deepest rank of a tree is from its root. */
static int count_depths(int fan_out, int nranks) {
  int depths = 0;
  /* The last child's subtree is one of the largest. */
  for (boot_range of = {0, nranks}; of.end - of.first > 1; depths++)
    of = child_at(of, fan_out, count_children(of, fan_out) - 1);
  return depths;
}

boot_place boot_place_find(int fan_out, int rank, int nranks, bool serves) {
  COLLI_ASSERT_RANK(rank >= 0 && rank < nranks && fan_out >= 0, rank);
  boot_place place = {.fan_out = fan_out, .parent = BOOT_SERVER, .below = {0, nranks}};
  if (fan_out == 0) {
    if (!serves)
      place.below = (boot_range){rank, rank + 1};
    place.depth = !serves;
    place.depths = 1;
    return place;
  }
  for (; place.below.first != rank; place.depth++) {
    place.parent = place.below.first;
    place.below = child_with(place.below, fan_out, rank);
    COLLI_ASSERT_RANK(place.below.end > place.below.first, rank);
  }
  place.depths = count_depths(fan_out, nranks);
  return place;
}

int boot_place_children(const boot_place *place) {
  return place->fan_out == 0 ? place->below.end - place->below.first - 1
                             : count_children(place->below, place->fan_out);
}

boot_range boot_place_child(const boot_place *place, int child) {
  if (place->fan_out == 0)
    return (boot_range){child, child < INT_MAX ? child + 1 : child};
  if (child <= place->below.first || child >= place->below.end)
    return (boot_range){0, 0};
  const boot_range range = child_with(place->below, place->fan_out, child);
  return range.first == child ? range : (boot_range){0, 0};
}
