/*
 * wan.c: a line between two sites, for hosts.py: it makes two tap devices, one for each site's
 * bridge, and carries frames between them, each of which arrives half a round trip after it has
 * left. They leave one after the other, at the line's rate. What does not fit in its queue is lost,
 * and of the others a share. It ends with standard input.
 * Usage: wan DEVICE DEVICE BITS_PER_S RTT_MS LOSS_PERCENT
 */
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { FRAME_BYTES = 2048, WAITING = 4096, AT_ONCE = 64 };

struct frame {
  uint64_t due_ns;
  ssize_t bytes;
  unsigned char data[FRAME_BYTES];
};

/* What goes from one device to the other: a ring of frames in the order of due_ns. */
struct way {
  int from, to;
  struct frame *ring;
  unsigned first, count;
  unsigned long carried, full, lost;
  uint64_t free_ns; /* when the line has sent all of them */
};

struct line {
  struct way way[2];
  double ns_per_byte, half_ns, loss;
};

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int open_device(const char *name) {
  struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
  int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
  if (fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0)
    return fd;
  perror("wan: /dev/net/tun");
  exit(1);
}

/* Delivers frames that have arrived; returns when the next one does. */
static uint64_t deliver(struct way *way) {
  for (; way->count > 0 && way->ring[way->first].due_ns <= now_ns(); way->count--) {
    const struct frame *frame = &way->ring[way->first];
    if (write(way->to, frame->data, (size_t)frame->bytes) < 0)
      perror("wan: write");
    way->first = (way->first + 1) % WAITING;
  }
  return way->count > 0 ? way->ring[way->first].due_ns : UINT64_MAX;
}

/* Takes what a site sends. */
static void take(const struct line *line, struct way *way) {
  static struct frame lost;
  for (int i = 0; i < AT_ONCE; i++) {
    int full = way->count == WAITING, drop = full || drand48() * 100 < line->loss;
    struct frame *frame = drop ? &lost : &way->ring[(way->first + way->count) % WAITING];
    frame->bytes = read(way->from, frame->data, sizeof frame->data);
    if (frame->bytes <= 0)
      return;
    way->full += full;
    way->lost += drop && !full;
    way->carried += !drop;
    if (drop)
      continue;
    uint64_t now = now_ns();
    way->free_ns = (way->free_ns > now ? way->free_ns : now) +
                   (uint64_t)((double)frame->bytes * line->ns_per_byte);
    frame->due_ns = way->free_ns + (uint64_t)line->half_ns;
    way->count++;
  }
}

int main(int argc, char **argv) {
  if (argc != 6)
    return 2;
  struct line line = {
      .ns_per_byte = 8e9 / atof(argv[3]), .half_ns = atof(argv[4]) * 5e5, .loss = atof(argv[5])};
  srand48(1);
  int first = open_device(argv[1]), second = open_device(argv[2]);
  line.way[0] = (struct way){.from = first, .to = second};
  line.way[1] = (struct way){.from = second, .to = first};
  for (int i = 0; i < 2; i++)
    if (!(line.way[i].ring = calloc(WAITING, sizeof(struct frame))))
      return 1;
  struct pollfd fds[] = {{0, POLLIN, 0}, {first, POLLIN, 0}, {second, POLLIN, 0}};
  printf("ready\n");
  fflush(stdout);
  while (!fds[0].revents) {
    uint64_t a = deliver(&line.way[0]), b = deliver(&line.way[1]);
    uint64_t next = a < b ? a : b, now = now_ns(), wait = next <= now ? 0 : next - now;
    wait = wait < 1000000000 ? wait : 1000000000;
    struct timespec limit = {(time_t)(wait / 1000000000), (long)(wait % 1000000000)};
    ppoll(fds, 3, &limit, NULL);
    take(&line, &line.way[0]);
    take(&line, &line.way[1]);
  }
  for (int i = 0; i < 2; i++)
    fprintf(stderr, "wan: %lu frames, %lu more found the queue full, %lu more were lost\n",
            line.way[i].carried, line.way[i].full, line.way[i].lost);
  return 0;
}
