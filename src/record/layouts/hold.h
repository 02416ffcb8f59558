/* hold.h - the sign that a recording in the layout of another tool is being written. Its directory holds that tool's
 * names only, so there is no file of ours to lock: writers hold a shared flock on the directory itself. */
#ifndef TAP_RECORD_HOLD_H
#define TAP_RECORD_HOLD_H

#include <stdbool.h>

/* Makes dir where there is none. Returns what close() lets go, or -1. */
int tap__run_hold(const char *dir);
bool tap__run_is_held(const char *dir);

#endif
