/* strange.h - SQLite files that anybody may have written, opened in one place: read only, as the file that is open at a
 * descriptor, with nothing of their schema run but tables and their indexes, and with an end to every statement. */
#ifndef TAP_BASE_STRANGE_H
#define TAP_BASE_STRANGE_H

#include "tensortap/tensortap.h"

#include <sqlite3.h>

#define TAP_SQL_OPEN (SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_NOFOLLOW)

/* Steps of SQLite's machine: of the statement under way and at most. */
typedef struct tap_sql_limit {
    uint64_t steps, most;
} tap_sql_limit;

/* SQLite opens files by path only: opens the one that is open at fd and lies at path, without going through links, and
 * makes sure that it is the same. flags: how, beside TAP_SQL_OPEN; query: of the URI. Returns SQLite's code; *out is to
 * be closed also after a failure. */
int tap__sql_attach(int fd, const char *path, int flags, const char *query, sqlite3 **out);
/* The same for a stranger's file; path is where it was, should /proc not tell. limit stays the database's until it is
 * closed. A statement that takes more steps than the size of the file allows ends with SQLITE_INTERRUPT. */
int tap__sql_open_strange(int fd, const char *path, tap_sql_limit *limit, sqlite3 **out);
/* Does the code, of a stranger's file, say that its content is to blame? */
bool tap__sql_is_damage(int code);

#endif
