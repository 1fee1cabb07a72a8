/* support_meet_driver.c: see support_meet_driver.h. */
#include "tests/gpu/support_meet_driver.h"

enum { TEXT = 1 << 19, RANK_VALUE = 1 << 20, ROUND_VALUE = 1 << 12 };

/* ---- kernels ---- */

/* Appends one kernel of a file. The reductions have many, which each test would parse. */
static void append(char *module, const char *file, const char *kernel) {
  static char text[TEXT];
  char path[512], entry[64];
  snprintf(path, sizeof(path), "%s/%s.ptx", COLL_KERNELS, file);
  FILE *from = fopen(path, "r");
  CHECK(from);
  text[fread(text, 1, sizeof(text) - 1, from)] = 0;
  fclose(from);
  snprintf(entry, sizeof(entry), ".visible .entry %s(", kernel);
  char *begin = strstr(text, entry), *end = begin ? strstr(begin, "\n}\n") : NULL;
  CHECK(end);
  end[3] = 0;
  /* What the kernels of a file share is declared before the first. */
  char *shared = strstr(text, "\n.shared "), *line = shared ? strchr(shared + 1, '\n') : NULL;
  const size_t used = strlen(module);
  CHECK(strlen(begin) + 200 < TEXT - used);
  if (shared && shared < begin)
    snprintf(module + used, TEXT - used, "%.*s\n%s", (int)(line - shared), shared, begin);
  else
    snprintf(module + used, TEXT - used, "%s", begin);
}

void party_load(use *u, int device) {
  static char module[TEXT];
  snprintf(module, sizeof(module), ".version 7.0\n.target sm_70\n.address_size 64\n");
  append(module, "meet", "coll_meet");
  append(module, "copy", "coll_copy");
  append(module, "fold_int", "coll_fold_sum_u32");
  use_load(u);
  use_device(u, device);
  OK(u->cuda.module_load(&u->module, module, 0, NULL, NULL));
}

colli_cu_deviceptr party_address(const volatile void *place) {
  return use_address(place);
}

/* ---- a rank ---- */

/* What rank `rank` writes in a round. */
static uint32_t value_of(int rank, uint32_t round, uint32_t i) {
  return (uint32_t)rank * RANK_VALUE + round * ROUND_VALUE + i;
}

void party_open(party *p, const use *u, int rank, int ranks, uint32_t threads) {
  void *host;
  *p = (party){.u = *u, .rank = rank, .ranks = ranks, .threads = threads};
  p->stream = use_stream(&p->u);
  p->block = (party_block *)use_memory(&p->u, sizeof(*p->block) / 4);
  p->at = use_address(p->block);
  p->rows = (uint32_t(*)[PARTY_ROW])use_memory(&p->u, (size_t)PARTY_ROUNDS * PARTY_ROW);
  p->sums = (uint32_t(*)[PARTY_ROW])use_memory(&p->u, (size_t)PARTY_ROUNDS * PARTY_ROW);
  for (uint32_t round = 0; round < PARTY_ROUNDS; round++)
    for (uint32_t i = 0; i < PARTY_COUNT; i++)
      p->rows[round][i] = value_of(rank, round, i);
  OK(u->cuda.mem_host_alloc(&host, sizeof(*p->host), COLLI_CU_MEMHOSTALLOC_DEVICEMAP));
  p->host = memset(host, 0, sizeof(*p->host));
  p->meet = (struct coll_gpu_meet){.more_there = use_address(p->host->more_there),
                                   .here = p->at + offsetof(party_block, words),
                                   .state = p->at + offsetof(party_block, state),
                                   .abort = use_address(&p->host->abort),
                                   .arrived = use_address(&p->host->arrived),
                                   .left = use_address(&p->host->left),
                                   .rank = (uint32_t)rank,
                                   .nranks = (uint32_t)ranks};
}

void party_connect(party *p, int peer, colli_cu_deviceptr block) {
  const colli_cu_deviceptr word =
      block + offsetof(party_block, words) + 4 * (colli_cu_deviceptr)p->rank;
  if (peer < COLL_GPU_PLACES)
    p->meet.there[peer] = word;
  else
    p->host->more_there[peer - COLL_GPU_PLACES] = word;
  for (int i = 0; i < 2; i++) {
    p->slots[i][peer] = block + offsetof(party_block, slot) + (size_t)i * sizeof(p->block->slot[0]);
    if (peer >= COLL_GPU_PLACES)
      p->host->more_slots[i][peer - COLL_GPU_PLACES] = p->slots[i][peer];
  }
}

/* ---- a round ---- */

void party_write(party *p, uint32_t round) {
  const uint32_t size[2] = {2, 64};
  const colli_cu_deviceptr to = p->slots[round % 2][p->rank], from = use_address(p->rows[round]);
  struct coll_gpu_copy copy = {.pieces = 1, .piece = {{to, from, 4 * PARTY_COUNT}}};
  if (round % 3)
    OK(use_launch(&p->u, "coll_copy", size, p->stream, (void *[]){&copy}));
  else
    OK(p->u.cuda.memcpy_async(to, from, 4 * PARTY_COUNT, p->stream));
}

void party_meet(party *p) {
  const uint32_t size[2] = {1, p->threads};
  OK(use_launch(&p->u, "coll_meet", size, p->stream, (void *[]){&p->meet}));
}

void party_sum(party *p, uint32_t round) {
  const uint32_t size[2] = {2, 96};
  const uint64_t out = use_address(p->sums[round]);
  uint64_t or_of = out, and_of = out;
  struct coll_gpu_fold fold = {.inputs = (uint32_t)p->ranks,
                               .outputs = 1,
                               .out = {out},
                               .more_in = use_address(p->host->more_slots[round % 2])};
  for (int i = 0; i < p->ranks; i++) {
    const uint64_t in = p->slots[round % 2][i];
    or_of |= in;
    and_of &= in;
    if (i < COLL_GPU_PLACES)
      fold.in[i] = in;
  }
  coll_gpu_fold_split(&fold, PARTY_COUNT, 4, or_of, and_of);
  OK(use_launch(&p->u, "coll_fold_sum_u32", size, p->stream, (void *[]){&fold}));
}

void party_round(party *p, uint32_t round) {
  party_write(p, round);
  party_meet(p);
  party_sum(p, round);
}

bool party_right(const party *p, uint32_t round) {
  for (uint32_t i = 0; i < PARTY_COUNT; i++) {
    uint32_t sum = 0;
    for (int rank = 0; rank < p->ranks; rank++)
      sum += value_of(rank, round, i);
    if (p->sums[round][i] != sum)
      return false;
  }
  return true;
}
