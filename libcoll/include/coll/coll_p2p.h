/*
 * coll_p2p.h: point-to-point messages, and one-sided writes to the memory of other ranks. Included
 * by coll.h, which explains the four forms, the rules for buffers, and the errors that every
 * operation can return.
 *
 * docs/operations.py --write derives the nonblocking, persistent and stream forms from the blocking
 * one; a test checks that they match.
 */
#ifndef COLL_COLL_P2P_H
#define COLL_COLL_P2P_H

#include <stddef.h>
#include <stdint.h>

#include "coll/coll_base.h"
#include "coll/coll_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- point-to-point ------------------------------------------------------------------------ */

#define COLL_ANY_SOURCE (-1)
#define COLL_ANY_TAG    (-1)

/* Describes a received message. */
typedef struct coll_message {
  int source;   /* rank that sent it */
  int tag;      /* its tag */
  size_t count; /* its length in elements */
  coll_type type;
} coll_message;

/*
 * Sends count elements to rank peer, which may be this rank. tag: 0 or more, chosen freely; a
 * receive takes the first message that matches its peer and tag, in the order sent.
 *
 * A long message is sent when the receiver has called coll_recv() for it. When the send of a short
 * one (it fits a slot, COLL_SLOT_BYTES) is complete, sendbuf may be used again, and:
 *
 * - If the caller has waited for that, in coll_send(), coll_sendrecv(), a group, or coll_wait()
 *   without a limit, then the message is on its way, whatever the sender does next. The first
 *   message to a rank needs a connection, for which that rank has to be in a call of libcoll, on
 *   any communicator. Later ones go ahead of the receiver as far as the connection holds them
 *   (COLL_SLOT_COUNT). For each sender the receiver queues up to 64 unexpected messages or 4 MiB.
 * - Otherwise, or if a blocking send has waited for half of the deadline (timeout_ms) for a
 *   connection, or for 100 ms for a receiver that does not read, the sender has a copy. It queues
 *   up to 64 messages or 4 MiB for each receiver, which it sends during later calls, on any
 *   communicator, coll_comm_destroy() included. Sends beyond that wait.
 */
COLL_API coll_status coll_send(const void *sendbuf, size_t count, coll_type type, int peer, int tag,
                               coll_comm *comm);
/* Starts coll_send(); complete the request. */
COLL_API coll_status coll_isend(const void *sendbuf, size_t count, coll_type type, int peer,
                                int tag, coll_comm *comm, coll_request **request);
/* Makes a persistent request of coll_send(), for coll_start(). */
COLL_API coll_status coll_send_init(const void *sendbuf, size_t count, coll_type type, int peer,
                                    int tag, coll_comm *comm, coll_request **request);
/* coll_send() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_send_on_stream(const void *sendbuf, size_t count, coll_type type,
                                         int peer, int tag, coll_comm *comm, void *stream);

/*
 * Receives a message from rank peer (COLL_ANY_SOURCE: from any rank) with tag `tag` (COLL_ANY_TAG:
 * any). message: NULL, or receives the source, tag and length of the message at completion; it must
 * stay valid until then. If it is given, the message may be shorter than count elements; otherwise
 * it must have exactly count. Another type or length is a MISMATCH of this receive alone: its
 * message is thrown away, and the communicator stays usable. Messages of one sender are received in
 * the order sent. If several receives match a message, the one called first gets it. coll_probe()
 * looks at a message first.
 */
COLL_API coll_status coll_recv(void *recvbuf, size_t count, coll_type type, int peer, int tag,
                               coll_message *message, coll_comm *comm);
/* Starts coll_recv(); complete the request. */
COLL_API coll_status coll_irecv(void *recvbuf, size_t count, coll_type type, int peer, int tag,
                                coll_message *message, coll_comm *comm, coll_request **request);
/* Makes a persistent request of coll_recv(), for coll_start(). */
COLL_API coll_status coll_recv_init(void *recvbuf, size_t count, coll_type type, int peer, int tag,
                                    coll_message *message, coll_comm *comm, coll_request **request);
/* coll_recv() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_recv_on_stream(void *recvbuf, size_t count, coll_type type, int peer,
                                         int tag, coll_message *message, coll_comm *comm,
                                         void *stream);

/*
 * A send to rank dest and a receive from rank source at the same time; arguments as in coll_send
 * and coll_recv.
 */
COLL_API coll_status coll_sendrecv(const void *sendbuf, size_t sendcount, int dest, int sendtag,
                                   void *recvbuf, size_t recvcount, int source, int recvtag,
                                   coll_type type, coll_message *message, coll_comm *comm);
/* Starts coll_sendrecv(); complete the request. */
COLL_API coll_status coll_isendrecv(const void *sendbuf, size_t sendcount, int dest, int sendtag,
                                    void *recvbuf, size_t recvcount, int source, int recvtag,
                                    coll_type type, coll_message *message, coll_comm *comm,
                                    coll_request **request);
/* Makes a persistent request of coll_sendrecv(), for coll_start(). */
COLL_API coll_status coll_sendrecv_init(const void *sendbuf, size_t sendcount, int dest,
                                        int sendtag, void *recvbuf, size_t recvcount, int source,
                                        int recvtag, coll_type type, coll_message *message,
                                        coll_comm *comm, coll_request **request);
