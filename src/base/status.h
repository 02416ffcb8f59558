/* status.h - how every function of the library reports failure. One way: return tap_fail(...) with a message that
 * says what was tried, on what, why not and what to do. Formats are translated by tap_text. */
#ifndef TAP_BASE_STATUS_H
#define TAP_BASE_STATUS_H

#include "tensortap/tensortap.h"

/* Fills err (which may be NULL) and returns status. */
tap_status tap__fail(tap_error *err, tap_status status, int sys_errno, const char *file, int line, const char *fmt, ...)
    TAP_PRINTF(6, 7);

#define tap_fail(err, status, ...) tap__fail((err), (status), 0, __FILE__, __LINE__, __VA_ARGS__)
/* Appends ": <strerror>"; ENOSPC and EDQUOT become E_NOSPACE, ENOMEM E_NOMEM, EEXIST E_EXISTS, ENOENT E_NOTFOUND. */
#define tap_fail_errno(err, status, ...) tap__fail((err), (status), errno, __FILE__, __LINE__, __VA_ARGS__)
#define tap_fail_nomem(err) tap_fail((err), TAP_E_NOMEM, "out of memory")

/* Forwards a failure to the caller. */
#define TAP_TRY(call)                                                                                                \
    do {                                                                                                             \
        tap_status tap_try_status = (call);                                                                          \
        if (tap_try_status != TAP_OK)                                                                                \
            return tap_try_status;                                                                                   \
    } while (0)

#endif
