/* twotrees.h: the time of two trees over the same ranks at once, up and down again. */
#ifndef COLLI_ALGO_TWOTREES_H
#define COLLI_ALGO_TWOTREES_H

#include "libcoll/algo/tree.h"

/*
 * When the last rank has been through both trees, with one message in each. A rank does one thing
 * at a time, what could begin first; so it may keep one tree waiting for the other, which no
 * recursion over a single tree finds. Infinite without memory. No rank has more than two children.
 */
double colli_twotrees_time(const colli_tree *a, const colli_tree *b, const colli_terms *terms,
                           const colli_model *model);

#endif
