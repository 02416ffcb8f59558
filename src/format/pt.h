/* pt.h - torch's .pt files: pt.c reads them, ptwriter.c writes them. */
#ifndef TAP_FORMAT_PT_H
#define TAP_FORMAT_PT_H

#include "format/format.h"

tap_status tap__pt_write(const tap_write_request *request, tap_error *err);

/* As names of tap_file_write: one tensor is written as a list that holds it. */
extern const char *const tap__pt_as_list[1];

#endif
