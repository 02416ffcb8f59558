/* log.h - what a person should hear, handed to the callback that Python or the command line installed. */
#ifndef TAP_BASE_LOG_H
#define TAP_BASE_LOG_H

#include "tensortap/tensortap.h"

/* Translates fmt. Keeps errno. */
void tap__log(tap_log_level level, const char *fmt, ...) TAP_PRINTF(2, 3);

#endif
