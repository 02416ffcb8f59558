/* jsonout.h - JSON on stdout, one object a line. Always standard JSON: a number that is not finite is null (the counts
 * of NaN and infinities beside it tell which), bytes that are not UTF-8 become U+FFFD. */
#ifndef TAP_CLI_JSONOUT_H
#define TAP_CLI_JSONOUT_H

#include "tensortap/tensortap.h"

typedef struct jsonout {
    bool more; /* a value came before in this object or array */
} jsonout;

/* key NULL: an element of an array, or the outermost value. */
void json_open(jsonout *json, const char *key, char bracket);
void json_close(jsonout *json, char bracket);
/* Closes the outermost object and ends the line. */
void json_end(jsonout *json);
void json_text(jsonout *json, const char *key, const char *text);
void json_textn(jsonout *json, const char *key, const char *text, size_t len);
void json_int(jsonout *json, const char *key, int64_t number);
void json_uint(jsonout *json, const char *key, uint64_t number);
void json_real(jsonout *json, const char *key, double number);
void json_bool(jsonout *json, const char *key, bool value);
void json_null(jsonout *json, const char *key);

#endif
