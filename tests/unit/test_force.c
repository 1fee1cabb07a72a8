/* Forced algorithms (COLL_ALGO): the grammar, its errors, and what a call gets. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/tuning/choose.h"

static coll_error error;

/* The name of the algorithm that a text forces, or "" if it forces none. */
static const char *asked(const char *text, colli_coll coll, size_t bytes) {
  colli_force force;
  cr_assert_eq(colli_force_parse(text, &force, &error), COLL_OK, "%s: %s", text, error.message);
  const colli_algo *algo = colli_force_find(&force, coll, bytes);
  colli_force_free(&force);
  return algo ? algo->name : "";
}

/* Expects that a text is refused with a certain message. */
static void refused(const char *text, const char *says) {
  colli_error_clear(&error);
  cr_assert_eq(colli_force_check(text, &error), COLL_ERR_INVALID_USAGE, "%s", text);
  cr_assert_not_null(strstr(error.message, says), "%s: '%s' is not in: %s", text, says,
                     error.message);
}

Test(force, names) {
  cr_assert_str_eq(asked("", COLLI_ALLREDUCE, 0), "");
  cr_assert_str_eq(asked("allreduce:ring", COLLI_ALLREDUCE, 0), "ring");
  cr_assert_str_eq(asked("allreduce:ring", COLLI_ALLREDUCE, SIZE_MAX), "ring");
  cr_assert_str_eq(asked("allreduce:ring", COLLI_BROADCAST, 8), "");
  const char *both = "allreduce:ring,broadcast:chain";
  cr_assert_str_eq(asked(both, COLLI_ALLREDUCE, 8), "ring");
  cr_assert_str_eq(asked(both, COLLI_BROADCAST, 8), "chain");
  cr_assert_str_eq(asked(both, COLLI_BARRIER, 8), "");
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    char text[64];
    snprintf(text, sizeof(text), "%s:%s", colli_coll_name((*algo)->coll), (*algo)->name);
    cr_assert_str_eq(asked(text, (*algo)->coll, 100), (*algo)->name);
  }
}

Test(force, ranges) {
  const char *two = "allreduce:0-8k=recdbl;8k-=ring,broadcast:-1M=binomial;1G-2g=chain";
  cr_assert_str_eq(asked(two, COLLI_ALLREDUCE, 0), "recdbl");
  cr_assert_str_eq(asked(two, COLLI_ALLREDUCE, 8191), "recdbl");
  cr_assert_str_eq(asked(two, COLLI_ALLREDUCE, 8192), "ring");
  cr_assert_str_eq(asked(two, COLLI_ALLREDUCE, SIZE_MAX), "ring");
  cr_assert_str_eq(asked(two, COLLI_BROADCAST, (1 << 20) - 1), "binomial");
  cr_assert_str_eq(asked(two, COLLI_BROADCAST, 1 << 20), "");
  cr_assert_str_eq(asked(two, COLLI_BROADCAST, 1u << 30), "chain");
  cr_assert_str_eq(asked(two, COLLI_BROADCAST, 2u << 30), "");
  cr_assert_str_eq(asked("allreduce:-=ring", COLLI_ALLREDUCE, 5), "ring");
  cr_assert_str_eq(asked("allreduce:10-20=ring;0-10=recdbl", COLLI_ALLREDUCE, 9), "recdbl");
}

Test(force, refuses) {
  refused("ring", "expected collective:algorithm");
  refused("ring", "allreduce, broadcast");
  refused("gatherall:ring", "at 'gatherall:ring', character 1");
  refused("sendrecv:ring", "collectives are");
  refused("allgatherv:ring", "collectives are");
  refused("allreduce:", "it has");
  refused("allreduce:zigzag", "allreduce has no such algorithm; it has recdbl");
  refused("broadcast:chain,allreduce:0-8k=recdbl;8k-=zigzag", "at 'zigzag', character 43");
  refused("allreduce:8k=ring", "a range of bytes such as");
  refused("allreduce:=ring", "a range of bytes such as");
  refused("allreduce:0-8q=ring", "at '0-8q', character 11");
  refused("allreduce:0--8=ring", "whole numbers");
  refused("allreduce:0-8kk=ring", "whole numbers");
  refused("allreduce:0-99999999999999999999=ring", "whole numbers");
  refused("allreduce:0-99999999999G=ring", "whole numbers");
  refused("allreduce:8k-8k=ring", "no size is in this range");
  refused("allreduce:-0=ring", "no size is in this range");
  refused("allreduce:0-8k=recdbl;4k-=ring", "have an algorithm already: recdbl");
  refused("allreduce:ring,allreduce:recdbl", "have an algorithm already: ring");
  refused("allreduce:ring,,broadcast:chain", "expected collective:algorithm");
}

