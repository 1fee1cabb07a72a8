/* support_shortage_calls.c: the calls that fail, and those that give something back. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <hwloc.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "support_leaks.h"
#include "support_shortage.h"

#define HERE __builtin_return_address(0)

/* A call that returns `failure` if it fails. */
#define WRAP(result, name, sys_errno, failure, params, args)                                       \
  result __real_##name params;                                                                     \
  result __wrap_##name params;                                                                     \
  result __wrap_##name params {                                                                    \
    return shortage_strikes(SHORTAGE_##name, sys_errno) ? failure : __real_##name args;            \
  }

/* The same, of one that returns something that must be given back, or NULL. */
#define WRAP_MAKER(result, name, sys_errno, params, args)                                          \
  result __real_##name params;                                                                     \
  result __wrap_##name params;                                                                     \
  result __wrap_##name params {                                                                    \
    return shortage_strikes(SHORTAGE_##name, sys_errno) ? NULL                                     \
                                                        : leaks_made(__real_##name args, HERE);    \
  }

/* The same, of one that stores it in *made, and returns 0 or `failure`. */
#define WRAP_STORER(name, sys_errno, failure, made, params, args)                                  \
  int __real_##name params;                                                                        \
  int __wrap_##name params;                                                                        \
  int __wrap_##name params {                                                                       \
    if (shortage_strikes(SHORTAGE_##name, sys_errno))                                              \
      return failure;                                                                              \
    int status = __real_##name args;                                                               \
    if (status == 0)                                                                               \
      leaks_made(*made, HERE);                                                                     \
    return status;                                                                                 \
  }

#define WRAP_GIVER(name, params, args)                                                             \
  void __real_##name params;                                                                       \
  void __wrap_##name params;                                                                       \
  void __wrap_##name params {                                                                      \
    leaks_given_back(p);                                                                           \
    __real_##name args;                                                                            \
  }

/* ---- sockets --------------------------------------------------------------------------------- */

WRAP(int, socket, EMFILE, -1, (int a, int b, int c), (a, b, c))
WRAP(int, bind, ENOMEM, -1, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
WRAP(int, listen, ENOMEM, -1, (int fd, int n), (fd, n))
WRAP(int, accept4, EMFILE, -1, (int fd, struct sockaddr *a, socklen_t *n, int f), (fd, a, n, f))
WRAP(int, connect, ENOMEM, -1, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
WRAP(int, getsockopt, ENOBUFS, -1, (int fd, int l, int o, void *v, socklen_t *n), (fd, l, o, v, n))
WRAP(int, setsockopt, ENOBUFS, -1, (int fd, int l, int o, const void *v, socklen_t n),
     (fd, l, o, v, n))
WRAP(int, getsockname, ENOBUFS, -1, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n))
WRAP(int, getpeername, ENOBUFS, -1, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n))
WRAP_STORER(getifaddrs, EMFILE, -1, list, (struct ifaddrs * *list), (list))
WRAP_STORER(getaddrinfo, ENOMEM, EAI_MEMORY, r,
            (const char *n, const char *s, const struct addrinfo *h, struct addrinfo **r),
            (n, s, h, r))
WRAP(ssize_t, send, ENOBUFS, -1, (int fd, const void *p, size_t n, int f), (fd, p, n, f))
WRAP(ssize_t, recv, ENOMEM, -1, (int fd, void *p, size_t n, int f), (fd, p, n, f))
WRAP(ssize_t, sendmsg, ENOMEM, -1, (int fd, const struct msghdr *m, int f), (fd, m, f))
WRAP(ssize_t, recvmsg, ENOMEM, -1, (int fd, struct msghdr *m, int f), (fd, m, f))

/* ---- waiting --------------------------------------------------------------------------------- */

WRAP(int, epoll_create1, EMFILE, -1, (int f), (f))
WRAP(int, epoll_ctl, ENOMEM, -1, (int e, int o, int fd, struct epoll_event *v), (e, o, fd, v))
WRAP(int, epoll_wait, EINTR, -1, (int e, struct epoll_event *v, int n, int ms), (e, v, n, ms))
WRAP(int, eventfd, EMFILE, -1, (unsigned n, int f), (n, f))
WRAP(int, eventfd_read, ENOMEM, -1, (int fd, eventfd_t *v), (fd, v))
WRAP(int, eventfd_write, ENOMEM, -1, (int fd, eventfd_t v), (fd, v))
WRAP(int, poll, ENOMEM, -1, (struct pollfd * p, nfds_t n, int ms), (p, n, ms))
WRAP(int, ppoll, ENOMEM, -1,
     (struct pollfd * p, nfds_t n, const struct timespec *t, const sigset_t *s), (p, n, t, s))

/* ---- files and descriptors ------------------------------------------------------------------- */

/* A call with arguments that some uses lack: it gets whatever stands there, which those ignore. */
#define WRAP_OPEN(result, name, sys_errno, params, last, args)                                     \
  result __real_##name params;                                                                     \
  result __wrap_##name params;                                                                     \
  result __wrap_##name params {                                                                    \
    va_list list;                                                                                  \
    va_start(list, last);                                                                          \
    long a = va_arg(list, long);                                                                   \
    va_end(list);                                                                                  \
    return shortage_strikes(SHORTAGE_##name, sys_errno) ? -1 : __real_##name args;                 \
  }

WRAP_OPEN(int, open, EMFILE, (const char *path, int f, ...), f, (path, f, a))
WRAP_OPEN(int, openat, EMFILE, (int fd, const char *path, int f, ...), f, (fd, path, f, a))
WRAP_OPEN(int, fcntl, ENOMEM, (int fd, int what, ...), what, (fd, what, a))
WRAP_OPEN(int, ioctl, ENOMEM, (int fd, unsigned long what, ...), what, (fd, what, a))
WRAP(DIR *, opendir, EMFILE, NULL, (const char *path), (path))
WRAP(DIR *, fdopendir, ENOMEM, NULL, (int fd), (fd))
WRAP(struct dirent *, readdir, ENOMEM, NULL, (DIR * d), (d))
WRAP(FILE *, fopen, EMFILE, NULL, (const char *path, const char *mode), (path, mode))
WRAP(FILE *, fdopen, ENOMEM, NULL, (int fd, const char *mode), (fd, mode))
WRAP(char *, fgets, ENOMEM, NULL, (char *p, int n, FILE *f), (p, n, f))
WRAP(size_t, fwrite, ENOSPC, 0, (const void *p, size_t n, size_t m, FILE *f), (p, n, m, f))
WRAP(ssize_t, read, ENOMEM, -1, (int fd, void *p, size_t n), (fd, p, n))
WRAP(ssize_t, readv, ENOMEM, -1, (int fd, const struct iovec *v, int n), (fd, v, n))
WRAP(ssize_t, pread, EIO, -1, (int fd, void *p, size_t n, off_t at), (fd, p, n, at))
WRAP(ssize_t, write, ENOMEM, -1, (int fd, const void *p, size_t n), (fd, p, n))
WRAP(int, access, ENOMEM, -1, (const char *path, int mode), (path, mode))
WRAP(int, stat, ENOMEM, -1, (const char *path, struct stat *s), (path, s))
WRAP(int, fstat, ENOMEM, -1, (int fd, struct stat *s), (fd, s))
WRAP(int, fstatat, ENOMEM, -1, (int fd, const char *path, struct stat *s, int f), (fd, path, s, f))
WRAP(int, fstatvfs, ENOMEM, -1, (int fd, struct statvfs *s), (fd, s))
WRAP(ssize_t, readlinkat, ENOMEM, -1, (int fd, const char *path, char *p, size_t n),
     (fd, path, p, n))
WRAP_MAKER(char *, realpath, ENOMEM, (const char *path, char *p), (path, p))
WRAP(int, mkdir, ENOSPC, -1, (const char *path, mode_t mode), (path, mode))
WRAP(int, mkostemp, EMFILE, -1, (char *path, int f), (path, f))
WRAP(int, rename, ENOSPC, -1, (const char *from, const char *to), (from, to))
WRAP(int, unlink, ENOMEM, -1, (const char *path), (path))
WRAP(int, fchmod, EROFS, -1, (int fd, mode_t mode), (fd, mode))
WRAP(int, memfd_create, EMFILE, -1, (const char *name, unsigned f), (name, f))
WRAP(int, ftruncate, ENOMEM, -1, (int fd, off_t n), (fd, n))
WRAP(int, fallocate, ENOSPC, -1, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))
WRAP(int, posix_fallocate, ENOSPC, ENOSPC, (int fd, off_t at, off_t n), (fd, at, n))

