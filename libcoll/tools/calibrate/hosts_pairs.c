/* hosts_pairs.c: which pairs of hosts are measured. */
#include <stdlib.h>
#include <string.h>

#include "hosts.h"

#define FEW  8 /* hosts, of which all pairs are measured */
#define EACH 3 /* pairs of each of many hosts, at least one for each level */

/* How many levels two hosts have in common. */
static int common_levels(const char *a, const char *b) {
  int levels = 0;
  while (*a && *a == *b) {
    a++;
    b++;
    const bool ends = (*a == 0 || *a == '/') && (*b == 0 || *b == '/');
    levels += ends;
  }
  return levels;
}

/* Adds a pair, unless it is there. */
static void add_pair(hosts_found *found, int a, int b) {
  for (int i = 0; i < found->npairs; i++) {
    const hosts_pair *other = &found->pair[i];
    if ((other->a == a && other->b == b) || (other->a == b && other->b == a))
      return;
  }
  found->pair[found->npairs++] = (hosts_pair){
      .a = a, .b = b, .common = common_levels(found->info[a].levels, found->info[b].levels)};
}

bool hosts_list_pairs(hosts_found *found) {
  const int n = found->delegates.count, share = EACH / (found->depth + 1);
  found->npairs = 0;
  found->pair = calloc((size_t)n * (n <= FEW ? FEW : COLLI_HOST_LEVELS + 1), sizeof(*found->pair));
  if (!found->pair)
    return false;
  for (int a = 0; a < n; a++)
    for (int wanted = found->depth; wanted >= 0; wanted--)
      for (int step = 1, left = n <= FEW    ? n
                                : share > 0 ? share
                                            : 1;
           step < n && left > 0; step++) {
        const int b = (a + step) % n;
        if (common_levels(found->info[a].levels, found->info[b].levels) != wanted)
          continue;
        add_pair(found, a, b);
        left--;
      }
  return true;
}
