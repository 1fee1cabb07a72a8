/*
 * copy.h: reads status pages of other processes. A copy is one block of memory, like a page but
 * with only those communicators that are shown. Its bytes may come from anybody; once
 * colli_status_check() has accepted them, every field can be used as it is.
 */
#ifndef COLLI_STATUS_COPY_H
#define COLLI_STATUS_COPY_H

#include "libcoll/status/page.h"

/* Checks a copy, and makes its texts printable. NULL, or what is wrong. */
const char *colli_status_check(colli_status_head *head, size_t bytes);

/* The same for one communicator, once the head and the ranks are there. */
const char *colli_status_check_comm(const colli_status_head *head, colli_status_comm *comm);

/* The bytes of a copy that was checked. */
size_t colli_status_bytes(const colli_status_head *head);

/* Copies the page behind a descriptor, and checks it. Operations that begin or end meanwhile may be
 * missing. *copy is freed by the caller. NULL, or why there is none. */
const char *colli_status_copy(int fd, colli_status_head **copy);

/* Calls found(ctx, copy) for each page of each process that this one may look into; found() owns
 * the copy. Returns 0, or the errno with which /proc cannot be read. */
int colli_status_scan(void (*found)(void *ctx, colli_status_head *copy), void *ctx);

/* Calls found() for each page of one process. Returns how many it has, or -1 with errno. */
int colli_status_scan_process(int pid, void (*found)(void *ctx, colli_status_head *copy),
                              void *ctx);

/* The same until enough() says so. Older descriptors come first, and a page is one of the oldest.
 */
int colli_status_scan_until(int pid, void (*found)(void *ctx, colli_status_head *copy),
                            bool (*enough)(const void *ctx), void *ctx);

/* Seconds since a moment in the process's ticks, when the copy was made. */
double colli_status_age_s(const colli_status_head *head, uint64_t ticks);

#endif
