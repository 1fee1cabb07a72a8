/* quota.h: how much processor time the control groups of this process leave it. */
#ifndef COLLI_TUNING_QUOTA_H
#define COLLI_TUNING_QUOTA_H

#include <stdint.h>

/* The tightest limit on the way from the process's group to the root. */
typedef struct colli_quota {
  uint64_t group;      /* tells groups with a limit apart on this host; 0: there is no limit */
  uint64_t millicores; /* all processes of that group together: 1000 are one processor's time */
} colli_quota;

/*
 * Reads the limit: cpu.max of cgroup v2, cpu.cfs_quota_us and cpu.cfs_period_us of v1. membership:
 * /proc/self/cgroup. root: where the file systems are mounted, /sys/fs/cgroup. Inside a container,
 * the path in `membership` may be one of the host; then the mounted root counts. What cannot be
 * read is no limit.
 */
colli_quota colli_quota_read(const char *membership, const char *root);

#endif
