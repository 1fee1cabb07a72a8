/* libcoll's own threads. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>

#include "libcoll/base/thread.h"

/* What a thread finds. */
typedef struct finding {
  size_t stack_bytes;
  int signal_blocked;
} finding;

static void *look(void *arg) {
  finding *found = arg;
  pthread_attr_t attr;
  sigset_t blocked;
  pthread_getattr_np(pthread_self(), &attr);
  pthread_attr_getstacksize(&attr, &found->stack_bytes);
  pthread_attr_destroy(&attr);
  pthread_sigmask(SIG_BLOCK, NULL, &blocked);
  found->signal_blocked = sigismember(&blocked, SIGTERM);
  return NULL;
}

static finding start(size_t stack_bytes) {
  finding found = {0};
  pthread_t thread;
  cr_assert_eq(colli_thread_start(&thread, stack_bytes, look, &found), 0);
  pthread_join(thread, NULL);
  return found;
}

/* As with musl, where the progress thread called functions of the program on 128 KiB. */
Test(thread, stack_is_large_enough_where_the_default_is_small) {
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, 128 << 10);
  cr_assert_eq(pthread_setattr_default_np(&attr), 0);
  pthread_attr_destroy(&attr);
  cr_assert_geq(start(0).stack_bytes, COLLI_THREAD_STACK_LEAST);
}

Test(thread, stack_can_be_small) {
  cr_assert_lt(start(256 << 10).stack_bytes, COLLI_THREAD_STACK_LEAST);
}

Test(thread, signals_are_blocked) {
  cr_assert_eq(start(0).signal_blocked, 1);
  sigset_t mine;
  pthread_sigmask(SIG_BLOCK, NULL, &mine);
  cr_assert_eq(sigismember(&mine, SIGTERM), 0);
}
