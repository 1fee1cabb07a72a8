/* message.h: messages between two ranks, whose bytes and time are counted, and memory for them. */
#ifndef TRAINER_STRATEGIES_MESSAGE_H
#define TRAINER_STRATEGIES_MESSAGE_H

#include "trainer/worker.h"

/* Memory that other ranks may read in place: coll_mem_alloc(). `doing` is for the message if there
 * is none, and NULL is returned. Free it with coll_mem_free() and the worker's communicator of now.
 */
void *message_memory(worker *w, size_t bytes, const char *doing, fail *why);

/* Sends `bytes` bytes, and waits until they are off. */
bool message_send(worker *w, const void *data, size_t bytes, int to, int tag, fail *why);

/* Starts to send; worker_wait() ends it. */
bool message_start(worker *w, const void *data, size_t bytes, int to, int tag,
                   coll_request **request, fail *why);

/* Waits for what was just started, if it could be; `doing` is for the message if it fails. */
bool message_finish(worker *w, coll_status status, coll_request **request, const char *doing,
                    fail *why);

/* Waits for a message of `bytes` bytes. *source, unless NULL: the rank that sent it, which is
 * `from` unless that is COLL_ANY_SOURCE. */
bool message_receive(worker *w, void *data, size_t bytes, int from, int tag, int *source,
                     fail *why);

#endif
