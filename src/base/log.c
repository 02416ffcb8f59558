/* log.c - the log callback. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tap_log_fn log_fn;
static void *log_user;

void tap_set_log(tap_log_fn fn, void *user)
{
    pthread_mutex_lock(&lock);
    log_fn = fn;
    log_user = user;
    pthread_mutex_unlock(&lock);
}

void tap__log(tap_log_level level, const char *fmt, ...)
{
    int saved = errno;
    pthread_mutex_lock(&lock);
    tap_log_fn fn = log_fn;
    void *user = log_user;
    pthread_mutex_unlock(&lock);
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
