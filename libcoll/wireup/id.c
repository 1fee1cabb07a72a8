/* id.c: makes ids, and turns them into bytes and back. */
#include "libcoll/wireup/id.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/base/prng.h"
#include "libcoll/net/door.h"

#define ID_MAGIC   0x64694c43u /* "CLid" */
#define ID_VERSION 1u

/* An id as bytes. */
typedef struct packed_id {
  uint32_t magic;
  uint32_t version;
  int32_t pid;
  int32_t listen_fd;
  uint64_t comm_id;
  uint8_t secret[COLL_SECRET_BYTES];
  colli_addr addrs[COLLI_MAX_ADDRS];
} packed_id;
_Static_assert(sizeof(packed_id) <= COLL_UNIQUE_ID_BYTES, "an id fits in its bytes");

/* Gives an id a page for its secret. */
static coll_status make_page(colli_id *id, coll_error *error) {
  id->secret = colli_secret_create();
  if (id->secret)
    return COLL_OK;
  return colli_error_sys(error, COLL_ERR_NO_MEMORY, "create", "mmap", errno,
                         "cannot allocate a page for a secret; see ulimit -v");
}

coll_status colli_id_fresh(colli_id *id, coll_error *error) {
  *id = (colli_id){.pid = getpid(), .listen_fd = -1};
  if (make_page(id, error) != COLL_OK)
    return COLL_ERR_NO_MEMORY;
  int sys_errno = colli_random_secret(id->secret->bytes, COLL_SECRET_BYTES);
  if (sys_errno == 0)
    sys_errno = colli_random_secret(&id->comm_id, sizeof(id->comm_id));
  if (sys_errno == 0)
    return COLL_OK;
  colli_id_release(id);
  return colli_error_sys(error, COLL_ERR_SYSTEM, "create", "getrandom", sys_errno,
                         "no random bytes for a secret");
}

coll_status colli_id_make(colli_id *id, const colli_params *params, coll_error *error) {
  uint16_t port;
  coll_status status = colli_id_fresh(id, error);
  if (status != COLL_OK)
    return status;
  int count =
      colli_net_interfaces(params->text[COLLI_PARAM_TCP_IFNAME], id->addrs, COLLI_MAX_ADDRS, error);
  status = count == 0 ? error->status
                      : colli_door_listen(params->text[COLLI_PARAM_PORT_RANGE], NULL,
                                          &id->listen_fd, &port, error);
  if (status != COLL_OK)
    colli_id_release(id);
  for (int i = 0; status == COLL_OK && i < count; i++)
    id->addrs[i].port = port;
  return status;
}

void colli_id_pack(const colli_id *id, coll_id *out) {
  packed_id packed = {.magic = ID_MAGIC,
                      .version = ID_VERSION,
                      .pid = id->pid,
                      .listen_fd = id->listen_fd,
                      .comm_id = id->comm_id};
  memcpy(packed.addrs, id->addrs, sizeof(packed.addrs));
  memset(out, 0, sizeof(*out));
  memcpy(out->bytes, &packed, sizeof(packed));
  memcpy(out->bytes + offsetof(packed_id, secret), id->secret->bytes, COLL_SECRET_BYTES);
}

coll_status colli_id_unpack(const coll_id *from, colli_id *id, coll_error *error) {
  static const uint8_t padding[sizeof(*from) - sizeof(packed_id)];
  const uint8_t *secret = from->bytes + offsetof(packed_id, secret);
  packed_id packed;
  memcpy(&packed, from->bytes, sizeof(packed));
  explicit_bzero(packed.secret, sizeof(packed.secret));
  *id = (colli_id){.listen_fd = -1};
  bool sound = packed.magic == ID_MAGIC && packed.version == ID_VERSION &&
               colli_secret_present(secret) &&
               memcmp(from->bytes + sizeof(packed), padding, sizeof(padding)) == 0;
  for (int i = 0; i < COLLI_MAX_ADDRS; i++)
    sound = sound && colli_addr_sound(&packed.addrs[i]);
  if (!sound)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "create",
                           "the id was not made by coll_unique_id() of this version, or was "
                           "damaged on the way");
  if (make_page(id, error) != COLL_OK)
    return COLL_ERR_NO_MEMORY;
  memcpy(id->secret->bytes, secret, COLL_SECRET_BYTES);
  id->pid = packed.pid;
  id->listen_fd = packed.listen_fd;
  id->comm_id = packed.comm_id;
  memcpy(id->addrs, packed.addrs, sizeof(id->addrs));
  return COLL_OK;
}

void colli_id_release(colli_id *id) {
  colli_secret_release(id->secret);
  id->secret = NULL;
}
