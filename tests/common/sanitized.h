/*
 * sanitized.h: whether a sanitizer watches this build. It makes all work several times slower, and
 * what it looks for shows in a sample of the cases.
 */
#ifndef TESTS_COMMON_SANITIZED_H
#define TESTS_COMMON_SANITIZED_H

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED_ADDRESS 1
#elif defined(__has_feature) /* clang */
#if __has_feature(address_sanitizer)
#define SANITIZED_ADDRESS 1
#endif
#endif
#ifndef SANITIZED_ADDRESS
#define SANITIZED_ADDRESS 0
#endif

#ifdef __SANITIZE_THREAD__
#define SANITIZED_THREAD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZED_THREAD 1
#endif
#endif
#ifndef SANITIZED_THREAD
#define SANITIZED_THREAD 0
#endif

#define SANITIZED (SANITIZED_ADDRESS || SANITIZED_THREAD)

#endif
