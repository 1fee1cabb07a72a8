/* message.h: messages between two ranks, whose bytes and time are counted. */
#ifndef TRAINER_STRATEGIES_MESSAGE_H
#define TRAINER_STRATEGIES_MESSAGE_H

#include "trainer/worker.h"

/* Sends `bytes` bytes, and waits until they are off. */
bool message_send(worker *w, const void *data, size_t bytes, int to, int tag, fail *why);

/* Starts to send; worker_wait() ends it. */
bool message_start(worker *w, const void *data, size_t bytes, int to, int tag,
                   coll_request **request, fail *why);

/* Waits for a message of `bytes` bytes. *source, unless NULL: the rank that sent it, which is
 * `from` unless that is COLL_ANY_SOURCE. */
bool message_receive(worker *w, void *data, size_t bytes, int from, int tag, int *source,
                     fail *why);

#endif
