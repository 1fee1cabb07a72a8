/*
 * support_shortage.h: system calls and allocations of the library that fail on purpose. A program
 * that uses this is linked with --wrap for each name of SHORTAGE_CALLS, so only calls of code that
 * is linked statically fail, not those within libc.
 */
#ifndef TESTS_SUPPORT_SHORTAGE_H
#define TESTS_SUPPORT_SHORTAGE_H

#include <stdbool.h>

/* Calls that may fail, with the errno. */
#define SHORTAGE_CALLS(CALL)                                                                       \
  CALL(socket, EMFILE)                                                                             \
  CALL(bind, ENOMEM)                                                                               \
  CALL(listen, ENOMEM)                                                                             \
  CALL(accept4, EMFILE)                                                                            \
  CALL(connect, ENOMEM)                                                                            \
  CALL(getsockopt, ENOBUFS)                                                                        \
  CALL(setsockopt, ENOBUFS)                                                                        \
  CALL(getsockname, ENOBUFS)                                                                       \
  CALL(getpeername, ENOBUFS)                                                                       \
  CALL(getifaddrs, EMFILE)                                                                         \
  CALL(getrandom, ENOSYS)                                                                          \
  CALL(epoll_create1, EMFILE)                                                                      \
  CALL(epoll_ctl, ENOMEM)                                                                          \
  CALL(epoll_wait, EINTR)                                                                          \
  CALL(eventfd, EMFILE)                                                                            \
  CALL(poll, ENOMEM)                                                                               \
  CALL(send, ENOBUFS)                                                                              \
  CALL(recv, ENOMEM)                                                                               \
  CALL(sendmsg, ENOMEM)                                                                            \
  CALL(recvmsg, ENOMEM)                                                                            \
  CALL(malloc, ENOMEM)                                                                             \
  CALL(calloc, ENOMEM)                                                                             \
  CALL(realloc, ENOMEM)                                                                            \
  CALL(aligned_alloc, ENOMEM)                                                                      \
  CALL(HMAC, ENOMEM)

#define SHORTAGE_ENUM(name, error) SHORTAGE_##name,
typedef enum shortage_call { SHORTAGE_CALLS(SHORTAGE_ENUM) SHORTAGE_COUNT } shortage_call;
#undef SHORTAGE_ENUM

const char *shortage_name(shortage_call call);

/* From now on in this process the `nth` such call fails, and with `for_good` all after it.
 * sys_errno: why; 0: as in the table. */
void shortage_begin(shortage_call call, int nth, bool for_good, int sys_errno);

/* From now on each call of any kind fails with a probability of 1 to `odds`. */
void shortage_begin_random(unsigned long long seed, unsigned odds);

/* All is well again. Returns how many calls have failed. */
int shortage_end(void);

#endif
