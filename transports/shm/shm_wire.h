/* shm_wire.h: what two endpoints say to each other over a Unix socket, descriptors included. */
#ifndef COLLI_TRANSPORTS_SHM_WIRE_H
#define COLLI_TRANSPORTS_SHM_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "coll/coll_transport.h"
#include "libcoll/net/unix_socket.h"

#define SHM_MAGIC 0x336d6873u /* "shm3": changes with every change of what is shared */

/* An endpoint as its peers know it; travels in the transport's blob. */
typedef struct shm_blob {
  uint32_t magic;
  int32_t pid;
  uint64_t host_id;
  uint32_t uid;
  uint32_t name_bytes;
  uint8_t name[COLLI_UNIX_NAME]; /* of an abstract socket, with its leading 0 */
} shm_blob;
_Static_assert(sizeof(shm_blob) <= COLL_BLOB_BYTES, "travels in the blob");

/* Dialer to acceptor, with the segment and (to another process) the dialer's doorbell. */
typedef struct shm_offer {
  uint32_t magic;
  uint32_t slot_count;
  uint64_t slot_bytes;
  int32_t bell_fd; /* in the same process: the doorbell's number; else -1 */
  int32_t reserved;
} shm_offer;
_Static_assert(sizeof(shm_offer) == 24, "travels as it is");

/* Acceptor to dialer, with (to another process, if COLL_OK) the acceptor's doorbell. */
typedef struct shm_answer {
  uint32_t magic;
  int32_t status;
  int32_t bell_fd;
  int32_t reserved;
} shm_answer;
_Static_assert(sizeof(shm_answer) == 16, "travels as it is");

/* Reads a blob; -1 if it is not this transport's. */
int shm_blob_read(const uint8_t raw[COLL_BLOB_BYTES], shm_blob *blob);

/* The address that a blob names; returns its length. */
socklen_t shm_blob_address(const shm_blob *blob, struct sockaddr_un *address);

/* Whether the user at the other end of a Unix socket is this process's; *local: it is this very
 * process. One that has dropped its rights since it wrote `self` is met by others that have. If
 * not, errno is EACCES, or why that cannot be found out. */
bool shm_is_same_user(int sock, const shm_blob *self, bool *local);

#endif
