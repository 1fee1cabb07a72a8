/* test_ptx_memory.c: memory models, races, barriers, faults and scheduling of the PTX interpreter.
 */
#include "tests/gpu/support_ptx.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { SEEDS = 50 };

TestSuite(ptx_memory, .timeout = 60);

/* Memory of the kernels. */
typedef struct {
  _Alignas(64) uint32_t data[64];
  _Alignas(64) uint32_t flag[16];
  _Alignas(64) uint32_t result[256];
} memory;

/* Only the memory of the test may be accessed. */
static uint8_t *inside(void *context, uint64_t address, size_t bytes, bool write) {
  uint64_t from = (uint64_t)(uintptr_t)context;
  (void)write;
  return address >= from && address + bytes <= from + sizeof(memory) ? (uint8_t *)address : NULL;
}

/* A module with one kernel, whose parameters are data, flag, result. */
static ptx_module *build(const char *body, bool split) {
  char text[4000];
  snprintf(
      text, sizeof text,
      ".version 7.0\n.target sm_70\n.address_size 64\n"
      ".visible .entry k(.param .u64 data, .param .u64 flag, .param .u64 result)\n{\n"
      ".reg .pred %%p<9>; .reg .b32 %%r<20>; .reg .b64 %%d<20>; .shared .align 4 .b8 s[1024];\n"
      "ld.param.u64 %%d1, [data]; ld.param.u64 %%d2, [flag]; ld.param.u64 %%d3, [result];\n"
      "mov.u32 %%r1, %%tid.x; mov.u32 %%r2, %%ctaid.x; mov.u32 %%r3, %%ntid.x;\n"
      "mad.lo.u32 %%r4, %%r2, %%r3, %%r1; mul.wide.u32 %%d4, %%r4, 4; add.s64 %%d5, %%d3, %%d4;\n"
      "%s\nret;\n}\n",
      body);
  return must_parse(text, split);
}

/* How a kernel is run. */
typedef struct {
  gpu_model model;
  uint64_t seed;
  uint32_t blocks, threads;
  int resident;
} setup;

/* Runs a kernel to its end; returns the number of races. */
static uint64_t execute(const ptx_module *m, const setup *s, memory *mem) {
  const uint64_t params[3] = {(uint64_t)(uintptr_t)mem->data, (uint64_t)(uintptr_t)mem->flag,
                              (uint64_t)(uintptr_t)mem->result};
  const gpu_options options = {.model = s->model, .seed = s->seed, .find = inside, .context = mem};
  const gpu_launch launch = {.module = m,
                             .kernel = m->kernels,
                             .params = params,
                             .grid = {s->blocks, 1, 1},
                             .block = {s->threads, 1, 1},
                             .resident = s->resident};
  return must_end(&options, &launch, NULL);
}

/* Message passing from block 0 to block 1 through a flag. */
static const char passing[] = "setp.ne.u32 %%p1, %%r1, 0; @%%p1 ret;\n"
                              "setp.eq.u32 %%p2, %%r2, 1; @%%p2 bra READER;\n"
                              "st.global.u32 [%%d1], 41; st.global.u32 [%%d1+128], 42;\n"
                              "%s;\nret;\n"
                              "READER:\nWAIT: %s; setp.eq.u32 %%p3, %%r5, 0; @%%p3 bra WAIT;\n"
                              "%s;\nld.global.u32 %%r6, [%%d1]; ld.global.u32 %%r7, [%%d1+128];\n"
                              "add.u32 %%r6, %%r6, %%r7; st.global.u32 [%%d3], %%r6;";

typedef struct {
  const char *name, *send, *receive, *after;
  bool right;
} protocol;

