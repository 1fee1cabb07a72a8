/*
 * sanitized.h: whether a sanitizer watches this build. It makes all work several times slower, and
 * what it looks for shows in a sample of the cases.
 */
#ifndef TESTS_COMMON_SANITIZED_H
#define TESTS_COMMON_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#endif
