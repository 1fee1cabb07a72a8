/*
 * support_leaks.h: what the library allocates, maps and opens from some moment on, and does not
 * give back. The program is linked with --wrap for the calls that give back (GIVES_BACK) and for
 * those of support_shortage.h. What libc and OpenSSL keep for themselves does not count; in a
 * sanitized build LeakSanitizer looks at that, too.
 */
#ifndef TESTS_SUPPORT_LEAKS_H
#define TESTS_SUPPORT_LEAKS_H

#include <stddef.h>

#define LEAK_CALLS(GIVES_BACK)                                                                     \
  GIVES_BACK(free, (void *p), (p))                                                                 \
  GIVES_BACK(freeifaddrs, (struct ifaddrs * p), (p))                                               \
  GIVES_BACK(freeaddrinfo, (struct addrinfo * p), (p))                                             \
  GIVES_BACK(EVP_CIPHER_CTX_free, (EVP_CIPHER_CTX * p), (p))                                       \
  GIVES_BACK(BIO_meth_free, (BIO_METHOD * p), (p))                                                 \
  GIVES_BACK(SSL_CTX_free, (SSL_CTX * p), (p))                                                     \
  GIVES_BACK(SSL_free, (SSL * p), (p))                                                             \
  GIVES_BACK(hwloc_topology_destroy, (hwloc_topology_t p), (p))                                    \
  GIVES_BACK(hwloc_bitmap_free, (hwloc_bitmap_t p), (p))                                           \
  GIVES_BACK(hwloc_free_xmlbuffer, (hwloc_topology_t t, char *p), (t, p))

/* From now on what is made must be given back. */
void leaks_begin(void);

/* Something was made at this place of the program (it may be NULL); returns it. */
void *leaks_made(void *made, void *at);

/* Something is given back; it may be from before leaks_begin(), or NULL. */
void leaks_given_back(void *made);

/* How many things have not been given back. text: where they were made, for addr2line. */
int leaks_end(char *text, size_t bytes);

#endif
