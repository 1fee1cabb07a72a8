/* test_id.c: which addresses go into an id, and ids that were altered. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <string.h>

#include "libcoll/wireup/id.h"

/* An address as text: "10.0.0.1/24", "fe80::1/64%2". */
static colli_addr address(const char *text) {
  colli_addr addr = {.port = 6000};
  char ip[64];
  unsigned prefix = 0, scope = 0;
  cr_assert_geq(sscanf(text, "%63[^/]/%u%%%u", ip, &prefix, &scope), 1);
  addr.family = strchr(ip, ':') ? 6 : 4;
  addr.prefix = (uint8_t)prefix;
  addr.scope = scope;
  cr_assert_eq(inet_pton(addr.family == 6 ? AF_INET6 : AF_INET, ip, addr.ip), 1, "%s", text);
  return addr;
}

/* Checks which of `all` are chosen; both lists end with NULL. */
static void check_choice(const char *const *all, const char *const *wanted) {
  colli_addr addrs[16], chosen[COLLI_MAX_ADDRS];
  int count = 0;
  while (all[count]) {
    addrs[count] = address(all[count]);
    count++;
  }
  const int used = colli_id_choose(addrs, count, chosen);
  for (int i = 0; i < used; i++) {
    char text[COLLI_ADDR_TEXT];
    cr_assert(wanted[i], "%s is one too many", colli_addr_text(&chosen[i], text));
    const colli_addr expected = address(wanted[i]);
    cr_expect(colli_addr_same_ip(&chosen[i], &expected), "%d: %s instead of %s", i,
              colli_addr_text(&chosen[i], text), wanted[i]);
  }
  cr_expect_null(wanted[used], "%s is missing", wanted[used]);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

Test(id, all_addresses_of_a_common_host) {
  check_choice(LIST("10.0.0.1/24", "fd00::1/64", "fe80::1/64%2", "127.0.0.1/8", "::1/128"),
               LIST("10.0.0.1/24", "fd00::1/64", "fe80::1/64%2", "127.0.0.1/8", "::1/128"));
}

Test(id, one_of_each_network_comes_first_and_loopback_last) {
  check_choice(LIST("10.0.0.1/24", "10.0.0.2/24", "10.0.1.1/24", "10.0.2.1/24", "10.0.3.1/24",
                    "10.0.4.1/24", "10.0.5.1/24", "127.0.0.1/8"),
               LIST("10.0.0.1/24", "10.0.1.1/24", "10.0.2.1/24", "10.0.3.1/24", "10.0.4.1/24",
                    "10.0.5.1/24"));
  check_choice(LIST("10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24", "10.0.0.4/24", "10.0.0.5/24",
                    "10.0.1.1/24", "10.0.2.1/24", "127.0.0.1/8"),
               LIST("10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24", "10.0.0.4/24", "10.0.1.1/24",
                    "10.0.2.1/24"));
  check_choice(LIST("fe80::1/64%2", "fe80::2/64%2", "fe80::3/64%3", "fe80::4/64%4", "fe80::5/64%5",
                    "fe80::6/64%6", "127.0.0.1/8"),
               LIST("fe80::1/64%2", "fe80::3/64%3", "fe80::4/64%4", "fe80::5/64%5", "127.0.0.1/8"));
}

Test(id, each_family_and_each_interface_has_one) {
  check_choice(LIST("10.0.0.1/24%2", "10.0.1.1/24%2", "10.0.2.1/24%2", "10.0.3.1/24%2",
                    "10.0.4.1/24%2", "10.0.5.1/24%2", "10.0.6.1/24%3", "fd00::1/64%2",
                    "127.0.0.1/8%1"),
               LIST("10.0.0.1/24", "10.0.1.1/24", "10.0.2.1/24", "10.0.3.1/24", "10.0.6.1/24",
                    "fd00::1/64"));
}

static bool is_full(const char *const *texts) {
  colli_addr addrs[COLLI_MAX_ADDRS] = {{0}};
  for (int i = 0; texts[i]; i++)
    addrs[i] = address(texts[i]);
  return colli_id_full(addrs);
}

Test(id, says_whether_it_is_full) {
  cr_expect_not(is_full(LIST("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5")));
  cr_expect(is_full(LIST("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6")));
  cr_expect_not(is_full(LIST("fd00::1", "fd01::1", "fd02::1")));
  cr_expect(is_full(LIST("fd00::1", "fd01::1", "fd02::1", "fd03::1")), "4 bytes are left");
}

Test(id, short_addresses_fill_what_long_ones_leave) {
  check_choice(
      LIST("fd00::1/64", "fd01::1/64", "fd02::1/64", "10.0.0.1/8", "fd03::1/64", "fd04::1/64",
           "::1/128", "127.0.0.1/8"),
      LIST("fd00::1/64", "fd01::1/64", "fd02::1/64", "10.0.0.1/8", "fd03::1/64", "127.0.0.1/8"));
}

/* Makes an id with some addresses. */
static colli_id make_id(const char *const *texts, coll_id *packed) {
  colli_id id;
  coll_error error = COLL_ERROR_INIT;
  cr_assert_eq(colli_id_fresh(&id, &error), COLL_OK);
  for (int i = 0; texts[i]; i++)
    id.addrs[i] = address(texts[i]);
  colli_id_pack(&id, packed);
  return id;
}

Test(id, is_read_as_it_was_written) {
  coll_id packed;
  coll_error error = COLL_ERROR_INIT;
  colli_id read,
      id = make_id(LIST("10.0.0.1", "fd00::1", "10.0.1.1", "fd00::2", "fd00::3", "127.0.0.1"),
                   &packed);
  cr_assert_eq(colli_id_unpack(&packed, &read, &error), COLL_OK, "%s", error.message);
  cr_expect_arr_eq(read.addrs, id.addrs, sizeof(id.addrs));
  cr_expect_arr_eq(read.secret->bytes, id.secret->bytes, COLL_SECRET_BYTES);
  cr_expect(read.comm_id == id.comm_id && read.pid == id.pid);
  colli_id_release(&read);
  colli_id_release(&id);
}

Test(id, damage_at_any_byte_is_noticed) {
  coll_id packed;
  coll_error error = COLL_ERROR_INIT;
  colli_id read, id = make_id(LIST("10.0.0.1", "fd00::1"), &packed);
  for (size_t i = 0; i < sizeof(packed.bytes); i++)
    for (int bit = 0; bit < 8; bit++) {
      packed.bytes[i] ^= (unsigned char)(1 << bit);
      cr_expect_eq(colli_id_unpack(&packed, &read, &error), COLL_ERR_INVALID_ARGUMENT,
                   "bit %d of byte %zu", bit, i);
      cr_expect(strstr(error.message, "damaged"), "%s", error.message);
      packed.bytes[i] ^= (unsigned char)(1 << bit);
    }
  colli_id_release(&id);
}

/* An id with a byte changed on purpose, and the checksum that belongs to it. */
static coll_status read_forged(const coll_id *good, size_t place, unsigned char byte) {
  coll_id forged = *good;
  colli_id read;
  forged.bytes[place] = byte;
  const uint32_t check = colli_id_check(&forged);
  memcpy(forged.bytes + 4, &check, sizeof(check));
  const coll_status status = colli_id_unpack(&forged, &read, NULL);
  if (status == COLL_OK)
    colli_id_release(&read);
  return status;
}

Test(id, impossible_fields_are_refused) {
  enum { PID = 16, PORT = 20, NADDRS = 22, SIX = 23, SECRET = 24, ADDRESSES = 56, ZEROS = 76 };
  coll_id packed;
  colli_id id = make_id(LIST("10.0.0.1", "fd00::1"), &packed);
  cr_expect_eq(read_forged(&packed, PID, packed.bytes[PID]), COLL_OK);
  cr_expect_eq(read_forged(&packed, PID + 3, 0x80), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(read_forged(&packed, NADDRS, 0), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(read_forged(&packed, NADDRS, 1), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(read_forged(&packed, NADDRS, 3), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(read_forged(&packed, NADDRS, 7), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(read_forged(&packed, NADDRS, 255), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(read_forged(&packed, SIX, 0xff), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(read_forged(&packed, SIX, 0), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(read_forged(&packed, ADDRESSES, 11), COLL_OK);
  cr_expect_eq(read_forged(&packed, ZEROS, 1), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(read_forged(&packed, 127, 1), COLL_ERR_INVALID_ARGUMENT);
  const unsigned char high = packed.bytes[PORT + 1];
  packed.bytes[PORT + 1] = 0;
  cr_expect_eq(read_forged(&packed, PORT, 1), COLL_OK);
  cr_expect_eq(read_forged(&packed, PORT, 0), COLL_ERR_INVALID_ARGUMENT);
  packed.bytes[PORT + 1] = high;
  memset(packed.bytes + SECRET, 0, COLL_SECRET_BYTES);
  cr_expect_eq(read_forged(&packed, ADDRESSES, 10), COLL_ERR_INVALID_ARGUMENT);
  colli_id_release(&id);
}
