/* status.c - status names and the one function that fills a tap_error. */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TAP_STR2(x) #x
#define TAP_STR(x) TAP_STR2(x)

const char *tap_version(void)
{
    return TAP_STR(TAP_VERSION_MAJOR) "." TAP_STR(TAP_VERSION_MINOR) "." TAP_STR(TAP_VERSION_PATCH);
}

typedef struct status_row {
    tap_status status;
    const char *name, *text, *hint;
} status_row;

static const status_row ROWS[] = {
#define X(name, value, text, hint) {TAP_##name, #name, text, hint},
    TAP_STATUS_MAP(X)
#undef X
};

static const status_row *status_find(tap_status status)
{
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++)
        if (ROWS[i].status == status)
            return &ROWS[i];
    return NULL;
}

const char *tap_status_name(tap_status status)
{
    const status_row *row = status_find(status);
    return row ? row->name : "E_UNKNOWN";
}

const char *tap_status_text(tap_status status)
{
    const status_row *row = status_find(status);
    return tap_text(row ? row->text : "unknown status");
}

const char *tap_status_hint(tap_status status)
{
    const status_row *row = status_find(status);
    return tap_text(row ? row->hint : "");
}

static tap_status status_from_errno(int sys_errno, tap_status fallback)
{
    switch (sys_errno) {
    case ENOSPC:
    case EDQUOT: return TAP_E_NOSPACE;
    case ENOMEM: return TAP_E_NOMEM;
    case EEXIST: return TAP_E_EXISTS;
    case ENOENT: return TAP_E_NOTFOUND;
    default: return fallback;
    }
}

/* The system's words for what we refuse ourselves would not be understood (dir.h). */
static const char *errno_text(int sys_errno, char *buffer, size_t size)
{
    if (sys_errno == ELOOP)
        return tap_text("a symbolic link is in its place, which is not followed");
    if (sys_errno == ENXIO)
        return tap_text("it is no plain file");
    /* the POSIX strerror_r is not reachable with _GNU_SOURCE: this is the GNU one, which returns the text */
    return strerror_r(sys_errno, buffer, size);
}

tap_status tap__fail(tap_error *err, tap_status status, int sys_errno, const char *file, int line, const char *fmt, ...)
{
    if (sys_errno)
        status = status_from_errno(sys_errno, status);
    if (!err)
        return status;
    err->status = status;
    err->sys_errno = sys_errno;
    err->file = file;
    err->line = line;
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(err->message, sizeof err->message, tap_text(fmt), args);
    va_end(args);
    if (sys_errno && len >= 0 && (size_t)len < sizeof err->message) {
        char reason[128];
        snprintf(err->message + len, sizeof err->message - (size_t)len, ": %s",
                 errno_text(sys_errno, reason, sizeof reason));
    }
    return status;
}
