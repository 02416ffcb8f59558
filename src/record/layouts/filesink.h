/* filesink.h - the sink of other tools' layouts: files of single tensors that were left to the writer, and the layout's
 * collector (msprobe's debug.json). */
#ifndef TAP_RECORD_FILESINK_H
#define TAP_RECORD_FILESINK_H

#include "record/ring/sink.h"

extern const tap_sink_type tap__files_sink;

#endif
