/* A clock that is off by CLOCK_OFF seconds, for benchmarks/chaos.py: LD_PRELOAD this library.

   Only the calendar clock is changed. Deadlines in terms of it are changed back for the kernel;
   one that is far from the calendar's time is taken to be of the steady clock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static time_t off(void) {
  const char *told = getenv("CLOCK_OFF");
  return told ? atol(told) : 0;
}

#define NEXT(name) dlsym(RTLD_NEXT, name)

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = NEXT("clock_gettime");
  int code = real(clock, now);
  if (!code && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += off();
  return code;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec found;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &found);
  now->tv_sec = found.tv_sec;
  now->tv_usec = found.tv_nsec / 1000;
  return 0;
}

static struct timespec back(const struct timespec *until) {
  struct timespec found = *until;
  if (found.tv_sec > 1000000000) found.tv_sec -= off();
  return found;
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until) {
  static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  struct timespec found = back(until);
  return real(c, m, &found);
}

int sem_timedwait(sem_t *s, const struct timespec *until) {
  static int (*real)(sem_t *, const struct timespec *);
  if (!real) real = NEXT("sem_timedwait");
  struct timespec found = back(until);
  return real(s, &found);
}
