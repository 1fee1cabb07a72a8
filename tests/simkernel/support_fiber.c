/* support_fiber.c: stacks on which ranks run, in one thread. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "sanitized.h"
#include "support_machine.h"

#if SANITIZED_ADDRESS
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif

#define STACK_BYTES ((size_t)1024 * 1024) /* the kernel gives what is used of it */
#define GUARD_BYTES ((size_t)64 * 1024)

/* swapcontext() makes two system calls, jumps make none; but the sanitizer follows only the former.
 */
typedef struct sk_fiber {
  ucontext_t context;
  jmp_buf place;
  char *stack;
  void *fake; /* the sanitizer's notes on the stack */
  bool started;
  void (*fn)(void *);
  void *arg;
} sk_fiber;

static struct {
  ucontext_t context;
  jmp_buf place;
  void *fake;
  const void *stack;
  size_t bytes;
  sk_fiber *current;
} driver;

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

/* The first function on a stack; its address comes in two halves, as makecontext wants. */
static void fiber_main(unsigned high, unsigned low) {
  sk_fiber *f = (sk_fiber *)((uintptr_t)high << 32 | low);
  enter_stack(NULL, &driver.stack, &driver.bytes);
  f->fn(f->arg);
  sk_fiber_leave(true);
}

sk_fiber *sk_fiber_create(void (*fn)(void *), void *arg) {
  sk_fiber *f = calloc(1, sizeof(*f));
  if (!f)
    abort();
  uintptr_t at = (uintptr_t)f;
  f->fn = fn;
  f->arg = arg;
  f->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (f->stack == MAP_FAILED || mprotect(f->stack, GUARD_BYTES, PROT_NONE) != 0 ||
      getcontext(&f->context) != 0) {
    perror("stack of a rank");
    abort();
  }
  f->context.uc_stack.ss_sp = f->stack;
  f->context.uc_stack.ss_size = STACK_BYTES;
  makecontext(&f->context, (void (*)(void))fiber_main, 2, (unsigned)(at >> 32), (unsigned)at);
  return f;
}

void sk_fiber_free(sk_fiber *f) {
  if (!f)
    return;
  munmap(f->stack, STACK_BYTES);
  free(f);
}

void sk_fiber_resume(sk_fiber *f) {
  driver.current = f;
  leave_stack(&driver.fake, f->stack, STACK_BYTES);
  if (SANITIZED_ADDRESS || !f->started) {
    f->started = true;
    if (SANITIZED_ADDRESS || _setjmp(driver.place) == 0)
      swapcontext(&driver.context, &f->context);
  } else if (_setjmp(driver.place) == 0) {
    _longjmp(f->place, 1);
  }
  enter_stack(driver.fake, NULL, NULL);
}

void sk_fiber_leave(bool last) {
  sk_fiber *f = driver.current;
  driver.current = NULL;
  leave_stack(last ? NULL : &f->fake, driver.stack, driver.bytes);
  if (SANITIZED_ADDRESS)
    swapcontext(&f->context, &driver.context);
  else if (_setjmp(f->place) == 0)
    _longjmp(driver.place, 1);
  enter_stack(f->fake, &driver.stack, &driver.bytes);
}
