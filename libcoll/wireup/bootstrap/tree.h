/*
 * tree.h: at whom each rank checks in: at the rank that serves all others (a star), or in a tree
 * below rank 0, in which no rank has many connections. There, the ranks of a subtree follow each
 * other: the first one is its root, and what follows is divided evenly among its children, of which
 * there are at most `fan_out`. So ranks of one host, which mostly follow each other, mostly meet
 * inside it.
 *
 *     0 .. 11, fan_out 3      0 <- 1 <- 2, 3      0 <- 4 <- 5, 6, 7      0 <- 8 <- 9, 10, 11
 */
#ifndef COLLI_WIREUP_BOOTSTRAP_TREE_H
#define COLLI_WIREUP_BOOTSTRAP_TREE_H

#include <stdbool.h>

#define BOOT_SERVER (-1) /* the rank at which others check in, in a star: whoever serves */

/* Ranks that follow each other: first .. end - 1. */
typedef struct boot_range {
  int first, end;
} boot_range;

/* A rank's place. */
typedef struct boot_place {
  int fan_out;       /* 0: it is a star */
  int parent;        /* the rank at which it checks in; BOOT_SERVER in a star, and at the root */
  int depth, depths; /* the root's is 0; the largest */
  boot_range below;  /* itself and all who check in at it, directly or not */
} boot_place;

/* Finds the place of a rank; fan_out 0: of one that serves all others, or of one of those. */
boot_place boot_place_find(int fan_out, int rank, int nranks, bool serves);

/* How many ranks check in directly at the rank with this place. */
int boot_place_children(const boot_place *place);

/* The ranks below one that checks in directly at the rank with this place; empty: it does not. In a
 * star, whatever rank it says that it is. */
boot_range boot_place_child(const boot_place *place, int child);

#endif
