/* choose.c: chooses a call's algorithm: the forced one, the tuner's, or the cheapest. */
#include "libcoll/tuning/choose.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"

/* The class of a size: its highest three bits. */
static int class_of(size_t bytes) {
  if (bytes < 8)
    return (int)bytes;
  int power = 63 - __builtin_clzll(bytes);
  return 4 * power + (int)(bytes >> (power - 2) & 3);
}

/* The smallest size of a class. */
static size_t class_floor(int size_class) {
  if (size_class < 8)
    return (size_t)size_class;
  return (size_t)(4 + size_class % 4) << (size_class / 4 - 2);
}

/* Where a question is in the memo. */
static colli_memo *entry_of(colli_chooser *chooser, const colli_memo *key) {
  uint64_t kind = (uint64_t)key->coll | (uint64_t)key->order << 8 | (uint64_t)key->in_place << 16 |
                  (uint64_t)key->varying << 17 | (uint64_t)key->size_class << 24;
  uint64_t hash = kind * 0x9e3779b97f4a7c15ull + key->elem_bytes * 0x165667b19e3779f9ull;
  return &chooser->memo[hash >> 57 & (COLLI_MEMOS - 1)];
}

/* Whether an entry answers a question. */
static bool is_answer(const colli_memo *a, const colli_memo *key) {
  return a->algo && a->size_class == key->size_class && a->coll == key->coll &&
         a->order == key->order && a->elem_bytes == key->elem_bytes &&
         a->in_place == key->in_place && a->varying == key->varying;
}

/* There is no choice: colli_select() returned 0 or -1. */
static coll_status fail_choice(int found, const colli_shape *shape, coll_error *error) {
  const char *name = colli_coll_name(shape->coll);
  if (found < 0)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, name,
                           "out of memory for the choice of an algorithm for %s", name);
  return colli_error_set(error, COLL_ERR_INTERNAL, name, "no algorithm for %s of %d ranks", name,
                         shape->nranks);
}

/* Asks the model about the class of a size; NULL if there is no choice, for the reason in *found.
 */
static const colli_memo *ask_model(colli_chooser *chooser, const colli_shape *shape, size_t count,
                                   size_t elem_bytes, int *found) {
  colli_memo key = {.elem_bytes = elem_bytes,
                    .size_class = class_of(count * elem_bytes),
                    .coll = (uint8_t)shape->coll,
                    .order = (uint8_t)shape->order,
                    .in_place = shape->in_place,
                    .varying = shape->varying};
  *found = -1;
  if (!chooser->memo)
    chooser->memo = calloc(COLLI_MEMOS, sizeof(*chooser->memo));
  if (!chooser->memo)
    return NULL;
  colli_memo *entry = entry_of(chooser, &key);
  if (is_answer(entry, &key))
    return entry;
  colli_choice best;
  size_t least = class_floor(key.size_class) / elem_bytes;
  if (count > 0 && least == 0)
    least = 1;
  *found =
      colli_select(shape, least, elem_bytes, chooser->limits, chooser->model, "", &best, NULL, 0);
  if (*found <= 0)
    return NULL;
  *entry = key;
  entry->algo = best.algo;
  entry->chunk_bytes = best.chunk_bytes;
  return entry;
}

/* Takes an algorithm, with chunks of that size. */
static void take(const colli_chooser *chooser, const colli_algo *algo, size_t chunk_bytes,
                 const colli_shape *shape, size_t count, size_t elem_bytes, colli_choice *choice) {
  colli_limits limits = *chooser->limits;
  limits.chunk_bytes = chunk_bytes;
  *choice = (colli_choice){.algo = algo, .chunk_bytes = chunk_bytes};
  colli_choice_partition(algo, shape, count, elem_bytes, &limits, &choice->partition);
}

/* Does as the caller asked. The model, which is slow with thousands of ranks, is only asked where
 * there is a size of chunks to choose. */
static coll_status obey_force(const colli_chooser *chooser, const colli_algo *algo,
                              const colli_shape *shape, size_t count, size_t elem_bytes,
                              colli_choice *choice, coll_error *error) {
  if (!colli_algo_can(algo, shape))
    return colli_force_refuse(algo, shape, error);
  if (!algo->pipelined) {
    take(chooser, algo, colli_choice_chunk_most(chooser->limits, chooser->model), shape, count,
         elem_bytes, choice);
    return COLL_OK;
  }
  int found = colli_select(shape, count, elem_bytes, chooser->limits, chooser->model, algo->name,
                           choice, NULL, 0);
  return found > 0 ? COLL_OK : fail_choice(found, shape, error);
}

/* Chooses. */
coll_status colli_choose(colli_chooser *chooser, const colli_shape *shape, size_t count,
                         size_t elem_bytes, size_t call_bytes, colli_choice *choice,
                         coll_error *error) {
  const colli_algo *forced = colli_force_find(&chooser->force, shape->coll, call_bytes);
  if (forced)
    return obey_force(chooser, forced, shape, count, elem_bytes, choice, error);
  if (chooser->tuner) {
    colli_choice list[COLLI_MAX_CANDIDATES];
    int listed = colli_select(shape, count, elem_bytes, chooser->limits, chooser->model, "", choice,
                              list, COLLI_MAX_CANDIDATES);
    int index = -1;
    if (listed <= 0)
      return fail_choice(listed, shape, error);
    coll_status status =
        colli_tuner_ask(chooser->tuner, shape, call_bytes, list, listed, &index, error);
    if (status != COLL_OK)
      return status;
    if (index >= 0) {
      *choice = list[index];
      return COLL_OK;
    }
  }
  int found = 0;
  const colli_memo *memo = ask_model(chooser, shape, count, elem_bytes, &found);
  if (!memo)
    return fail_choice(found, shape, error);
  take(chooser, memo->algo, memo->chunk_bytes, shape, count, elem_bytes, choice);
  return COLL_OK;
}

void colli_chooser_forget(colli_chooser *chooser) {
  free(chooser->memo);
  chooser->memo = NULL;
}

void colli_chooser_free(colli_chooser *chooser) {
  colli_force_free(&chooser->force);
  colli_chooser_forget(chooser);
}
