/* hier_layout.h: which ranks are in which group, for those who make the schedules of hier.h, and
 * for hier_cost.c, which prices them. */
#ifndef COLLI_ALGO_HIER_LAYOUT_H
#define COLLI_ALGO_HIER_LAYOUT_H

#include "libcoll/algo/hier.h"

/* Who is where, at the innermost or widest level of a shape's groups. */
typedef struct colli_layout {
  int ngroups;
  int group;      /* the rank's own one */
  int position;   /* of the rank in it */
  bool equal;     /* all groups are of one size */
  bool widest;    /* groups are the widest */
  int wider;      /* levels of groups around these or, in the widest, inside them */
  int *order;     /* all ranks; those of a group in the order of their positions */
  int *of;        /* [rank] its group */
  int *size;      /* [group] */
  int *leader;    /* [group] rank */
  int *members;   /* all ranks, sorted by group, and in a group by position ... */
  int *begin;     /* [group] ... from here on */
  int *inside;    /* [position] ranks of the own group: a part of members */
  int *peers;     /* [group] who owns a share, once colli_layout_find_peers() was called */
  int32_t *above; /* [level][group] the groups of the groups; or of the widest groups' ranks:
                   * [level][position] */
  uint8_t *share; /* [group], in this order of groups; NULL: none */
  bool kept;      /* its memory is that of colli_layouts */
} colli_layout;

/* The layouts of a shape's groups, for one root and one set of shares, which are the same for all
 * ranks but for their own places: for who makes schedules of thousands of ranks. Begins as zeros.
 */
typedef struct colli_layouts {
  colli_layout at[2]; /* [widest] */
} colli_layouts;

void colli_layouts_free(colli_layouts *layouts);

/* Fills in the layout of groups; false if out of memory. Without groups, each rank is a group.
 * Positions follow the numbers of ranks, but in the widest groups ranks of a host are neighbours.
 */
bool colli_layout_make(colli_layout *l, const colli_shape *shape, bool widest);
void colli_layout_free(colli_layout *l);

/* The shape of a part that runs among one rank of each group (`members`: leaders or peers),
 * which has the levels above that of the layout. Uses the layout's memory. */
colli_shape colli_layout_across(colli_layout *l, const colli_shape *shape, const int *members);

/* The shape of a part that runs inside the largest group, as its first rank sees it. Its ranks are
 * hosts and groups of these, if the groups are the widest ones. Uses the layout's memory. */
colli_shape colli_layout_within(colli_layout *l, const colli_shape *shape);

/* The position of a share's owner in a group of this size (hier_shares.h). Mirrored: shares are
 * dealt out from the last position on; those who own more than others then own fewer without. */
static inline int colli_layout_owning(int size, int share, bool mirrored) {
  return mirrored ? size - 1 - share % size : share % size;
}

/* Finds the owners of a share, group by group. Where groups are of one size, share p belongs to the
 * ranks of position p. */
void colli_layout_find_peers(colli_layout *l, int share, bool mirrored);

/* The position of the leader in the rank's own group. */
static inline int colli_layout_lead(const colli_layout *l) {
  int leader = 0;
  while (l->inside[leader] != l->leader[l->group])
    leader++;
  return leader;
}

/* The size of the largest group. */
static inline int colli_layout_largest(const colli_layout *l) {
  int most = 0;
  for (int group = 0; group < l->ngroups; group++)
    most = l->size[group] > most ? l->size[group] : most;
  return most;
}

/* The algorithm that these groups get. */
static inline const colli_hier *colli_hier_fitting(const colli_hier *hier, const colli_layout *l) {
  const bool fits = l->equal && (!hier->duplex || l->ngroups == 2);
  return hier->otherwise && !fits ? hier->otherwise : hier;
}

/* The algorithm between groups, which may have levels above them. */
static inline const colli_algo *colli_hier_across(const colli_hier *hier,
                                                  const colli_shape *among) {
  return among->ngroups > 1 && hier->above ? hier->above : hier->across;
}

/* The number of lanes. */
static inline int colli_hier_lanes(const colli_hier *hier) {
  return hier->lanes ? hier->lanes : 1;
}

/* The model of links inside the innermost groups, and of those between them, where there may be
 * further levels (hier_cost.c). */
colli_model colli_hier_near_model(const colli_model *model, const colli_shape *shape);
colli_model colli_hier_far_model(const colli_model *model, const colli_shape *shape);

#endif