static const protocol protocols[] = {
    {"release, acquire, gpu", "st.release.gpu.global.u32 [%d2], 1",
     "ld.acquire.gpu.global.u32 %r5, [%d2]", "", true},
    {"release, acquire, sys", "st.release.sys.global.u32 [%d2], 1",
     "ld.acquire.sys.global.u32 %r5, [%d2]", "", true},
    {"fences", "fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%d2], 1",
     "ld.relaxed.gpu.global.u32 %r5, [%d2]", "fence.acq_rel.gpu", true},
    {"membar, volatile", "membar.gl; st.volatile.global.u32 [%d2], 1",
     "ld.volatile.global.u32 %r5, [%d2]", "membar.gl", true},
    {"atomic operations", "atom.release.gpu.global.exch.b32 %r8, [%d2], 1",
     "atom.acquire.gpu.global.add.u32 %r5, [%d2], 0", "", true},
    {"red and acquire", "red.release.gpu.global.add.u32 [%d2], 1",
     "ld.acquire.gpu.global.u32 %r5, [%d2]", "", true},
    {"no release", "st.relaxed.gpu.global.u32 [%d2], 1", "ld.acquire.gpu.global.u32 %r5, [%d2]", "",
     false},
    {"no acquire", "st.release.gpu.global.u32 [%d2], 1", "ld.relaxed.gpu.global.u32 %r5, [%d2]", "",
     false},
    {"volatile alone", "st.volatile.global.u32 [%d2], 1", "ld.volatile.global.u32 %r5, [%d2]", "",
     false},
    {"no fence behind the loop", "fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%d2], 1",
     "ld.relaxed.gpu.global.u32 %r5, [%d2]", "", false},
    {"a fence for the block", "fence.acq_rel.cta; st.relaxed.gpu.global.u32 [%d2], 1",
     "ld.acquire.gpu.global.u32 %r5, [%d2]", "", false},
    {"an acquire for the block", "st.release.gpu.global.u32 [%d2], 1",
     "ld.acquire.cta.global.u32 %r5, [%d2]", "", false},
    {"relaxed atomic operation", "atom.global.exch.b32 %r8, [%d2], 1",
     "ld.acquire.gpu.global.u32 %r5, [%d2]", "", false},
};

/* Runs a protocol for all seeds; returns how many gave a wrong result, and how many had races. */
static void try_protocol(const protocol *p, gpu_model model, int *wrong, int *racy) {
  char body[2000];
  snprintf(body, sizeof body, passing, p->send, p->receive, p->after);
  ptx_module *m = build(body, false);
  *wrong = *racy = 0;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    memory mem = {0};
    *racy += execute(m, &(setup){model, seed, 2, 32, 0}, &mem) != 0;
    *wrong += mem.result[0] != 83;
  }
  ptx_free(m);
}

Test(ptx_memory, messages_need_release_and_acquire) {
  for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++) {
    const protocol *p = &protocols[i];
    int wrong, racy;
    try_protocol(p, GPU_WEAK, &wrong, &racy);
    cr_expect(p->right ? !wrong : wrong, "weak, %s: %d wrong", p->name, wrong);
    try_protocol(p, GPU_RACES, &wrong, &racy);
    cr_expect(p->right ? !racy : racy == SEEDS, "races, %s: %d", p->name, racy);
    cr_expect(!wrong);
    try_protocol(p, GPU_PLAIN, &wrong, &racy);
    cr_expect(!wrong && !racy, "plain, %s", p->name);
  }
}

/* Threads exchange values within their block: %s is a barrier or nothing. */
static const char in_shared[] =
    "mul.wide.u32 %%d6, %%r1, 4; mov.u64 %%d7, s; add.s64 %%d8, %%d7, %%d6;\n"
    "st.shared.u32 [%%d8], %%r4;\n%s\nsub.u32 %%r5, %%r3, %%r1; sub.u32 %%r5, %%r5, 1;\n"
    "mul.wide.u32 %%d6, %%r5, 4; add.s64 %%d8, %%d7, %%d6; ld.shared.u32 %%r6, [%%d8];\n"
    "st.global.u32 [%%d5], %%r6;";
static const char in_global[] =
    "st.global.u32 [%%d5], %%r4;\n%s\nsub.u32 %%r5, %%r3, %%r1; sub.u32 %%r5, %%r5, 1;\n"
    "mad.lo.u32 %%r6, %%r2, %%r3, %%r5; mul.wide.u32 %%d6, %%r6, 4; add.s64 %%d8, %%d3, %%d6;\n"
    "ld.global.u32 %%r6, [%%d8]; bar.sync 1; st.global.u32 [%%d5], %%r6;";

