/* wait.c - waiting for the writers of a recording to end. Locks on shared file systems cannot be waited for without
 * taking them, so this asks again and again. */
#include "record/native/attempt.h"

#include "base/clock.h"
#include "base/sized.h"
#include "record/layouts/hold.h"

#include <time.h>

enum { FIRST_PAUSE_MS = 5, LAST_PAUSE_MS = 200 };

static void pause_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* *index: an attempt that is being written, when there is one. */
static tap_status any_live(tap_dir *dir, bool *live, tap_attempt_files *who, tap_attempt_info *info, tap_error *err)
{
    tap_attempt_list list;
    TAP_TRY(tap__attempt_list(dir, &list, err));
    *live = false;
    for (size_t i = 0; i < list.count && !*live; i++) {
        tap__attempt_read(&list.items[i], info, NULL);
        *live = tap__attempt_is_live(&list.items[i], info);
        *who = list.items[i];
    }
    tap__attempt_list_free(&list);
    return TAP_OK;
}

static tap_status wait_in(tap_dir *dir, int timeout_ms, tap_error *err)
{
    uint64_t start = tap__monotonic_ns(), limit = timeout_ms < 0 ? UINT64_MAX : (uint64_t)timeout_ms * 1000000u;
    for (long ms = FIRST_PAUSE_MS;; ms = 2 * ms < LAST_PAUSE_MS ? 2 * ms : LAST_PAUSE_MS) {
        bool live, held = false;
        tap_attempt_files who = {0};
        tap_attempt_info info = {0};
        TAP_TRY(any_live(dir, &live, &who, &info, err));
        if (!live && !(held = tap__run_is_held(dir)))
            return TAP_OK;
        uint64_t spent = tap__monotonic_ns() - start;
        if (spent >= limit && held)
            return tap_fail(err, TAP_E_TIMEOUT, "%s is still being written; wait longer", dir->path);
        if (spent >= limit)
            return tap_fail(err, TAP_E_TIMEOUT,
                            "%s: attempt %d of rank %d is still being written (process %d on %s); wait longer or look "
                            "at that process",
                            dir->path, who.attempt, who.rank, info.pid, info.host);
        uint64_t left = (limit - spent) / 1000000u + 1;
        pause_ms(left < (uint64_t)ms ? (long)left : ms);
    }
}

tap_status tap_run_wait(const char *dir, int timeout_ms, tap_error *err)
{
    TAP_NEED(err, dir);
    tap_dir *root;
    TAP_TRY(tap__dir_open(dir, false, &root, err));
    tap_status status = wait_in(root, timeout_ms, err);
    tap__dir_close(root);
    return status;
}