/* ---- memory ---------------------------------------------------------------------------------- */

WRAP_MAKER(void *, malloc, ENOMEM, (size_t n), (n))
WRAP_MAKER(void *, calloc, ENOMEM, (size_t n, size_t m), (n, m))
WRAP_MAKER(void *, aligned_alloc, ENOMEM, (size_t a, size_t n), (a, n))
WRAP_MAKER(char *, strdup, ENOMEM, (const char *text), (text))
WRAP(int, mprotect, ENOMEM, -1, (void *p, size_t n, int prot), (p, n, prot))
WRAP(int, madvise, EAGAIN, -1, (void *p, size_t n, int what), (p, n, what))

void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n) {
  if (shortage_strikes(SHORTAGE_realloc, ENOMEM))
    return NULL;
  leaks_given_back(p);
  return leaks_made(__real_realloc(p, n), HERE);
}

void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
  void *p = MAP_FAILED;
  if (!shortage_strikes(SHORTAGE_mmap, ENOMEM))
    p = __real_mmap(at, n, prot, flags, fd, offset);
  if (p != MAP_FAILED && !(flags & MAP_FIXED))
    leaks_made(p, HERE);
  return p;
}

int __real_munmap(void *p, size_t n);
int __wrap_munmap(void *p, size_t n);
int __wrap_munmap(void *p, size_t n) {
  leaks_given_back(p);
  return __real_munmap(p, n);
}

