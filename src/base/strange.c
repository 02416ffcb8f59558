/* strange.c - SQLite files of strangers. */
#include "base/strange.h"

#include "base/dir.h"
#include "base/memory.h"
#include "base/strbuf.h"

#include <string.h>
#include <sys/stat.h>

/* Every step of SQLite's machine reads some bytes of the file: one that keeps it busy for more than its size allows is
 * damaged. */
enum { STEPS_BETWEEN = 10000, STEPS_ANY = 1000000, STEPS_PER_BYTE = 4 };

static int count_steps(void *user)
{
    tap_sql_limit *limit = user;
    limit->steps += STEPS_BETWEEN;
    return limit->steps > limit->most;
}

static int statement_begins(unsigned event, void *user, void *statement, void *text)
{
    (void)event, (void)statement, (void)text;
    ((tap_sql_limit *)user)->steps = 0;
    return 0;
}

static void put_uri(tap_strbuf *out, const char *path, const char *query)
{
    tap__strbuf_str(out, path[0] == '/' ? "file://" : "file:");
    for (; *path; path++) {
        if (strchr("%?#", *path))
            tap__strbuf_printf(out, "%%%02X", (unsigned char)*path);
        else
            tap__strbuf_char(out, *path);
    }
    tap__strbuf_str(out, query);
}

int tap__sql_attach(int fd, const char *path, int flags, const char *query, sqlite3 **out)
{
    tap_strbuf uri = TAP_STRBUF_INIT;
    struct stat ours, there;
    put_uri(&uri, path, query);
    int code = uri.failed ? SQLITE_NOMEM : sqlite3_open_v2(uri.text, out, flags | TAP_SQL_OPEN | SQLITE_OPEN_URI, NULL);
    if (code == SQLITE_OK && (fstat(fd, &ours) != 0 || stat(path, &there) != 0 || ours.st_dev != there.st_dev ||
                              ours.st_ino != there.st_ino))
        code = SQLITE_CANTOPEN;
    tap__strbuf_free(&uri);
    return code;
}

static int distrust(sqlite3 *db, int fd, tap_sql_limit *limit)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return SQLITE_IOERR;
    limit->steps = 0;
    limit->most = STEPS_ANY + STEPS_PER_BYTE * (uint64_t)st.st_size;
    sqlite3_progress_handler(db, STEPS_BETWEEN, count_steps, limit);
    sqlite3_trace_v2(db, SQLITE_TRACE_STMT, statement_begins, limit);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    return sqlite3_exec(db, "PRAGMA cell_size_check=ON", NULL, NULL, NULL);
}

int tap__sql_open_strange(int fd, const char *path, tap_sql_limit *limit, sqlite3 **out)
{
    *out = NULL;
    char *now = tap__fd_path(fd);
    /* immutable: a journal that lies beside it is not played back */
    int code = tap__sql_attach(fd, now ? now : path, SQLITE_OPEN_READONLY, "?immutable=1", out);
    tap__free(now);
    return code == SQLITE_OK ? distrust(*out, fd, limit) : code;
}

bool tap__sql_is_damage(int code)
{
    int primary = code & 0xFF; /* ERROR: the schema is not what was asked for */
    return primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB || primary == SQLITE_INTERRUPT || primary == SQLITE_ERROR;
}
