/* filter.c: programs for the kernel's packet filter. */
#include "libcoll/net/filter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#define FLAG_SYN_RST 0x06u /* in the TCP header */

/* Where the program goes on, and where it ends. */
enum {
  AT_TAG = 10,
  AT_ORIGIN = 14,
  AT_IPV4 = 61,
  AT_COMPARE = 69,
  AT_KINDS = 81,
  AT_RANK = 85,
  AT_PASS = 87,
  AT_OTHERS,
  AT_DROP,
  END
};

/* Words of memory that it has. */
enum { SAVED_HEADER, SAVED_HASH };

/* Where IP's header has the address of origin. */
#define FROM_IPV4 (SKF_NET_OFF + 12)
#define FROM_IPV6 (SKF_NET_OFF + 8)

/* Jumps from instruction `here` to `yes` if what was loaded equals a value, else to `no`. */
#define JUMP_IF(here, value, yes, no)                                                              \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (uint8_t)((yes) - (here)-1),                        \
           (uint8_t)((no) - (here)-1))

/* Instruction `here`: goes on at another one. */
#define GO_ON(here, there) BPF_STMT(BPF_JMP | BPF_JA, (there) - (here)-1)

/* Loads a field of the hello; X has the length of TCP's header. */
#define LOAD_FIELD(size, offset) BPF_STMT(BPF_LD | (size) | BPF_IND, (offset))

/* Eight instructions: mix() of origin.c. */
#define MIX(load, multiplier)                                                                      \
  load, BPF_STMT(BPF_LDX | BPF_MEM, SAVED_HASH), BPF_STMT(BPF_ALU | BPF_XOR | BPF_X, 0),           \
      BPF_STMT(BPF_ALU | BPF_MUL | BPF_K, (multiplier)), BPF_STMT(BPF_MISC | BPF_TAX, 0),          \
      BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 16), BPF_STMT(BPF_ALU | BPF_XOR | BPF_X, 0),             \
      BPF_STMT(BPF_ST, SAVED_HASH)
#define MIX_WORD(offset, multiplier)                                                               \
  MIX(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offset)), (multiplier))

/* Until the first half of the tag is known. */
static void write_head(struct sock_filter code[END], const colli_tags *tags) {
  const struct sock_filter part[AT_ORIGIN] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13), /* offsets are those of the TCP header */
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, FLAG_SYN_RST, AT_PASS - 2, 0),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 12), /* length of that header in its high half */
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf0),
      BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 2),
      BPF_STMT(BPF_ST, SAVED_HEADER),
      BPF_STMT(BPF_MISC | BPF_TAX, 0),
      LOAD_FIELD(BPF_W, sizeof(colli_hello) - 4), /* drops if there is less */
      LOAD_FIELD(BPF_W, 0),
      JUMP_IF(9, htonl(COLLI_HELLO_MAGIC), AT_TAG, AT_DROP),
      LOAD_FIELD(BPF_W, offsetof(colli_hello, tag)),
      JUMP_IF(11, ntohl(tags->anywhere[0]), 12, AT_ORIGIN),
      LOAD_FIELD(BPF_W, offsetof(colli_hello, tag) + 4),
      JUMP_IF(13, ntohl(tags->anywhere[1]), AT_KINDS, AT_OTHERS),
  };
  memcpy(code, part, sizeof(part));
}

/* Whether the hello comes from where its tag says. */
static void write_origin(struct sock_filter code[END], const colli_tags *tags) {
  const uint32_t multiplier = tags->key.multiplier;
  const struct sock_filter part[AT_KINDS - AT_ORIGIN] = {
      JUMP_IF(14, ntohl(tags->one_origin), 15, AT_OTHERS),
      BPF_STMT(BPF_LD | BPF_IMM, tags->key.start),
      BPF_STMT(BPF_ST, SAVED_HASH),
      MIX_WORD(0, multiplier), /* both ports */
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, (uint32_t)SKF_NET_OFF),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf0), /* version of IP */
      JUMP_IF(27, 0x60, 28, AT_IPV4),
      MIX_WORD(FROM_IPV6, multiplier),
      MIX_WORD(FROM_IPV6 + 4, multiplier),
      MIX_WORD(FROM_IPV6 + 8, multiplier),
      MIX_WORD(FROM_IPV6 + 12, multiplier),
      GO_ON(60, AT_COMPARE),
      MIX_WORD(FROM_IPV4, multiplier),
      MIX(BPF_STMT(BPF_LD | BPF_IMM, 0), tags->key.last),
      BPF_STMT(BPF_LDX | BPF_MEM, SAVED_HEADER),
      LOAD_FIELD(BPF_W, offsetof(colli_hello, tag) + 4),
      BPF_STMT(BPF_LDX | BPF_MEM, SAVED_HASH),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, AT_DROP - AT_KINDS),
  };
  memcpy(code + AT_ORIGIN, part, sizeof(part));
}

/* Whether this door is meant. */
static void write_tail(struct sock_filter code[END], const colli_filter *filter) {
  const struct sock_filter part[END - AT_KINDS] = {
      BPF_STMT(BPF_LDX | BPF_MEM, SAVED_HEADER),
      LOAD_FIELD(BPF_B, offsetof(colli_hello, kind)),
      JUMP_IF(83, filter->kinds[0], AT_RANK, 84),
      JUMP_IF(84, filter->kinds[1], AT_RANK, AT_DROP),
      LOAD_FIELD(BPF_W, offsetof(colli_hello, dst_rank)),
      JUMP_IF(86, ntohl((uint32_t)filter->rank), AT_PASS, AT_DROP),
      BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
      BPF_STMT(BPF_RET | BPF_K, filter->others ? UINT32_MAX : 0),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  memcpy(code + AT_KINDS, part, sizeof(part));
  if (!filter->kinds[0])
    code[AT_KINDS + 1] = (struct sock_filter)GO_ON(AT_KINDS + 1, AT_RANK);
  if (filter->rank < 0)
    code[AT_RANK] = (struct sock_filter)GO_ON(AT_RANK, AT_PASS);
}

void colli_filter_attach(int listen_fd, const colli_filter *filter) {
  struct sock_filter code[END];
  colli_tags tags = {0};
  const bool any = !filter->secret || !colli_auth_tags(filter->secret, &tags);
  write_head(code, &tags);
  write_origin(code, &tags);
  write_tail(code, filter);
  if (any)
    code[AT_TAG] = (struct sock_filter)GO_ON(AT_TAG, AT_PASS);
  const struct sock_fprog program = {END, code};
  setsockopt(listen_fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

void colli_filter_attach_word(int listen_fd, uint32_t word, uint32_t bytes) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, FLAG_SYN_RST, 7, 0),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 12),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf0),
      BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 2),
      BPF_STMT(BPF_MISC | BPF_TAX, 0),
      LOAD_FIELD(BPF_B, bytes - 1), /* drops if there is less */
      LOAD_FIELD(BPF_W, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(word), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const struct sock_fprog program = {sizeof(code) / sizeof(*code), code};
  setsockopt(listen_fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

/* Replaces a filter by one that drops nothing. */
static bool pass_all(int fd) {
  struct sock_filter code = BPF_STMT(BPF_RET | BPF_K, UINT32_MAX);
  const struct sock_fprog program = {1, &code};
  return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0;
}

bool colli_filter_detach(int fd) {
  const int none = 0;
  if (setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof(none)) == 0 || errno == ENOENT)
    return true;
  if (errno != ENOPROTOOPT)
    return false;
  /* qemu-user has no such option. Who may not attach a filter has none. */
  return pass_all(fd) || errno == EPERM;
}
