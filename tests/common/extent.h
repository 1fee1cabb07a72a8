/*
 * extent.h: how many of their cases long tests go through. By default a sample, in which
 * every collective, type, operation and class of rank counts stays. TEST_ALL=1 has tests go through
 * more, most of them through all.
 */
#ifndef TESTS_COMMON_EXTENT_H
#define TESTS_COMMON_EXTENT_H

#include <stdlib.h>

#include "sanitized.h"

/* The number for this run: of a default run, of one with all cases, or of one under a sanitizer. */
static inline int extent(int usual, int all, int sanitized) {
  if (SANITIZED)
    return sanitized;
  return getenv("TEST_ALL") ? all : usual;
}

/* The same for searches of seeds, of which TEST_SEARCH=all asks for more: they take minutes. */
static inline int extent_seeds(int usual, int all, int sanitized, int searched) {
  const char *search = getenv("TEST_SEARCH");
  return search && *search == 'a' ? searched : extent(usual, all, sanitized);
}

#endif
