/* support_leaks.c: a table of what was made and has not been given back. */
#include "support_leaks.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { ROOM = 1 << 16, MOST_PLACES = 6 };

typedef struct thing {
  void *made; /* NULL: free; GONE: was given back */
  void *at;
} thing;

static thing table[ROOM];
static atomic_flag busy = ATOMIC_FLAG_INIT;
static atomic_bool on;
static char gone;
#define GONE ((void *)&gone)

extern const char __executable_start;

static void enter(void) {
  while (atomic_flag_test_and_set(&busy))
    ;
}

static void leave(void) {
  atomic_flag_clear(&busy);
}

/* Where to begin to look for it. */
static size_t place_of(const void *made) {
  return (size_t)((uintptr_t)made / 16 * 0x9e3779b97f4a7c15u >> 40) % ROOM;
}

void leaks_begin(void) {
  atomic_store(&on, true);
}

void *leaks_made(void *made, void *at) {
  if (!made || !atomic_load(&on))
    return made;
  enter();
  size_t i = place_of(made);
  for (int n = 0; n < ROOM && table[i].made && table[i].made != GONE; n++)
    i = (i + 1) % ROOM;
  table[i] = (thing){made, at};
  leave();
  return made;
}

void leaks_given_back(void *made) {
  if (!made || !atomic_load(&on))
    return;
  enter();
  size_t i = place_of(made);
  for (int n = 0; n < ROOM && table[i].made && table[i].made != made; n++)
    i = (i + 1) % ROOM;
  if (table[i].made == made)
    table[i].made = GONE;
  leave();
}

int leaks_end(char *text, size_t bytes) {
  int count = 0;
  size_t used = 0;
  atomic_store(&on, false);
  text[0] = 0;
  enter();
  for (size_t i = 0; i < ROOM; i++)
    if (table[i].made && table[i].made != GONE && count++ < MOST_PLACES && used < bytes)
      used += (size_t)snprintf(text + used, bytes - used, " 0x%zx",
                               (size_t)((const char *)table[i].at - &__executable_start));
  leave();
  return count;
}
