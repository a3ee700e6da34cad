/* Put in front of the C library while operations are counted, so that every run is the same: chance is a row of numbers that
   begins anew in each process, and a clock goes on by a microsecond each time that it is read. Seeds of hash tables, secrets,
   buckets of histograms and timers would else move a count by some per cent. */

#include <stddef.h>
#include <sys/types.h>
#include <time.h>

ssize_t getrandom(void *buffer, size_t length, unsigned flags)
{
    static unsigned long long state = 1;
    (void)flags;
    for (size_t at = 0; at < length; at++) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        ((unsigned char *)buffer)[at] = (unsigned char)(state >> 56);
    }
    return (ssize_t)length;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static long long microseconds = 1893456000000000LL; /* 2030-01-01 */
    (void)clock;
    microseconds++;
    now->tv_sec = microseconds / 1000000;
    now->tv_nsec = microseconds % 1000000 * 1000;
    return 0;
}
