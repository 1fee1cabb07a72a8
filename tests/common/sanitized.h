/*
 * sanitized.h: whether a sanitizer watches this build. It makes all work several times slower, and
 * what it looks for shows in a sample of the cases.
 */
#ifndef TESTS_COMMON_SANITIZED_H
#define TESTS_COMMON_SANITIZED_H

#if defined(__has_feature) /* clang */
#define SANITIZED_ADDRESS __has_feature(address_sanitizer)
#define SANITIZED_THREAD  __has_feature(thread_sanitizer)
#else
#ifdef __SANITIZE_ADDRESS__
#define SANITIZED_ADDRESS 1
#else
#define SANITIZED_ADDRESS 0
#endif
#ifdef __SANITIZE_THREAD__
#define SANITIZED_THREAD 1
#else
#define SANITIZED_THREAD 0
#endif
#endif
#define SANITIZED (SANITIZED_ADDRESS || SANITIZED_THREAD)

#endif
