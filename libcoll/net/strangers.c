/* strangers.c: how many connections came from strangers, and from where. */
#include "libcoll/net/strangers.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include "libcoll/base/clock.h"

#define READ_NS (300 * COLLI_NS_PER_MS) /* the table has all connections of the host */

/* Counts one from an address in the form of IPv6. */
static void add_source(colli_strangers *strangers, const uint8_t ip[16]) {
  strangers->count++;
  for (int i = 0; i < strangers->nsources; i++)
    if (memcmp(strangers->sources[i].ip, ip, 16) == 0) {
      strangers->sources[i].count++;
      return;
    }
  if (strangers->nsources == COLLI_STRANGERS_SOURCES)
    return;
  memcpy(strangers->sources[strangers->nsources].ip, ip, 16);
  strangers->sources[strangers->nsources++].count = 1;
}

void colli_strangers_add(colli_strangers *strangers, const colli_addr *from) {
  uint8_t ip[16] = {[10] = 0xff, [11] = 0xff};
  memcpy(from->family == 4 ? ip + 12 : ip, from->ip, from->family == 4 ? 4 : 16);
  add_source(strangers, ip);
}

/* Reads the address of a line of /proc/net/tcp or tcp6: words of 32 bits as they lie in memory.
 * False if it has another form. */
static bool read_remote(const char *text, uint8_t ip[16]) {
  const size_t words = strcspn(text, ":") / 8;
  memcpy(ip, (const uint8_t[16]){[10] = 0xff, [11] = 0xff}, 16);
  for (size_t i = 0; i < words && i < 4; i++) {
    uint32_t word;
    if (sscanf(text + 8 * i, "%8x", &word) != 1)
      return false;
    memcpy(ip + (words == 1 ? 12 : 4 * i), &word, 4);
  }
  return words == 1 || words == 4;
}

void colli_strangers_add_silent(colli_strangers *strangers, uint16_t port) {
  static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
  const uint64_t until_ns = colli_now_ns() + READ_NS;
  for (int i = 0; i < 2; i++) {
    char line[300], local[64], remote[64];
    FILE *file = fopen(tables[i], "re");
    while (file && colli_now_ns() < until_ns && fgets(line, sizeof(line), file)) {
      unsigned local_port, state;
      uint8_t ip[16];
      if (sscanf(line, " %*[0-9]: %63s %63s %x", local, remote, &state) == 3 &&
          state == TCP_SYN_RECV && sscanf(local, "%*[0-9A-F]:%x", &local_port) == 1 &&
          local_port == port && read_remote(remote, ip))
        add_source(strangers, ip);
    }
    if (file)
      fclose(file);
  }
}

const char *colli_strangers_text(const colli_strangers *strangers,
                                 char text[COLLI_STRANGERS_TEXT]) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  char name[INET6_ADDRSTRLEN] = "?";
  int most = 0;
  *text = 0;
  if (strangers->count == 0)
    return text;
  for (int i = 1; i < strangers->nsources; i++)
    if (strangers->sources[i].count > strangers->sources[most].count)
      most = i;
  const uint8_t *ip = strangers->sources[most].ip;
  bool v4 = memcmp(ip, mapped, sizeof(mapped)) == 0;
  inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? ip + 12 : ip, name, sizeof(name));
  snprintf(text, COLLI_STRANGERS_TEXT, "; meanwhile %lu stranger%s connected, %lu of them from %s",
           strangers->count, strangers->count > 1 ? "s" : "", strangers->sources[most].count, name);
  return text;
}