Test(ptx_memory, barriers) {
  static const char *const bodies[] = {in_shared, in_global};
  for (int i = 0; i < 8; i++) {
    char body[2000];
    bool right = i & 1;
    gpu_model model = i & 2 ? GPU_RACES : GPU_WEAK;
    snprintf(body, sizeof body, bodies[i / 4], right ? "bar.sync 0;" : "");
    ptx_module *m = build(body, false);
    int wrong = 0, racy = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
      memory mem = {0};
      racy += execute(m, &(setup){model, seed, 2, 96, 0}, &mem) != 0;
      bool same = true;
      for (uint32_t t = 0; t < 192; t++)
        same = same && mem.result[t] == t / 96 * 96 + 95 - t % 96;
      wrong += !same;
    }
    if (right)
      cr_expect(!wrong && !racy, "%d: %d wrong, %d racy", i, wrong, racy);
    else
      cr_expect(model == GPU_WEAK ? wrong : racy == SEEDS, "%d: %d wrong, %d racy", i, wrong, racy);
    ptx_free(m);
  }
}

Test(ptx_memory, atomic_operations_count_exactly) {
  ptx_module *m = build("atom.global.add.u32 %r5, [%d1], 1; red.global.max.u32 [%d1+4], %r4; "
                        "red.global.or.b32 [%d1+8], %r4; atom.global.inc.u32 %r6, [%d1+12], 9;",
                        false);
  for (int i = 0; i < 30; i++) {
    memory mem = {0};
    uint64_t races = execute(m, &(setup){(gpu_model)(i % 3), (uint64_t)i, 4, 48, i % 4}, &mem);
    cr_expect_eq(races, 0);
    cr_expect_eq(mem.data[0], 192);
    cr_expect_eq(mem.data[1], 191);
    cr_expect_eq(mem.data[2], 255);
    cr_expect_eq(mem.data[3], 2); /* 192 modulo 10 */
  }
  ptx_free(m);
}

Test(ptx_memory, a_race_is_named) {
  ptx_module *m = build("\n\nst.global.u32 [%d1], %r4;\n", false);
  gpu_world *w = gpu_world_create(&(gpu_options){.model = GPU_RACES, .seed = 1});
  memory mem = {0};
  uint64_t params[3] = {(uint64_t)(uintptr_t)mem.data};
  gpu_launch launch = {
      .module = m, .kernel = m->kernels, .params = params, .grid = {1, 1, 1}, .block = {1, 1, 1}};
  gpu_run *first = must_start(w, &launch);
  launch.device = 1;
  gpu_run *second = must_start(w, &launch);
  cr_assert_eq(gpu_run_step(first, 1000), GPU_DONE);
  cr_assert_eq(gpu_run_step(second, 1000), GPU_DONE);
  const gpu_race *race = gpu_world_race(w, 0);
  cr_assert(race);
  cr_expect_eq(race->earlier.line, 12);
  cr_expect_eq(race->later.line, 12);
  cr_expect_eq(race->earlier.device + 2 * race->later.device, 2);
  cr_expect_eq(race->address, params[0]);
  char text[400];
  gpu_race_text(race, text, sizeof text);
  cr_expect(strstr(text, "kernel k line 12 (device 1, block 0, thread 0) writes"), "%s", text);
  gpu_run_destroy(first);
  gpu_run_destroy(second);
  cr_expect_eq(gpu_world_races(w), 1);
  gpu_run *third = must_start(w, &launch); /* comes after the others */
  gpu_run_step(third, 1000);
  gpu_run_destroy(third);
  cr_expect_eq(gpu_world_races(w), 1);
  gpu_world_destroy(w);
  ptx_free(m);
}

