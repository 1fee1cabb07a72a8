/* carrier.c: what the launchers that carry ids have in common. */
#include "libcoll/create/carrier.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/wireup/bootstrap/tree.h"

bool colli_carrier_overruled(const colli_params *params) {
  return *params->text[COLLI_PARAM_ROOT] || getenv("COLL_RANK") || getenv("RANK");
}

int colli_carrier_number(const char *variable) {
  const char *text = getenv(variable);
  char *end;
  errno = 0;
  long value = text ? strtol(text, &end, 10) : -1;
  bool sound = text && end != text && !*end && !errno && value >= 0 && value <= COLLI_MAX_RANKS;
  return sound ? (int)value : -1;
}

void colli_id_write(const colli_id *id, char digits[COLLI_ID_DIGITS + 1]) {
  coll_id packed;
  colli_id_pack(id, &packed);
  for (size_t i = 0; i < sizeof(packed.bytes); i++)
    snprintf(digits + 2 * i, 3, "%02x", packed.bytes[i]);
  explicit_bzero(&packed, sizeof(packed));
}

/* The value of a digit, or -1. */
static int read_digit(char letter) {
  static const char digits[] = "0123456789abcdef";
  const char *at = letter ? strchr(digits, letter) : NULL;
  return at ? (int)(at - digits) : -1;
}

coll_status colli_id_read(const char *digits, colli_id *id, coll_error *error) {
  coll_id packed;
  bool sound = strlen(digits) == COLLI_ID_DIGITS;
  for (size_t i = 0; sound && i < sizeof(packed.bytes); i++) {
    int high = read_digit(digits[2 * i]), low = read_digit(digits[2 * i + 1]);
    sound = high >= 0 && low >= 0;
    packed.bytes[i] = (uint8_t)((unsigned)high << 4 | (unsigned)low);
  }
  coll_status status = sound ? colli_id_unpack(&packed, id, error) : COLL_ERR_INVALID_ARGUMENT;
  explicit_bzero(&packed, sizeof(packed));
  if (status != COLL_ERR_INVALID_ARGUMENT)
    return status;
  return colli_error_set(error, COLL_ERR_SYSTEM, "create",
                         "what a rank passed on through the launcher is no id of this version");
}

int colli_carrier_parent(int rank, int nranks) {
  return boot_place_find(COLLI_CARRIER_FAN_OUT, rank, nranks, rank == 0).parent;
}

coll_status colli_carrier_place(const char *root, const char *parent, colli_id *id,
                                coll_error *error) {
  colli_id of_root, of_parent;
  coll_status status = colli_id_read(root, &of_root, error);
  if (status != COLL_OK)
    return status;
  status = colli_id_read(parent, &of_parent, error);
  if (status == COLL_OK) {
    colli_id_place(id, &of_root, &of_parent, COLLI_CARRIER_FAN_OUT);
    colli_id_release(&of_parent);
  }
  colli_id_release(&of_root);
  return status;
}
