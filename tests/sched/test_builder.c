/* test_builder.c: the builder's checks, lanes and deps; names; the printed form. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "support_group.h"

static const colli_shape shape_reduce = {
    .coll = COLLI_ALLREDUCE, .nranks = 4, .rank = 1, .root = 0};
static const colli_shape shape_gather = {
    .coll = COLLI_ALLGATHER, .nranks = 4, .rank = 1, .root = 0};
static const colli_shape shape_barrier = {.coll = COLLI_BARRIER, .nranks = 4, .rank = 1, .root = 0};

/* A step that is right for shape_reduce. */
static colli_step good_step(void) {
  return (colli_step){.bits = COLLI_RECV | COLLI_FOLD | COLLI_STORE | COLLI_SEND,
                      .src_buf = COLLI_INPUT,
                      .dst_buf = COLLI_OUTPUT,
                      .peer_recv = 0,
                      .peer_send = 2};
}

/* The builder's verdict on a schedule of one step. */
static coll_status build_one(const colli_shape *shape, colli_step step) {
  colli_builder *builder = colli_builder_create(shape, 4, 2, 2);
  cr_assert(builder);
  colli_builder_add(builder, step);
  colli_sched *sched = NULL;
  coll_status status = colli_builder_finish(builder, &sched);
  cr_assert_eq(sched != NULL, status == COLL_OK);
  colli_sched_free(sched);
  return status;
}

Test(builder, takes_good_steps) {
  cr_assert_eq(build_one(&shape_reduce, good_step()), COLL_OK);
  colli_step step = {COLLI_STORE, 1, COLLI_INPUT, COLLI_OUTPUT, -1, -1, 1, 2, {0, 0}};
  cr_assert_eq(build_one(&shape_gather, step), COLL_OK);
  cr_assert_eq(
      build_one(&shape_barrier,
                (colli_step){.bits = COLLI_SEND | COLLI_RECV, .peer_recv = 0, .peer_send = 2}),
      COLL_OK);
}