Test(ptx_memory, races_of_other_kernels_are_others) {
  /* On the same line. */
  ptx_module *m = must_parse(
      ".version 7.0\n"
      ".entry a(.param .u64 x) { .reg .b64 %d; ld.param.u64 %d, [x]; st.global.u32 [%d], 1; } "
      ".entry b(.param .u64 x) { .reg .b64 %d; ld.param.u64 %d, [x]; st.global.u32 [%d], 1; }",
      false);
  gpu_world *w = gpu_world_create(&(gpu_options){.model = GPU_RACES, .seed = 1});
  uint32_t data;
  uint64_t param = (uint64_t)(uintptr_t)&data;
  gpu_launch launch = {.module = m, .params = &param, .grid = {1, 1, 1}, .block = {1, 1, 1}};
  gpu_run *runs[4];
  for (int i = 0; i < 4; i++) { /* a, b, a, b */
    launch.kernel = &m->kernels[i % 2];
    runs[i] = must_start(w, &launch);
  }
  for (int i = 0; i < 4; i++) /* each writes after the one before */
    cr_assert_eq(gpu_run_step(runs[i], 1000), GPU_DONE);
  cr_expect_eq(gpu_world_races(w), 3);
  cr_assert_eq(gpu_world_races_told(w), 2);
  cr_expect_str_eq(gpu_world_race(w, 0)->later.kernel, "b");
  cr_expect_str_eq(gpu_world_race(w, 1)->later.kernel, "a");
  cr_expect_null(gpu_world_race(w, 2));
  for (int i = 0; i < 4; i++)
    gpu_run_destroy(runs[i]);
  gpu_world_destroy(w);
  ptx_free(m);
}

Test(ptx_memory, too_many_threads_for_the_race_detector) {
  ptx_module *m = build("", false);
  gpu_world *w = gpu_world_create(&(gpu_options){.model = GPU_RACES});
  const uint64_t params[3] = {0};
  const gpu_launch launch = {.module = m,
                             .kernel = m->kernels,
                             .params = params,
                             .grid = {(1 << 14) + 1, 1, 1},
                             .block = {1024, 1, 1}};
  gpu_fault fault;
  cr_expect_null(gpu_run_create(w, &launch, &fault));
  cr_expect(strstr(fault.message, "at most 16777216"), "%s", fault.message);
  gpu_world_destroy(w);
  ptx_free(m);
}

/* The fault that a body causes. */
static gpu_fault fault_of(const char *body, uint32_t threads) {
  ptx_module *m = build(body, false);
  memory mem = {0};
  gpu_world *w = gpu_world_create(&(gpu_options){.find = inside, .context = &mem});
  const uint64_t params[3] = {(uint64_t)(uintptr_t)mem.data, 0, (uint64_t)(uintptr_t)mem.result};
  const gpu_launch launch = {.module = m,
                             .kernel = m->kernels,
                             .params = params,
                             .grid = {1, 1, 1},
                             .block = {threads, 1, 1}};
  gpu_run *run = must_start(w, &launch);
  cr_assert_eq(gpu_run_step(run, 100000), GPU_FAULTED);
  gpu_fault fault = *gpu_run_fault(run);
  gpu_run_destroy(run);
  gpu_world_destroy(w);
  ptx_free(m);
  return fault;
}

Test(ptx_memory, faults) {
  gpu_fault f = fault_of("st.global.u32 [%d5+800], %r1;", 64); /* result ends after thread 55 */
  cr_expect_eq(f.kind, GPU_ILLEGAL_ADDRESS);
  cr_expect(f.place.thread >= 56 && f.place.line == 10, "%s", f.message);
  cr_expect_eq(fault_of("ld.u32 %r5, [%d2];", 1).kind, GPU_ILLEGAL_ADDRESS);
  cr_expect_eq(fault_of("ld.shared.u32 %r5, [s+1024];", 1).kind, GPU_ILLEGAL_ADDRESS);
  cr_expect_eq(fault_of("ld.param.u64 %d6, [result+8];", 1).kind, GPU_ILLEGAL_ADDRESS);
  cr_expect_eq(fault_of("ld.local.u32 %r5, [0];", 1).kind, GPU_ILLEGAL_ADDRESS);
  cr_expect_eq(fault_of("ld.global.v2.u32 {%r5, %r6}, [%d1+4];", 1).kind, GPU_MISALIGNED);
  cr_expect_eq(fault_of("st.global.u64 [-8], %d1;", 1).kind, GPU_ILLEGAL_ADDRESS);
  cr_expect_eq(fault_of("trap;", 1).kind, GPU_TRAP);
  f = fault_of("setp.lt.u32 %p1, %r1, 32; @%p1 bra A; bar.sync 1; ret; A: bar.sync 0;", 64);
  cr_expect_eq(f.kind, GPU_DEADLOCK, "%s", f.message);
}