/* coll_sendrecv() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_sendrecv_on_stream(const void *sendbuf, size_t sendcount, int dest,
                                             int sendtag, void *recvbuf, size_t recvcount,
                                             int source, int recvtag, coll_type type,
                                             coll_message *message, coll_comm *comm, void *stream);

/*
 * Looks for a message that coll_recv(peer, tag) would get now, and describes it in *message. Waits
 * for one up to timeout_ms (0: does not wait; negative: no limit but the communicator's own
 * deadline). COLL_IN_PROGRESS: timeout_ms passed first, or coll_wake() was called.
 *
 * matched NULL: the message stays where it is. Otherwise *matched becomes this message, which no
 * other receive gets; receive it with coll_mrecv() or coll_imrecv(). So a thread or a library that
 * has looked at a message can be sure to receive the same one. *matched is NULL if there was none;
 * it becomes invalid with the end of `comm`. Errors: INVALID_ARGUMENT, and those of coll_recv().
 */
COLL_API coll_status coll_probe(coll_comm *comm, int peer, int tag, coll_message *message,
                                coll_matched **matched, int timeout_ms);

/*
 * Receives a message that coll_probe() took, and sets *matched to NULL. type: the message's; count:
 * at least its length. Another type or a smaller count is a MISMATCH, which throws the message
 * away. If the call is refused (INVALID_ARGUMENT, INVALID_USAGE, NO_MEMORY), *matched stays.
 */
COLL_API coll_status coll_mrecv(void *recvbuf, size_t count, coll_type type,
                                coll_matched **matched);
/* Starts coll_mrecv(), which sets *matched to NULL at once; complete the request. */
COLL_API coll_status coll_imrecv(void *recvbuf, size_t count, coll_type type,
                                 coll_matched **matched, coll_request **request);

/* ---- one-sided ----------------------------------------------------------------------------- */

/*
 * Makes `bytes` bytes at `base` writable by the other ranks of `comm`. Collective; each rank passes
 * its own memory, of any size. The memory belongs to the caller and must outlive the window. Puts
 * arrive while the owner is in a call of libcoll, on any communicator, or at any time if it has a
 * progress thread. The owner may read the data after coll_wait_signal(), or after any other message
 * that the sender sent after the put and a signal. Errors: INVALID_ARGUMENT, NO_MEMORY, and those
 * of a collective.
 */
COLL_API coll_status coll_window_create(coll_comm *comm, void *base, size_t bytes,
                                        coll_window **window);

/*
 * Ends a window, collectively: returns when no rank can write to this rank's memory any more. A
 * window that is not destroyed ends with its communicator. Errors: INVALID_ARGUMENT; INVALID_USAGE
 * (this rank's operations on it are in flight, or a group is open), which leaves it as it was; and
 * those of a collective, which end it on this rank.
 */
COLL_API coll_status coll_window_destroy(coll_window **window);

/*
 * Writes count elements to rank peer's memory of the window, `offset` bytes from its base. Complete
 * when sendbuf may be used again. Errors: INVALID_ARGUMENT also if they do not fit the peer's
 * memory.
 */
COLL_API coll_status coll_put(const void *sendbuf, size_t count, coll_type type, int peer,
                              size_t offset, coll_window *window, coll_comm *comm);
/* Starts coll_put(); complete the request. */
COLL_API coll_status coll_iput(const void *sendbuf, size_t count, coll_type type, int peer,
                               size_t offset, coll_window *window, coll_comm *comm,
                               coll_request **request);
/* Makes a persistent request of coll_put(), for coll_start(). */
COLL_API coll_status coll_put_init(const void *sendbuf, size_t count, coll_type type, int peer,
                                   size_t offset, coll_window *window, coll_comm *comm,
                                   coll_request **request);
/* coll_put() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_put_on_stream(const void *sendbuf, size_t count, coll_type type, int peer,
                                        size_t offset, coll_window *window, coll_comm *comm,
                                        void *stream);

/* Adds 1 to the peer's count of this rank's signals, after all earlier puts of this rank to it. */
COLL_API coll_status coll_signal(int peer, coll_window *window, coll_comm *comm);
/* Starts coll_signal(); complete the request. */
COLL_API coll_status coll_isignal(int peer, coll_window *window, coll_comm *comm,
                                  coll_request **request);
/* Makes a persistent request of coll_signal(), for coll_start(). */
COLL_API coll_status coll_signal_init(int peer, coll_window *window, coll_comm *comm,
                                      coll_request **request);
/* coll_signal() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_signal_on_stream(int peer, coll_window *window, coll_comm *comm,
                                           void *stream);

/* Waits for `count` signals of peer that no earlier wait has consumed, and consumes them. */
COLL_API coll_status coll_wait_signal(int peer, uint64_t count, coll_window *window,
                                      coll_comm *comm);
/* Starts coll_wait_signal(); complete the request. */
COLL_API coll_status coll_iwait_signal(int peer, uint64_t count, coll_window *window,
                                       coll_comm *comm, coll_request **request);
/* Makes a persistent request of coll_wait_signal(), for coll_start(). */
COLL_API coll_status coll_wait_signal_init(int peer, uint64_t count, coll_window *window,
                                           coll_comm *comm, coll_request **request);
/* coll_wait_signal() in a stream of CUDA: see coll.h. */
COLL_API coll_status coll_wait_signal_on_stream(int peer, uint64_t count, coll_window *window,
                                                coll_comm *comm, void *stream);

#ifdef __cplusplus
}
#endif

#endif /* COLL_COLL_P2P_H */
