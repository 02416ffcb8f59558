/* printfile.h - MindSpore print files: protobuf messages "Print" appended to each other, each a list of strings and
 * tensors. printfile.c reads and appends them without a limit on size; getext.c reads tensors printed as text. */
#ifndef TAP_FORMAT_PRINTFILE_H
#define TAP_FORMAT_PRINTFILE_H

#include "format/format.h"

/* Appends one message with the string name and the tensor; fd was opened with O_APPEND. A small one goes in one write.
 * E_UNSUPPORTED for a type MindSpore lacks. */
tap_status tap__printfile_append(int fd, const char *name, const tap_tensor *tensor, tap_error *err);

/* A tensor inside a string, as the graph engine prints it:
 *     Tensor(shape=[2 3], dtype=Float32, value=
 *     [[1 2 3]
 *      [4 5 6]])
 */
typedef struct tap_getext {
    const char *begin, *end; /* the whole of it */
    const char *shape, *shape_end, *dtype, *dtype_end, *value, *value_end;
} tap_getext;

/* The first one in text; false when there is none. */
bool tap__getext_find(const char *text, size_t len, tap_getext *out);
/* Its numbers as a tensor in the file's arena; *good is false when it cannot be read (summarised, a type of text). */
tap_status tap__getext_read(tap_file *file, const tap_getext *text, tap_tensor *out, bool *good, tap_error *err);

#endif
