/* support_fiber.c: ranks that make blocking calls, each on its own stack, in one thread. */
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "sanitized.h"
#include "support_world.h"

#if SANITIZED_ADDRESS
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif

#define STACK_BYTES ((size_t)128 * 1024)

typedef struct fiber {
  ucontext_t context;
  char *stack;
  void *fake; /* the sanitizer's own notes on the stack */
  struct fibers *all;
  int rank;
  int result;
  bool started, ended;
  bool moved; /* since it was last resumed */
} fiber;

struct fibers {
  world *world;
  ucontext_t driver;
  void *driver_fake;
  const void *driver_stack;
  size_t driver_bytes;
  fiber *fiber;   /* nranks of them */
  fiber *current; /* NULL while the driver runs */
  world_fn fn;
  void *arg;
};

/* Tell the sanitizer that a switch of stacks begins, and that it is done. */
static void leave_stack(void **fake, const void *stack, size_t bytes) {
#if SANITIZED_ADDRESS
  __sanitizer_start_switch_fiber(fake, stack, bytes);
#else
  (void)fake, (void)stack, (void)bytes;
#endif
}

static void enter_stack(void *fake, const void **stack, size_t *bytes) {
#if SANITIZED_ADDRESS
  __sanitizer_finish_switch_fiber(fake, stack, bytes);
#else
  (void)fake, (void)stack, (void)bytes;
#endif
}

/* Tells the sanitizer that a rank which will be struck has its turn, or no longer: its call never
 * returns, and what that has allocated is lost. */
static void expect_leaks(const fiber *f, bool begin) {
#if SANITIZED_ADDRESS
  if (f->all->world->doomed[f->rank])
    (begin ? __lsan_disable : __lsan_enable)();
#else
  (void)f, (void)begin;
#endif
}

/* Switches to the driver; never to return if `last`. */
static void to_driver(fiber *f, bool last) {
  struct fibers *all = f->all;
  all->current = NULL;
  leave_stack(last ? NULL : &f->fake, all->driver_stack, all->driver_bytes);
  swapcontext(&f->context, &all->driver);
  enter_stack(f->fake, &all->driver_stack, &all->driver_bytes);
}

/* The first function on a fiber's stack; its address comes in two halves, as makecontext wants. */
static void fiber_main(unsigned high, unsigned low) {
  fiber *f = (fiber *)((uintptr_t)high << 32 | low);
  struct fibers *all = f->all;
  enter_stack(NULL, &all->driver_stack, &all->driver_bytes);
  f->result = all->fn(all->world->comms[f->rank], f->rank, all->world->nranks, all->arg);
  f->ended = f->moved = true;
  to_driver(f, true);
}

bool world_pause(void *ctx, bool moved) {
  struct fibers *all = ((world *)ctx)->fibers;
  if (!all || !all->current)
    return false;
  all->current->moved |= moved;
  to_driver(all->current, false);
  return true;
}

/* Prepares a fiber for its first resumption. */
static bool prepare_fiber(fiber *f) {
  uintptr_t at = (uintptr_t)f;
  f->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (f->stack == MAP_FAILED || getcontext(&f->context) != 0)
    return false;
  f->context.uc_stack.ss_sp = f->stack;
  f->context.uc_stack.ss_size = STACK_BYTES;
  f->context.uc_link = NULL;
  makecontext(&f->context, (void (*)(void))fiber_main, 2, (unsigned)(at >> 32), (unsigned)at);
  return true;
}

/* A rank's turn: runs it until it waits. */
static bool resume_fiber(void *ctx, int rank) {
  struct fibers *all = ctx;
  fiber *f = &all->fiber[rank];
  if (f->ended || !f->stack)
    return false;
  f->moved = false;
  all->current = f;
  expect_leaks(f, true);
  leave_stack(&all->driver_fake, f->stack, STACK_BYTES);
  swapcontext(&all->driver, &f->context);
  enter_stack(all->driver_fake, NULL, NULL);
  expect_leaks(f, false);
  return f->moved;
}

static bool fiber_done(void *ctx, int rank) {
  return ((struct fibers *)ctx)->fiber[rank].ended;
}

bool world_run_fibers(world *w, world_fn fn, void *arg, uint64_t limit_ns) {
  struct fibers all = {.world = w, .fn = fn, .arg = arg};
  all.fiber = calloc((size_t)w->nranks, sizeof(*all.fiber));
  bool ok = all.fiber != NULL;
  for (int rank = 0; ok && rank < w->nranks; rank++) {
    all.fiber[rank].all = &all;
    all.fiber[rank].rank = rank;
    ok = prepare_fiber(&all.fiber[rank]);
  }
  w->fibers = &all;
  ok = ok && world_run(w, resume_fiber, fiber_done, &all, limit_ns);
  w->fibers = NULL;
  for (int rank = 0; all.fiber && rank < w->nranks; rank++) {
    ok &= all.fiber[rank].ended && all.fiber[rank].result == 0;
    if (all.fiber[rank].stack)
      munmap(all.fiber[rank].stack, STACK_BYTES);
  }
  free(all.fiber);
  return ok;
}
