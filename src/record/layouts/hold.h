/* hold.h - the sign that a recording in the layout of another tool is being written. Its directory holds that tool's
 * names only, so there is no file of ours to lock: writers hold a shared flock on the directory itself. */
#ifndef TAP_RECORD_HOLD_H
#define TAP_RECORD_HOLD_H

#include <stdbool.h>

/* The directory of the recording that dir, a forked child's own when `child`, belongs to; tap__free by the caller. */
char *tap__run_of(const char *dir, bool child);
/* Makes dir where there is none. Returns what close() lets go, or -1. */
int tap__run_hold(const char *dir);
bool tap__run_is_held(const char *dir);

#endif
