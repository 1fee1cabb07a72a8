/* force.c: parses the rules that force algorithms, and finds the one for a call. */
#include "libcoll/tuning/force.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"

#define SHOWN 60 /* characters of a wrong word that a message shows */

/* A piece of the text. */
typedef struct word {
  const char *at;
  int length;
} word;

/* What is being read. */
typedef struct reader {
  const char *text;
  colli_force *out;
  coll_error *error;
  colli_coll coll;
} reader;

/* Reports what is wrong, and where. */
static coll_status refuse_text(const reader *r, word where, const char *why, const char *known) {
  return colli_error_set(r->error, COLL_ERR_INVALID_USAGE, "create",
                         "COLL_ALGO (or config.algo): at '%.*s', character %d: %s%s",
                         where.length < SHOWN ? where.length : SHOWN, where.at,
                         (int)(where.at - r->text) + 1, why, known);
}

/* Adds a name to a list. */
static void add_name(char *list, size_t bytes, const char *name) {
  size_t used = strlen(list);
  snprintf(list + used, bytes - used, "%s%s", used ? ", " : "", name);
}

/* Splits the next piece off, up to a separator. */
static word next_word(word *rest, char separator) {
  const char *end = memchr(rest->at, separator, (size_t)rest->length);
  word piece = {rest->at, end ? (int)(end - rest->at) : rest->length};
  int used = piece.length + (end != NULL);
  *rest = (word){rest->at + used, rest->length - used};
  return piece;
}

/* Reads "8k"; false if it is no size. */
static bool read_size(word text, size_t *bytes) {
  static const char suffixes[] = "kmgKMG";
  size_t value = 0;
  int at = 0;
  for (; at < text.length && text.at[at] >= '0' && text.at[at] <= '9'; at++)
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, (size_t)(text.at[at] - '0'), &value))
      return false;
  const char *suffix = at < text.length ? strchr(suffixes, text.at[at]) : NULL;
  int shift = suffix ? 10 * (int)((suffix - suffixes) % 3 + 1) : 0;
  if (at == 0 || at + (suffix != NULL) != text.length || value > SIZE_MAX >> shift)
    return false;
  *bytes = value << shift;
  return true;
}

/* Reads "0-8k", "8k-" or "-8k". */
static coll_status read_range(const reader *r, word text, colli_force_rule *rule) {
  word rest = text, first = next_word(&rest, '-');
  if (first.length == text.length)
    return refuse_text(r, text, "expected a range of bytes such as 0-8k, 8k- or -1m", "");
  if ((first.length && !read_size(first, &rule->first)) ||
      (rest.length && !read_size(rest, &rule->last)))
    return refuse_text(r, text, "a range of bytes takes whole numbers with suffixes k, m, g", "");
  if (rule->first >= rule->last)
    return refuse_text(r, text, "no size is in this range, whose end is exclusive", "");
  return COLL_OK;
}

/* Reads the name of an algorithm. */
static coll_status read_algo(const reader *r, word text, colli_force_rule *rule) {
  char names[320] = "";
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    if ((*algo)->coll != r->coll)
      continue;
    add_name(names, sizeof(names), (*algo)->name);
    if ((int)strlen((*algo)->name) == text.length &&
        memcmp((*algo)->name, text.at, (size_t)text.length) == 0)
      rule->algo = *algo;
  }
  if (rule->algo)
    return COLL_OK;
  char why[64];
  snprintf(why, sizeof(why), "%s has no such algorithm; it has ", colli_coll_name(r->coll));
  return refuse_text(r, text, why, names);
}

/* Whether two rules want the same call. */
static bool rules_overlap(const colli_force_rule *a, const colli_force_rule *b) {
  return a->algo->coll == b->algo->coll && a->first < b->last && b->first < a->last;
}

/* Reads one rule: an algorithm, with or without a range. */
static coll_status read_rule(const reader *r, word text) {
  colli_force_rule rule = {.last = SIZE_MAX};
  word name = text;
  coll_status status = COLL_OK;
  if (memchr(text.at, '=', (size_t)text.length))
    status = read_range(r, next_word(&name, '='), &rule);
  if (status == COLL_OK)
    status = read_algo(r, name, &rule);
  if (status != COLL_OK)
    return status;
  for (int i = 0; i < r->out->count; i++)
    if (rules_overlap(&r->out->rules[i], &rule))
      return refuse_text(
          r, text, "sizes of this range have an algorithm already: ", r->out->rules[i].algo->name);
  r->out->rules[r->out->count++] = rule;
  return COLL_OK;
}

