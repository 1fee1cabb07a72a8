/*
 * shared.h: memory that other processes can map once they are given its descriptor. It has no name:
 * nothing is left behind by a process that is killed, and nobody else can open it.
 *
 * Three ways, the first that works: a sealed memfd, which nobody can shrink under a reader; an
 * unlinked file in /dev/shm; an unlinked file in TMPDIR (or /tmp). Files cannot be sealed, so
 * whoever gets the descriptor must be trusted not to truncate it. Their space is reserved when they
 * are made: touching a page for which no space is left would end the process (SIGBUS).
 */
#ifndef COLLI_BASE_SHARED_H
#define COLLI_BASE_SHARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The call that failed. */
typedef struct colli_shared_fault {
  const char *syscall;
  int sys_errno; /* EMFILE, ENFILE: no descriptors; ENOMEM, ENOSPC, EFBIG: no memory; otherwise: not
                    allowed */
} colli_shared_fault;

/* Whether files may be so large (ulimit -f): writing a larger one would end the process by a
 * signal. */
bool colli_shared_allowed(size_t bytes);

/* Makes `bytes` bytes of zeros; the descriptor, which is the caller's, or -1. Closed on exec. */
int colli_shared_create(size_t bytes, colli_shared_fault *fault);

/*
 * Maps all of such memory (fd -1: memory of this process alone), with its pages allocated at once
 * as far as possible, and in huge pages where the system gives them on request. NULL with errno.
 */
void *colli_shared_map(int fd, size_t bytes, bool writable);

/*
 * Takes `length` bytes at `offset` of such memory (all `bytes` bytes of fd, mapped writable at
 * `memory`) away from all others who map it: they keep what they have, but nothing that they write
 * from now on appears here. Whole pages; contents stay, also if threads of this process write
 * meanwhile. Where the system allows no further mapping the whole memory is taken away. False: not
 * even that could be done, and nobody can access the memory any more.
 */
bool colli_shared_detach(int fd, void *memory, size_t bytes, size_t offset, size_t length);

/* Whether a descriptor of another process is such memory of that size, as far as can be told. -1:
 * it cannot be examined (errno). */
int colli_shared_check(int fd, size_t bytes);

/* What this process can use. */
typedef struct colli_shared_capacity {
  int memfd_errno; /* 0: memfds work, bounded by memory alone, and the other fields are not set */
  int dev_shm_errno, tmp_errno;
  uint64_t dev_shm_bytes, tmp_bytes; /* free; 0 if it cannot be used */
} colli_shared_capacity;

/* Finds out which way works and how much is free. */
void colli_shared_probe(colli_shared_capacity *capacity);

/* The folder for the third way. */
const char *colli_shared_tmp(void);

#endif
