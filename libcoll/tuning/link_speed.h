/*
 * link_speed.h: how fast the hosts' links to the network are: as COLL_LINK_SPEED says, as measured
 * at creation, or as the kernel says of the cards. Bridges and tunnels have speeds, too, but not of
 * their own, and are not asked. A card that leads to no peer counts, as nobody knows that before
 * it is tried.
 */
#ifndef COLLI_TUNING_LINK_SPEED_H
#define COLLI_TUNING_LINK_SPEED_H

#include "libcoll/tuning/locality.h"

/* A setting: "100mbit", "2.5gbit", "measure", or "" for nothing. Sets *mbit (0 unless it is a
 * speed) and *source. Errors: INVALID_USAGE. */
coll_status colli_link_speed_parse(const char *text, double *mbit, uint64_t *source,
                                   coll_error *error);

/* Describes this rank: what the setting says or, if that is empty, what its network cards can do
 * (colli_net_cards_mbit(); 0: not known). Errors: INVALID_USAGE. */
coll_status colli_link_speed_describe(const char *text, double cards_mbit, colli_rank_info *info,
                                      coll_error *error);

/* Sets a model's betas of hosts' links, which are so fast; *weights: see colli_weights_make().
 * NULL: all count as the slowest. Overwrites `mbit`. False if out of memory. */
bool colli_link_speed_set(double *mbit, int nhosts, colli_model *model, colli_weights **weights);

/*
 * Takes the speeds from the table of ranks, whose groups `out` has: of a host, what the rank says
 * that knows best. Where all hosts have one, that of the slowest counts, and if they differ,
 * out->weights says how (or is NULL). `cards`: what cards can do counts, too, but gives no weights,
 * as nobody knows which of them lead to peers. Devices have costs of their own and are not
 * affected. False if out of memory.
 */
bool colli_link_speed_apply(const colli_rank_table *table, bool cards, colli_locality *out);

#endif