/* Reads what a collective gets. */
static coll_status read_collective(reader *r, word text) {
  word rest = text, name = next_word(&rest, ':');
  char copy[32], known[256] = "";
  snprintf(copy, sizeof(copy), "%.*s", name.length, name.at);
  int coll = name.length < (int)sizeof(copy) ? colli_coll_parse(copy) : -1;
  for (int i = 0; i < COLLI_COLL_COUNT; i++)
    if (i != COLLI_SENDRECV)
      add_name(known, sizeof(known), colli_coll_name((colli_coll)i));
  if (name.length == text.length || coll < 0 || coll == COLLI_SENDRECV)
    return refuse_text(r, text,
                       "expected collective:algorithm such as allreduce:ring, or "
                       "collective:first-last=algorithm;...; collectives are ",
                       known);
  r->coll = (colli_coll)coll;
  coll_status status = COLL_OK;
  do
    status = read_rule(r, next_word(&rest, ';'));
  while (status == COLL_OK && rest.length);
  return status;
}

/* Reads a text. */
coll_status colli_force_parse(const char *text, colli_force *out, coll_error *error) {
  int most = 1;
  for (const char *at = text; *at; at++)
    most += *at == ',' || *at == ';';
  *out = (colli_force){0};
  if (!*text)
    return COLL_OK;
  out->rules = malloc((size_t)most * sizeof(*out->rules));
  if (!out->rules)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for COLL_ALGO");
  reader r = {.text = text, .out = out, .error = error};
  word rest = {text, (int)strlen(text)};
  coll_status status = COLL_OK;
  do
    status = read_collective(&r, next_word(&rest, ','));
  while (status == COLL_OK && rest.length);
  if (status != COLL_OK)
    colli_force_free(out);
  return status;
}

/* Reads a text and forgets it. */
coll_status colli_force_check(const char *text, coll_error *error) {
  colli_force force;
  coll_status status = colli_force_parse(text, &force, error);
  colli_force_free(&force);
  return status;
}

/* Frees the rules. */
void colli_force_free(colli_force *force) {
  free(force->rules);
  *force = (colli_force){0};
}

/* The forced algorithm for a collective of `bytes` bytes. */
const colli_algo *colli_force_find(const colli_force *force, colli_coll coll, size_t bytes) {
  for (int i = 0; i < force->count; i++) {
    const colli_force_rule *rule = &force->rules[i];
    if (rule->algo->coll == coll && rule->first <= bytes &&
        (bytes < rule->last || rule->last == SIZE_MAX))
      return rule->algo;
  }
  return NULL;
}

/* Why an algorithm cannot do a shape. */
static const char *reason_against(const colli_algo *algo, const colli_shape *shape) {
  if (!(algo->orders >> shape->order & 1))
    return shape->order == COLLI_ORDER_RANKS
               ? "does not keep ranks in order, as an operation that does not commute needs it"
           : shape->order == COLLI_ORDER_TREE
               ? "does not combine ranks in the order that 'deterministic' promises"
               : "does not combine ranks from left to right, as asked for";
  if (shape->varying && !algo->varying)
    return "cannot do blocks of differing lengths";
  return "is for communicators over several hosts, and this one is not";
}

/* Reports why a forced algorithm does not support a shape, and which ones do. */
coll_status colli_force_refuse(const colli_algo *algo, const colli_shape *shape,
                               coll_error *error) {
  char names[256] = "";
  for (const colli_algo *const *other = colli_algos; *other; other++)
    if (colli_algo_can(*other, shape))
      add_name(names, sizeof(names), (*other)->name);
  return colli_error_set(error, COLL_ERR_INVALID_USAGE, colli_coll_name(shape->coll),
                         "COLL_ALGO (or config.algo) asks for %s, which %s; these can: %s",
                         algo->name, reason_against(algo, shape), names);
}