/* ---- what a call gets ------------------------------------------------------------------------ */

static colli_limits limits = {32768, 8, 131072, 0};
static colli_model model;

/* A chooser of 16 ranks over shared memory. */
static colli_chooser chooser_of(const char *text) {
  colli_chooser chooser = {.limits = &limits, .model = &model};
  colli_model_default(COLLI_LINK_SHM, 16, 16, &model);
  cr_assert_eq(colli_force_parse(text, &chooser.force, &error), COLL_OK);
  return chooser;
}

static colli_shape shape_of(colli_coll coll, colli_order order) {
  return (colli_shape){.coll = coll, .nranks = 16, .order = order};
}

Test(choose, does_as_asked) {
  colli_chooser chooser = chooser_of("allreduce:0-8k=ring,reduce:chain");
  colli_shape shape = shape_of(COLLI_ALLREDUCE, COLLI_ORDER_ANY);
  colli_choice choice;
  cr_assert_eq(colli_choose(&chooser, &shape, 4, 4, 16, &choice, &error), COLL_OK);
  cr_assert_str_eq(choice.algo->name, "ring");
  cr_assert_eq(choice.partition.count, 4);
  /* the bytes of the call, not those on the wire */
  cr_assert_eq(colli_choose(&chooser, &shape, 8191, 4, 8191, &choice, &error), COLL_OK);
  cr_assert_str_eq(choice.algo->name, "ring");
  colli_chooser_free(&chooser);
}

/* A forced algorithm gets the chunks that a choice among it alone gives it. */
Test(choose, gives_what_is_forced_its_chunks) {
  int plain = 0;
  for (int i = 0; colli_algos[i]; i++) {
    const colli_algo *algo = colli_algos[i];
    char text[100];
    snprintf(text, sizeof(text), "%s:%s", colli_coll_name(algo->coll), algo->name);
    colli_chooser chooser = chooser_of(text);
    const colli_shape shape = shape_of(algo->coll, COLLI_ORDER_ANY);
    for (size_t count = 0; colli_algo_can(algo, &shape) && count < 1 << 22; count = 5 * count + 3) {
      colli_choice forced, selected;
      cr_assert_eq(colli_choose(&chooser, &shape, count, 4, 4 * count, &forced, &error), COLL_OK);
      cr_assert_gt(colli_select(&shape, count, 4, &limits, &model, algo->name, &selected, NULL, 0),
                   0);
      cr_expect_eq(forced.algo, selected.algo, "%s", text);
      cr_expect_eq(forced.chunk_bytes, selected.chunk_bytes, "%s, count %zu", text, count);
      cr_expect_eq(forced.partition.passes, selected.partition.passes, "%s, %zu", text, count);
      cr_expect_eq(forced.partition.piece, selected.partition.piece, "%s, %zu", text, count);
      plain += !algo->pipelined;
    }
    colli_chooser_free(&chooser);
  }
  cr_expect_gt(plain, 0);
}

