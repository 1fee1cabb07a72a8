/* shm_wire.c: what is in a blob, and who is at the other end. */
#include "transports/shm/shm_wire.h"

#include <string.h>

#include "libcoll/net/unix_socket.h"

int shm_blob_read(const uint8_t raw[COLL_BLOB_BYTES], shm_blob *blob) {
  memcpy(blob, raw, sizeof *blob);
  if (blob->magic != SHM_MAGIC || blob->name_bytes < 2 || blob->name_bytes > COLLI_UNIX_NAME ||
      blob->name[0] != 0)
    return -1;
  return 0;
}

socklen_t shm_blob_address(const shm_blob *blob, struct sockaddr_un *address) {
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  memcpy(address->sun_path, blob->name, blob->name_bytes);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + blob->name_bytes);
}

bool shm_is_same_user(int sock, const shm_blob *self, bool *local) {
  pid_t pid;
  const bool same = colli_unix_is_same_user(sock, self->uid, &pid);
  *local = same && pid == self->pid;
  return same;
}
