/* test_tree.c: at whom ranks check in. */
#include <criterion/criterion.h>

#include "libcoll/wireup/bootstrap/tree.h"

/* Checks the place of a rank against those of the ranks that check in at it. */
static void check_place(int fan_out, int nranks, int rank) {
  const boot_place place = boot_place_find(fan_out, rank, nranks, rank == 0);
  int children = 0, next = rank + 1;
  for (int child = 0; child < nranks; child++) {
    const boot_range below = boot_place_child(&place, child);
    if (below.end == below.first)
      continue;
    const boot_place of_child = boot_place_find(fan_out, child, nranks, false);
    cr_assert_eq(below.first, next, "%d of %d, %d at each", rank, nranks, fan_out);
    cr_assert_eq(below.first, child);
    cr_assert_eq(of_child.parent, rank);
    cr_assert_eq(of_child.depth, place.depth + 1);
    cr_assert_leq(of_child.depth, place.depths);
    cr_assert_eq(of_child.below.first, below.first);
    cr_assert_eq(of_child.below.end, below.end);
    next = below.end;
    children++;
  }
  cr_assert_eq(place.below.first, rank);
  cr_assert_eq(place.below.end, next);
  cr_assert_eq(boot_place_children(&place), children);
  cr_assert_leq(children, fan_out);
}

Test(tree, each_rank_checks_in_at_one_and_each_has_few) {
  for (int fan_out = 1; fan_out <= 20; fan_out += fan_out < 4 ? 1 : 4)
    for (int nranks = 1; nranks <= 90; nranks += nranks < 40 ? 1 : 7)
      for (int rank = 0; rank < nranks; rank++)
        check_place(fan_out, nranks, rank);
}

Test(tree, is_as_deep_as_its_logarithm) {
  int power = 1;
  for (int depth = 0; depth < 5; depth++, power *= 16) {
    const int nranks = (power * 16 - 1) / 15; /* a full tree */
    const boot_place last = boot_place_find(16, nranks - 1, nranks, false);
    cr_expect_eq(last.depths, depth, "%d ranks", nranks);
    cr_expect_eq(last.depth, depth, "%d ranks", nranks);
    cr_expect_eq(boot_place_find(16, 0, nranks + 1, true).depths, depth + 1, "%d ranks", nranks);
  }
}

Test(tree, in_a_star_all_check_in_at_the_one_that_serves) {
  const boot_place server = boot_place_find(0, 3, 7, true), other = boot_place_find(0, 4, 7, false);
  cr_expect_eq(boot_place_children(&server), 6);
  cr_expect_eq(server.depth, 0);
  cr_expect_eq(boot_place_child(&server, 0).end, 1);
  cr_expect_eq(other.parent, BOOT_SERVER);
  cr_expect_eq(other.depth, 1);
  cr_expect_eq(boot_place_children(&other), 0);
}
