/*
 * merge.c: tells which lines of different ranks are the same error of libcoll. Of such lines, a
 * rank's own name, times, and the rank that noticed may differ; who is to blame, and the operation,
 * may not.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "libcoll/tools/collrun/run.h"

#define FNV_START 0xcbf29ce484222325ull
#define FNV_PRIME 0x100000001b3ull

/* A place in a line. */
typedef struct place {
  const char *at, *end;
} place;

/* Takes a text, if it comes next. */
static bool take(place *p, const char *text) {
  const size_t bytes = strlen(text);
  if ((size_t)(p->end - p->at) < bytes || memcmp(p->at, text, bytes) != 0)
    return false;
  p->at += bytes;
  return true;
}

/* Takes a number, if one comes next; -1: none. */
static int take_number(place *p) {
  int number = -1;
  for (; p->at < p->end && isdigit((unsigned char)*p->at); p->at++)
    number = number < 0 ? *p->at - '0' : number < 1000000 ? 10 * number + *p->at - '0' : number;
  return number;
}

/* Takes a time, as in "1.5 s", if one comes next. */
static bool take_time(place *p) {
  place q = *p;
  if (take_number(&q) < 0)
    return false;
  if (take(&q, ".") && take_number(&q) < 0)
    return false;
  if ((!take(&q, " ms") && !take(&q, " s")) || (q.at < q.end && isalnum((unsigned char)*q.at)))
    return false;
  *p = q;
  return true;
}

/* Takes where a rank runs, as in " (host a, pid 3)", if that comes next. */
static void take_host(place *p) {
  place q = *p;
  const char *bracket;
  if (take(&q, " (host ") && (bracket = memchr(q.at, ')', (size_t)(q.end - q.at))) != NULL)
    p->at = bracket + 1;
}

/* Takes the name of a rank that may differ, if that comes next. blamed: another rank than the one
 * that prints was named before. */
static bool take_rank(place *p, int own, bool *blamed) {
  place q = *p;
  if (!take(&q, "rank "))
    return false;
  const int rank = take_number(&q);
  if (rank < 0 || (rank != own && !*blamed)) {
    *blamed = *blamed || rank >= 0;
    return false;
  }
  if (rank == own)
    take_host(&q);
  *p = q;
  return true;
}

size_t run_error_begin(const char *line, size_t bytes) {
  place p = {line, line + bytes};
  if (bytes == 0 || line[bytes - 1] != '\n' || !take(&p, "libcoll ["))
    return 0;
  if (take_number(&p) < 0 && !take(&p, "-"))
    return 0;
  return take(&p, "] error: ") ? (size_t)(p.at - line) : 0;
}

uint64_t run_error_hash(const char *line, size_t bytes) {
  place p = {line + strlen("libcoll ["), line + bytes};
  const int own = take_number(&p);
  bool blamed = false;
  uint64_t hash = FNV_START;
  p.at = line + run_error_begin(line, bytes);
  while (p.at < p.end) {
    const bool word = isalnum((unsigned char)p.at[-1]); /* in the middle of a word or number */
    unsigned char byte = 0;
    if (word || (!take_time(&p) && !take_rank(&p, own, &blamed)))
      byte = (unsigned char)*p.at++;
    hash = (hash ^ byte) * FNV_PRIME;
  }
  return hash;
}

size_t run_error_list(const unsigned char *member, int nranks, char *text, size_t room) {
  size_t used = 0;
  for (int r = 0; r < nranks; r++) {
    if (!member[r])
      continue;
    const int first = r;
    while (r + 1 < nranks && member[r + 1])
      r++;
    int wrote = snprintf(text + used, room - used, r > first ? "%s%d-%d" : "%s%d",
                         used > 0 ? "," : "", first, r);
    if (wrote < 0 || (size_t)wrote >= room - used)
      break;
    used += (size_t)wrote;
  }
  text[used] = '\0';
  return used;
}
