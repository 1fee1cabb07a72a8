/*
 * support_shortage.h: system calls, allocations and other calls of the library that fail on
 * purpose. A program that uses this is linked with --wrap for each name of SHORTAGE_CALLS and of
 * support_leaks.h, so only calls of code that is linked statically fail, not those within libc.
 * OPENSSL_malloc is no such call, but each allocation of OpenSSL.
 *
 * The script doors_shortage_calls checks that every call of the library to something outside is
 * here, or in shortage_left_out.txt, with the reason.
 */
#ifndef TESTS_SUPPORT_SHORTAGE_H
#define TESTS_SUPPORT_SHORTAGE_H

#include <stdbool.h>

/* Calls that may fail, with the errno. */
#define SHORTAGE_CALLS(CALL)                                                                       \
  /* sockets */                                                                                    \
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
  CALL(getaddrinfo, ENOMEM)                                                                        \
  CALL(send, ENOBUFS)                                                                              \
  CALL(recv, ENOMEM)                                                                               \
  CALL(sendmsg, ENOMEM)                                                                            \
  CALL(recvmsg, ENOMEM)                                                                            \
  /* waiting */                                                                                    \
  CALL(epoll_create1, EMFILE)                                                                      \
  CALL(epoll_ctl, ENOMEM)                                                                          \
  CALL(epoll_wait, EINTR)                                                                          \
  CALL(eventfd, EMFILE)                                                                            \
  CALL(eventfd_read, ENOMEM)                                                                       \
  CALL(eventfd_write, ENOMEM)                                                                      \
  CALL(poll, ENOMEM)                                                                               \
  CALL(ppoll, ENOMEM)                                                                              \
  /* files and descriptors */                                                                      \
  CALL(open, EMFILE)                                                                               \
  CALL(openat, EMFILE)                                                                             \
  CALL(opendir, EMFILE)                                                                            \
  CALL(fdopendir, ENOMEM)                                                                          \
  CALL(readdir, ENOMEM)                                                                            \
  CALL(fopen, EMFILE)                                                                              \
  CALL(fdopen, ENOMEM)                                                                             \
  CALL(fgets, ENOMEM)                                                                              \
  CALL(fwrite, ENOSPC)                                                                             \
  CALL(read, ENOMEM)                                                                               \
  CALL(readv, ENOMEM)                                                                              \
  CALL(pread, EIO)                                                                                 \
  CALL(write, ENOMEM)                                                                              \
  CALL(fcntl, ENOMEM)                                                                              \
  CALL(ioctl, ENOMEM)                                                                              \
  CALL(access, ENOMEM)                                                                             \
  CALL(stat, ENOMEM)                                                                               \
  CALL(fstat, ENOMEM)                                                                              \
  CALL(fstatat, ENOMEM)                                                                            \
  CALL(fstatvfs, ENOMEM)                                                                           \
  CALL(readlinkat, ENOMEM)                                                                         \
  CALL(realpath, ENOMEM)                                                                           \
  CALL(mkdir, ENOSPC)                                                                              \
  CALL(mkostemp, EMFILE)                                                                           \
  CALL(rename, ENOSPC)                                                                             \
  CALL(unlink, ENOMEM)                                                                             \
  CALL(fchmod, EROFS)                                                                              \
  CALL(memfd_create, EMFILE)                                                                       \
  CALL(ftruncate, ENOMEM)                                                                          \
  CALL(fallocate, ENOSPC)                                                                          \
  CALL(posix_fallocate, ENOSPC)                                                                    \
  /* memory */                                                                                     \
  CALL(malloc, ENOMEM)                                                                             \
  CALL(calloc, ENOMEM)                                                                             \
  CALL(realloc, ENOMEM)                                                                            \
  CALL(aligned_alloc, ENOMEM)                                                                      \
  CALL(strdup, ENOMEM)                                                                             \
  CALL(mmap, ENOMEM)                                                                               \
  CALL(mprotect, ENOMEM)                                                                           \
  CALL(madvise, EAGAIN)                                                                            \
  /* threads, processors, the machine */                                                           \
  CALL(pthread_create, EAGAIN)                                                                     \
  CALL(pthread_attr_init, ENOMEM)                                                                  \
  CALL(pthread_mutex_init, ENOMEM)                                                                 \
  CALL(pthread_cond_init, ENOMEM)                                                                  \
  CALL(pthread_condattr_init, ENOMEM)                                                              \
  CALL(pthread_atfork, ENOMEM)                                                                     \
  CALL(sched_getaffinity, ENOMEM)                                                                  \
  CALL(sched_setaffinity, ENOMEM)                                                                  \
  CALL(syscall, ENOMEM)                                                                            \
  CALL(sysconf, ENOMEM)                                                                            \
  CALL(prctl, ENOMEM)                                                                              \
  CALL(getrandom, ENOSYS)                                                                          \
  CALL(gethostname, ENOMEM)                                                                        \
  CALL(uname, ENOMEM)                                                                              \
  CALL(getcpu, ENOMEM)                                                                             \
  CALL(getrlimit, ENOMEM)                                                                          \
  CALL(dlopen, ENOMEM)                                                                             \
  CALL(hwloc_topology_init, ENOMEM)                                                                \
  CALL(hwloc_topology_load, ENOMEM)                                                                \
  CALL(hwloc_distances_get_by_name, ENOMEM)                                                        \
  CALL(hwloc_bitmap_alloc, ENOMEM)                                                                 \
  CALL(hwloc_bitmap_dup, ENOMEM)                                                                   \
  CALL(hwloc_get_cpubind, ENOMEM)                                                                  \
  CALL(hwloc_topology_export_xmlbuffer, ENOMEM)                                                    \
  /* OpenSSL */                                                                                    \
  CALL(OPENSSL_malloc, ENOMEM)                                                                     \
  CALL(HMAC, ENOMEM)                                                                               \
  CALL(EVP_CIPHER_CTX_new, ENOMEM)                                                                 \
  CALL(EVP_EncryptInit_ex, ENOMEM)                                                                 \
  CALL(EVP_DecryptInit_ex, ENOMEM)                                                                 \
  CALL(EVP_EncryptUpdate, ENOMEM)                                                                  \
  CALL(EVP_DecryptUpdate, ENOMEM)                                                                  \
  CALL(BIO_new, ENOMEM)                                                                            \
  CALL(BIO_meth_new, ENOMEM)                                                                       \
  CALL(SSL_CTX_new, ENOMEM)                                                                        \
  CALL(SSL_new, ENOMEM)                                                                            \
  CALL(SSL_SESSION_new, ENOMEM)                                                                    \
  CALL(SSL_SESSION_set1_master_key, ENOMEM)                                                        \
  CALL(SSL_set_ex_data, ENOMEM)

#define SHORTAGE_ENUM(name, error) SHORTAGE_##name,
typedef enum shortage_call { SHORTAGE_CALLS(SHORTAGE_ENUM) SHORTAGE_COUNT } shortage_call;
#undef SHORTAGE_ENUM

const char *shortage_name(shortage_call call);

/* From now on in this process the `nth` such call fails, and with `for_good` all after it; none if
 * nth is 0. sys_errno: why; 0: as in the table. */
void shortage_begin(shortage_call call, int nth, bool for_good, int sys_errno);

/* From now on each call of any kind fails with a probability of 1 to `odds`. */
void shortage_begin_random(unsigned long long seed, unsigned odds);

/* All is well again. Returns how many calls have failed. */
int shortage_end(void);

/* How many such calls there were between the two. */
int shortage_seen(shortage_call call);

/* Whether this call fails; sets errno if so. For support_shortage_calls.c. */
bool shortage_strikes(shortage_call call, int sys_errno);

#endif