Test(ptx_memory, wide_accesses_tear_only_if_split) {
  static const char body[] =
      "setp.eq.u32 %p1, %r2, 1; mov.u32 %r5, 0; @%p1 bra READ;\n"
      "WRITE: add.u32 %r5, %r5, 1; st.volatile.global.v4.u32 [%d1], {%r5, %r5, %r5, %r5};\n"
      "setp.lt.u32 %p2, %r5, 200; @%p2 bra WRITE; ret;\n"
      "READ: add.u32 %r5, %r5, 1; ld.volatile.global.v4.u32 {%r6, %r7, %r8, %r9}, [%d1];\n"
      "setp.ne.u32 %p3, %r6, %r9; @%p3 st.global.u32 [%d3], 1;\n"
      "setp.lt.u32 %p2, %r5, 200; @%p2 bra READ;";
  for (int split = 0; split < 2; split++) {
    ptx_module *m = build(body, split);
    int torn = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
      memory mem = {0};
      execute(m, &(setup){GPU_WEAK, seed, 2, 1, 0}, &mem);
      torn += mem.result[0] != 0;
    }
    cr_expect_eq(torn != 0, split != 0, "split %d: %d torn", split, torn);
    ptx_free(m);
  }
}

/* Block 0 waits for block 1. */
Test(ptx_memory, resident_blocks) {
  static const char body[] =
      "setp.eq.u32 %p1, %r2, 1; @%p1 bra SET;\n"
      "WAIT: ld.acquire.gpu.global.u32 %r5, [%d2]; setp.eq.u32 %p2, %r5, 0; @%p2 bra WAIT; ret;\n"
      "SET: st.release.gpu.global.u32 [%d2], 1;";
  ptx_module *m = build(body, false);
  for (int resident = 0; resident < 3; resident++) {
    memory mem = {0};
    gpu_world *w = gpu_world_create(&(gpu_options){.seed = 3});
    const uint64_t params[3] = {0, (uint64_t)(uintptr_t)mem.flag, 0};
    const gpu_launch launch = {.module = m,
                               .kernel = m->kernels,
                               .params = params,
                               .grid = {2, 1, 1},
                               .block = {64, 1, 1},
                               .resident = resident};
    gpu_run *run = must_start(w, &launch);
    cr_expect_eq(gpu_run_step(run, 100000), resident == 1 ? GPU_RUNNING : GPU_DONE);
    mem.flag[0] = 1; /* the host can end the wait as well */
    cr_expect_eq(gpu_run_step(run, 100000), GPU_DONE);
    gpu_run_destroy(run);
    gpu_world_destroy(w);
  }
  ptx_free(m);
}

Test(ptx_memory, shuffles) {
  ptx_module *m = build("shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1; shfl.sync.down.b32 %r6|%p1, %r1, "
                        "16, 31, -1; shfl.sync.idx.b32 %r7, %r1, 3, 31, -1;"
                        "mad.lo.u32 %r5, %r6, 100, %r5; mad.lo.u32 %r5, %r7, 10000, %r5;"
                        "st.global.u32 [%d5], %r5;",
                        false);
  memory mem = {0};
  execute(m, &(setup){GPU_PLAIN, 1, 1, 32, 0}, &mem);
  for (uint32_t t = 0; t < 32; t++)
    cr_expect_eq(mem.result[t], (t ^ 1) + 100 * (t < 16 ? t + 16 : t) + 30000);
  ptx_free(m);
}
