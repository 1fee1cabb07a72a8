/* fuzz_cluster.c: a file that describes a cluster: it is read, written and read again, and an
 * algorithm chosen and drawn on it. */
#include "fuzz.h"
#include "libcoll/base/error.h"
#include "libcoll/tools/topo/network.h"

#define MOST_RANKS 48 /* larger ones would only be slower */

/* Writes a cluster; the caller frees the text. */
static char *write_text(const cluster *c, size_t *bytes) {
  char *text = NULL;
  FILE *out = open_memstream(&text, bytes);
  if (!out)
    abort();
  cluster_write(c, out);
  if (fclose(out) != 0 || !text)
    abort();
  return text;
}

/* What is written of a cluster is read as the same one. */
static void repeat(const cluster *c) {
  cluster again;
  coll_error error = COLL_ERROR_INIT;
  size_t bytes, bytes_again;
  char *text = write_text(c, &bytes);
  if (cluster_read(fuzz_file("again", (const uint8_t *)text, bytes), &again, &error) != COLL_OK)
    abort();
  char *text_again = write_text(&again, &bytes_again);
  if (bytes != bytes_again || memcmp(text, text_again, bytes) != 0)
    abort();
  free(text_again);
  free(text);
  cluster_free(&again);
}

/* Chooses an algorithm for a collective, and draws who sends what to whom. */
static void draw(cluster *c, colli_coll coll, size_t bytes) {
  described_network net = described_default();
  net.cluster = c;
  net.nranks = c->nranks;
  answer a = {.shape.coll = coll};
  described_set_up(&net, NULL, &a);
  topo_network network = topo_network_of(&net, &a);
  coll_error error = COLL_ERROR_INIT;
  FILE *nowhere = fopen("/dev/null", "w");
  if (!nowhere)
    abort();
  if (topo_network_fill(&network, &a, bytes, &error) == COLL_OK)
    topo_network_svg(&network, nowhere);
  fclose(nowhere);
  topo_network_free(&network);
  described_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const colli_coll colls[] = {COLLI_ALLREDUCE, COLLI_ALLGATHER, COLLI_REDUCE_SCATTER,
                                     COLLI_BROADCAST, COLLI_REDUCE};
  cluster c;
  coll_error error = COLL_ERROR_INIT;
  const coll_status status = cluster_read(fuzz_file("cluster", data, bytes), &c, &error);
  if (status != COLL_OK) {
    if (!*error.message || strchr(error.message, '\n'))
      abort();
    return 0;
  }
  repeat(&c);
  if (c.nranks <= MOST_RANKS)
    draw(&c, colls[bytes % 5], bytes % 2 ? 64 : (size_t)1 << 20);
  cluster_free(&c);
  return 0;
}
