/* id.c: makes ids, and turns them into bytes and back. */
#include "libcoll/wireup/id.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/base/prng.h"
#include "libcoll/net/door.h"
#include "libcoll/net/interfaces.h"

#define ID_MAGIC      0x32694c43u /* "CLi2": the digit is the version of what follows */
#define ADDRESS_BYTES 72          /* of all addresses together */
#define MAX_FOUND     64          /* addresses of this host that are looked at */

/* An id as bytes. */
typedef struct packed_id {
  uint32_t magic;
  uint32_t check; /* of all that follows: finds damage, not malice */
  uint64_t comm_id;
  int32_t pid;
  uint16_t port; /* of all addresses */
  uint8_t naddrs;
  uint8_t six; /* bit i: address i is IPv6 and takes 16 bytes, not 4 */
  uint8_t secret[COLL_SECRET_BYTES];
  uint8_t addresses[ADDRESS_BYTES]; /* one behind the other, best first; then zeros */
} packed_id;
_Static_assert(sizeof(packed_id) == COLL_UNIQUE_ID_BYTES, "an id fits exactly in its bytes");
_Static_assert(COLLI_MAX_ADDRS <= 8, "a bit for each address");

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

/* ---- addresses ------------------------------------------------------------------------------- */

int colli_id_choose(const colli_addr *all, int count, colli_addr addrs[COLLI_MAX_ADDRS]) {
  bool chosen[MAX_FOUND];
  int used = 0;
  COLLI_ASSERT(count <= MAX_FOUND);
  (void)colli_addrs_choose(all, count, COLLI_MAX_ADDRS, ADDRESS_BYTES, chosen);
  for (int i = 0; i < count; i++)
    if (chosen[i])
      addrs[used++] = all[i];
  return used;
}

bool colli_id_full(const colli_addr addrs[COLLI_MAX_ADDRS]) {
  size_t bytes = 0;
  int count = 0;
  for (; count < COLLI_MAX_ADDRS && addrs[count].family; count++)
    bytes += colli_addr_bytes(&addrs[count]);
  return count >= COLLI_MAX_ADDRS || bytes + 16 > ADDRESS_BYTES;
}

/* Finds the addresses that go into an id; false if there are none. */
static bool find_addresses(colli_id *id, const colli_params *params, coll_error *error) {
  colli_addr all[MAX_FOUND];
  const int count =
      colli_net_interfaces(params->text[COLLI_PARAM_TCP_IFNAME], all, MAX_FOUND, error);
  return colli_id_choose(all, count, id->addrs) > 0;
}

coll_status colli_id_make(colli_id *id, const colli_params *params, coll_error *error) {
  uint16_t port;
  coll_status status = colli_id_fresh(id, error);
  if (status != COLL_OK)
    return status;
  status = find_addresses(id, params, error)
               ? colli_door_listen(params->text[COLLI_PARAM_PORT_RANGE], NULL, &id->listen_fd,
                                   &port, error)
               : error->status;
  if (status != COLL_OK)
    colli_id_release(id);
  for (int i = 0; status == COLL_OK && i < COLLI_MAX_ADDRS && id->addrs[i].family; i++)
    id->addrs[i].port = port;
  return status;
}

void colli_id_place(colli_id *id, const colli_id *root, const colli_id *parent, int fan_out) {
  colli_secret_release(id->secret);
  id->secret = colli_secret_acquire(root->secret);
  id->comm_id = root->comm_id;
  id->pid = root->pid;
  id->server = 0;
  id->fan_out = fan_out;
  id->own_addr = id->addrs[0];
  memcpy(id->addrs, parent->addrs, sizeof(id->addrs));
}

/* ---- bytes ----------------------------------------------------------------------------------- */

uint32_t colli_id_check(const coll_id *id) {
  uint32_t check = 0x811c9dc5u; /* FNV-1a */
  for (size_t i = offsetof(packed_id, comm_id); i < sizeof(id->bytes); i++)
    check = (check ^ id->bytes[i]) * 0x01000193u;
  return check;
}

void colli_id_pack(const colli_id *id, coll_id *out) {
  packed_id packed = {
      .magic = ID_MAGIC, .pid = id->pid, .comm_id = id->comm_id, .port = id->addrs[0].port};
  size_t used = 0;
  for (int i = 0; i < COLLI_MAX_ADDRS && id->addrs[i].family; i++) {
    const colli_addr *addr = &id->addrs[i];
    COLLI_ASSERT(used + colli_addr_bytes(addr) <= ADDRESS_BYTES && addr->port == packed.port);
    memcpy(packed.addresses + used, addr->ip, colli_addr_bytes(addr));
    used += colli_addr_bytes(addr);
    packed.six |= (uint8_t)((addr->family == 6) << i);
    packed.naddrs++;
  }
  memcpy(out->bytes, &packed, sizeof(packed));
  memcpy(out->bytes + offsetof(packed_id, secret), id->secret->bytes, COLL_SECRET_BYTES);
  packed.check = colli_id_check(out);
  memcpy(out->bytes + offsetof(packed_id, check), &packed.check, sizeof(packed.check));
}

/* Reads the addresses; false if they are impossible. */
static bool unpack_addresses(const packed_id *packed, colli_addr addrs[COLLI_MAX_ADDRS]) {
  static const uint8_t zeros[ADDRESS_BYTES];
  size_t used = 0;
  if (packed->naddrs < 1 || packed->naddrs > COLLI_MAX_ADDRS || packed->port == 0 ||
      packed->six >> packed->naddrs != 0)
    return false;
  for (int i = 0; i < packed->naddrs; i++) {
    addrs[i].family = packed->six >> i & 1 ? 6 : 4;
    addrs[i].port = packed->port;
    const size_t bytes = colli_addr_bytes(&addrs[i]);
    if (used + bytes > ADDRESS_BYTES || memcmp(packed->addresses + used, zeros, bytes) == 0)
      return false;
    memcpy(addrs[i].ip, packed->addresses + used, bytes);
    used += bytes;
  }
  return memcmp(packed->addresses + used, zeros, ADDRESS_BYTES - used) == 0;
}

coll_status colli_id_unpack(const coll_id *from, colli_id *id, coll_error *error) {
  const uint8_t *secret = from->bytes + offsetof(packed_id, secret);
  packed_id packed;
  memcpy(&packed, from->bytes, sizeof(packed));
  explicit_bzero(packed.secret, sizeof(packed.secret));
  *id = (colli_id){.listen_fd = -1, .server = -1};
  if (packed.magic != ID_MAGIC || packed.check != colli_id_check(from) || packed.pid <= 0 ||
      !colli_secret_present(secret) || !unpack_addresses(&packed, id->addrs)) {
    memset(id->addrs, 0, sizeof(id->addrs));
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "create",
                           "the id was not made by coll_unique_id() of this version, or was "
                           "damaged on the way");
  }
  id->pid = packed.pid;
  id->comm_id = packed.comm_id;
  if (make_page(id, error) != COLL_OK)
    return COLL_ERR_NO_MEMORY;
  memcpy(id->secret->bytes, secret, COLL_SECRET_BYTES);
  return COLL_OK;
}

void colli_id_release(colli_id *id) {
  colli_secret_release(id->secret);
  id->secret = NULL;
}
