/* twotrees.h: the time of two trees over the same ranks at once, up and down again. */
#ifndef COLLI_ALGO_TWOTREES_H
#define COLLI_ALGO_TWOTREES_H

#include "libcoll/algo/tree.h"

/*
 * When the last rank has finished both trees, with one message in each. A rank does one thing at a
 * time, first what could begin first, so one tree may have to wait for the other. No recursion over
 * a single tree finds that. Infinite if out of memory. No rank has more than two children.
 * *sending: how long the rank that takes longest sends in a pass, whatever the number of slices.
 */
double colli_twotrees_time(const colli_shape *shape, const colli_tree *a, const colli_tree *b,
                           const colli_terms *terms, const colli_model *model, double *sending);

#endif
