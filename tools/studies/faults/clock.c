/* Moves the wall clock of the processes that preload this library; `striking.py` says by how much.
 *
 * TFRL_CLOCK names a file of two int64: seconds to add, and how many readings were answered so.
 * Only CLOCK_REALTIME jumps, as when somebody sets a machine's clock; CLOCK_MONOTONIC goes on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *shared_clock;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
  real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("TFRL_CLOCK");
  int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *found = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (found != MAP_FAILED) shared_clock = found;
}

static int64_t jump(void) {
  int64_t seconds = shared_clock ? shared_clock[0] : 0;
  if (seconds) __sync_fetch_and_add(&shared_clock[1], 1);
  return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  if (!real_clock_gettime) real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  int status = real_clock_gettime(clock, now);
  if (!status && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += jump();
  return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec found;
  clock_gettime(CLOCK_REALTIME, &found);
  now->tv_sec = found.tv_sec;
  now->tv_usec = found.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
