/* test_ptx_races.c: the race detector of the PTX interpreter forgets no access too early.
 *
 * Threads take turns, so that it is known which access comes first; but the turns themselves order
 * nothing. A thread that releases is ordered before those that acquire in a later turn. */
#include "tests/gpu/support_ptx.h"

#include <criterion/criterion.h>
#include <stdio.h>

enum { SEEDS = 8, STEPS = 48, NOBODY = -1 };

TestSuite(ptx_races, .timeout = 60);

/* What a thread does in its turn. The thread is that with the number of the turn. */
typedef struct {
  const char *access; /* data is at %d1 */
  bool acquires, releases;
} step;

/* Makes the kernel in which thread i of the grid does step i. */
static ptx_module *build(const step *steps, int n) {
  static char text[STEPS * 600];
  size_t used = 0, room = sizeof text;
  used += (size_t)snprintf(
      text + used, room - used,
      ".version 7.0\n.target sm_70\n.address_size 64\n"
      ".visible .entry k(.param .u64 data, .param .u64 turn, .param .u64 count)\n{\n"
      ".reg .pred %%p<9>; .reg .b32 %%r<20>; .reg .b64 %%d<20>;\n"
      "ld.param.u64 %%d1, [data]; ld.param.u64 %%d2, [turn]; ld.param.u64 %%d3, [count];\n"
      "mov.u32 %%r1, %%tid.x; mov.u32 %%r2, %%ctaid.x; mov.u32 %%r3, %%ntid.x;\n"
      "mad.lo.u32 %%r4, %%r2, %%r3, %%r1; mov.u32 %%r6, 5;\n");
  for (int i = 0; i < n; i++)
    used += (size_t)snprintf(text + used, room - used,
                             "setp.eq.u32 %%p1, %%r4, %d; @%%p1 bra S%d;\n", i, i);
  for (int i = 0; i < n; i++)
    used += (size_t)snprintf(
        text + used, room - used,
        "ret;\nS%d: ld.relaxed.gpu.global.u32 %%r5, [%%d2]; setp.ne.u32 %%p2, %%r5, %d;\n"
        "@%%p2 bra S%d;\nld.%s.gpu.global.u32 %%r5, [%%d3];\n%s;\n"
        "red.%s.gpu.global.add.u32 [%%d3], 1; st.relaxed.gpu.global.u32 [%%d2], %d;\n",
        i, i, i, steps[i].acquires ? "acquire" : "relaxed", steps[i].access,
        steps[i].releases ? "release" : "relaxed", i + 1);
  used += (size_t)snprintf(text + used, room - used, "ret;\n}\n");
  cr_assert(used < room);
  return must_parse(text, false);
}

/* Runs a kernel once. Returns which thread's access the first race is with, or NOBODY. */
static int run_once(const ptx_module *m, int n, uint32_t a_block, uint64_t seed) {
  _Alignas(64) uint32_t memory[48] = {0};
  uint64_t params[3];
  for (int i = 0; i < 3; i++)
    params[i] = (uint64_t)(uintptr_t)(memory + 16 * i);
  const gpu_options options = {.model = GPU_RACES, .seed = seed};
  const gpu_launch launch = {.module = m,
                             .kernel = m->kernels,
                             .params = params,
                             .grid = {((uint32_t)n + a_block - 1) / a_block, 1, 1},
                             .block = {a_block, 1, 1}};
  gpu_race race;
  uint64_t races = must_end(&options, &launch, &race);
  cr_assert_eq(memory[16], (uint32_t)n);
  return races ? (int)(race.earlier.block * a_block + race.earlier.thread) : NOBODY;
}

/* Expects that in each run the first race is with the access of a thread, or that there is none.
 * Each block has `a_block` threads; 0 tries several numbers. */
static void expect_in_blocks(const char *name, const step *steps, int n, uint32_t a_block,
                             int with) {
  ptx_module *m = build(steps, n);
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    uint32_t threads = a_block ? a_block : (uint32_t[]){1, 2, (uint32_t)n}[seed % 3];
    int found = run_once(m, n, threads, seed);
    cr_expect_eq(found, with, "%s, seed %d: a race with thread %d, expected %d", name, (int)seed,
                 found, with);
  }
  ptx_free(m);
}
static void expect_race(const char *name, const step *steps, int n, int with) {
  expect_in_blocks(name, steps, n, 0, with);
}

