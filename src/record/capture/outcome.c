/* outcome.c - what became of a recording, as flush and close ask it: is it where it was, on the disk, and all of it? */
#include "base/memory.h"
#include "base/status.h"
#include "record/capture/recorder.h"

#include <errno.h>
#include <unistd.h>

tap_status tap__session_place(tap_recorder *rec, tap_session *session, tap_error *err)
{
    char name[TAP_ATTEMPT_NAME];
    tap_dir_state state = tap__dir_look(session->root);
    bool gone = state == TAP_DIR_REMOVED;
    if (!gone && session->layout->native) /* the directory may stand, and be empty */
        gone = !tap__dir_has(session->root, tap__attempt_name(&session->files, ".json", name));
    if (gone)
        return tap_fail(err, TAP_E_LOST, "%s was removed while it was recorded to: %llu saves are gone",
                        session->root->path,
                        (unsigned long long)(atomic_load(&session->tally->saved) + atomic_load(&session->put)));
    if (state == TAP_DIR_MOVED) {
        tap_error moved;
        char *now = tap__fd_path(tap__dir_fd(session->root));
        tap_fail(&moved, TAP_E_IO, "%s was renamed while it was recorded to; its files go on in %s",
                 session->root->path, now ? now : "?");
        tap__free(now);
        tap__recorder_tell(rec, TAP_TOLD_MOVED, &moved);
    }
    return TAP_OK;
}

tap_status tap__session_synced(tap_session *session, tap_error *err)
{
    errno = atomic_load(&session->ring.header->sync_errno);
    return errno ? tap_fail_errno(err, TAP_E_IO, "%s: the disk did not keep what was written", session->dir->path)
                 : TAP_OK;
}

/* In this order: another thread may close the recorder meanwhile. */
bool tap__session_ended_early(const tap_session *session)
{
    tap_ring_header *h = session->ring.header;
    return atomic_load(&h->finished) && !atomic_load(&h->closed);
}

tap_status tap__session_ended(tap_session *session, bool early, uint64_t want, tap_error *err)
{
    tap_ring_header *h = session->ring.header;
    if (!early && (!atomic_load(&h->finished) || atomic_load(&h->tail_seq) >= want))
        return TAP_OK;
    return tap_fail(err, TAP_E_LOST, "%s: somebody else ended this recording while process %d was at it; what was "
                    "saved since then is lost, record again", session->dir->path, (int)getpid());
}
