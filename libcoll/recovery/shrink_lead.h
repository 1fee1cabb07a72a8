/* shrink_lead.h: what the parts of a shrink's coordinator share. */
#ifndef COLLI_RECOVERY_SHRINK_LEAD_H
#define COLLI_RECOVERY_SHRINK_LEAD_H

#include "libcoll/recovery/shrink_internal.h"

#define LEAD_BEATS          8 /* signs of life of a waiting coordinator within the patience */
#define LEAD_PROBE_AFTER_NS (50 * COLLI_NS_PER_MS)   /* most come by themselves */
#define LEAD_PROBE_NS       (2000 * COLLI_NS_PER_MS) /* then the next rank is probed */

/* The state of the leading rank. */
typedef struct lead {
  shrink *s;
  shrink_probes probes; /* of missing ranks */
  uint64_t ballot;      /* of the last list that this rank chose; 0: none */
  uint64_t asked;       /* the ballot about which members were last asked; 0: none */
  uint64_t next_ns;     /* when the probes continue */
  uint64_t pause_ns;    /* no round begins before then */
  uint64_t until_ns;    /* when missing ranks are left out */
  uint64_t beat_ns;     /* when to tell the members again that this rank is there */
  bool *here;           /* by rank: takes part, as of the last look at the latest list */
  bool *adopted;        /* by rank: and has made its communicator */
  bool *answered;       /* by rank: and has checked in again since that list is known here */
  bool *listed;         /* by rank: is in the list that this rank looks at */
  shrink_member had;    /* the latest list when it began to gather, and */
  uint8_t *flags;       /* by rank: the members of that */
  uint8_t *shorts;      /* by rank: rounds that failed because it ran short */
  bool *takes;          /* by rank: is here, and takes the list that is being made */
  uint64_t brought[];   /* by rank, and for `had`: the ballot of a list that it brought, if that is
                           not the latest list; 0: none */
} lead;

/* ---- shrink_gather.c ------------------------------------------------------------------------- */

/* Whether a rank is waited for. */
bool lead_is_missing(const shrink *s, int r);

/* Dials missing ranks again and again, to learn whether they are gone and to tell them who leads.
 */
void lead_probe(lead *l);

/* Skips the rank that was waited for without success. */
void lead_skip(shrink *s, int rank);

/* Whether a rank that is here has adopted the latest list. */
bool lead_has_adopted(const shrink *s, int r);

/* An order of a kind. */
shrink_order lead_order(shrink_order_kind kind);

/* Sends an order, with the latest list, to those who take it, or to all others that are here. */
void lead_send(lead *l, shrink_order *order, bool takers);

/* From time to time, tells all who are here that this rank is still there. */
void lead_beat(lead *l);

/* Waits until every rank that is not gone or skipped is here, or time is up. True if the latest
 * list may already be committed. l->takes: those who can take it, or a new one. */
bool lead_gather(lead *l);

#endif
