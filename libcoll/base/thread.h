/* thread.h: starting libcoll's own threads. */
#ifndef COLLI_BASE_THREAD_H
#define COLLI_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* What functions of the program or of other libraries, called in a thread of libcoll, can rely on.
   Some C libraries have less by default: musl 128 KiB. */
#define COLLI_THREAD_STACK_LEAST ((size_t)1 << 20)

/*
 * Starts a thread with all signals blocked, since signals belong to the program. stack_bytes: the
 * size of its stack; 0: the default, but no less than COLLI_THREAD_STACK_LEAST. 0 or an errno.
 */
int colli_thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *), void *arg);

#endif
