/*
 * packets.h: the sum of a bucket whose gradients travel in packets, as --wire says.
 *
 *     each rank, for each other one r:  packet of its gradients of r's part --> r
 *     each rank, for its own part:      adds the packets that came, in the order of the ranks
 *     unless it keeps the part alone:   packet of the sum --> all
 *
 * So a rank sends 2 (n - 1) packets of 1 / n of the model in a step, however many ranks there are,
 * a number is rounded twice on its way, and equal runs give equal bits. What a packet of gradients
 * lacks stays in worker.pending, and what one of sums lacks in memory of its own, for the next
 * step. H. Tang et al., DoubleSqueeze: Parallel Stochastic Gradient Descent with Double-Pass
 *   Error-Compensated Compression, ICML 2019; H. Tang et al., 1-bit Adam, ICML 2021.
 */
#ifndef TRAINER_STRATEGIES_PACKETS_H
#define TRAINER_STRATEGIES_PACKETS_H

#include "trainer/strategies/buckets.h"

/* Makes b->packets of buckets that are cut. */
bool packets_open(buckets *b, fail *why);

/* The gradients of a bucket are there: starts to send their packets. */
bool packets_send(buckets *b, bucket *item, fail *why);

/* Waits until a bucket has its sums; returns at once if it has. */
bool packets_wait(buckets *b, bucket *item, fail *why);

/* Moves what packets of sums lacked to worker.pending; no harm where there are none. */
void packets_settle(buckets *b);

#endif