/* Each line breaks one thing in a good step. */
Test(builder, rejects_bad_steps) {
#define REJECTS(change)                                                                            \
  do {                                                                                             \
    colli_step step = good_step();                                                                 \
    change;                                                                                        \
    cr_assert_eq(build_one(&shape_reduce, step), COLL_ERR_INTERNAL, "took " #change);              \
  } while (0)
  REJECTS(step.bits = 0);
  REJECTS(step.bits |= 64);
  REJECTS(step.lane = 2);
  REJECTS(step.peer_recv = 1);
  REJECTS(step.peer_recv = 4);
  REJECTS(step.peer_recv = -1);
  REJECTS(step.peer_send = 1);
  REJECTS(step.peer_send = -2);
  REJECTS(step.peer_send = -1);
  REJECTS(step.bits &= ~COLLI_SEND);
  REJECTS(step.bits &= ~COLLI_RECV);
  REJECTS(step.dst_buf = COLLI_INPUT);
  REJECTS(step.src_buf = 3);
  REJECTS(step.chunk_in = step.chunk_out = 4);
  REJECTS(step.chunk_in = step.chunk_out = -1);
  REJECTS(step.chunk_out = 1);
  REJECTS((step.src_buf = COLLI_SCRATCH, step.chunk_in = step.chunk_out = 2));
  REJECTS((step.bits = COLLI_RECV | COLLI_FOLD, step.peer_send = -1));
  REJECTS((step.bits = COLLI_RECV, step.peer_send = -1));
  REJECTS(step.bits = COLLI_RECV | COLLI_SEND);
  REJECTS(step.bits = COLLI_RECV | COLLI_STORE | COLLI_SEND | COLLI_MSG_LEFT);
  REJECTS((step.bits = COLLI_SEND | COLLI_FINAL, step.peer_recv = -1));
  REJECTS((step.bits = COLLI_FOLD | COLLI_SEND, step.peer_recv = -1));
  REJECTS((step.bits = COLLI_STORE, step.src_buf = COLLI_OUTPUT, step.peer_recv = -1,
           step.peer_send = -1));
#undef REJECTS
  cr_assert_eq(build_one(&shape_gather, good_step()), COLL_ERR_INTERNAL, "all-gather reduces");
  cr_assert_eq(build_one(&shape_barrier, good_step()), COLL_ERR_INTERNAL, "barrier stores");
}

/* Builds two steps in lanes 0 and 1 with the deps given as (waiter, first) pairs. */
static coll_status build_deps(const int (*deps)[2], int ndeps, colli_sched **sched) {
  colli_builder *builder = colli_builder_create(&shape_reduce, 4, 0, 2);
  colli_step step = good_step();
  for (int i = 0; i < 4; i++) {
    step.lane = i % 2 == 0;
    colli_builder_add(builder, step);
  }
  for (int i = 0; i < ndeps; i++)
    colli_builder_dep(builder, deps[i][0], deps[i][1]);
  return colli_builder_finish(builder, sched);
}

Test(builder, sorts_lanes_and_translates_deps) {
  static const int deps[][2] = {{0, 1}, {0, 3}};
  colli_sched *sched = NULL;
  cr_assert_eq(build_deps(deps, 2, &sched), COLL_OK);
  cr_assert_eq(sched->nsteps, 4);
  cr_assert_eq(sched->lane_first[0], 0);
  cr_assert_eq(sched->lane_first[1], 2);
  cr_assert_eq(sched->lane_first[2], 4);
  cr_assert_eq(sched->steps[2].lane, 1);
  cr_assert_eq(sched->steps[2].dep[0], 0);
  cr_assert_eq(sched->steps[2].dep[1], 1);
  cr_assert_eq(sched->steps[3].dep[0], COLLI_NO_DEP);
  cr_assert_geq(colli_sched_bytes(sched), sizeof(*sched) + 4 * sizeof(colli_step));
  colli_sched_free(sched);
}

Test(builder, rejects_bad_deps) {
  static const int same_lane[][2] = {{0, 2}}, unknown[][2] = {{0, 9}}, negative[][2] = {{-1, 0}};
  static const int three[][2] = {{0, 1}, {0, 3}, {0, 1}};
  colli_sched *sched = NULL;
  cr_assert_eq(build_deps(same_lane, 1, &sched), COLL_ERR_INTERNAL);
  cr_assert_eq(build_deps(unknown, 1, &sched), COLL_ERR_INTERNAL);
  cr_assert_eq(build_deps(negative, 1, &sched), COLL_ERR_INTERNAL);
  cr_assert_eq(build_deps(three, 3, &sched), COLL_ERR_INTERNAL);
  cr_assert_null(sched);
}

Test(builder, rejects_bad_frames) {
  static const colli_shape bad[] = {{.coll = COLLI_ALLREDUCE, .nranks = 0, .rank = 0, .root = 0},
                                    {.coll = COLLI_ALLREDUCE, .nranks = 4, .rank = 4, .root = 0},
                                    {.coll = COLLI_ALLREDUCE, .nranks = 4, .rank = -1, .root = 0},
                                    {.coll = COLLI_BROADCAST, .nranks = 4, .rank = 0, .root = 4}};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    colli_sched *sched = NULL;
    colli_builder *builder = colli_builder_create(&bad[i], 1, 0, 1);
    cr_assert_eq(colli_builder_finish(builder, &sched), COLL_ERR_INTERNAL, "shape %zu", i);
  }
  static const int frames[][3] = {
      {0, 0, 1}, {1, 35, 1}, {1, -1, 1}, {1, 0, 0}, {1, 0, COLLI_MAX_LANES + 1}};
  for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
    colli_sched *sched = NULL;
    colli_builder *builder =
        colli_builder_create(&shape_reduce, frames[i][0], frames[i][1], frames[i][2]);
    cr_assert_eq(colli_builder_finish(builder, &sched), COLL_ERR_INTERNAL, "frame %zu", i);
  }
}

Test(names, both_ways) {
  for (int coll = 0; coll < COLLI_COLL_COUNT; coll++)
    cr_assert_eq(colli_coll_parse(colli_coll_name((colli_coll)coll)), coll);
  cr_assert_eq(colli_coll_parse("allreduc"), -1);
  cr_assert_eq(colli_coll_parse(""), -1);
  cr_assert_null(colli_coll_name(COLLI_COLL_COUNT));
}

/* What coll_explain prints of a schedule. */
Test(dump, shows_every_kind_of_step) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  group all = group_make(colli_algo_find(COLLI_ALLREDUCE, "dbtree"), 5, 0);
  colli_sched_dump(all.sched[2], out);
  group_free(&all);
  all = group_make(colli_algo_find(COLLI_ALLREDUCE, "recdbl"), 2, 0);
  colli_sched_dump(all.sched[1], out);
  group_free(&all);
  fclose(out);
  static const char *const expected[] = {
      "allreduce, rank 2 of 5: 2 chunks, 0 scratch, 4 lanes, 6 steps",
      "lane 0 step   0  input[0] op message from 3 -> output[0]\n",
      "lane 0 step   1  output[0] op message from 1 -> rank 4\n",
      "lane 1 step   2  message from 4 -> output[0] -> rank 1  after step 1\n",
      "lane 1 step   3  output[0] -> rank 3\n",
      "message from 0 op input[0] (complete) -> output[0]\n",
  };
  for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
    cr_assert(strstr(text, expected[i]), "no '%s' in:\n%s", expected[i], text);
  free(text);
}
