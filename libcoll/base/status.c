/* status.c: the constants of the public header, as names and sizes. */
#include "coll/coll.h"

int coll_version(void) {
  return COLL_VERSION;
}

const char *coll_status_name(coll_status status) {
  static const char *const names[] = {"COLL_OK",
                                      "COLL_IN_PROGRESS",
                                      "COLL_ERR_INVALID_ARGUMENT",
                                      "COLL_ERR_INVALID_USAGE",
                                      "COLL_ERR_SYSTEM",
                                      "COLL_ERR_NO_MEMORY",
                                      "COLL_ERR_TIMEOUT",
                                      "COLL_ERR_PEER_LOST",
                                      "COLL_ERR_MISMATCH",
                                      "COLL_ERR_ABORTED",
                                      "COLL_ERR_AUTH",
                                      "COLL_ERR_UNREACHABLE",
                                      "COLL_ERR_PROTOCOL",
                                      "COLL_ERR_UNSUPPORTED",
                                      "COLL_ERR_INTERNAL"};
  int number = (int)status;
  return number >= 0 && number <= COLL_ERR_INTERNAL ? names[number] : "unknown coll_status";
}

size_t coll_type_bytes(coll_type type) {
  static const unsigned char bytes[COLL_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};
  int number = (int)type;
  return number >= 0 && number < COLL_TYPE_COUNT ? bytes[number] : 0;
}