/* If the forced algorithm cannot do a shape, the error names those that can. */
Test(choose, refuses_what_cannot_be_done) {
  colli_chooser chooser = chooser_of("allreduce:ring");
  colli_shape shape = shape_of(COLLI_ALLREDUCE, COLLI_ORDER_TREE);
  colli_choice choice;
  cr_assert_eq(colli_choose(&chooser, &shape, 100, 4, 400, &choice, &error),
               COLL_ERR_INVALID_USAGE);
  cr_assert_not_null(strstr(error.message, "asks for ring"), "%s", error.message);
  cr_assert_not_null(strstr(error.message, "'deterministic'"), "%s", error.message);
  const char *can = strstr(error.message, "these can: ");
  cr_assert_not_null(can);
  cr_assert_not_null(strstr(can, "recdbl"), "%s", can);
  cr_assert_null(strstr(can, "ring"), "%s", can);
  shape.order = COLLI_ORDER_ANY;
  cr_assert_eq(colli_choose(&chooser, &shape, 100, 4, 400, &choice, &error), COLL_OK);
  colli_chooser_free(&chooser);
}

/* Sizes of a class get the same algorithm and chunks, whichever comes first. */
Test(choose, remembers_by_class) {
  colli_shape shape = shape_of(COLLI_ALLREDUCE, COLLI_ORDER_ANY);
  for (size_t least = 1; least < 1u << 24; least *= 2)
    for (int quarter = 0; quarter < 4; quarter++) {
      size_t first = least * 4 + least * (size_t)quarter, last = first + least - 1;
      colli_chooser up = chooser_of(""), down = chooser_of("");
      colli_choice a, b, c, d;
      cr_assert_eq(colli_choose(&up, &shape, first, 1, first, &a, &error), COLL_OK);
      cr_assert_eq(colli_choose(&up, &shape, last, 1, last, &b, &error), COLL_OK);
      cr_assert_eq(colli_choose(&down, &shape, last, 1, last, &c, &error), COLL_OK);
      cr_assert_eq(colli_choose(&down, &shape, first, 1, first, &d, &error), COLL_OK);
      cr_assert(a.algo == b.algo && b.algo == c.algo && c.algo == d.algo);
      cr_assert(a.chunk_bytes == b.chunk_bytes && c.chunk_bytes == d.chunk_bytes);
      cr_assert_eq(memcmp(&b.partition, &c.partition, sizeof(b.partition)), 0);
      cr_assert_eq(b.partition.count, last);
      /* and it is the best one for the smallest size */
      colli_choice best;
      colli_select(&shape, first, 1, &limits, &model, "", &best, NULL, 0);
      cr_assert_eq(best.algo, a.algo);
      cr_assert_eq(memcmp(&best.partition, &a.partition, sizeof(best.partition)), 0);
      colli_chooser_free(&up);
      colli_chooser_free(&down);
    }
}

/* The cache never answers a different question. */
Test(choose, keeps_questions_apart) {
  colli_chooser chooser = chooser_of("");
  for (int round = 0; round < 2; round++)
    for (int coll = 0; coll < COLLI_COLL_COUNT; coll++)
      for (int order = 0; order < 4; order++)
        for (size_t count = 0; count < 1u << 20; count = count * 5 + 1)
          for (int root = 0; root < 16; root += 5)
            for (int varying = 0; varying < 2; varying++) {
              colli_shape shape = shape_of((colli_coll)coll, (colli_order)order);
              shape.root = root;
              shape.varying = varying;
              colli_choice remembered, fresh;
              colli_chooser other = chooser_of("");
              coll_status status =
                  colli_choose(&chooser, &shape, count, 2, 2 * count, &remembered, &error);
              cr_assert_eq(status,
                           colli_choose(&other, &shape, count, 2, 2 * count, &fresh, &error));
              colli_chooser_free(&other);
              if (status != COLL_OK)
                continue;
              cr_assert_eq(remembered.algo, fresh.algo);
              cr_assert(colli_algo_can(remembered.algo, &shape));
              cr_assert_eq(remembered.chunk_bytes, fresh.chunk_bytes);
            }
  colli_chooser_free(&chooser);
}

/* Lists of candidates have room for all algorithms of each collective. */
Test(choose, lists_have_room) {
  for (int coll = 0; coll < COLLI_COLL_COUNT; coll++) {
    int count = 0;
    for (const colli_algo *const *algo = colli_algos; *algo; algo++)
      count += (*algo)->coll == (colli_coll)coll;
    cr_assert_leq(count, COLLI_MAX_CANDIDATES);
  }
}