LEAK_CALLS(WRAP_GIVER)

/* ---- threads, processors, the machine -------------------------------------------------------- */

WRAP(int, pthread_create, EAGAIN, EAGAIN,
     (pthread_t * t, const pthread_attr_t *a, void *(*run)(void *), void *arg), (t, a, run, arg))
WRAP(int, pthread_attr_init, ENOMEM, ENOMEM, (pthread_attr_t * a), (a))
WRAP(int, pthread_mutex_init, ENOMEM, ENOMEM, (pthread_mutex_t * m, const pthread_mutexattr_t *a),
     (m, a))
WRAP(int, pthread_cond_init, ENOMEM, ENOMEM, (pthread_cond_t * c, const pthread_condattr_t *a),
     (c, a))
WRAP(int, pthread_condattr_init, ENOMEM, ENOMEM, (pthread_condattr_t * a), (a))
WRAP(int, pthread_atfork, ENOMEM, ENOMEM, (void (*a)(void), void (*b)(void), void (*c)(void)),
     (a, b, c))
WRAP(int, sched_getaffinity, ENOMEM, -1, (pid_t pid, size_t n, cpu_set_t *set), (pid, n, set))
WRAP(int, sched_setaffinity, ENOMEM, -1, (pid_t pid, size_t n, const cpu_set_t *set), (pid, n, set))
WRAP(ssize_t, getrandom, ENOSYS, -1, (void *p, size_t n, unsigned f), (p, n, f))
WRAP(int, gethostname, ENOMEM, -1, (char *p, size_t n), (p, n))
WRAP(int, uname, ENOMEM, -1, (struct utsname * u), (u))
WRAP(int, getcpu, ENOMEM, -1, (unsigned *cpu, unsigned *node), (cpu, node))
WRAP(int, getrlimit, ENOMEM, -1, (__rlimit_resource_t what, struct rlimit *l), (what, l))
WRAP(void *, dlopen, ENOMEM, NULL, (const char *path, int f), (path, f))

