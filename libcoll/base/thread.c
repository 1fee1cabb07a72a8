/* thread.c: starting threads. */
#include "libcoll/base/thread.h"

#include <signal.h>

/* Chooses the size of the stack. What is refused leaves the default, which may do. */
static void set_stack(pthread_attr_t *attr, size_t bytes) {
  size_t usual;
  if (bytes == 0 && pthread_attr_getstacksize(attr, &usual) == 0 &&
      usual < COLLI_THREAD_STACK_LEAST)
    bytes = COLLI_THREAD_STACK_LEAST;
  if (bytes)
    (void)pthread_attr_setstacksize(attr, bytes);
}

int colli_thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *), void *arg) {
  sigset_t all, before;
  pthread_attr_t attr;
  int failed = pthread_attr_init(&attr);
  if (failed)
    return failed;
  set_stack(&attr, stack_bytes);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  failed = pthread_create(thread, &attr, run, arg);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attr);
  return failed;
}
