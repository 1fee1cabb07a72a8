/*
 * shared.h: memory that other processes can map once they have its descriptor. It has no name, so a
 * killed process leaves nothing behind and nobody else can open it.
 *
 * Three ways, the first that works: a sealed memfd, which nobody can shrink under a reader; an
 * unlinked file in /dev/shm; an unlinked file in TMPDIR (or /tmp). Files cannot be sealed, so
 * whoever gets the descriptor must be trusted not to truncate it. Their space is reserved on
 * creation, because touching a page for which no space is left kills the process (SIGBUS).
 */
#ifndef COLLI_BASE_SHARED_H
#define COLLI_BASE_SHARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The call that failed. */
typedef struct colli_shared_fault {
  const char *syscall;
  int sys_errno; /* EMFILE, ENFILE: no descriptors; ENOMEM, ENOSPC, EFBIG: out of memory; otherwise:
                    not allowed */
} colli_shared_fault;

/* Whether ulimit -f allows files of this size. Writing a larger one would kill the process by a
 * signal. */
bool colli_shared_allowed(size_t bytes);

/* Creates `bytes` bytes of zeros. Returns a close-on-exec descriptor that the caller owns, or
 * -1. */
int colli_shared_create(size_t bytes, colli_shared_fault *fault);

/*
 * Maps all of such memory (fd -1: private memory of this process). Allocates its pages at once
 * where possible, as huge pages if the system grants them. NULL with errno on failure.
 */
void *colli_shared_map(int fd, size_t bytes, bool writable);

/*
 * Detaches `length` bytes at `offset` of such memory (`bytes` bytes of fd in all, mapped writable
 * at `memory`) from all other processes that map it: they keep their pages, but what they write
 * from now on does not appear here. Works on whole pages; contents stay, even if threads of this
 * process write meanwhile. If the system allows no further mapping, the whole memory is detached.
 * False: not even that worked, and nobody can access the memory any more.
 */
bool colli_shared_detach(int fd, void *memory, size_t bytes, size_t offset, size_t length);

/* Whether another process's descriptor is such memory of that size, as far as this can be checked.
 * -1: it cannot be examined (errno). */
int colli_shared_check(int fd, size_t bytes);

/* What this process can use. */
typedef struct colli_shared_capacity {
  int memfd_errno; /* 0: memfds work, limited only by memory, and the other fields are not set */
  int dev_shm_errno, tmp_errno;
  uint64_t dev_shm_bytes, tmp_bytes; /* free; 0 if it cannot be used */
} colli_shared_capacity;

/* Finds out which of the three ways works and how much space is free. */
void colli_shared_probe(colli_shared_capacity *capacity);

/* The folder for the third way. */
const char *colli_shared_tmp(void);

#endif
