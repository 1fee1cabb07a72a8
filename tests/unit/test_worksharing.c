/*
 * test_worksharing.c: work that a peer has offered (libcoll/exec/worksharing.h). Its kind comes
 * from the peer's memory: kinds that do not exist end the operation, and write nothing. The test
 * plays the transport.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/exec/worksharing.h"

enum { COUNT = 5, LEFT = 1, STREAM = 2, AVERAGE = 4 };

/* The connection on which work is offered, and what becomes of it. */
typedef struct offer {
  coll_conn base;
  coll_work work;
  int finished;
  coll_status failure;
} offer;

static int claim(coll_conn *conn, coll_work *work) {
  *work = ((offer *)conn)->work;
  return COLL_T_DONE;
}

static int finish(coll_conn *conn, const coll_work *work) {
  (void)work;
  ((offer *)conn)->finished++;
  return COLL_T_DONE;
}

static int unfinished(coll_endpoint *ep, uint32_t region, size_t *offset, size_t *bytes) {
  (void)ep, (void)region, (void)offset, (void)bytes;
  return 0;
}

static const coll_transport_ops ops = {.size = sizeof(coll_transport_ops),
                                       .abi = COLL_TRANSPORT_ABI,
                                       .name = "fake",
                                       .claim_work = claim,
                                       .finish_work = finish,
                                       .unfinished_work = unfinished};

static void failed(void *ctx, coll_request *op, int peer, int channel, int step,
                   coll_status status) {
  (void)op, (void)peer, (void)channel, (void)step;
  ((offer *)ctx)->failure = status;
}

static const colli_exec_events events = {.failed = failed};

/* Work of a kind on these operands. */
static offer offer_of(uint32_t kind, float *to, float *to2, const float *own,
                      const float *payload) {
  return (offer){
      .base = {&ops, 1, 0},
      .work = {kind, to, to2, own, payload, COUNT * sizeof(float), {NULL, NULL}},
  };
}

/* Does the work for two ranks, as a rank that waits for its send; what the claim returns. */
static int work_on(offer *o) {
  colli_lane lane = {.npending = 1};
  coll_request *op = calloc(1, sizeof(*op));
  cr_assert_not_null(op);
  op->lane = &lane;
  colli_exec exec = {.nranks = 2,
                     .kernels = colli_kernels_best(),
                     .active = 1,
                     .head = {&op->lane[0]},
                     .ctx = o,
                     .events = &events};
  op->lane[0].op = op;
  op->lane[0].pending[0].conn = &o->base;
  op->lane[0].pending[0].begin = "";
  int result = colli_worksharing_claim(&exec);
  cr_assert_eq(op->moved, result == 1);
  free(op);
  return result;
}

static uint32_t kind_of(unsigned type, unsigned op, uint32_t flags) {
  return type << 8 | op << 16 | flags;
}

Test(worksharing, each_kind_gives_its_result) {
  const float own[COUNT] = {1, 2, 3, 4, 5}, payload[COUNT] = {10, 20, 30, 40, 50};
  for (uint32_t flags = 0; flags < 8; flags++)
    for (int both = 0; both < 2; both++) {
      float to[COUNT] = {0}, to2[COUNT] = {0};
      offer o =
          offer_of(kind_of(COLL_FLOAT32, COLL_SUM, flags), to, both ? to2 : NULL, own, payload);
      cr_assert_eq(work_on(&o), 1);
      cr_assert_eq(o.finished, 1);
      for (int i = 0; i < COUNT; i++) {
        float sum = (own[i] + payload[i]) / (flags & AVERAGE ? 2 : 1);
        cr_assert_eq(to[i], sum, "flags %u, element %d: %g", flags, i, (double)to[i]);
        cr_assert_eq(to2[i], both ? sum : 0, "flags %u, element %d: %g", flags, i, (double)to2[i]);
      }
    }
}

Test(worksharing, a_message_without_operand_is_copied) {
  const float payload[COUNT] = {10, 20, 30, 40, 50};
  for (uint32_t flags = 0; flags <= STREAM; flags += STREAM) {
    float to[COUNT] = {0};
    offer o = offer_of(kind_of(200, 200, flags), to, NULL, NULL, payload);
    cr_assert_eq(work_on(&o), 1);
    cr_assert_arr_eq(to, payload, sizeof(to));
  }
}

Test(worksharing, kinds_that_do_not_exist_are_refused) {
  const struct {
    unsigned type, op;
  } bad[] = {{COLL_TYPE_COUNT, COLL_SUM},
             {COLL_FLOAT32, COLL_OP_COUNT},
             {255, 255},
             {COLL_FLOAT32, 255},
             {255, COLL_SUM},
             {COLL_FLOAT32, COLL_BXOR}};
  const float own[COUNT] = {1, 2, 3, 4, 5};
  for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
    float to[COUNT] = {0}, nothing[COUNT] = {0};
    offer o = offer_of(kind_of(bad[i].type, bad[i].op, LEFT), to, NULL, own, own);
    cr_assert_eq(work_on(&o), COLLI_STEP_FAILED, "kind %zu", i);
    cr_assert_eq(o.failure, COLL_ERR_PROTOCOL);
    cr_assert_eq(o.finished, 0);
    cr_assert_arr_eq(to, nothing, sizeof(to));
  }
}
