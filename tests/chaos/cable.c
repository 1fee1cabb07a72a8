/*
 * cable.c: a cable between two switches that loses, repeats and swaps frames, in both directions or
 * in one, for tests/chaos/run where the kernel cannot. It makes two tap devices and carries frames
 * between them. A line on standard input, "LOSS REPEAT SWAP DELAY_MS DEAF", changes how:
 *   LOSS, REPEAT, SWAP   percent of the frames
 *   DELAY_MS             each frame waits up to this long; their order stays
 *   DEAF                 1: nothing arrives at the second device; 2: at the first; 0: all arrives
 * The answer is "frames lost repeated swapped" since the line before. It ends with standard input.
 * Usage: chaos_cable DEVICE DEVICE SEED
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

enum { FRAME_BYTES = 2048, WAITING = 1024, AT_ONCE = 32, SWAP_US = 3000 };

struct frame {
  uint64_t due_us;
  ssize_t bytes;
  unsigned char data[FRAME_BYTES];
};

/* What goes from one device to the other; frames that wait are a ring, in the order of due_us. */
struct way {
  int from, to, deaf;
  struct frame *ring, swapped; /* swapped.bytes 0: none */
  unsigned first, count;
};

struct cable {
  struct way way[2];
  int loss, repeat, swap, delay_ms, deaf;
  unsigned long frames, lost, repeated, swapped;
  uint64_t random;
};

static uint64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static uint64_t below(struct cable *cable, uint64_t bound) {
  cable->random ^= cable->random << 13;
  cable->random ^= cable->random >> 7;
  cable->random ^= cable->random << 17;
  return cable->random % bound;
}

static int open_device(const char *name) {
  struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
  int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
  if (fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0)
    return fd;
  perror("chaos_cable: /dev/net/tun");
  exit(1);
}

/* A full device loses the frame, as a network does. */
static void put(struct cable *cable, const struct way *way, const struct frame *frame) {
  cable->frames++;
  if (write(way->to, frame->data, (size_t)frame->bytes) < 0)
    cable->lost++;
}

/* Sends frames whose time has come; returns when the next one's will. */
static uint64_t send_due(struct cable *cable, struct way *way) {
  uint64_t now = now_us();
  for (; way->count > 0 && way->ring[way->first].due_us <= now; way->count--) {
    put(cable, way, &way->ring[way->first]);
    way->first = (way->first + 1) % WAITING;
  }
  if (way->swapped.bytes > 0 && way->swapped.due_us <= now) {
    put(cable, way, &way->swapped);
    way->swapped.bytes = 0;
  }
  uint64_t next = way->count > 0 ? way->ring[way->first].due_us : UINT64_MAX;
  return way->swapped.bytes > 0 && way->swapped.due_us < next ? way->swapped.due_us : next;
}

static void queue(struct cable *cable, struct way *way, const struct frame *frame) {
  if (way->count == WAITING) {
    cable->lost++;
    return;
  }
  uint64_t due = now_us(), last = way->ring[(way->first + way->count - 1) % WAITING].due_us;
  if (cable->delay_ms > 0)
    due += below(cable, (uint64_t)cable->delay_ms * 1000);
  struct frame *place = &way->ring[(way->first + way->count++) % WAITING];
  memcpy(place->data, frame->data, (size_t)frame->bytes);
  place->bytes = frame->bytes;
  place->due_us = way->count > 1 && due < last ? last : due;
}

/* Decides what happens to a frame that has come. */
static void take(struct cable *cable, struct way *way, const struct frame *frame) {
  if (way->deaf & cable->deaf || (int)below(cable, 100) < cable->loss) {
    cable->lost++;
    return;
  }
  if (way->swapped.bytes == 0 && (int)below(cable, 100) < cable->swap) {
    way->swapped = *frame; /* later ones overtake it */
    way->swapped.due_us = now_us() + below(cable, SWAP_US);
    cable->swapped++;
    return;
  }
  queue(cable, way, frame);
  if ((int)below(cable, 100) < cable->repeat) {
    queue(cable, way, frame);
    cable->repeated++;
  }
}

static void carry(struct cable *cable, struct way *way) {
  struct frame frame;
  for (int i = 0; i < AT_ONCE; i++) {
    frame.bytes = read(way->from, frame.data, sizeof frame.data);
    if (frame.bytes <= 0)
      return;
    take(cable, way, &frame);
  }
}

/* Reads a line from standard input; 0 at its end. */
static int obey(struct cable *cable) {
  char line[128];
  ssize_t bytes = read(0, line, sizeof line - 1);
  if (bytes <= 0)
    return 0;
  line[bytes] = 0;
  if (sscanf(line, "%d %d %d %d %d", &cable->loss, &cable->repeat, &cable->swap, &cable->delay_ms,
             &cable->deaf) != 5)
    return 0;
  printf("%lu %lu %lu %lu\n", cable->frames, cable->lost, cable->repeated, cable->swapped);
  fflush(stdout);
  cable->frames = cable->lost = cable->repeated = cable->swapped = 0;
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 4)
    return 2;
  static struct cable cable;
  cable.random = strtoull(argv[3], NULL, 10) * 2 + 1;
  int first = open_device(argv[1]), second = open_device(argv[2]);
  cable.way[0] = (struct way){.from = first, .to = second, .deaf = 1};
  cable.way[1] = (struct way){.from = second, .to = first, .deaf = 2};
  for (int i = 0; i < 2; i++)
    if (!(cable.way[i].ring = calloc(WAITING, sizeof(struct frame))))
      return 1;
  struct pollfd fds[] = {{0, POLLIN, 0}, {first, POLLIN, 0}, {second, POLLIN, 0}};
  printf("ready\n");
  fflush(stdout);
  for (;;) {
    uint64_t a = send_due(&cable, &cable.way[0]), b = send_due(&cable, &cable.way[1]);
    uint64_t next = a < b ? a : b, now = now_us();
    uint64_t wait_ms = next == UINT64_MAX ? 1000000 : next <= now ? 0 : (next - now) / 1000 + 1;
    poll(fds, 3, (int)wait_ms);
    carry(&cable, &cable.way[0]);
    carry(&cable, &cable.way[1]);
    if (fds[0].revents && !obey(&cable))
      return 0;
  }
}
