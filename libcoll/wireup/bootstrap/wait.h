/*
 * wait.h: waiting, for all parts of a bootstrap. Only boot_polls_wait() blocks. Each part
 * has a step function, which does what it can without waiting, and a watch function, which adds the
 * descriptors and times for which it waits.
 */
#ifndef COLLI_WIREUP_BOOTSTRAP_WAIT_H
#define COLLI_WIREUP_BOOTSTRAP_WAIT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What to wait for. */
typedef struct boot_polls {
  struct pollfd *fds;
  int count, capacity;
  uint64_t wake_ns;
} boot_polls;

/* Allocates an empty set for `capacity` descriptors; false: out of memory. */
bool boot_polls_create(boot_polls *polls, int capacity);

void boot_polls_destroy(boot_polls *polls);

/* Empties the set. boot_polls_wait() returns at `wake_ns` at the latest. */
void boot_polls_clear(boot_polls *polls, uint64_t wake_ns);

/* Adds a descriptor; returns its index, or -1 if the set is full (then the wait is kept short). */
int boot_polls_add(boot_polls *polls, int fd, short events);

/* Makes boot_polls_wait() return at this time at the latest. */
void boot_polls_wake(boot_polls *polls, uint64_t at_ns);

/* Waits until a descriptor is ready or the time has come: 0, or the errno of poll(). */
int boot_polls_wait(boot_polls *polls);

/* Closes a descriptor that may be -1 and sets it to -1. */
void boot_close(int *fd);

/* Milliseconds left until a time; 0 once it has passed. */
uint32_t boot_remaining_ms(uint64_t until_ns);

/* How long before a deadline a message must be sent in order to arrive in time. */
uint64_t boot_margin_ns(uint64_t remaining_ns);

#endif
