/* verbs_target.c: the adverts of one direction. */
#include "transports/verbs/verbs_target.h"

#include "libcoll/base/assert.h"

/* One more than the number of the last message of a target. */
static uint64_t end_of(const verbs_advert *advert) {
  return advert->first + verbs_advert_count(advert);
}

bool verbs_targets_free(const verbs_targets *targets) {
  return targets->made - targets->over < VERBS_TARGETS &&
         targets->made - targets->copied < VERBS_TARGETS;
}

bool verbs_targets_copied(verbs_targets *targets, uint32_t low) {
  uint32_t more = (low - (uint32_t)targets->copied) % VERBS_TARGETS_COUNTED;
  if (more > VERBS_TARGETS)
    return true; /* older than what is known */
  if (targets->copied + more > targets->made)
    return false;
  targets->copied += more;
  COLLI_ASSERT(targets->made - targets->copied <= VERBS_TARGETS);
  return true;
}

bool verbs_targets_add(verbs_targets *targets, const verbs_advert *advert) {
  if (targets->made - targets->over == VERBS_TARGETS || advert->slice == 0 || advert->bytes == 0 ||
      advert->bytes > UINT64_MAX - advert->slice ||
      (targets->made > 0 && targets->offered != (advert->offered != 0)))
    return false;
  if (targets->made > targets->over &&
      advert->first < end_of(&targets->advert[(targets->made - 1) % VERBS_TARGETS]))
    return false;
  targets->offered = advert->offered != 0;
  targets->advert[targets->made++ % VERBS_TARGETS] = *advert;
  return true;
}

void verbs_targets_pass(verbs_targets *targets, uint64_t next) {
  COLLI_ASSERT(targets->over <= targets->made && targets->made - targets->over <= VERBS_TARGETS);
  while (targets->over < targets->made &&
         end_of(&targets->advert[targets->over % VERBS_TARGETS]) <= next)
    targets->over++;
}

const verbs_advert *verbs_targets_find(const verbs_targets *targets, uint64_t number,
                                       uint64_t *offset, size_t *bytes) {
  for (uint64_t i = targets->over; i < targets->made; i++) {
    const verbs_advert *advert = &targets->advert[i % VERBS_TARGETS];
    if (number < advert->first)
      return NULL;
    if (number >= end_of(advert))
      continue;
    *offset = (number - advert->first) * advert->slice;
    uint64_t left = advert->bytes - *offset;
    *bytes = left < advert->slice ? (size_t)left : advert->slice;
    return advert;
  }
  return NULL;
}