/* The size of a page never fails. */
long __real_sysconf(int name);
long __wrap_sysconf(int name);
long __wrap_sysconf(int name) {
  const bool fails = name != _SC_PAGESIZE && shortage_strikes(SHORTAGE_sysconf, ENOMEM);
  return fails ? -1 : __real_sysconf(name);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
  va_list list;
  long a[6];
  va_start(list, number);
  for (int i = 0; i < 6; i++)
    a[i] = va_arg(list, long);
  va_end(list);
  return shortage_strikes(SHORTAGE_syscall, ENOMEM)
             ? -1
             : __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int __real_prctl(int what, ...);
int __wrap_prctl(int what, ...);
int __wrap_prctl(int what, ...) {
  va_list list;
  unsigned long a[4];
  va_start(list, what);
  for (int i = 0; i < 4; i++)
    a[i] = va_arg(list, unsigned long);
  va_end(list);
  return shortage_strikes(SHORTAGE_prctl, ENOMEM) ? -1 : __real_prctl(what, a[0], a[1], a[2], a[3]);
}

WRAP_STORER(hwloc_topology_init, ENOMEM, -1, t, (hwloc_topology_t * t), (t))
WRAP(int, hwloc_topology_load, ENOMEM, -1, (hwloc_topology_t t), (t))
WRAP(int, hwloc_distances_get_by_name, ENOMEM, -1,
     (hwloc_topology_t t, const char *name, unsigned *n, struct hwloc_distances_s **all,
      unsigned long f),
     (t, name, n, all, f))
WRAP_MAKER(hwloc_bitmap_t, hwloc_bitmap_alloc, ENOMEM, (void), ())
WRAP_MAKER(hwloc_bitmap_t, hwloc_bitmap_dup, ENOMEM, (hwloc_const_bitmap_t b), (b))
WRAP(int, hwloc_get_cpubind, ENOMEM, -1, (hwloc_topology_t t, hwloc_bitmap_t b, int f), (t, b, f))
WRAP_STORER(hwloc_topology_export_xmlbuffer, ENOMEM, -1, text,
            (hwloc_topology_t t, char **text, int *n, unsigned long f), (t, text, n, f))

/* ---- OpenSSL --------------------------------------------------------------------------------- */

/* Its own allocations, some sixty, do not count: it fails as a whole. */
static _Thread_local bool in_hmac;

unsigned char *__real_HMAC(const EVP_MD *e, const void *k, int kn, const unsigned char *d, size_t n,
                           unsigned char *m, unsigned *mn);
unsigned char *__wrap_HMAC(const EVP_MD *e, const void *k, int kn, const unsigned char *d, size_t n,
                           unsigned char *m, unsigned *mn);
unsigned char *__wrap_HMAC(const EVP_MD *e, const void *k, int kn, const unsigned char *d, size_t n,
                           unsigned char *m, unsigned *mn) {
  if (shortage_strikes(SHORTAGE_HMAC, ENOMEM))
    return NULL;
  in_hmac = true;
  unsigned char *result = __real_HMAC(e, k, kn, d, n, m, mn);
  in_hmac = false;
  return result;
}

WRAP_MAKER(EVP_CIPHER_CTX *, EVP_CIPHER_CTX_new, ENOMEM, (void), ())
WRAP(int, EVP_EncryptInit_ex, ENOMEM, 0,
     (EVP_CIPHER_CTX * c, const EVP_CIPHER *t, ENGINE *e, const unsigned char *k,
      const unsigned char *iv),
     (c, t, e, k, iv))
WRAP(int, EVP_DecryptInit_ex, ENOMEM, 0,
     (EVP_CIPHER_CTX * c, const EVP_CIPHER *t, ENGINE *e, const unsigned char *k,
      const unsigned char *iv),
     (c, t, e, k, iv))
WRAP(int, EVP_EncryptUpdate, ENOMEM, 0,
     (EVP_CIPHER_CTX * c, unsigned char *o, int *on, const unsigned char *i, int n),
     (c, o, on, i, n))
WRAP(int, EVP_DecryptUpdate, ENOMEM, 0,
     (EVP_CIPHER_CTX * c, unsigned char *o, int *on, const unsigned char *i, int n),
     (c, o, on, i, n))
WRAP(BIO *, BIO_new, ENOMEM, NULL, (const BIO_METHOD *m), (m))
WRAP_MAKER(BIO_METHOD *, BIO_meth_new, ENOMEM, (int type, const char *name), (type, name))
WRAP_MAKER(SSL_CTX *, SSL_CTX_new, ENOMEM, (const SSL_METHOD *m), (m))
WRAP_MAKER(SSL *, SSL_new, ENOMEM, (SSL_CTX * c), (c))
WRAP(SSL_SESSION *, SSL_SESSION_new, ENOMEM, NULL, (void), ())
WRAP(int, SSL_SESSION_set1_master_key, ENOMEM, 0,
     (SSL_SESSION * s, const unsigned char *k, size_t n), (s, k, n))
WRAP(int, SSL_set_ex_data, ENOMEM, 0, (SSL * s, int i, void *p), (s, i, p))

static bool openssl_fails(void) {
  return !in_hmac && shortage_strikes(SHORTAGE_OPENSSL_malloc, ENOMEM);
}

static void *openssl_malloc(size_t n, const char *file, int line) {
  (void)file, (void)line;
  return openssl_fails() ? NULL : __real_malloc(n);
}

static void *openssl_realloc(void *p, size_t n, const char *file, int line) {
  (void)file, (void)line;
  return openssl_fails() ? NULL : __real_realloc(p, n);
}

static void openssl_free(void *p, const char *file, int line) {
  (void)file, (void)line;
  __real_free(p);
}

/* OpenSSL takes these only before its first allocation. */
__attribute__((constructor)) static void replace_openssl_malloc(void) {
  if (!CRYPTO_set_mem_functions(openssl_malloc, openssl_realloc, openssl_free))
    abort();
}
