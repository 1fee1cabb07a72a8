/* delegates.h: the ranks that measure, each for its host. */
#ifndef COLLI_MEASURE_DELEGATES_H
#define COLLI_MEASURE_DELEGATES_H

typedef struct colli_delegates {
  int *rank; /* one of each of `count` hosts, in the same order everywhere */
  int count;
  int own; /* this rank's number among them, or -1 */
} colli_delegates;

#endif
