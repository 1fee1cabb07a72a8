/* support_meet.c: see support_meet.h. */
#include "tests/gpu/support_meet.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 1 << 14, STEP = 300, ROUND_VALUE = 1 << 12, RANK_VALUE = 1 << 20 };

/* The kernel before coll_meet and after it. */
static const char before[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry around(.param .align 8 .b8 coll_meet_param_0[120],\n"
    ".param .align 8 .b8 around[40])\n{\n"
    ".reg .pred %ap<3>; .reg .b32 %ar<16>; .reg .b64 %ad<16>;\n"
    "mov.u32 %ar1, %tid.x; mov.u32 %ar2, %ntid.x; mov.u32 %ar5, 0;\n"
    "ld.param.u64 %ad1, [around]; ld.param.u64 %ad2, [around+8];\n"
    "ld.param.u64 %ad3, [around+16]; ld.param.u64 %ad4, [around+24];\n"
    "ld.param.u32 %ar3, [around+32]; ld.param.u32 %ar4, [around+36];\n"
    "ld.param.u32 %ar6, [coll_meet_param_0+116];\n"
    "mul.wide.u32 %ad5, %ar1, 4; add.s64 %ad3, %ad3, %ad5; add.s64 %ad1, %ad1, %ad5;\n"
    "sub.u32 %ar7, %ar2, %ar1; sub.u32 %ar7, %ar7, 1; mul.wide.u32 %ad6, %ar7, 4;\n"
    "ROUND:\n"
    "and.b32 %ar8, %ar5, 1; cvt.u64.u32 %ad7, %ar8; mul.lo.s64 %ad7, %ad7, %ad4;\n"
    "mad.lo.u32 %ar9, %ar5, 4096, %ar3; add.u32 %ar9, %ar9, %ar1;\n"
    "add.s64 %ad8, %ad1, %ad7; st.global.u32 [%ad8], %ar9;\n"
    "bar.sync 1;\n";
static const char after[] =
    "MET:\nbar.sync 1;\n"
    "mov.u32 %ar10, 0; mov.u32 %ar11, 0; mov.u64 %ad9, %ad2; add.s64 %ad7, %ad7, %ad6;\n"
    "SLOT: ld.global.u64 %ad10, [%ad9]; add.s64 %ad10, %ad10, %ad7;\n"
    "ld.global.u32 %ar12, [%ad10]; add.u32 %ar11, %ar11, %ar12;\n"
    "add.s64 %ad9, %ad9, 8; add.u32 %ar10, %ar10, 1;\n"
    "setp.lt.u32 %ap1, %ar10, %ar6; @%ap1 bra SLOT;\n"
    "st.global.u32 [%ad3], %ar11; add.s64 %ad3, %ad3, 384;\n"
    "add.u32 %ar5, %ar5, 1; setp.lt.u32 %ap2, %ar5, %ar4; @%ap2 bra ROUND;\nret;\n}\n";

/* ---- the kernel ---- */

/* Replaces the n-th `old` of a text. */
static void edit(char text[TEXT], const meet_edit *e) {
  char rest[TEXT];
  char *at = text;
  for (int i = 1; (at = strstr(at, e->old)) && i < e->nth; i++)
    at++;
  cr_assert(at, "coll_meet has no %s number %d: adapt the test to its PTX", e->old, e->nth);
  snprintf(rest, sizeof(rest), "%s", at + strlen(e->old));
  const size_t room = TEXT - (size_t)(at - text);
  cr_assert_lt((size_t)snprintf(at, room, "%s%s", e->new, rest), room);
}

/* Reads what coll_meet does: a block whose end is at label MET. */
static void read_body(char text[TEXT]) {
  static char whole[TEXT];
  FILE *file = fopen(COLL_KERNELS "/meet.ptx", "r");
  cr_assert(file);
  const size_t length = fread(whole, 1, sizeof(whole) - 1, file);
  fclose(file);
  whole[length] = 0;
  const char *body = strstr(whole, "\n{\n");
  cr_assert(body && length < sizeof(whole) - 1);
  snprintf(text, TEXT, "%s", body);
  while (strstr(text, "ret;"))
    edit(text, &(meet_edit){"ret;", 1, "bra MET;"});
}

ptx_module *meet_module(const meet_edit *edits) {
  static char body[TEXT], text[2 * TEXT];
  read_body(body);
  for (; edits && edits->old; edits++)
    edit(body, edits);
  snprintf(text, sizeof(text), "%s%s%s", before, body, after);
  return must_parse(text, false);
}

/* ---- ranks ---- */

/* Fills in the arguments of a rank. */
static void prepare(meet_world *w, int me) {
  meet_rank *r = &w->rank[me];
  struct coll_gpu_meet *meet = &r->arguments.meet;
  for (int i = 0; i < w->setup.ranks; i++) {
    const uint64_t word = i == me ? 0 : (uint64_t)(uintptr_t)&w->rank[i].words[me];
    *(i < COLL_GPU_PLACES ? &meet->there[i] : &r->more_there[i - COLL_GPU_PLACES]) = word;
    r->slots[i] = (uint64_t)(uintptr_t)w->rank[i].slot;
    r->words[i] = w->setup.epoch;
  }
  r->state.epoch = r->arrived = r->left = w->setup.epoch;
  meet->more_there = (uint64_t)(uintptr_t)r->more_there;
  meet->here = (uint64_t)(uintptr_t)r->words;
  meet->state = (uint64_t)(uintptr_t)&r->state;
  meet->abort = (uint64_t)(uintptr_t)&r->abort;
  meet->arrived = (uint64_t)(uintptr_t)&r->arrived;
  meet->left = (uint64_t)(uintptr_t)&r->left;
  meet->rank = (uint32_t)me;
  meet->nranks = (uint32_t)w->setup.ranks;
  r->arguments.around = (meet_around){.mine = (uint64_t)(uintptr_t)r->slot,
                                      .slots = (uint64_t)(uintptr_t)r->slots,
                                      .other = w->setup.one_slot ? 0 : sizeof(r->slot[0]),
                                      .rounds = MEET_ROUNDS};
}

/* Launches a rank's kernel, on its device. */
static void launch(meet_world *w, int me) {
  meet_rank *r = &w->rank[me];
  const gpu_launch how = {.module = w->module,
                          .kernel = w->module->kernels,
                          .params = &r->arguments,
                          .grid = {1, 1, 1},
                          .block = {w->setup.threads, 1, 1},
                          .device = me};
  const int round = r->launched++ * MEET_ROUNDS;
  r->arguments.around.result = (uint64_t)(uintptr_t)r->result[round];
  r->arguments.around.first = (uint32_t)(me * RANK_VALUE + round * ROUND_VALUE);
  r->run = must_start(w->world, &how);
}

meet_world *meet_open(const ptx_module *module, const meet_setup *setup) {
  meet_world *w = calloc(1, sizeof(*w));
  cr_assert(w && setup->ranks <= MEET_RANKS && setup->threads <= MEET_THREADS);
  w->setup = *setup;
  w->module = module;
  w->random.state = setup->seed;
  w->world = gpu_world_create(&(gpu_options){.model = setup->model, .seed = setup->seed});
  cr_assert(w->world);
  for (int i = 0; i < setup->ranks; i++)
    prepare(w, i);
  for (int i = 0; i < setup->ranks - setup->absent; i++)
    launch(w, i);
  return w;
}

/* Notes whether a rank says that it has passed and one of its peers has not come. */
static void look_at_left(meet_world *w, int me) {
  const meet_rank *r = &w->rank[me];
  const uint32_t left = __atomic_load_n(&r->left, __ATOMIC_SEQ_CST);
  for (int i = 0; i < w->setup.ranks; i++)
    if (i != me && (int32_t)(__atomic_load_n(&r->words[i], __ATOMIC_SEQ_CST) - left) < 0)
      w->early = true;
}

/* Runs a rank for a while. */
static void step_rank(meet_world *w, int me, uint64_t most) {
  meet_rank *r = &w->rank[me];
  const gpu_state state = gpu_run_step(r->run, most);
  look_at_left(w, me);
  cr_assert_neq(state, GPU_FAULTED, "%s", gpu_run_fault(r->run)->message);
  if (state == GPU_RUNNING)
    return;
  gpu_run_destroy(r->run);
  r->run = NULL;
  if (r->launched < MEET_LAUNCHES)
    launch(w, me);
}

bool meet_step(meet_world *w, uint64_t most) {
  int running = 0;
  for (uint64_t used = 0; used < most;) {
    running = 0;
    for (int i = 0; i < w->setup.ranks; i++)
      running += w->rank[i].run != NULL;
    if (!running)
      return true;
    int me = (int)(colli_prng_next(&w->random) % (uint64_t)w->setup.ranks);
    if (colli_prng_next(&w->random) % 64 == 0)
      w->favourite = me;
    if (colli_prng_next(&w->random) % 2)
      me = w->favourite;
    const uint64_t step = 1 + colli_prng_next(&w->random) % STEP;
    if (w->rank[me].run)
      step_rank(w, me, step);
    used += step;
  }
  return false;
}

bool meet_right(const meet_world *w, uint32_t rounds) {
  const uint32_t n = (uint32_t)w->setup.ranks;
  for (uint32_t me = 0; me < n; me++)
    for (uint32_t round = 0; round < rounds; round++)
      for (uint32_t t = 0; t < w->setup.threads; t++)
        if (w->rank[me].result[round][t] !=
            n * (n - 1) / 2 * RANK_VALUE + n * (round * ROUND_VALUE + w->setup.threads - 1 - t))
          return false;
  return true;
}

uint64_t meet_close(meet_world *w) {
  for (int i = 0; i < w->setup.ranks; i++)
    gpu_run_destroy(w->rank[i].run);
  const uint64_t races = gpu_world_races(w->world);
  gpu_world_destroy(w->world);
  free(w);
  return races;
}
