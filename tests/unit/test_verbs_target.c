/* test_verbs_target.c: adverts of destinations for messages, without a device. */
#include <criterion/criterion.h>

#include "transports/verbs/verbs_target.h"

static verbs_advert advert(uint64_t first, uint64_t bytes, uint32_t slice) {
  return (verbs_advert){.first = first, .address = 4096, .bytes = bytes, .slice = slice};
}

/* Adds an advert that must be accepted. */
static void add(verbs_targets *targets, verbs_advert one) {
  cr_assert(verbs_targets_add(targets, &one));
}

Test(verbs_target, messages_are_found_by_their_number) {
  verbs_targets targets = {0};
  uint64_t offset;
  size_t bytes;
  add(&targets, advert(5, 250, 100));
  add(&targets, advert(8, 100, 100));
  add(&targets, advert(20, 7, 100));
  const struct {
    uint64_t number, offset;
    size_t bytes; /* 0: none */
  } cases[] = {{4, 0, 0}, {5, 0, 100}, {6, 100, 100}, {7, 200, 50}, {8, 0, 100},
               {9, 0, 0}, {19, 0, 0},  {20, 0, 7},    {21, 0, 0}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    const verbs_advert *found = verbs_targets_find(&targets, cases[i].number, &offset, &bytes);
    cr_assert_eq(found != NULL, cases[i].bytes != 0, "message %d", (int)cases[i].number);
    if (found) {
      cr_expect_eq(offset, cases[i].offset);
      cr_expect_eq(bytes, cases[i].bytes);
    }
  }
  verbs_targets_pass(&targets, 7);
  cr_assert_not_null(verbs_targets_find(&targets, 7, &offset, &bytes));
  verbs_targets_pass(&targets, 8);
  cr_assert_null(verbs_targets_find(&targets, 7, &offset, &bytes));
  cr_assert_not_null(verbs_targets_find(&targets, 8, &offset, &bytes));
}

Test(verbs_target, what_cannot_be_is_refused) {
  verbs_targets targets = {0};
  const verbs_advert bad[] = {advert(0, 10, 0), advert(0, 0, 10), advert(0, UINT64_MAX, 10)};
  for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
    cr_expect_not(verbs_targets_add(&targets, &bad[i]), "case %zu", i);
  add(&targets, advert(3, 100, 10));
  verbs_advert early = advert(12, 10, 10);
  cr_assert_not(verbs_targets_add(&targets, &early)); /* in the one before */
  for (unsigned i = 1; i < VERBS_TARGETS; i++)
    add(&targets, advert(20 + i, 10, 10));
  verbs_advert more = advert(100, 10, 10);
  cr_assert_not(verbs_targets_add(&targets, &more));
  verbs_targets_pass(&targets, 13);
  add(&targets, more);
}

/* A place is reused once the peer has copied what was there, and all its messages have arrived. */
Test(verbs_target, places_are_used_again) {
  verbs_targets targets = {0};
  cr_assert_not(verbs_targets_copied(&targets, 1)); /* none was told */
  for (uint64_t i = 0; i < 1000; i++) {
    cr_assert(verbs_targets_free(&targets));
    add(&targets, advert(i, 10, 10));
    if ((i + 1) % VERBS_TARGETS != 0)
      continue;
    cr_assert_not(verbs_targets_free(&targets));
    cr_assert(verbs_targets_copied(&targets, (uint32_t)(i % VERBS_TARGETS_COUNTED)));
    for (uint64_t age = 1; age < VERBS_TARGETS_COUNTED - VERBS_TARGETS && age <= i; age++)
      cr_assert(verbs_targets_copied(&targets, (uint32_t)((i - age) % VERBS_TARGETS_COUNTED)));
    cr_assert_eq(targets.copied, i);
    cr_assert_not(verbs_targets_free(&targets));
    verbs_targets_pass(&targets, i + 1);
    cr_assert(verbs_targets_free(&targets));
    cr_assert(verbs_targets_copied(&targets, (uint32_t)((i + 1) % VERBS_TARGETS_COUNTED)));
  }
}
