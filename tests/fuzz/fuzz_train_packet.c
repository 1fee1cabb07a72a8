/* fuzz_train_packet.c: compressed gradients, as a member of the job sends them. The first byte says
 * how many numbers they are, the second in which form. */
#include "fuzz.h"
#include "trainer/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const char *const forms[] = {"float16", "bfloat16", "int8", "topk", "topk:0.3", "topk:1"};
  uint8_t head[2];
  wire form;
  fail why = {.text = ""};
  fuzz_take(&data, &bytes, head, sizeof(head));
  size_t count = head[0] * 3u;
  if (!wire_parse(&form, forms[head[1] % 6], &why))
    abort();
  size_t packet_bytes = wire_bytes(&form, count);
  void *packet = malloc(packet_bytes + 1);
  float *sum = calloc(count + 1, sizeof(*sum));
  if (!packet || !sum)
    abort();
  fuzz_take(&data, &bytes, packet, packet_bytes);
  (void)wire_add(&form, count, packet, sum, &why);
  char *text = fuzz_text(packet, packet_bytes < 40 ? packet_bytes : 40);
  (void)wire_parse(&form, text, &why);
  free(text);
  free(packet);
  free(sum);
  return 0;
}
