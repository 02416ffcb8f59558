/* matchfile.c - matches as rows. One table says which member of tap_match is which column; writing, reading and the
 * schema follow from it. */
#include "compare/matchfile.h"

#include "base/dir.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------------- columns */

typedef enum member_type { M_BOOL, M_I32, M_U32, M_I64, M_U64, M_REAL, M_TEXT, M_CHARS, M_SHAPE, M_NUMBER } member_type;
/* When a member means something; else the column is NULL. */
typedef enum member_group { G_ALWAYS, G_VALUES, G_SIDE_A, G_SIDE_B, G_STATS_A, G_STATS_B } member_group;

typedef struct member {
    const char *column;
    member_type type;
    member_group group;
    int side; /* whose dtype a number has */
    size_t at;
} member;

#define M(column, type, group, field) {column, type, group, 0, offsetof(tap_match, field)}
#define N(column, group, side, field) {column, M_NUMBER, group, side, offsetof(tap_match, field)}
#define SIDE(s, i, S)                                                                                                \
    M("name_" s, M_TEXT, G_SIDE_##S, side[i].name), M("step_" s, M_I64, G_SIDE_##S, side[i].step),                   \
        M("attempt_" s, M_I32, G_SIDE_##S, side[i].attempt), M("seq_" s, M_U64, G_SIDE_##S, side[i].seq),            \
        M("value_type_" s, M_U32, G_SIDE_##S, side[i].value_type), M("dtype_" s, M_U32, G_SIDE_##S, side[i].dtype),  \
        M("shape_" s, M_SHAPE, G_SIDE_##S, side[i].shape), M("has_hash_" s, M_BOOL, G_SIDE_##S, side[i].has_hash),   \
        M("hash_" s, M_U64, G_SIDE_##S, side[i].hash), M("source_" s, M_TEXT, G_SIDE_##S, side[i].source),           \
        M("line_" s, M_I32, G_SIDE_##S, side[i].line), M("module_" s, M_TEXT, G_SIDE_##S, side[i].module),           \
        M("graph_" s, M_TEXT, G_SIDE_##S, side[i].graph), M("node_" s, M_TEXT, G_SIDE_##S, side[i].node),            \
        M("device_" s, M_TEXT, G_SIDE_##S, side[i].device),                                                          \
        M("placements_" s, M_TEXT, G_SIDE_##S, side[i].placements), M("flags_" s, M_U32, G_SIDE_##S, side[i].flags), \
        M("file_" s, M_TEXT, G_SIDE_##S, side[i].file), M("count_" s, M_U64, G_STATS_##S, side[i].stats.count),      \
        M("nan_" s, M_U64, G_STATS_##S, side[i].stats.nan),                                                          \
        M("pos_inf_" s, M_U64, G_STATS_##S, side[i].stats.pos_inf),                                                  \
        M("neg_inf_" s, M_U64, G_STATS_##S, side[i].stats.neg_inf),                                                  \
        M("zero_" s, M_U64, G_STATS_##S, side[i].stats.zero), N("min_" s, G_STATS_##S, i, side[i].stats.min),        \
        N("max_" s, G_STATS_##S, i, side[i].stats.max), M("mean_" s, M_REAL, G_STATS_##S, side[i].stats.mean),       \
        M("norm_" s, M_REAL, G_STATS_##S, side[i].stats.norm)
#define PLACE(p)                                                                                                     \
    M(#p "_index", M_I64, G_VALUES, difference.p.index), N(#p "_a", G_VALUES, 0, difference.p.a),                    \
        N(#p "_b", G_VALUES, 1, difference.p.b), M(#p "_a_imag", M_REAL, G_VALUES, difference.p.a_imag),             \
        M(#p "_b_imag", M_REAL, G_VALUES, difference.p.b_imag)

static const member MEMBERS[] = {
    M("class", M_U32, G_ALWAYS, what), M("evidence", M_U32, G_ALWAYS, evidence), M("allowed", M_BOOL, G_ALWAYS, allowed),
    M("ruled", M_BOOL, G_ALWAYS, ruled),
    M("recomputed", M_BOOL, G_ALWAYS, recomputed), M("rank", M_I32, G_ALWAYS, rank), M("call", M_U32, G_ALWAYS, call),
    M("kind", M_U32, G_ALWAYS, kind), M("replay", M_U64, G_ALWAYS, replay), M("path", M_TEXT, G_ALWAYS, path),
    M("unit", M_REAL, G_ALWAYS, unit), M("ratio", M_REAL, G_ALWAYS, ratio), M("reason", M_TEXT, G_ALWAYS, reason),
    SIDE("a", 0, A), SIDE("b", 1, B),
    M("beyond", M_U64, G_VALUES, beyond), M("p50", M_REAL, G_VALUES, percentile[0]),
    M("p90", M_REAL, G_VALUES, percentile[1]), M("p99", M_REAL, G_VALUES, percentile[2]),
    M("pairs", M_U64, G_VALUES, difference.count), M("different", M_U64, G_VALUES, difference.different),
    M("unlike", M_U64, G_VALUES, difference.unlike), M("nans_a", M_U64, G_VALUES, difference.nan[0]),
    M("nans_b", M_U64, G_VALUES, difference.nan[1]), M("pos_infs_a", M_U64, G_VALUES, difference.pos_inf[0]),
    M("pos_infs_b", M_U64, G_VALUES, difference.pos_inf[1]), M("neg_infs_a", M_U64, G_VALUES, difference.neg_inf[0]),
    M("neg_infs_b", M_U64, G_VALUES, difference.neg_inf[1]), PLACE(first), PLACE(worst),
    M("max_abs", M_REAL, G_VALUES, difference.max_abs), M("mean_abs", M_REAL, G_VALUES, difference.mean_abs),
    M("max_rel", M_REAL, G_VALUES, difference.max_rel), M("mean_rel", M_REAL, G_VALUES, difference.mean_rel),
    M("max_ulp", M_REAL, G_VALUES, difference.max_ulp), M("l2", M_REAL, G_VALUES, difference.norm),
    M("l2_a", M_REAL, G_VALUES, difference.norms[0]), M("l2_b", M_REAL, G_VALUES, difference.norms[1]),
    M("cosine", M_REAL, G_VALUES, difference.cosine), M("bits_a", M_CHARS, G_VALUES, bits[0]),
    M("bits_b", M_CHARS, G_VALUES, bits[1]),
};
enum { MEMBER_COUNT = sizeof MEMBERS / sizeof MEMBERS[0] };

static bool group_is_there(const tap_match *match, member_group group)
{
    switch (group) {
    case G_VALUES: return match->has_difference;
    case G_SIDE_A: return match->side[0].there;
    case G_SIDE_B: return match->side[1].there;
    case G_STATS_A: return match->side[0].has_stats;
    case G_STATS_B: return match->side[1].has_stats;
    default: return true;
    }
}

static char number_kind(const tap_match *match, const member *m)
{
    const tap_dtype_info *info = tap_dtype_describe(match->side[m->side].dtype);
    return info ? info->kind : 'U';
}

static void shape_bind(sqlite3_stmt *statement, int column, const int64_t *shape, int32_t ndim)
{
    char text[TAP_MAX_NDIM * 21 + 1] = "";
    int len = 0;
    for (int32_t i = 0; i < ndim; i++)
        len += snprintf(text + len, sizeof text - (size_t)len, "%s%lld", i ? "," : "", (long long)shape[i]);
    sqlite3_bind_text(statement, column, text, len, SQLITE_TRANSIENT);
}

static int32_t shape_read(const char *text, int64_t *shape)
{
    int32_t ndim = 0;
    for (char *end; text && *text && ndim < TAP_MAX_NDIM; text = *end ? end + 1 : end)
        shape[ndim++] = strtoll(text, &end, 10);
    return ndim;
}

static const tap_match_side *side_of(const tap_match *match, const member *m)
{
    return &match->side[m->at >= offsetof(tap_match, side[1])];
}

static void member_bind(sqlite3_stmt *statement, int column, const tap_match *match, const member *m)
{
    const void *at = (const char *)match + m->at;
    char kind;
    switch (m->type) {
    case M_BOOL: sqlite3_bind_int(statement, column, *(const bool *)at); break;
    case M_I32: sqlite3_bind_int64(statement, column, *(const int32_t *)at); break;
    case M_U32: sqlite3_bind_int64(statement, column, *(const uint32_t *)at); break;
    case M_I64:
    case M_U64: sqlite3_bind_int64(statement, column, *(const sqlite3_int64 *)at); break;
    case M_REAL: sqlite3_bind_double(statement, column, *(const double *)at); break;
    case M_TEXT: sqlite3_bind_text(statement, column, *(const char *const *)at, -1, SQLITE_STATIC); break;
    case M_CHARS: sqlite3_bind_text(statement, column, at, -1, SQLITE_STATIC); break;
    case M_SHAPE: shape_bind(statement, column, at, side_of(match, m)->ndim); break;
    case M_NUMBER:
        kind = number_kind(match, m);
        if (kind == 'F' || kind == 'C')
            sqlite3_bind_double(statement, column, *(const double *)at);
        else
            sqlite3_bind_int64(statement, column, *(const sqlite3_int64 *)at);
        break;
    }
}

/* A column without a value: NaN where it is a number of a group that is there. */
static double real_read(sqlite3_stmt *statement, int column)
{
    return sqlite3_column_type(statement, column) == SQLITE_NULL ? (double)NAN : sqlite3_column_double(statement, column);
}

static const char *text_read(sqlite3_stmt *statement, int column)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    return text ? text : "";
}

static void member_read(sqlite3_stmt *statement, int column, tap_match *match, const member *m)
{
    void *at = (char *)match + m->at;
    char kind;
    switch (m->type) {
    case M_BOOL: *(bool *)at = sqlite3_column_int(statement, column); break;
    case M_I32: *(int32_t *)at = (int32_t)sqlite3_column_int64(statement, column); break;
    case M_U32: *(uint32_t *)at = (uint32_t)sqlite3_column_int64(statement, column); break;
    case M_I64:
    case M_U64: *(sqlite3_int64 *)at = sqlite3_column_int64(statement, column); break;
    case M_REAL: *(double *)at = real_read(statement, column); break;
    case M_TEXT: *(const char **)at = text_read(statement, column); break;
    case M_CHARS: snprintf(at, sizeof match->bits[0], "%s", text_read(statement, column)); break;
    case M_SHAPE: ((tap_match_side *)(uintptr_t)side_of(match, m))->ndim = shape_read(text_read(statement, column), at); break;
    case M_NUMBER:
        kind = number_kind(match, m);
        if (kind == 'F' || kind == 'C')
            *(double *)at = real_read(statement, column);
        else
            *(sqlite3_int64 *)at = sqlite3_column_int64(statement, column);
        break;
    }
}

/* ------------------------------------------------------------------------------------------------ opening and ending */

tap_status tap__matchfile_fail(const tap_matchfile *file, int code, const char *what, tap_error *err)
{
    const char *path = file->path ? file->path : "a temporary file";
    int primary = code & 0xFF;
    if (primary == SQLITE_NOMEM)
        return tap_fail_nomem(err);
    if (primary == SQLITE_FULL)
        return tap_fail(err, TAP_E_NOSPACE, "compare: cannot %s %s: the disk is full; set TMPDIR to a directory with room, "
                        "or keep the result elsewhere", what, path);
    if (file->strange ? tap__sql_is_damage(code) : primary == SQLITE_NOTADB || primary == SQLITE_CORRUPT)
        return tap_fail(err, TAP_E_FORMAT, "compare: %s is not the result of a comparison, or it is damaged", path);
    return tap_fail(err, TAP_E_IO, "compare: cannot %s %s: %s", what, path,
                    file->db ? sqlite3_errmsg(file->db) : sqlite3_errstr(code));
}

tap_status tap__matchfile_prepare(tap_matchfile *file, const char *sql, sqlite3_stmt **out, tap_error *err)
{
    int code = sqlite3_prepare_v2(file->db, sql, -1, out, NULL);
    return code == SQLITE_OK ? TAP_OK : tap__matchfile_fail(file, code, "read", err);
}

const char *tap__matchfile_columns(void)
{
    static char text[4096];
    static const char *built;
    if (!__atomic_load_n(&built, __ATOMIC_ACQUIRE)) { /* by two threads at once: both write the same */
        size_t len = (size_t)snprintf(text, sizeof text, "id");
        for (int i = 0; i < MEMBER_COUNT; i++)
            len += (size_t)snprintf(text + len, sizeof text - len, ",%s", MEMBERS[i].column);
        __atomic_store_n(&built, text, __ATOMIC_RELEASE);
    }
    return text;
}

static tap_status prepare_reading(tap_matchfile *file, tap_error *err)
{
    tap_strbuf sql = TAP_STRBUF_INIT;
    tap__strbuf_printf(&sql, "SELECT %s FROM match WHERE id=?1", tap__matchfile_columns());
    tap_status status = sql.failed ? tap_fail_nomem(err) : tap__matchfile_prepare(file, sql.text, &file->get, err);
    tap__strbuf_free(&sql);
    TAP_TRY(status);
    return tap__matchfile_prepare(file, "SELECT value FROM info WHERE key=?1", &file->get_info, err);
}

static tap_status schema_make(tap_matchfile *file, tap_error *err)
{
    tap_strbuf sql = TAP_STRBUF_INIT;
    tap__strbuf_printf(&sql, "PRAGMA page_size=8192; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;"
                       "PRAGMA locking_mode=EXCLUSIVE; PRAGMA cache_size=-32768; PRAGMA application_id=%d;"
                       "PRAGMA user_version=%d; BEGIN; CREATE TABLE info(key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
                       "CREATE TABLE match(id INTEGER PRIMARY KEY, place INTEGER NOT NULL",
                       0x54415043, TAP_MATCHFILE_VERSION);
    for (int i = 0; i < MEMBER_COUNT; i++)
        tap__strbuf_printf(&sql, ",%s", MEMBERS[i].column);
    tap__strbuf_str(&sql, ");");
    int code = sql.failed ? SQLITE_NOMEM : sqlite3_exec(file->db, sql.text, NULL, NULL, NULL);
    tap__strbuf_clear(&sql);
    tap__strbuf_str(&sql, "INSERT INTO match VALUES(NULL,?1");
    for (int i = 0; i < MEMBER_COUNT; i++)
        tap__strbuf_printf(&sql, ",?%d", i + 2);
    tap__strbuf_str(&sql, ")");
    if (code == SQLITE_OK)
        code = sql.failed ? SQLITE_NOMEM : sqlite3_prepare_v2(file->db, sql.text, -1, &file->insert, NULL);
    tap__strbuf_free(&sql);
    return code == SQLITE_OK ? TAP_OK : tap__matchfile_fail(file, code, "write", err);
}

static tap_status make_temporary(tap_matchfile *file, const char *path, tap_error *err)
{
    tap_dir *dir;
    const char *name;
    TAP_TRY(tap__dir_of_file(path, true, &dir, &name, err));
    tap_status status = tap__file_create(&file->file, dir, name, err);
    tap__dir_close(dir);
    return status;
}

static tap_status create(tap_matchfile *file, const char *path, tap_error *err)
{
    if (path) {
        file->path = tap__strdup(path);
        if (!file->path)
            return tap_fail_nomem(err);
        TAP_TRY(make_temporary(file, path, err));
    }
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    char *temporary = path ? tap__file_path(&file->file) : NULL;
    int code = path && !temporary ? SQLITE_NOMEM : sqlite3_open_v2(path ? temporary : "", &file->db, flags, NULL);
    tap__free(temporary);
    if (code != SQLITE_OK)
        return tap__matchfile_fail(file, code, "create", err);
    TAP_TRY(schema_make(file, err));
    TAP_TRY(prepare_reading(file, err));
    TAP_TRY(tap__matchfile_prepare(file, "UPDATE match SET class=?2 WHERE id=?1", &file->set_class, err));
    return tap__matchfile_prepare(file, "INSERT OR REPLACE INTO info VALUES(?1,?2)", &file->set_info, err);
}

tap_status tap__matchfile_create(tap_matchfile *file, const char *path, tap_error *err)
{
    *file = (tap_matchfile){.file = {.fd = -1, .parent = -1}};
    tap_status status = create(file, path, err);
    if (status != TAP_OK)
        tap__matchfile_close(file);
    return status;
}

static int64_t pragma(tap_matchfile *file, const char *sql)
{
    sqlite3_stmt *statement;
    int64_t number = -1;
    if (sqlite3_prepare_v2(file->db, sql, -1, &statement, NULL) == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW)
        number = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return number;
}

static tap_status open_checked(tap_matchfile *file, const char *path, tap_error *err)
{
    struct stat st;
    file->strange = true;
    file->path = tap__strdup(path);
    if (!file->path)
        return tap_fail_nomem(err);
    int fd = tap__fd_away(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)); /* a named pipe is not waited for */
    if (fd < 0 || fstat(fd, &st) != 0) {
        tap_status status = tap_fail_errno(err, TAP_E_IO, "cannot open %s", path);
        if (fd >= 0)
            close(fd);
        return status;
    }
    int code = S_ISREG(st.st_mode) ? tap__sql_open_strange(fd, path, &file->limit, &file->db) : SQLITE_NOTADB;
    close(fd);
    if (S_ISDIR(st.st_mode))
        return tap_fail(err, TAP_E_INVALID, "compare: %s is a directory; give two recordings, or one result that was kept",
                        path);
    if (code != SQLITE_OK)
        return tap__matchfile_fail(file, code, "open", err);
    if (pragma(file, "PRAGMA application_id") != 0x54415043)
        return tap_fail(err, TAP_E_FORMAT, "compare: %s is not the result of a comparison, or it is damaged", path);
    int64_t version = pragma(file, "PRAGMA user_version");
    if (version != TAP_MATCHFILE_VERSION)
        return tap_fail(err, TAP_E_UNSUPPORTED, "compare: %s has version %lld of this format, not %d; compare again", path,
                        (long long)version, TAP_MATCHFILE_VERSION);
    return prepare_reading(file, err);
}

tap_status tap__matchfile_open(tap_matchfile *file, const char *path, tap_error *err)
{
    *file = (tap_matchfile){.file = {.fd = -1, .parent = -1}};
    tap_status status = open_checked(file, path, err);
    if (status != TAP_OK)
        tap__matchfile_close(file);
    return status;
}

tap_status tap__matchfile_finish(tap_matchfile *file, tap_error *err)
{
    /* the lock goes with the first read after this */
    static const char END[] = "COMMIT; PRAGMA locking_mode=NORMAL; SELECT count(*) FROM info";
    int code = sqlite3_exec(file->db, END, NULL, NULL, NULL);
    if (code != SQLITE_OK)
        return tap__matchfile_fail(file, code, "write", err);
    if (!file->path)
        return TAP_OK;
    /* SQLite goes on with the file it has open, whose name changes */
    tap_newfile done = file->file;
    file->file = (tap_newfile){.fd = -1, .parent = -1};
    return tap__file_commit(&done, err);
}

void tap__matchfile_close(tap_matchfile *file)
{
    sqlite3_stmt *statements[] = {file->insert, file->set_class, file->set_info, file->get_info, file->get};
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++)
        sqlite3_finalize(statements[i]);
    sqlite3_close_v2(file->db);
    if (file->file.path)
        tap__file_abort(&file->file);
    tap__free(file->path);
    *file = (tap_matchfile){.file = {.fd = -1, .parent = -1}};
}

/* ----------------------------------------------------------------------------------------------------------- rows */

static tap_status run(tap_matchfile *file, sqlite3_stmt *statement, tap_error *err)
{
    int code = sqlite3_step(statement);
    sqlite3_reset(statement);
    return code == SQLITE_DONE ? TAP_OK : tap__matchfile_fail(file, code, "write", err);
}

tap_status tap__matchfile_add(tap_matchfile *file, tap_match *match, uint64_t place, tap_error *err)
{
    sqlite3_clear_bindings(file->insert);
    sqlite3_bind_int64(file->insert, 1, (sqlite3_int64)place);
    for (int i = 0; i < MEMBER_COUNT; i++)
        if (group_is_there(match, MEMBERS[i].group))
            member_bind(file->insert, i + 2, match, &MEMBERS[i]);
    TAP_TRY(run(file, file->insert, err));
    match->id = sqlite3_last_insert_rowid(file->db);
    return TAP_OK;
}

tap_status tap__matchfile_set_class(tap_matchfile *file, int64_t id, tap_match_class what, tap_error *err)
{
    sqlite3_bind_int64(file->set_class, 1, id);
    sqlite3_bind_int(file->set_class, 2, (int)what);
    return run(file, file->set_class, err);
}

static int column_of(const char *name)
{
    for (int i = 0; i < MEMBER_COUNT; i++)
        if (strcmp(MEMBERS[i].column, name) == 0)
            return i + 1;
    return 0;
}

void tap__matchfile_read(sqlite3_stmt *statement, tap_match *out)
{
    tap_match_init(out);
    out->id = sqlite3_column_int64(statement, 0);
    /* what says which groups are there */
    out->has_difference = sqlite3_column_type(statement, column_of("pairs")) != SQLITE_NULL;
    out->side[0].there = sqlite3_column_type(statement, column_of("step_a")) != SQLITE_NULL;
    out->side[1].there = sqlite3_column_type(statement, column_of("step_b")) != SQLITE_NULL;
    out->side[0].has_stats = sqlite3_column_type(statement, column_of("count_a")) != SQLITE_NULL;
    out->side[1].has_stats = sqlite3_column_type(statement, column_of("count_b")) != SQLITE_NULL;
    for (int i = 0; i < MEMBER_COUNT; i++)
        if (group_is_there(out, MEMBERS[i].group))
            member_read(statement, i + 1, out, &MEMBERS[i]);
}

tap_status tap__matchfile_get(tap_matchfile *file, int64_t id, tap_error *err)
{
    sqlite3_reset(file->get);
    sqlite3_bind_int64(file->get, 1, id);
    int code = sqlite3_step(file->get);
    if (code == SQLITE_ROW)
        tap__matchfile_read(file->get, &file->row);
    else if (code == SQLITE_DONE)
        return tap_fail(err, TAP_E_NOTFOUND, "compare: there is no match %lld", (long long)id);
    return code == SQLITE_ROW ? TAP_OK : tap__matchfile_fail(file, code, "read", err);
}

/* ----------------------------------------------------------------------------------------------------------- info */

tap_status tap__matchfile_set_number(tap_matchfile *file, const char *key, int64_t number, tap_error *err)
{
    sqlite3_bind_text(file->set_info, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_int64(file->set_info, 2, number);
    return run(file, file->set_info, err);
}

tap_status tap__matchfile_set_real(tap_matchfile *file, const char *key, double number, tap_error *err)
{
    sqlite3_bind_text(file->set_info, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_double(file->set_info, 2, number);
    return run(file, file->set_info, err);
}

tap_status tap__matchfile_set_text(tap_matchfile *file, const char *key, const char *text, tap_error *err)
{
    sqlite3_bind_text(file->set_info, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_text(file->set_info, 2, text, -1, SQLITE_STATIC);
    return run(file, file->set_info, err);
}

/* Stands on the value, or false. */
static bool info_find(tap_matchfile *file, const char *key)
{
    sqlite3_reset(file->get_info);
    sqlite3_bind_text(file->get_info, 1, key, -1, SQLITE_TRANSIENT);
    return sqlite3_step(file->get_info) == SQLITE_ROW;
}

int64_t tap__matchfile_number(tap_matchfile *file, const char *key)
{
    int64_t number = info_find(file, key) ? sqlite3_column_int64(file->get_info, 0) : 0;
    sqlite3_reset(file->get_info);
    return number;
}

double tap__matchfile_real(tap_matchfile *file, const char *key)
{
    double number = info_find(file, key) ? sqlite3_column_double(file->get_info, 0) : 0;
    sqlite3_reset(file->get_info);
    return number;
}

char *tap__matchfile_text(tap_matchfile *file, const char *key)
{
    const char *text = info_find(file, key) ? (const char *)sqlite3_column_text(file->get_info, 0) : NULL;
    char *copy = tap__strdup(text ? text : "");
    sqlite3_reset(file->get_info);
    return copy;
}
