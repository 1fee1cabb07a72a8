/* verbs_spot.c: the adverts of one direction. */
#include "transports/verbs/verbs_spot.h"

/* The number behind the last message of a spot. */
static uint64_t end_of(const verbs_advert *advert) {
  return advert->first + verbs_advert_count(advert);
}

bool verbs_spots_free(const verbs_spots *spots) {
  return spots->made - spots->over < VERBS_SPOTS && spots->made - spots->copied < VERBS_SPOTS;
}

bool verbs_spots_copied(verbs_spots *spots, uint32_t low) {
  uint32_t more = (low - (uint32_t)spots->copied) % VERBS_SPOTS_COUNTED;
  if (more > VERBS_SPOTS)
    return true; /* older than what is known */
  if (spots->copied + more > spots->made)
    return false;
  spots->copied += more;
  return true;
}

bool verbs_spots_add(verbs_spots *spots, const verbs_advert *advert) {
  if (spots->made - spots->over == VERBS_SPOTS || advert->slice == 0 || advert->bytes == 0 ||
      advert->bytes > UINT64_MAX - advert->slice)
    return false;
  if (spots->made > spots->over &&
      advert->first < end_of(&spots->advert[(spots->made - 1) % VERBS_SPOTS]))
    return false;
  spots->advert[spots->made++ % VERBS_SPOTS] = *advert;
  return true;
}

void verbs_spots_pass(verbs_spots *spots, uint64_t next) {
  while (spots->over < spots->made && end_of(&spots->advert[spots->over % VERBS_SPOTS]) <= next)
    spots->over++;
}

const verbs_advert *verbs_spots_find(const verbs_spots *spots, uint64_t number, uint64_t *offset,
                                     size_t *bytes) {
  for (uint64_t i = spots->over; i < spots->made; i++) {
    const verbs_advert *advert = &spots->advert[i % VERBS_SPOTS];
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
