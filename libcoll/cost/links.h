/*
 * links.h: kinds of links between ranks: names, typical costs, and suitable message sizes.
 */
#ifndef COLLI_COST_LINKS_H
#define COLLI_COST_LINKS_H

#include <stdint.h>

#include "libcoll/base/calibration.h"
#include "libcoll/sched/partition.h"

/* "shm" or "tcp": in calibration files and tools. */
const char *colli_link_name(colli_link_kind kind);

/* The kind of a name, or -1. */
int colli_link_parse(const char *name);

/* The link kind whose costs a transport with these capabilities (COLL_CAP_...) has: TCP unless it
 * shares memory. */
colli_link_kind colli_link_kind_of(uint32_t caps);

/* Typical costs of a present-day host. */
void colli_calibration_default(colli_calibration *out);

/* Number `index` of a calibration. */
double *colli_calibration_number(colli_calibration *calibration, int index);

/* Sizes of slots and slices that suit a kind of link; sets slot_bytes and slice_bytes only. */
void colli_limits_default(colli_link_kind link, colli_limits *out);

#endif
