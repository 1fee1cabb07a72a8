/* test_hook.c: a link that COLL_FAULT breaks leads to an error that names one of its ends. */
#include "libcoll/create/assemble.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_program.h"

#define LIMIT_NS (20 * COLLI_NS_PER_S)

/* Runs ten ring all-reduces on four ranks under COLL_FAULT=`fault`, after which every rank must
 * have failed with `status`. */
static void run_checked(const char *fault, colli_data_check check, coll_status status, int a,
                        int b) {
  world_config config = {.sim = {.seed = 5, .nranks = 4, .alpha_ns = 1000, .ns_per_byte = 0.1},
                         .transport = &sim_transport,
                         .slot_bytes = 256,
                         .slot_count = 4,
                         .timeout_ms = 1000,
                         .algo = "allreduce:ring",
                         .fault = fault,
                         .check = check};
  world w;
  program p;
  cr_assert(world_open(&w, &config));
  program_make(&p, &w, &config, 5);
  p.nops = 10;
  for (int i = 0; i < p.nops; i++)
    p.ops[i] = (program_op){
        .coll = COLLI_ALLREDUCE, .type = COLL_INT32, .count = 1000, .seed = (uint64_t)i};
  cr_assert(program_run(&p, LIMIT_NS));
  cr_assert_eq(p.wrong, 0);
  for (int rank = 0; rank < p.nranks; rank++) {
    const coll_error *e = &p.ranks[rank].error;
    cr_assert_eq(p.ranks[rank].status, status, "%s: rank %d: %s", fault, rank, e->message);
    if (a >= 0)
      cr_assert(e->peer == a || e->peer == b, "%s: rank %d: %s", fault, rank, e->message);
    else
      cr_assert_geq(e->peer, 0);
  }
  world_close(&w);
  program_free(&p);
}

static void run(const char *fault, coll_status status, int a, int b) {
  run_checked(fault, COLLI_DATA_CHECK_NONE, status, a, b);
}

Test(hook, cut) {
  run("cut=1-2@30", COLL_ERR_PEER_LOST, 1, 2);
}

Test(hook, cut_at_once) {
  run("cut=0-3@0", COLL_ERR_PEER_LOST, 0, 3);
}

Test(hook, drop_after) {
  run("seed=3,drop_after=50,again=10", COLL_ERR_PEER_LOST, -1, -1);
}

Test(hook, stall) {
  run("stall=1-2@30", COLL_ERR_TIMEOUT, -1, -1);
}

/* Every seed flips another bit of a message of rank 1, and every rank learns between whom. */
Test(hook, flips_are_noticed) {
  for (unsigned seed = 1; seed <= 60; seed++) {
    char fault[40];
    snprintf(fault, sizeof(fault), "seed=%u,flip=1-2@%u", seed, seed % 20);
    run_checked(fault, COLLI_DATA_CHECK_CRC32C, COLL_ERR_PROTOCOL, 1, 1);
    run_checked(fault, COLLI_DATA_CHECK_MAC, COLL_ERR_AUTH, 1, 1);
  }
}

Test(hook, messages_out_of_order_are_noticed) {
  static const char *const faults[] = {"lose=1-2@7", "replay=1-2@7", "swap=1-2@7"};
  for (int i = 0; i < 3; i++) {
    run_checked(faults[i], COLLI_DATA_CHECK_CRC32C, COLL_ERR_PROTOCOL, 1, 1);
    run_checked(faults[i], COLLI_DATA_CHECK_MAC, COLL_ERR_AUTH, 1, 1);
  }
}

/* An invalid setting fails the creation, and the error names the setting and what it accepts. */
Test(hook, malformed) {
  static const coll_transport_ops *const transports[] = {&sim_transport, NULL};
  sim_world *sim = sim_world_create(&(sim_config){.seed = 1, .nranks = 2});
  colli_params *params = malloc(sizeof(*params));
  coll_error error = COLL_ERROR_INIT;
  cr_assert_eq(colli_params_load(params, &error), COLL_OK);
  cr_assert(colli_params_set_text(params, COLLI_PARAM_LOG, "none"));
  cr_assert(colli_params_set_text(params, COLLI_PARAM_FAULT, "agian=5"));
  uint8_t bytes[COLL_SECRET_BYTES] = {1};
  colli_secret secret = {.refs = 1, .bytes = bytes};
  colli_assembly assembly = {.nranks = 2,
                             .secret = &secret,
                             .params = params,
                             .world = {.ctx = sim, .now_ns = sim_world_now, .device = sim},
                             .transports = transports};
  coll_comm *comm;
  colli_rank_info info;
  cr_assert_eq(colli_comm_open(&assembly, &comm, &info, &error), COLL_ERR_INVALID_USAGE);
  cr_assert_null(comm);
  cr_assert(strstr(error.message, "COLL_FAULT") && strstr(error.message, "agian"), "%s",
            error.message);
  free(params);
  sim_world_destroy(sim);
}
