/* test_verbs_spot.c: adverts of places for messages, without a device. */
#include <criterion/criterion.h>

#include "transports/verbs/verbs_spot.h"

static verbs_advert advert(uint64_t first, uint64_t bytes, uint32_t slice) {
  return (verbs_advert){.first = first, .address = 4096, .bytes = bytes, .slice = slice};
}

/* Adds one that must be taken. */
static void add(verbs_spots *spots, verbs_advert one) {
  cr_assert(verbs_spots_add(spots, &one));
}

Test(verbs_spot, messages_are_found_by_their_number) {
  verbs_spots spots = {0};
  uint64_t offset;
  size_t bytes;
  add(&spots, advert(5, 250, 100));
  add(&spots, advert(8, 100, 100));
  add(&spots, advert(20, 7, 100));
  const struct {
    uint64_t number, offset;
    size_t bytes; /* 0: none */
  } cases[] = {{4, 0, 0}, {5, 0, 100}, {6, 100, 100}, {7, 200, 50}, {8, 0, 100},
               {9, 0, 0}, {19, 0, 0},  {20, 0, 7},    {21, 0, 0}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    const verbs_advert *found = verbs_spots_find(&spots, cases[i].number, &offset, &bytes);
    cr_assert_eq(found != NULL, cases[i].bytes != 0, "message %d", (int)cases[i].number);
    if (found) {
      cr_expect_eq(offset, cases[i].offset);
      cr_expect_eq(bytes, cases[i].bytes);
    }
  }
  verbs_spots_pass(&spots, 7);
  cr_assert_not_null(verbs_spots_find(&spots, 7, &offset, &bytes));
  verbs_spots_pass(&spots, 8);
  cr_assert_null(verbs_spots_find(&spots, 7, &offset, &bytes));
  cr_assert_not_null(verbs_spots_find(&spots, 8, &offset, &bytes));
}

Test(verbs_spot, what_cannot_be_is_refused) {
  verbs_spots spots = {0};
  const verbs_advert bad[] = {advert(0, 10, 0), advert(0, 0, 10), advert(0, UINT64_MAX, 10)};
  for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
    cr_expect_not(verbs_spots_add(&spots, &bad[i]), "case %zu", i);
  add(&spots, advert(3, 100, 10));
  verbs_advert early = advert(12, 10, 10);
  cr_assert_not(verbs_spots_add(&spots, &early)); /* in the one before */
  for (unsigned i = 1; i < VERBS_SPOTS; i++)
    add(&spots, advert(20 + i, 10, 10));
  verbs_advert more = advert(100, 10, 10);
  cr_assert_not(verbs_spots_add(&spots, &more));
  verbs_spots_pass(&spots, 13);
  add(&spots, more);
}

/* A place is used again once the peer has copied what was there, and all its messages came. */
Test(verbs_spot, places_are_used_again) {
  verbs_spots spots = {0};
  cr_assert_not(verbs_spots_copied(&spots, 1)); /* none was told */
  for (uint64_t i = 0; i < 1000; i++) {
    cr_assert(verbs_spots_free(&spots));
    add(&spots, advert(i, 10, 10));
    if ((i + 1) % VERBS_SPOTS != 0)
      continue;
    cr_assert_not(verbs_spots_free(&spots));
    cr_assert(verbs_spots_copied(&spots, (uint32_t)(i % VERBS_SPOTS_COUNTED)));
    for (uint64_t age = 1; age < VERBS_SPOTS_COUNTED - VERBS_SPOTS && age <= i; age++)
      cr_assert(verbs_spots_copied(&spots, (uint32_t)((i - age) % VERBS_SPOTS_COUNTED)));
    cr_assert_eq(spots.copied, i);
    cr_assert_not(verbs_spots_free(&spots));
    verbs_spots_pass(&spots, i + 1);
    cr_assert(verbs_spots_free(&spots));
    cr_assert(verbs_spots_copied(&spots, (uint32_t)((i + 1) % VERBS_SPOTS_COUNTED)));
  }
}
