/* filter.c: programs for the kernel's packet filter. */
#include "libcoll/net/filter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <stddef.h>
#include <sys/socket.h>

#define FLAG_SYN_RST 0x06u /* in the TCP header */

/* Where the program goes on. */
enum { AT_KINDS = 13, AT_RANK = 16, AT_PASS = 18, AT_OTHERS = 19, AT_DROP = 20 };

/* Jumps from instruction `here` to `yes` if what was loaded equals a value, else to `no`. */
#define JUMP_IF(here, value, yes, no)                                                              \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (uint8_t)((yes) - (here)-1),                        \
           (uint8_t)((no) - (here)-1))

/* Instruction `here`: goes on at another one. */
#define GO_ON(here, there) BPF_STMT(BPF_JMP | BPF_JA, (there) - (here)-1)

void colli_filter_attach(int listen_fd, const colli_filter *filter) {
  uint32_t tag[COLLI_TAG_BYTES / 4] = {0};
  const bool any = !filter->secret || !colli_auth_tag(filter->secret, (uint8_t *)tag);
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13), /* offsets are those of the TCP header */
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, FLAG_SYN_RST, AT_PASS - 2, 0),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 12), /* length of that header in its high half */
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf0),
      BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 2),
      BPF_STMT(BPF_MISC | BPF_TAX, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_IND, sizeof(colli_hello) - 4), /* drops if there is less */
      BPF_STMT(BPF_LD | BPF_W | BPF_IND, 0),
      JUMP_IF(8, htonl(COLLI_HELLO_MAGIC), 9, AT_DROP),
      BPF_STMT(BPF_LD | BPF_W | BPF_IND, offsetof(colli_hello, tag)),
      JUMP_IF(10, ntohl(tag[0]), 11, AT_OTHERS),
      BPF_STMT(BPF_LD | BPF_W | BPF_IND, offsetof(colli_hello, tag) + 4),
      JUMP_IF(12, ntohl(tag[1]), AT_KINDS, AT_OTHERS),
      BPF_STMT(BPF_LD | BPF_B | BPF_IND, offsetof(colli_hello, kind)),
      JUMP_IF(14, filter->kinds[0], AT_RANK, 15),
      JUMP_IF(15, filter->kinds[1], AT_RANK, AT_DROP),
      BPF_STMT(BPF_LD | BPF_W | BPF_IND, offsetof(colli_hello, dst_rank)),
      JUMP_IF(17, ntohl((uint32_t)filter->rank), AT_PASS, AT_DROP),
      BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
      BPF_STMT(BPF_RET | BPF_K, filter->others ? UINT32_MAX : 0),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  if (any)
    code[9] = (struct sock_filter)GO_ON(9, AT_PASS);
  if (!filter->kinds[0])
    code[AT_KINDS] = (struct sock_filter)GO_ON(AT_KINDS, AT_RANK);
  if (filter->rank < 0)
    code[AT_RANK] = (struct sock_filter)GO_ON(AT_RANK, AT_PASS);
  const struct sock_fprog program = {sizeof(code) / sizeof(*code), code};
  setsockopt(listen_fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

bool colli_filter_detach(int fd) {
  const int none = 0;
  return setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof(none)) == 0 || errno == ENOENT;
}
