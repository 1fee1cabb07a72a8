/*
 * support_shrink_model.h: a model of a shrink. Ranks follow, lead, adopt and return by the rules of
 * libcoll/recovery/shrink_rules.h; everything else is left to whoever chooses the events: who gives
 * up on whom and when, which messages arrive before a connection breaks, who dies, and who learns
 * of it. That covers cuts that heal, and cuts in one direction: to a rank they are silence, after
 * which it gives up.
 */
#ifndef TESTS_UNIT_SUPPORT_SHRINK_MODEL_H
#define TESTS_UNIT_SUPPORT_SHRINK_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "libcoll/recovery/shrink_rules.h"

enum { MOST = 5, LISTS = 7, NOBODY = 15, FAILED = 15 };

typedef enum phase { GATHERING, HEARING } phase;
typedef enum order { NO_ORDER, BUILD, RENEW, COMMIT, END } order;

/* What a leader has of a rank, and what is on its way between them. */
typedef struct link {
  uint8_t open; /* at the leader's end */
  uint8_t here; /* its checkin has arrived: */
  uint8_t ballot, list, renewed, child;
  uint8_t order, order_ballot, order_list; /* on its way to the rank */
  uint8_t word, word_ballot;               /* on its way back: 1: adopted, 2: could not */
  uint8_t said;                            /* and arrived */
} link;

typedef struct rank {
  uint8_t alive;
  uint8_t outcome;       /* the list with which it returned; FAILED; 0: not yet */
  uint8_t leader;        /* whom it follows; itself; NOBODY */
  uint8_t sent;          /* its checkin, to its leader */
  uint8_t gone, skipped; /* sets of ranks */
  uint8_t ballot, list, renewed, child;
  uint8_t phase, takes; /* of a leader; who takes the list */
  uint8_t own, before;  /* the ballot that it chose, and the latest before its own ones */
} rank;

typedef struct world {
  rank rank[MOST];
  link link[MOST][MOST]; /* [leader][rank] */
  uint8_t members[LISTS + 1];
  uint8_t known[MOST][LISTS + 1]; /* the highest ballot with which a rank took a list */
  uint8_t lists, deaths, given_up, left;
} world;

/* What a search may do. */
typedef struct bounds {
  int nranks;
  int lists, deaths, give_ups, leaves;
  coll_shrink_quorum quorum;
  bool uniform; /* an agreement: what dead ranks returned with counts, too */
} bounds;

typedef enum event {
  DIES,
  LEARNS_OF_DEATH,
  CHOOSES_LEADER,
  CHECKS_IN,
  OBEYS,
  FAILS_TO_BUILD,
  GIVES_UP,
  HEARS_WORD,
  NOTICES_END,
  BEGINS_ROUND,
  ENDS_ROUND,
  ENDS_ROUND_EARLY,
  LEAVES, /* because of an abort */
  EVENTS
} event;

/* All ranks come to the shrink. */
world begin_world(const bounds *b);

/* Lets an event happen to rank r (with another one, x); false if it cannot. */
bool happen(world *w, const bounds *b, event kind, int r, int x);

/* Whether two ranks have returned with different lists. Both live; or, if it is uniform, somebody
 * does who took part in the round in which one that died got its list. */
bool is_split(const world *w, const bounds *b);

#endif
