/* support_tapped.h: two ends of a connection with TLS, and an enemy between them. */
#ifndef TESTS_TLS_SUPPORT_TAPPED_H
#define TESTS_TLS_SUPPORT_TAPPED_H

#include <stddef.h>
#include <stdint.h>

#include "libcoll/net/auth.h"

/* The ends write to the enemy's sockets, and read what the enemy writes there. */
typedef struct tapped {
  colli_tls *connector, *acceptor;
  int connector_fd, acceptor_fd;
  int to_connector, to_acceptor; /* the enemy's; where an end closed, reading finds the end */
} tapped;

/* Both ends with one key, before their handshake. */
tapped tapped_open(void);

/* Both ends with different keys. */
tapped tapped_open_strangers(void);

/* What the enemy does with bytes on their way: *count of them, of which the first is number `at`.
 */
typedef void (*tapped_enemy)(void *arg, uint8_t *bytes, size_t count, size_t at);

/* Advances the handshake of both ends until nothing moves. The enemy (may be NULL) has every byte
 * of both directions in hand, counted together. results: of connector and acceptor. Returns how
 * many bytes there were. */
size_t tapped_shake(tapped *t, tapped_enemy enemy, void *arg, int results[2]);

/* Both ends, connected honestly. */
tapped tapped_shaken(void);

void tapped_close(tapped *t);

/* One end sends bytes; returns those that arrive at the enemy, at most `most`. */
size_t tapped_record(colli_tls *from, int enemy, const void *bytes, size_t count, uint8_t *wire,
                     size_t most);

/* The enemy sends bytes to an end. */
void tapped_send(int enemy, const void *bytes, size_t count);

/* What an end receives: the number of bytes, 0 at the end, or -errno. */
int tapped_receive(colli_tls *to, void *bytes, size_t count);

#endif
