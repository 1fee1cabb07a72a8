/*
 * libc.h: calls that glibc has and other C libraries, such as musl, may lack. There they are made
 * of what every Linux has.
 */
#ifndef COLLI_BASE_LIBC_H
#define COLLI_BASE_LIBC_H

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#ifdef __GLIBC__
/* Whether malloc() keeps buffers of some 64 KiB that are freed: musl's gives them back at once, and
   two system calls for each message cost more than the memory. */
#define COLLI_MALLOC_KEEPS_BUFFERS true
#else
#define COLLI_MALLOC_KEEPS_BUFFERS false
#include <sys/syscall.h>

/* strerror() of these libraries returns constant texts: any thread may call it. */
#define strerrordesc_np(number)        ((const char *)strerror(number))
#define getcpu(cpu, node)              ((int)syscall(SYS_getcpu, cpu, node, NULL))
#define tgkill(process, thread, s)     ((int)syscall(SYS_tgkill, process, thread, s))
#define dlvsym(library, name, version) dlsym(library, name)
#define close_range(first, last, f)    ((int)syscall(SYS_close_range, first, last, f))
#endif

#endif
