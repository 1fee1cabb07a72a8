/* cubin.c: reads SASS in ELF files. */
#include "cubin.h"

#include <elf.h>
#include <string.h>

enum {
  OS_ABI_OLD = 0x33, /* until CUDA 12; the architecture is in the lowest byte of the flags */
  OS_ABI_NEW = 0x41, /* since CUDA 13; it is in the next one */
  ENTRY = 0x10,      /* in a symbol's st_other: a kernel */
  INFO_FRAME = 0x11, /* in .nv.info: the number of a symbol, bytes */
  INFO_PARAMS = 0x19 /* in .nv.info.NAME: bytes */
};

/* A cubin that is being read. */
typedef struct reader {
  const uint8_t *elf;
  size_t bytes;
  const Elf64_Ehdr *header;
} reader;

size_t cubin_bytes(const uint8_t *elf) {
  Elf64_Ehdr h;
  memcpy(&h, elf, sizeof(h));
  if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
      h.e_machine != EM_CUDA || h.e_shentsize != sizeof(Elf64_Shdr))
    return 0;
  const size_t sections = h.e_shoff + (size_t)h.e_shnum * h.e_shentsize;
  const size_t segments = h.e_phoff + (size_t)h.e_phnum * h.e_phentsize;
  return sections > segments ? sections : segments; /* they come after what they describe */
}

/* Whether bytes are inside the file. */
static bool inside(const reader *r, uint64_t at, uint64_t bytes) {
  return at <= r->bytes && bytes <= r->bytes - at;
}

/* A section, or NULL if there is none of that number, or it is outside the file. */
static const Elf64_Shdr *section(const reader *r, unsigned number) {
  if (number >= r->header->e_shnum)
    return NULL;
  const Elf64_Shdr *s = (const Elf64_Shdr *)(r->elf + r->header->e_shoff) + number;
  return s->sh_type == SHT_NOBITS || inside(r, s->sh_offset, s->sh_size) ? s : NULL;
}

/* The text at an offset of a section of texts, or "". */
static const char *text(const reader *r, unsigned table, uint32_t offset) {
  const Elf64_Shdr *s = section(r, table);
  if (!s || s->sh_type != SHT_STRTAB || offset >= s->sh_size ||
      r->elf[s->sh_offset + s->sh_size - 1])
    return "";
  return (const char *)r->elf + s->sh_offset + offset;
}

/* The section of a name, which is a prefix and a kernel's name; NULL if there is none. */
static const Elf64_Shdr *find_section(const reader *r, const char *prefix, const char *kernel) {
  const size_t length = strlen(prefix);
  for (unsigned i = 1; i < r->header->e_shnum; i++) {
    const Elf64_Shdr *s = section(r, i);
    const char *name = s ? text(r, r->header->e_shstrndx, s->sh_name) : "";
    if (strncmp(name, prefix, length) == 0 && strcmp(name + length, kernel) == 0)
      return s;
  }
  return NULL;
}

/*
 * The value of an attribute in a section of attributes, -1 if it has none. Each has 4 bytes: form,
 * attribute, and 2 bytes that are the value or, in form 4, say how long a value follows. Of those,
 * the ones wanted here begin with the number of the symbol that they are about.
 */
static int find_info(const reader *r, const Elf64_Shdr *s, uint8_t attribute, uint32_t symbol) {
  for (size_t at = 0; s && at + 4 <= s->sh_size;) {
    const uint8_t *entry = r->elf + s->sh_offset + at;
    uint32_t words[2] = {0, 0};
    uint16_t half;
    memcpy(&half, entry + 2, sizeof(half));
    const size_t follow = entry[0] == 4 ? half : 0;
    if (at + 4 + follow > s->sh_size)
      return -1;
    if (follow == sizeof(words))
      memcpy(words, entry + 4, sizeof(words));
    if (entry[1] == attribute && !follow)
      return half;
    if (entry[1] == attribute && words[0] == symbol)
      return (int)words[1];
    at += 4 + follow;
  }
  return -1;
}

/* Reads one symbol if it is a kernel; false if there is something wrong with it. */
static bool read_kernel(const reader *r, const Elf64_Sym *symbol, uint32_t number, unsigned names,
                        cubin *out) {
  if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || !(symbol->st_other & ENTRY))
    return true;
  const char *name = text(r, names, symbol->st_name);
  const size_t length = strlen(name);
  if (out->nkernels == CUBIN_KERNELS || length == 0 || length >= CUBIN_NAME_BYTES)
    return false;
  const Elf64_Shdr *code = find_section(r, ".text.", name);
  cubin_kernel *k = &out->kernels[out->nkernels++];
  memcpy(k->name, name, length + 1);
  k->code_bytes = (uint32_t)symbol->st_size;
  k->param_bytes = find_info(r, find_section(r, ".nv.info.", name), INFO_PARAMS, 0);
  k->frame_bytes = find_info(r, find_section(r, ".nv.info", ""), INFO_FRAME, number);
  return code && code->sh_type == SHT_PROGBITS && symbol->st_size > 0 &&
         symbol->st_value + symbol->st_size <= code->sh_size && k->param_bytes >= 0 &&
         k->frame_bytes >= 0;
}

/* Reads all symbols. */
static bool read_kernels(const reader *r, cubin *out) {
  for (unsigned i = 1; i < r->header->e_shnum; i++) {
    const Elf64_Shdr *s = section(r, i);
    if (!s)
      return false;
    if (s->sh_type != SHT_SYMTAB)
      continue;
    const Elf64_Sym *symbols = (const Elf64_Sym *)(r->elf + s->sh_offset);
    for (uint32_t number = 0; number < s->sh_size / sizeof(*symbols); number++)
      if (!read_kernel(r, &symbols[number], number, s->sh_link, out))
        return false;
  }
  return out->nkernels > 0;
}

bool cubin_read(const uint8_t *elf, size_t bytes, cubin *out) {
  const reader r = {elf, bytes, (const Elf64_Ehdr *)elf};
  *out = (cubin){.nkernels = 0};
  if (bytes < sizeof(Elf64_Ehdr) || cubin_bytes(elf) == 0 || cubin_bytes(elf) > bytes ||
      !inside(&r, r.header->e_shoff, (uint64_t)r.header->e_shnum * sizeof(Elf64_Shdr)))
    return false;
  const uint8_t abi = r.header->e_ident[EI_OSABI];
  if (abi != OS_ABI_OLD && abi != OS_ABI_NEW)
    return false;
  out->arch = (int)(r.header->e_flags >> (abi == OS_ABI_NEW ? 8 : 0) & 0xff);
  return read_kernels(&r, out);
}

const cubin_kernel *cubin_find(const cubin *code, const char *name) {
  for (int i = 0; i < code->nkernels; i++)
    if (strcmp(code->kernels[i].name, name) == 0)
      return &code->kernels[i];
  return NULL;
}
