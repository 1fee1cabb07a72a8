/* fuzz_tag.c: the tags of messages, as the texts of failures show them, and as matching reads them.
 */
#include "fuzz.h"
#include "libcoll/call/tag.h"
#include "libcoll/p2p/p2p_tag.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  coll_tag tags[2];
  char text[COLLI_TAG_TEXT];
  colli_p2p_header head;
  fuzz_take(&data, &bytes, tags, sizeof(tags));
  for (int i = 0; i < 2; i++) {
    if (strlen(colli_tag_text(&tags[i], text)) >= sizeof(text))
      abort();
    if (strlen(colli_tag_brief(&tags[i], text)) >= sizeof(text))
      abort();
    (void)p2p_tag_read(&tags[i], &head);
  }
  (void)colli_tag_same_call(&tags[0], &tags[1]);
  return 0;
}