/* Some threads do the same, then one does something else, ordered after all but one of them. */
static void try_all_but_one(const char *many, int n, const char *last) {
  for (int missing = NOBODY; missing<n; missing += n> 7 ? 13 : 1) {
    step steps[STEPS];
    for (int i = 0; i < n; i++)
      steps[i] = (step){many, false, i != missing};
    steps[n] = (step){last, true, false};
    expect_race(many, steps, n + 1, missing);
  }
}

Test(ptx_races, a_write_needs_order_after_all_readers) {
  static const int readers[] = {3, 7, 40};
  for (int i = 0; i < 3; i++) {
    try_all_but_one("ld.global.u32 %r6, [%d1]", readers[i], "st.global.u32 [%d1], %r4");
    try_all_but_one("ld.global.u32 %r6, [%d1+4]", readers[i],
                    "st.global.v4.u32 [%d1], {%r4, %r4, %r4, %r4}");
  }
}

Test(ptx_races, an_access_needs_order_after_all_atomic_operations) {
  static const int writers[] = {3, 7, 40};
  for (int i = 0; i < 3; i++) {
    try_all_but_one("red.relaxed.gpu.global.add.u32 [%d1], 2", writers[i],
                    "ld.global.u32 %r6, [%d1]");
    try_all_but_one("st.volatile.global.u32 [%d1], 2", writers[i], "st.global.u32 [%d1], %r4");
  }
}

/* Readers, a write that comes after all of them, and again. */
Test(ptx_races, each_write_needs_order_after_its_readers) {
  for (int missing = NOBODY; missing < 15; missing++) {
    step steps[16];
    for (int i = 0; i < 16; i++) {
      steps[i] = (step){"ld.global.u32 %r6, [%d1]", i >= 5, i != missing};
      if (i % 5 == 4 || i == 15)
        steps[i].access = "st.global.u32 [%d1], %r4";
      steps[i].acquires = steps[i].acquires || i % 5 == 4;
    }
    expect_race("rounds", steps, 16, missing);
  }
}

/* Threads use one byte each, then one thread uses one of these bytes. */
static void try_bytes(const char *each, const char *last, bool conflicts) {
  for (int byte = 0; byte < 4; byte++) {
    char text[5][60];
    step steps[5];
    for (int i = 0; i < 5; i++) {
      snprintf(text[i], sizeof text[i], i < 4 ? each : last, i < 4 ? i : byte);
      steps[i] = (step){.access = text[i]};
    }
    expect_race("bytes apart", steps, 4, NOBODY);
    expect_race("a byte again", steps, 5, conflicts ? byte : NOBODY);
    steps[byte].releases = steps[4].acquires = true;
    expect_race("a byte again, later", steps, 5, NOBODY);
  }
}

Test(ptx_races, bytes_of_a_word_are_remembered_apart) {
  try_bytes("st.global.u8 [%%d1+%d], %%r6", "st.global.u8 [%%d1+%d], %%r6", true);
  try_bytes("st.global.u8 [%%d1+%d], %%r6", "ld.global.u8 %%r6, [%%d1+%d]", true);
  try_bytes("ld.global.u8 %%r6, [%%d1+%d]", "st.global.u8 [%%d1+%d], %%r6", true);
  try_bytes("ld.global.u8 %%r6, [%%d1+%d]", "ld.global.u8 %%r6, [%%d1+%d]", false);
}

