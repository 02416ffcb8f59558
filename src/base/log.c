/* log.c - the log callback. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

/* No lock: a fork may happen while another thread logs, and the child must still be able to. */
static _Atomic(tap_log_fn) log_fn;
static _Atomic(void *) log_user;

void tap_log_set(tap_log_fn fn, void *user)
{
    atomic_store(&log_fn, NULL);
    atomic_store(&log_user, user);
    atomic_store(&log_fn, fn);
}

void tap__log(tap_log_level level, const char *fmt, ...)
{
    int saved = errno;
    tap_log_fn fn = atomic_load(&log_fn);
    void *user = atomic_load(&log_user);
    if (fn) {
        char message[1200];
        va_list args;
        va_start(args, fmt);
        vsnprintf(message, sizeof message, tap_text(fmt), args);
        va_end(args);
        fn(user, level, message);
    }
    errno = saved;
}
