/* fault_plan.c: reads COLL_FAULT. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transports/hook/fault.h"

#define MAX_TEXT 512

/* Reads a number made of digits only, in 0 .. max; *end is what follows it. */
static bool parse_number(const char *text, uint64_t max, char stop, uint64_t *value,
                         const char **end) {
  if (*text < '0' || *text > '9')
    return false;
  char *after;
  errno = 0;
  unsigned long long n = strtoull(text, &after, 10);
  if (errno || n > max || *after != stop)
    return false;
  *value = n;
  *end = after + (stop != 0);
  return true;
}

/* Reads "A-B@K". */
static bool parse_link(const char *text, fault_link *link) {
  uint64_t a, b, at;
  if (!parse_number(text, INT_MAX, '-', &a, &text) ||
      !parse_number(text, INT_MAX, '@', &b, &text) ||
      !parse_number(text, UINT64_MAX - 1, 0, &at, &text) || a == b)
    return false;
  link->a = (int)a;
  link->b = (int)b;
  link->at = at;
  return true;
}

/* The kind of a link's fault, or FAULT_KINDS. */
static fault_kind find_kind(const char *key) {
  static const char *const keys[FAULT_KINDS] = {"cut", "stall", "flip", "lose", "replay", "swap"};
  int kind = 0;
  while (kind < FAULT_KINDS && strcmp(key, keys[kind]) != 0)
    kind++;
  return (fault_kind)kind;
}

/* Reads one "key=value". */
static bool parse_setting(const char *key, const char *value, fault_plan *plan) {
  uint64_t n = 0;
  const char *end;
  fault_kind kind = find_kind(key);
  if (kind < FAULT_KINDS) {
    if (plan->nlinks == FAULT_MAX_LINKS)
      return false;
    fault_link *link = &plan->links[plan->nlinks++];
    link->kind = kind;
    return parse_link(value, link);
  }
  bool percent =
      strcmp(key, "again") == 0 || strcmp(key, "pending") == 0 || strcmp(key, "refuse") == 0;
  /* If all calls returned AGAIN, nothing would ever move. */
  if (!parse_number(value, percent ? 99 : UINT32_MAX, 0, &n, &end))
    return false;
  if (strcmp(key, "seed") == 0)
    plan->seed = n;
  else if (strcmp(key, "again") == 0)
    plan->again = (unsigned)n;
  else if (strcmp(key, "pending") == 0)
    plan->pending = (unsigned)n;
  else if (strcmp(key, "refuse") == 0)
    plan->refuse = (unsigned)n;
  else if (strcmp(key, "delay_us") == 0)
    plan->delay_us = n;
  else if (strcmp(key, "drop_after") == 0)
    plan->drop_after = n;
  else
    return false;
  return true;
}

/* Reads the text. */
bool fault_plan_parse(const char *text, fault_plan *plan, char *why, size_t why_bytes) {
  *plan = (fault_plan){.seed = 1, .drop_after = UINT64_MAX};
  char copy[MAX_TEXT];
  if (strlen(text) >= sizeof(copy)) {
    snprintf(why, why_bytes, "COLL_FAULT is longer than %d characters", MAX_TEXT - 1);
    return false;
  }
  strcpy(copy, text);
  for (char *word = copy, *next; word; word = next) {
    next = strchr(word, ',');
    if (next)
      *next++ = 0;
    char shown[40];
    snprintf(shown, sizeof(shown), "%.*s", (int)sizeof(shown) - 1, word);
    char *equals = strchr(word, '=');
    if (equals)
      *equals = 0;
    if (!equals || !parse_setting(word, equals + 1, plan)) {
      snprintf(why, why_bytes,
               "COLL_FAULT: cannot make sense of '%s'; it takes seed=N, again=0..99, "
               "pending=0..99, refuse=0..99, delay_us=N, drop_after=N, and cut, stall, flip, lose, "
               "replay or swap=A-B@N (at most %d)",
               shown, FAULT_MAX_LINKS);
      return false;
    }
  }
  return true;
}