/* A byte is written over a part of a word: the rest is still that of the earlier write. */
Test(ptx_races, a_byte_hides_only_a_byte_of_a_word) {
  for (int byte = 0; byte < 4; byte++) {
    for (int read = 0; read < 4; read++) {
      char first[60], second[60];
      snprintf(first, sizeof first, "st.global.u8 [%%d1+%d], %%r6", byte);
      snprintf(second, sizeof second, "ld.global.u8 %%r6, [%%d1+%d]", read);
      step steps[3] = {
          {"st.global.u32 [%d1], %r6", false, true}, {first, true, false}, {second, false, false}};
      expect_race("after nothing", steps, 3, byte == read ? 1 : 0);
      steps[2].acquires = true;
      expect_race("after the word", steps, 3, byte == read ? 1 : NOBODY);
      steps[1].releases = true;
      expect_race("after both", steps, 3, NOBODY);
    }
  }
}

/* A weak access and a strong one, by one thread or by two that are ordered; then a strong one. */
Test(ptx_races, a_strong_access_does_not_hide_a_weak_one) {
  static const struct {
    const char *weak, *strong, *last;
  } accesses[] = {
      {"st.global.u32 [%d1], %r4", "st.relaxed.gpu.global.u32 [%d1], %r6",
       "ld.relaxed.gpu.global.u32 %r6, [%d1]"},
      {"st.global.u32 [%d1], %r4", "red.relaxed.gpu.global.add.u32 [%d1], 1",
       "red.relaxed.gpu.global.add.u32 [%d1], 1"},
      {"ld.global.u32 %r6, [%d1]", "ld.relaxed.gpu.global.u32 %r6, [%d1]",
       "st.relaxed.gpu.global.u32 [%d1], %r6"},
      {"ld.global.u32 %r6, [%d1]", "st.relaxed.gpu.global.u32 [%d1], %r6",
       "st.relaxed.gpu.global.u32 [%d1], %r6"},
      {"st.global.u8 [%d1+1], %r4", "st.relaxed.gpu.global.u32 [%d1], %r6",
       "st.relaxed.gpu.global.u32 [%d1], %r6"},
  };
  for (size_t i = 0; i < sizeof accesses / sizeof *accesses; i++) {
    const char *last = accesses[i].last;
    char both[200];
    snprintf(both, sizeof both, "%s; %s", accesses[i].weak, accesses[i].strong);
    expect_race("one", (step[]){{both, false, false}, {last, false, false}}, 2, 0);
    expect_race("one, ordered", (step[]){{both, false, true}, {last, true, false}}, 2, NOBODY);
    expect_race("strong", (step[]){{accesses[i].strong, false, false}, {last, false, false}}, 2,
                NOBODY);
    step steps[3] = {
        {accesses[i].weak, false, true}, {accesses[i].strong, true, false}, {last, false, false}};
    expect_race("two", steps, 3, 0);
    steps[2].acquires = true; /* after the weak one, not after the strong one */
    expect_race("two, ordered", steps, 3, NOBODY);
  }
}

/* As above, when others have read as well. */
Test(ptx_races, a_strong_read_does_not_hide_a_weak_one_among_many) {
  static const char strong[] = "ld.relaxed.gpu.global.u32 %r6, [%d1]";
  step steps[5] = {{strong, false, false},
                   {strong, false, false},
                   {strong, false, false},
                   {"ld.global.u32 %r6, [%d1]; ld.relaxed.gpu.global.u32 %r6, [%d1]", false, false},
                   {"st.relaxed.gpu.global.u32 [%d1], 1", false, false}};
  expect_race("weak", steps, 5, 3);
  steps[3].access = strong;
  expect_race("strong", steps, 5, NOBODY);
}

Test(ptx_races, a_read_does_not_hide_a_write) {
  step steps[4] = {{"st.global.u8 [%d1], %r6", false, true},
                   {"st.global.u8 [%d1+1], %r6", false, false},
                   {"ld.global.u8 %r6, [%d1]", true, false},
                   {"ld.global.u8 %r6, [%d1]", false, false}};
  expect_race("read", steps, 4, 0);
  steps[3].acquires = true;
  expect_race("read later", steps, 4, NOBODY);
}

