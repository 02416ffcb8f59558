/* hold.h - the sign that a recording in the layout of another tool is being written. Its directory holds that tool's
 * names only, so there is no file of ours to lock: writers hold a shared flock on the directory itself. */
#ifndef TAP_RECORD_HOLD_H
#define TAP_RECORD_HOLD_H

#include "base/dir.h"

/* Returns what close() lets go, or -1. */
int tap__run_hold(tap_dir *dir);
bool tap__run_is_held(tap_dir *dir);

#endif
