/*
 * support_shrink.h: a model of a shrink and of a growth. Ranks follow, lead, adopt and return by
 * the rules of libcoll/recovery/shrink_rules.h; everything else is left to whoever chooses the
 * events: who gives up on whom and when, which messages arrive before a connection breaks, which
 * connections break although both ends live, who dies, and who learns of it.
 *
 * That covers cuts that heal, and cuts in one direction. To a rank they are silence, after which it
 * gives up (GIVES_UP, ENDS_ROUND_EARLY), or a connection that ends at one side first (BREAKS).
 * Orders and words that are on their way then may still arrive, or not. Who was given up comes back
 * to the same leader (COMES_BACK), or through another rank (CHECKS_IN).
 *
 * Newcomers: rank 0 can call some that wait at its entrance in the first list that it makes. They
 * return if rank 0 says so (libcoll/recovery/grow.h).
 */
#ifndef TESTS_MODEL_SUPPORT_SHRINK_H
#define TESTS_MODEL_SUPPORT_SHRINK_H

#include <stdbool.h>
#include <stdint.h>

#include "libcoll/recovery/shrink_rules.h"

enum { MOST = 5, LISTS = 7, GUESTS = 2, NOBODY = 15, FAILED = 15 };

typedef enum phase { GATHERING, HEARING } phase;
typedef enum order { NO_ORDER, BUILD, RENEW, COMMIT, END } order;

/* What a leader has of a rank, and what is on its way between them. */
typedef struct link {
  uint8_t open; /* at the leader's end, and its checkin has arrived: */
  uint8_t ballot, list, renewed, child;
  uint8_t asked, answered;                 /* it is to check in again; has, for this ballot */
  uint8_t dropped;                         /* if closed: by the leader, which asked for this one */
  uint8_t order, order_ballot, order_list; /* on its way to the rank */
  uint8_t word, word_ballot;               /* on its way back: 1: adopted, 2: could not */
  uint8_t awaited;                         /* an answer to the latest order is */
  uint8_t said;                            /* and this one has arrived */
} link;

/* A list, and the ballot with which it was taken or renewed; all 0: none. */
typedef struct record {
  uint8_t ballot, list, renewed;
} record;

typedef struct rank {
  uint8_t alive;
  uint8_t outcome;       /* the list with which it returned; FAILED; 0: not yet */
  uint8_t leader;        /* whom it follows; itself; NOBODY */
  uint8_t sent;          /* its checkin, to its leader */
  uint8_t gone, skipped; /* sets of ranks */
  uint8_t ballot, list, renewed, child;
  uint8_t phase, takes; /* of a leader; who takes the list */
  uint8_t own;          /* the ballot that it chose */
  record had;           /* its latest list when it began to gather */
  /* The ballots of lists that ranks brought, and of `had`, if that is not the latest list. */
  uint8_t brought[MOST + 1];
} rank;

/* A newcomer. */
typedef struct guest {
  uint8_t list, said; /* for which it was called; and it has made that communicator */
  uint8_t order;      /* COMMIT is on its way */
  uint8_t outcome;
} guest;

typedef struct world {
  rank rank[MOST];
  link link[MOST][MOST]; /* [leader][rank] */
  uint8_t members[LISTS + 1];
  uint8_t made[LISTS + 1];        /* the ballot with which a list was chosen; 0: no such list */
  uint8_t invited[LISTS + 1];     /* how many newcomers are in it */
  uint8_t known[MOST][LISTS + 1]; /* the highest ballot with which a rank took a list */
  guest guest[GUESTS];
  uint8_t shut; /* the entrance: rank 0 has called newcomers before */
  uint8_t lists, deaths, given_up, failures, left;
} world;

/* A rule that is broken on purpose. */
typedef enum bug {
  NO_BUG,
  SILENCE_IS_DEATH,   /* ranks that are not here count as gone for the quorum */
  MISSING_ARE_GONE,   /* and when a leader looks whether a list may have been committed */
  ANY_HALF,           /* is enough, also without rank 0 */
  DEAD_LOWER_THE_BAR, /* more than half of those that are not gone are enough */
  COMMITS_EARLY,      /* silent ranks count as if they had adopted */
  FORGETS_ADOPTED,    /* a leader forgets which list a rank that checks in has adopted */
  FORGETS_LIST,       /* and which one it knows */
  RENEWED_IGNORED,    /* a renewed list is replaced if somebody has not adopted it */
  NEVER_RENEWS,       /* a successor always makes a new list */
  EARLIER_IGNORED,    /* rule 3 is left out */
  OUTSIDE_IGNORED,    /* an agreement is treated like a shrink */
  GUESTS_IGNORED,     /* a list with newcomers is treated like one without */
  DOES_NOT_ASK,       /* nobody checks in again */
  BALLOT_RISES_NOT,   /* when a leader hears of another list than the latest */
  BALLOT_STAYS,       /* and a new list has the ballot of the one before */
  RENEWAL_UNHEARD,    /* unless its ballot is above the leader's */
  BUGS
} bug;

/* What a search may do. */
typedef struct bounds {
  int nranks;
  int lists;    /* that are made */
  int deaths;   /* of ranks */
  int give_ups; /* of ranks on others, and connections that break between two that live */
  int failures; /* of ranks to build */
  int leaves;   /* because of an abort */
  coll_shrink_quorum quorum;
  bool uniform; /* an agreement: what dead ranks returned with counts, too */
  int guests;   /* newcomers */
  bug bug;
  bool patient; /* leaders wait for all whose death they have not learned of */
} bounds;

typedef enum event {
  DIES,
  LEARNS_OF_DEATH,
  CHOOSES_LEADER,
  CHECKS_IN,  /* x = 1: because its leader has dropped it and asks for a checkin */
  COMES_BACK, /* has noticed that its connection is over */
  OBEYS,
  FAILS_TO_BUILD,
  GIVES_UP,
  HEARS_WORD,
  NOTICES_END,
  BREAKS,       /* the leader's end of a connection to a rank that is still there */
  ASKS,         /* those who must check in again to do so */
  ANSWERS,      /* has checked in again */
  BEGINS_ROUND, /* and calls that many newcomers */
  ENDS_ROUND,
  ENDS_ROUND_EARLY,
  HEARS_OUTCOME, /* from one that has returned; or a leader hears that one shrinks that list */
  LEAVES,        /* because of an abort */
  GUEST_BUILDS,  /* and tells rank 0 so */
  GUEST_RETURNS, /* has received COMMIT */
  EVENTS
} event;

/* All ranks come to the shrink. */
world begin_world(const bounds *b);

/* Lets an event happen to rank r (with another one, x); false if it cannot, then nothing has
 * changed. */
bool happen(world *w, const bounds *b, event kind, int r, int x);

/* Whether two ranks have returned with different lists. Both live; or, if it is uniform, somebody
 * does who took part in the round in which one that died got its list. A newcomer that has returned
 * counts while a rank lives that took part in its growth: nobody else ever heard of it. */
bool is_split(const world *w, const bounds *b);

/* A set of one rank. */
static inline unsigned bit(int r) {
  return 1u << r;
}

/* Whether a rank has not returned. */
static inline bool is_in(const world *w, int r) {
  return w->rank[r].alive && w->rank[r].outcome == 0;
}

/* Whether a rank has checked in with a leader and waits for its orders. */
static inline bool is_attached(const world *w, int c, int r) {
  return r != c && is_in(w, r) && w->rank[r].leader == c && w->rank[r].sent;
}

#endif