Test(ptx_races, scopes_do_not_hide_each_other) {
  static const char near[] = "st.relaxed.cta.global.u32 [%d1], 1";
  static const char far[] = "st.relaxed.gpu.global.u32 [%d1], 1";
  for (int i = 0; i < 2; i++) {
    char both[100];
    snprintf(both, sizeof both, "%s; %s", i ? far : near, i ? near : far);
    const step steps[2] = {{both, false, false}, {far, false, false}};
    expect_in_blocks("another block", steps, 2, 1, 0);
    expect_in_blocks("the same block", steps, 2, 2, NOBODY);
  }
  /* Threads 2 and 3 are in a block. Thread 3 is strong with thread 2 but not with thread 1. */
  step steps[4] = {
      {"", false, false}, {far, false, true}, {far, true, false}, {near, false, false}};
  expect_in_blocks("two blocks", steps, 4, 2, 1);
  steps[3].access = far;
  expect_in_blocks("two blocks", steps, 4, 2, NOBODY);
}

/* A loop writes bytes and releases each. The reader knows only of the first. */
Test(ptx_races, rounds_of_a_loop_are_remembered_apart) {
  static const char loop[] = "mov.u32 %r8, 0; mov.u64 %d4, %d1; mov.u64 %d5, %d1;\n"
                             "LOOP: st.global.u8 [%d4], %r6; st.release.gpu.global.u32 [%d5+16], 1;"
                             "add.s64 %d4, %d4, 1; add.s64 %d5, %d5, 4; add.u32 %r8, %r8, 1;\n"
                             "setp.lt.u32 %p3, %r8, 4; @%p3 bra LOOP";
  for (int byte = 0; byte < 4; byte++) {
    char text[100];
    snprintf(text, sizeof text,
             "ld.acquire.gpu.global.u32 %%r5, [%%d1+16]; ld.global.u8 %%r5, [%%d1+%d]", byte);
    const step steps[2] = {{loop, false, false}, {text, false, false}};
    expect_race("loop", steps, 2, byte ? 0 : NOBODY);
  }
}

/* Runs a kernel on devices. `plan` says in which order: a digit starts a run on that device, a
 * letter steps (a: the first run) or ends (A) one. Returns the number of races. */
static uint64_t on_devices(const char *body, const char *plan) {
  char text[600];
  uint32_t data = 0;
  uint64_t param = (uint64_t)(uintptr_t)&data;
  snprintf(text, sizeof text,
           ".version 7.0\n.target sm_70\n.address_size 64\n"
           ".visible .entry k(.param .u64 data)\n{\n.reg .b64 %%d<9>;\n"
           "ld.param.u64 %%d1, [data];\n%s;\nret;\n}\n",
           body);
  ptx_module *m = must_parse(text, false);
  gpu_world *w = gpu_world_create(&(gpu_options){.model = GPU_RACES, .seed = 1});
  gpu_launch launch = {
      .module = m, .kernel = m->kernels, .params = &param, .grid = {2, 1, 1}, .block = {3, 1, 1}};
  gpu_run *runs[4];
  int n = 0;
  for (; *plan; plan++) {
    if (*plan <= '9') {
      launch.device = *plan - '0';
      runs[n++] = must_start(w, &launch);
    } else if (*plan >= 'a') {
      cr_assert_eq(gpu_run_step(runs[*plan - 'a'], 10000), GPU_DONE);
    } else {
      gpu_run_destroy(runs[*plan - 'A']);
    }
  }
  uint64_t races = gpu_world_races(w);
  gpu_world_destroy(w);
  ptx_free(m);
  return races;
}

Test(ptx_races, devices_need_their_scope) {
  static const char gpu[] = "red.relaxed.gpu.global.add.u32 [%d1], 1";
  static const char sys[] = "red.relaxed.sys.global.add.u32 [%d1], 1";
  cr_expect_eq(on_devices(gpu, "0aA"), 0);
  cr_expect_eq(on_devices(sys, "012abcABC"), 0);
  cr_expect_eq(on_devices(gpu, "01abAB"), 36); /* 6 threads with 6 */
  cr_expect_eq(on_devices(gpu, "010abcABC"), 36 + 36);
  cr_expect_eq(on_devices(gpu, "00aA1bBC"), 0); /* the third run does nothing before the second */
}
